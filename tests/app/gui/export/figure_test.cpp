// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/export/figure.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include <QDir>
#include <QFile>
#include <QImage>
#include <QRegularExpression>
#include <QTemporaryDir>
#include <QTest>
#include <QXmlStreamReader>

#include "engine/error.h"
#include "tests/support/log_builder.h"
#include "tests/support/walk_builder.h"

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
    void theKernelWalk();
    void png();
    void pdf();
    void wrongCallsAreOneSentence();
    void filesAreWrittenWhole();
    void devicesAreWrittenAsTheyAre();

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
    options.walk.walk = walkOf(log_->stateAt(log_->end()), 0);
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

void FigureTest::theKernelWalk() {
    FigureOptions options;
    options.walk.walk = walkOf(log_->stateAt(log_->end()), 3);
    options.walk.thread_block = 2;  // sequence C, KV head 0, the first part
    options.walk.step = 5;
    const QString text =
        textOf(renderFigure("kernel-walk", *log_, log_->end(), options, FigureFormat::kSvg));
    QVERIFY2(text.contains("Thread block (2, 0, 0)"), qPrintable(text));
    QVERIFY2(text.contains("table C[5] = KV block 5"), qPrintable(text));
    QVERIFY2(text.contains("layer 3"), qPrintable(text));
    // A paper has no keys.
    QVERIFY(!text.contains("click"));
    QVERIFY(!text.contains("Keys"));
    QVERIFY(
        !renderFigure("kernel-walk", *log_, log_->end(), options, FigureFormat::kPdf).isEmpty());
    options.walk.step = 0;
    QVERIFY(textOf(renderFigure("kernel-walk", *log_, log_->end(), options, FigureFormat::kSvg))
                .contains("table C[0] = KV block 0"));
    options.walk = {};
    try {
        renderFigure("kernel-walk", *log_, log_->end(), options, FigureFormat::kSvg);
        QFAIL("there is no walk to draw");
    } catch (const EngineError& error) {
        QCOMPARE(error.kind(), ErrorKind::kBadArgument);
        QVERIFY(QByteArray(error.what()).contains("no kernel walk"));
    }
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
    const auto render = [&] {
        return renderFigure("pool", *log_, log_->end(), FigureOptions(), FigureFormat::kPdf);
    };
    const QByteArray pdf = render();
    QTest::qWait(1100);  // the writer's date has seconds
    QCOMPARE(render(), pdf);

    QVERIFY(pdf.startsWith("%PDF-1."));
    QVERIFY(pdf.trimmed().endsWith("%%EOF"));
    QCOMPARE(pdf.count("/Type /Page\n"), 1);
    QVERIFY(pdf.contains("/CreationDate (D:19700101000000"));

    // Every offset of the table leads to the object of its number.
    const qsizetype start = pdf.lastIndexOf("startxref");
    QVERIFY(start > 0);
    const qsizetype table = pdf.mid(start + 9).trimmed().split('\n')[0].trimmed().toLongLong();
    QVERIFY(pdf.mid(table).startsWith("xref\n0 "));
    const QList<QByteArray> lines = pdf.mid(table, start - table).split('\n');
    const int num_objects = lines[1].split(' ')[1].toInt();
    QVERIFY(num_objects > 5);
    for (int object = 1; object < num_objects; ++object) {
        const QByteArray entry = lines[2 + object];
        QVERIFY(entry.trimmed().endsWith(" n"));
        const qsizetype at = entry.left(10).toLongLong();
        QVERIFY2(pdf.mid(at).startsWith(QByteArray::number(object) + " 0 obj"), entry.constData());
    }
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
    for (const char* later : {"csv", "plot.json"}) {
        try {
            figureFormatOf(later);
            QFAIL("a format that is not built");
        } catch (const EngineError& error) {
            QVERIFY(QByteArray(error.what()).contains("not built yet"));
        }
    }
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

void FigureTest::devicesAreWrittenAsTheyAre() {
    if (!std::filesystem::is_character_file("/dev/full")) QSKIP("no /dev/full here");
    QVERIFY_EXCEPTION_THROWN(
        exportFigure("pool", *log_, log_->end(), FigureOptions(), FigureFormat::kSvg, "/dev/full"),
        EngineError);
    QVERIFY(std::filesystem::is_character_file("/dev/full"));

    QTemporaryDir folder;
    const std::string pipe = folder.filePath(QStringLiteral("pipe")).toStdString();
    QCOMPARE(mkfifo(pipe.c_str(), 0600), 0);
    const int end = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    QVERIFY(end >= 0);
    FigureOptions small;
    small.width_px = 240;
    small.scale = 0.25;
    const QByteArray figure =
        renderFigure("sharing", *log_, log_->end(), small, FigureFormat::kPng);
    QVERIFY(figure.size() < 60000);  // what a pipe holds
    exportFigure("sharing", *log_, log_->end(), small, FigureFormat::kPng, pipe);
    QByteArray received(figure.size() + 1, '\0');
    received.truncate(read(end, received.data(), static_cast<size_t>(received.size())));
    close(end);
    QCOMPARE(received, figure);
}

}  // namespace kvlab

QTEST_MAIN(kvlab::FigureTest)
#include "figure_test.moc"
