// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/kernel_walk_view.h"

#include <QSignalSpy>
#include <QtTest>

#include "app/gui/run/playback.h"
#include "tests/support/log_builder.h"
#include "tests/support/walk_builder.h"

namespace kvlab {

class KernelWalkViewTest : public QObject {
    Q_OBJECT

    struct Fixture {
        RunHub hub;
        KernelWalkView view{&hub};

        explicit Fixture(ThemeKind theme = ThemeKind::kLight) {
            hub.setLog(
                scriptedLog(
                    {.prompt_len = 97, .num_samples = 4, .num_decode_steps = 6, .num_blocks = 60}),
                false);
            hub.setCursor(hub.log().end());
            auto walks = std::make_shared<KernelWalks>();
            walks->add(*hub.currentStep(), {walkOf(hub.state(), 0), walkOf(hub.state(), 1)});
            view.setTheme(Theme::of(theme));
            view.resize(900, 300);
            view.show();
            hub.setWalks(walks);
        }
    };

    static QPoint cellCentre(const KernelWalkView& view, int index) {
        return view.scene().grid.cellRect(0, index).center().toPoint();
    }

  private slots:
    void aClickChoosesTheThreadBlockAndLightsItsBlock() {
        Fixture f;
        QVERIFY(f.view.hasWalk());
        // Sequence C, head 1, second part.
        QTest::mouseClick(&f.view, Qt::LeftButton, {}, cellCentre(f.view, (1 * 2 + 1) * 4 + 2));
        QCOMPARE(f.view.scene().thread_block, 14);
        QCOMPARE(f.hub.locked().sequence, SequenceId(2));
        const auto& table = f.hub.state().sequences[2].table;
        const size_t half = table.size() / 2;
        QCOMPARE(f.hub.locked().block, table[half]);
        QCOMPARE(*f.hub.locked().position, static_cast<int>(half) * 16);
        const QPoint next = f.view.scene().strip.cellRect(1).center().toPoint();
        QTest::mouseClick(&f.view, Qt::LeftButton, {}, next);
        QCOMPARE(f.view.step(), 1);
        QCOMPARE(f.hub.locked().block, table[half + 1]);
        // The merge names no block.
        f.view.setStep(f.view.numSteps() - 1);
        QVERIFY(!f.hub.locked().block);
        QVERIFY(walkStepWords(f.view.scene()).contains("joins the 2 parts"));
    }

    void keysWalk() {
        Fixture f;
        QTest::keyClick(&f.view, Qt::Key_Right);
        QCOMPARE(f.view.scene().chosen().z, 1);
        QTest::keyClick(&f.view, Qt::Key_Right);
        QCOMPARE(f.view.scene().chosen().x, 1);
        QCOMPARE(f.view.scene().chosen().z, 0);
        QTest::keyClick(&f.view, Qt::Key_Down);
        QCOMPARE(f.view.scene().chosen().y, 1);
        QTest::keyClick(&f.view, Qt::Key_Period);
        QTest::keyClick(&f.view, Qt::Key_Period);
        QTest::keyClick(&f.view, Qt::Key_Comma);
        QCOMPARE(f.view.step(), 1);
        QCOMPARE(f.hub.locked().block, f.hub.state().sequences[1].table[1]);
        QVERIFY2(walkStepWords(f.view.scene()).startsWith("table B[1] = KV block "),
                 qPrintable(walkStepWords(f.view.scene())));
    }

    void theWalkIsThatOfTheStepOnShow() {
        Fixture f;
        QSignalSpy changed(&f.view, &KernelWalkView::walkChanged);
        f.hub.setCursor(f.hub.log().begin());
        QVERIFY(!f.view.hasWalk());
        QVERIFY(!changed.isEmpty());
        f.hub.setCursor(f.hub.log().end());
        QVERIFY(f.view.hasWalk());
        f.view.setLayer(1);
        QCOMPARE(f.view.scene().walk->attention.layer, 1);
        f.hub.setWalks(nullptr);
        QVERIFY(!f.view.hasWalk());
        f.view.setStep(3);  // nothing to walk
        f.view.setThreadBlock(0, 1);
        QTest::keyClick(&f.view, Qt::Key_Down);
    }

