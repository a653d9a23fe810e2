// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/export/figure.h"

#include <QDir>
#include <QFile>
#include <QImage>
#include <QRegularExpression>
#include <QTemporaryDir>
#include <QTest>
#include <QXmlStreamReader>

#include "engine/error.h"
#include "tests/support/log_builder.h"

namespace kvlab {
namespace {

QString textOf(const QByteArray& svg) {
    QXmlStreamReader xml(svg);
    QString text;
    while (!xml.atEnd()) {
        if (xml.readNext() == QXmlStreamReader::Characters) text += xml.text().toString() + ' ';
    }
    return xml.hasError() ? QString() : text.simplified();
}

}  // namespace

class FigureTest : public QObject {
    Q_OBJECT

  private slots:
    void svg_data();
    void svg();
    void numbersOfBestOfEight();
    void png();
    void pdf();
    void wrongCallsAreOneSentence();
    void filesAreWrittenWhole();

  private:
    std::shared_ptr<RunLog> log_ = scriptedLog();
};

void FigureTest::svg_data() {
    QTest::addColumn<QString>("view");
    QTest::addColumn<int>("kind");
    QTest::addColumn<int>("width");
    for (const std::string& view : figureViews()) {
        const QString name = QString::fromStdString(view);
        QTest::addRow("%s light", view.c_str()) << name << 0 << 960;
        QTest::addRow("%s dark narrow", view.c_str()) << name << 1 << 720;
    }
}

void FigureTest::svg() {
    QFETCH(QString, view);
    QFETCH(int, kind);
    QFETCH(int, width);
    FigureOptions options;
    options.theme = static_cast<ThemeKind>(kind);
    options.width_px = width;
    const std::string name = view.toStdString();
    const QByteArray once = renderFigure(name, *log_, log_->end(), options, FigureFormat::kSvg);
    const QByteArray twice =
        renderFigure(name, *scriptedLog(), log_->end(), options, FigureFormat::kSvg);
    QVERIFY(!once.isEmpty());
    QCOMPARE(once, twice);
    const QString text = textOf(once);
    QVERIFY2(!text.isEmpty(), "not well-formed XML");
    QVERIFY(text.contains(QStringLiteral("181 active + 0 cached + 105 free = 286 blocks")));
    QVERIFY(text.contains(QStringLiteral("best-of-8")));
    QVERIFY(text.contains(QStringLiteral("seed 7")));
    QVERIFY(!once.contains("<pattern"));
    QVERIFY(!once.contains("<mask"));
    QVERIFY(!once.contains("<image"));
    QVERIFY(!once.contains("clip-path"));
    QVERIFY(once.contains("Inter, DejaVu Sans, sans-serif"));
    // No timestamp: neither today's date nor a time.
    QVERIFY(!QString::fromUtf8(once).contains(QRegularExpression("20[0-9]{2}-[0-9]{2}-[0-9]{2}")));

    // Every text begins and ends inside the view box.
    QXmlStreamReader xml(once);
    double box_width = 0, box_height = 0;
    int num_texts = 0;
    while (!xml.atEnd()) {
        xml.readNext();
        if (!xml.isStartElement()) continue;
        if (xml.name() == QStringLiteral("svg")) {
            const QStringList box =
                xml.attributes().value(QStringLiteral("viewBox")).toString().split(' ');
            QCOMPARE(box.size(), 4);
            box_width = box[2].toDouble();
            box_height = box[3].toDouble();
            QCOMPARE(box_width, static_cast<double>(width));
        }
        if (xml.name() != QStringLiteral("text")) continue;
        ++num_texts;
        const double x = xml.attributes().value(QStringLiteral("x")).toDouble();
        const double y = xml.attributes().value(QStringLiteral("y")).toDouble();
        const double size = xml.attributes().value(QStringLiteral("font-size")).toDouble();
        const double width_of_text =
            xml.attributes().value(QStringLiteral("textLength")).toDouble();
        const QString words = xml.readElementText();
        QVERIFY(size >= 10.6);
        QVERIFY2(x >= 0 && y >= size * 0.6 && y <= box_height, qPrintable(words));
        QVERIFY(width_of_text > 0);
        QVERIFY2(x + width_of_text <= box_width, qPrintable(words));
    }
    QVERIFY(num_texts > 5);
}

void FigureTest::numbersOfBestOfEight() {
    const QString text =
        textOf(renderFigure("sharing", *log_, log_->end(), FigureOptions(), FigureFormat::kSvg));
    for (const char* number : {"1,056", "16,800", "181", "2,800", "5.8×", "1.33×", "8×"}) {
        QVERIFY2(text.contains(QString::fromUtf8(number)), number);
    }
    // At the start nothing is held: dashes, no zeros for ratios.
    const QString empty =
        textOf(renderFigure("sharing", *log_, {}, FigureOptions(), FigureFormat::kSvg));
    QVERIFY(empty.contains(QStringLiteral("–")));
    QVERIFY(!empty.contains(QStringLiteral("×")) || !empty.contains(QStringLiteral("nan")));
}

void FigureTest::png() {
    FigureOptions options;
    options.width_px = 700;
    options.scale = 2;
    const QByteArray bytes =
        renderFigure("tables", *log_, log_->end(), options, FigureFormat::kPng);
    QImage image;
    QVERIFY(image.loadFromData(bytes, "PNG"));
    QCOMPARE(image.width(), 1400);
    QCOMPARE(image.dotsPerMeterX(), 7559);
    options.transparent = true;
    QVERIFY(image.loadFromData(
        renderFigure("tables", *log_, log_->end(), options, FigureFormat::kPng), "PNG"));
    QCOMPARE(qAlpha(image.pixel(1, 1)), 0);
}

void FigureTest::pdf() {
    QVERIFY(renderFigure("pool", *log_, log_->end(), FigureOptions(), FigureFormat::kPdf)
                .startsWith("%PDF"));
}

void FigureTest::wrongCallsAreOneSentence() {
    const auto messageOf = [&](const std::string& view, FigureOptions options) {
        try {
            renderFigure(view, *log_, log_->end(), options, FigureFormat::kSvg);
        } catch (const EngineError& error) {
            return QString::fromUtf8(error.what());
        }
        return QString();
    };
    QVERIFY(messageOf("radix", {}).contains(QStringLiteral("radix")));
    FigureOptions narrow;
    narrow.width_px = 20;
    QVERIFY(!messageOf("pool", narrow).isEmpty());
    FigureOptions beyond;
    beyond.block = BlockId(4000);
    QVERIFY(!messageOf("tables", beyond).isEmpty());
    QVERIFY_EXCEPTION_THROWN(figureFormatOf("out.bmp"), EngineError);
    QCOMPARE(figureFormatOf("a/b.SVG"), FigureFormat::kSvg);
    QCOMPARE(figureFormatOf("pdf"), FigureFormat::kPdf);
}

void FigureTest::filesAreWrittenWhole() {
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("f.svg"));
    exportFigure("pool", *log_, log_->end(), FigureOptions(), FigureFormat::kSvg,
                 path.toStdString());
    QFile file(path);
    QVERIFY(file.open(QIODevice::ReadOnly));
    QVERIFY(file.readAll().trimmed().endsWith("</svg>"));
    QVERIFY_EXCEPTION_THROWN(exportFigure("pool", *log_, log_->end(), FigureOptions(),
                                          FigureFormat::kSvg, "/no/such/folder/f.svg"),
                             EngineError);
    QCOMPARE(QDir(folder.path()).entryList(QDir::Files).size(), 1);
}

}  // namespace kvlab

QTEST_MAIN(kvlab::FigureTest)
#include "figure_test.moc"
