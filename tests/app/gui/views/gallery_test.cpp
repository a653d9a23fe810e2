// SPDX-License-Identifier: GPL-3.0-or-later
// Every view in both themes and many states: nothing may stay blank. KVLAB_SHOTS names a folder
// that the pictures are saved to, to be looked at.
#include <set>

#include <QDir>
#include <QFile>
#include <QPainter>
#include <QSvgRenderer>
#include <QTest>

#include "app/gui/export/figure.h"
#include "app/gui/views/account_view.h"
#include "app/gui/views/memory_view.h"
#include "app/gui/views/sequence_text_view.h"
#include "app/gui/views/sharing_view.h"
#include "app/gui/views/timeline_view.h"
#include "tests/support/log_builder.h"
#include "tests/support/walk_builder.h"

namespace kvlab {
namespace {

int numColors(const QImage& image) {
    std::set<QRgb> colors;
    for (int y = 0; y < image.height(); y += 2) {
        for (int x = 0; x < image.width(); x += 2) colors.insert(image.pixel(x, y));
    }
    return static_cast<int>(colors.size());
}

}  // namespace

class GalleryTest : public QObject {
    Q_OBJECT

  private slots:
    void shoot();
};

void GalleryTest::shoot() {
    const QString folder = qEnvironmentVariable("KVLAB_SHOTS");
    if (!folder.isEmpty()) QVERIFY(QDir().mkpath(folder));

    const auto shot = [&](const char* name, QSize size, RunHub& hub, auto make) {
        for (const ThemeKind kind : {ThemeKind::kLight, ThemeKind::kDark}) {
            std::unique_ptr<CanvasView> view(make(&hub));
            view->setTheme(Theme::of(kind));
            view->resize(size);
            const QString file =
                QStringLiteral("%1/%2-%3.png")
                    .arg(folder, QLatin1String(name),
                         QLatin1String(kind == ThemeKind::kLight ? "light" : "dark"));
            const QImage image = view->grab().toImage();
            QVERIFY2(numColors(image) > 8, name);
            QCOMPARE(image.pixelColor(image.width() - 40, 3), Theme::of(kind).panel);
            if (!folder.isEmpty()) QVERIFY(image.save(file));
        }
    };
    const auto memory = [](RunHub* hub) -> CanvasView* { return new MemoryView(hub); };
    const auto text = [](RunHub* hub) -> CanvasView* { return new SequenceTextView(hub); };
    const auto sharing = [](RunHub* hub) -> CanvasView* { return new SharingView(hub); };
    const auto timeline = [](RunHub* hub) -> CanvasView* { return new TimelineView(hub); };
    const auto account = [](RunHub* hub) -> CanvasView* { return new AccountView(hub); };

    RunHub hub;
    shot("memory-empty", {966, 390}, hub, memory);
    shot("account-empty", {282, 240}, hub, account);
    shot("timeline-empty", {1400, 170}, hub, timeline);
    hub.setLog(scriptedLog(), false);
    hub.setCursor(hub.log().end());
    shot("memory-end", {966, 390}, hub, memory);
    Selection selection;
    selection.block = BlockId(37);
    selection.sequence = SequenceId(2);
    hub.lock(selection);
    shot("memory-locked", {966, 390}, hub, memory);
    shot("memory-locked-large", {1800, 900}, hub, memory);
    shot("memory-locked-small", {560, 250}, hub, memory);
    shot("text-end", {480, 350}, hub, text);
    shot("text-large", {900, 700}, hub, text);
    shot("text-small", {320, 170}, hub, text);
    shot("sharing-end", {480, 350}, hub, sharing);
    shot("sharing-wide", {700, 250}, hub, sharing);
    shot("sharing-small", {320, 230}, hub, sharing);
    shot("timeline-end", {1400, 170}, hub, timeline);
    shot("account-end", {282, 240}, hub, account);
    hub.lock({});
    hub.hover(selection);
    shot("memory-hover", {966, 390}, hub, memory);
    hub.hover({});
    hub.setCursor({2, 0, 0});
    shot("memory-prefill", {966, 390}, hub, memory);
    shot("text-prefill", {480, 350}, hub, text);
    hub.setLive(true);
    hub.setCursor({60, 0, 0});
    shot("timeline-behind", {1400, 170}, hub, timeline);

    // Figures as another program shows them: the SVG, painted by a renderer.
    for (const std::string& name : figureViews()) {
        for (const ThemeKind kind : {ThemeKind::kLight, ThemeKind::kDark}) {
            FigureOptions options;
            options.theme = kind;
            options.width_px = kind == ThemeKind::kLight ? 960 : 720;
            if (name == "tables") options.block = BlockId(37);
            if (name == "kernel-walk") {
                options.walk.walk = walkOf(hub.log().stateAt(hub.log().end()), 0);
            }
            const QByteArray svg =
                renderFigure(name, hub.log(), hub.log().end(), options, FigureFormat::kSvg);
            QSvgRenderer renderer(svg);
            QVERIFY(renderer.isValid());
            QImage image(renderer.defaultSize(), QImage::Format_ARGB32_Premultiplied);
            image.fill(Qt::magenta);
            QPainter painter(&image);
            renderer.render(&painter);
            painter.end();
            QVERIFY(numColors(image) > 8);
            if (folder.isEmpty()) continue;
            const QString stem =
                QStringLiteral("%1/figure-%2-%3")
                    .arg(folder, QString::fromStdString(name),
                         QLatin1String(kind == ThemeKind::kLight ? "light" : "dark"));
            QVERIFY(image.save(stem + QStringLiteral(".png")));
            QFile file(stem + QStringLiteral(".svg"));
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write(svg) == svg.size());
        }
    }

    LogScript cow;
    cow.prompt_len = 2001;
    hub.setLog(scriptedLog(cow), false);
    hub.setCursor({4, 0, 0});
    hub.setCursor(hub.log().nextEntry(hub.cursor()));  // A copied
    shot("memory-copied", {966, 390}, hub, memory);
    hub.setCursor({4, 0, 0});
    hub.setCursor(hub.log().nextEntry(hub.log().nextEntry(hub.cursor())));
    shot("memory-refused", {966, 390}, hub, memory);

    LogScript few;
    few.prompt_len = 40;
    few.num_samples = 3;
    few.num_decode_steps = 12;
    few.num_blocks = 14;
    hub.setLog(scriptedLog(few), false);
    hub.setCursor(hub.log().end());
    shot("memory-few", {966, 390}, hub, memory);

    LogScript many;
    many.num_blocks = 12000;
    many.num_samples = 30;
    hub.setLog(scriptedLog(many), false);
    hub.setCursor(hub.log().end());
    shot("memory-many", {966, 390}, hub, memory);
    shot("text-many", {480, 350}, hub, text);
    shot("sharing-many", {480, 350}, hub, sharing);
}

}  // namespace kvlab

QTEST_MAIN(kvlab::GalleryTest)
#include "gallery_test.moc"