    void itsWordsTellANewcomerWhatHappens() {
        Fixture f;
        f.view.setThreadBlock(0, 1 * 4 + 2);  // sequence C, KV head 1
        const QString words = walkLessonWords(f.view.scene());
        QVERIFY2(words.contains("C's block table") && words.contains("next 16 tokens") &&
                     words.contains("KV head 1"),
                 qPrintable(words));
        f.view.setStep(f.view.numSteps() - 1);
        QVERIFY(walkLessonWords(f.view.scene()).contains("a second kernel"));
    }

    void totalsAreSums() {
        Fixture f;
        const WalkTotals totals = totalsOf(f.view.scene().walk->attention);
        QCOMPARE(totals.num_thread_blocks, int64_t{16});
        QCOMPARE(totals.num_threads, int64_t{16 * 128});
        int64_t entries = 0;
        for (const SequenceState& sequence : f.hub.state().sequences) {
            entries += 2 * static_cast<int64_t>(sequence.table.size());
        }
        QCOMPARE(totals.num_reads, entries);
        QCOMPARE(totals.num_rows, 2 * 16 * entries);
        QCOMPARE(kernelName("(pagedAttentionKernel<T, kTeam>)"), QString("pagedAttentionKernel"));
        QCOMPARE(kernelName("mergePartsKernel"), QString("mergePartsKernel"));
    }

    // Every word has room, whatever the picture's size; Qt's own wrapping is the witness.
    void wordsThatFindNoRoomStandBelow() {
        Fixture f;
        f.view.setThreadBlock(0, 3);
        int num_stacked = 0;
        for (const QSize size : {QSize(420, 150), QSize(460, 220), QSize(700, 230), QSize(940, 330),
                                 QSize(1400, 500)}) {
            KernelWalkScene scene = f.view.scene();
            const QRectF room(2, 2, size.width(), size.height());
            const double height = layOutKernelWalkWhole(scene, room, size.width() - 10);
            const QFontMetricsF metrics(textFont(kTextPoints));
            const auto wanted = [&](const QString& words, double width) {
                return metrics.boundingRect(QRectF(0, 0, width, 1e5), Qt::TextWordWrap, words)
                           .height() *
                       0.8;
            };
            if (!scene.stacked) {
                QCOMPARE(height, room.height());
                QVERIFY(scene.detail.bottom() - scene.hop.bottom() >=
                        wanted(walkLessonWords(scene), scene.detail.width()));
                continue;
            }
            ++num_stacked;
            QVERIFY(scene.words.height() >=
                    wanted(walkLessonWords(scene) + ' ' + walkGridWords(scene, true),
                           scene.words.width()));
            QCOMPARE(scene.words.width(), size.width() - 10.0);
            QVERIFY(scene.words.top() >= scene.hop.bottom());
            QVERIFY(scene.words.top() >= scene.strip_area.bottom());
            QVERIFY(scene.totals.top() >= scene.words.bottom());
            QCOMPARE(height, scene.totals.bottom() - room.top());
            QVERIFY(scene.strip.numShown() > 0);
        }
        QVERIFY(num_stacked > 0 && num_stacked < 5);
    }

    void paintsInBothThemesAndSizes() {
        for (const ThemeKind kind : {ThemeKind::kLight, ThemeKind::kDark}) {
            Fixture f(kind);
            const QImage before = f.view.grab().toImage();
            f.view.setThreadBlock(0, 3);
            f.view.setStep(2);
            QVERIFY(f.view.grab().toImage() != before);
            for (const QSize size : {QSize(460, 150), QSize(700, 230), QSize(1400, 500)}) {
                f.view.resize(size);
                const QImage image = f.view.grab().toImage();
                QCOMPARE(image.size(), size);
                // The chosen cell's outline is not the card's colour.
                const QRectF cell = f.view.scene().grid.cellRect(0, 3);
                if (cell.isEmpty()) continue;
                QVERIFY(image.pixelColor(cell.center().toPoint()) != Theme::of(kind).panel);
            }
        }
    }
};

}  // namespace kvlab

QTEST_MAIN(kvlab::KernelWalkViewTest)
#include "kernel_walk_view_test.moc"
