// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/timeline_layout.h"

#include <QTest>

#include "tests/support/log_builder.h"

namespace kvlab {

class TimelineLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void partsStackWithoutOverlap();
    void xAndStepAgree();
    void thousandsOfStepsAreBinned();
    void zoomAndPanStayInTheRun();
    void axisLabelsKeepTheirDistance();
    void lanesCountWhatAStepDid();
    void curveKeepsItsPeaks();
    void emptyRun();
};

void TimelineLayoutTest::partsStackWithoutOverlap() {
    const QRectF area(0, 0, 1400, 160);
    const TimelineLayout layout(area, 104, 0, 0);
    double bottom = layout.curve().bottom();
    for (int l = 0; l < kNumLanes; ++l) {
        const QRectF lane = layout.laneRect(static_cast<Lane>(l));
        QVERIFY(lane.top() >= bottom - 0.01);
        bottom = lane.bottom();
        QVERIFY(layout.laneLabel(static_cast<Lane>(l)).right() <= lane.left());
    }
    QVERIFY(layout.axis().top() >= bottom - 0.01);
    QVERIFY(layout.minimap().top() >= layout.axis().bottom());
    QVERIFY(layout.minimap().bottom() <= area.bottom() + 0.01);
    QVERIFY(layout.curve().height() >= 24);
}

void TimelineLayoutTest::xAndStepAgree() {
    const TimelineLayout layout(QRectF(0, 0, 1400, 160), 104, 0, 0);
    for (int64_t step = 0; step <= 104; ++step) {
        QCOMPARE(layout.stepAt(layout.xOf(static_cast<double>(step))), step);
        QCOMPARE(layout.minimapStepAt(layout.minimapX(static_cast<double>(step))), step);
    }
    QCOMPARE(layout.stepAt(-100), 0);
    QCOMPARE(layout.stepAt(5000), 104);
}

void TimelineLayoutTest::thousandsOfStepsAreBinned() {
    const TimelineLayout few(QRectF(0, 0, 1400, 160), 104, 0, 0);
    QCOMPARE(few.bins().size(), size_t{104});
    const TimelineLayout many(QRectF(0, 0, 1400, 160), 50'000, 0, 0);
    const std::vector<TimelineLayout::Bin> bins = many.bins();
    QVERIFY(bins.size() < 500);
    QCOMPARE(bins.front().first_step, 0);
    QCOMPARE(bins.back().last_step, 49'999);
    for (size_t i = 1; i < bins.size(); ++i) {
        QCOMPARE(bins[i].first_step, bins[i - 1].last_step + 1);
        QVERIFY(bins[i].x >= bins[i - 1].x);
    }
}

void TimelineLayoutTest::zoomAndPanStayInTheRun() {
    TimelineLayout layout(QRectF(0, 0, 1400, 160), 1000, 0, 0);
    double first = 0, last = 0;
    layout.zoomed(0.5, layout.xOf(250), &first, &last);
    QCOMPARE(last - first, 500.0);
    layout = TimelineLayout(QRectF(0, 0, 1400, 160), 1000, first, last);
    layout.panned(10'000, &first, &last);
    QCOMPARE(last, 1000.0);
    QCOMPARE(first, 500.0);
    layout.zoomed(100, layout.xOf(300), &first, &last);
    QCOMPARE(first, 0.0);
    QCOMPARE(last, 1000.0);
    layout.zoomed(1e-9, layout.xOf(300), &first, &last);
    QVERIFY(last - first >= 3.99);
    QVERIFY(layout.minimapWindow().width() < layout.minimap().width());
}

void TimelineLayoutTest::axisLabelsKeepTheirDistance() {
    for (const int64_t n : {1, 7, 104, 5000, 1'000'000}) {
        const TimelineLayout layout(QRectF(0, 0, 1400, 160), n, 0, 0);
        const std::vector<int64_t> moments = layout.axisMoments(60);
        QVERIFY(!moments.empty());
        QCOMPARE(moments.front(), 0);
        for (size_t i = 1; i < moments.size(); ++i) {
            QVERIFY(layout.xOf(static_cast<double>(moments[i])) -
                        layout.xOf(static_cast<double>(moments[i - 1])) >=
                    59.9);
        }
    }
}

void TimelineLayoutTest::lanesCountWhatAStepDid() {
    LogScript script;
    script.prompt_len = 2001;
    script.release = true;
    const auto steps = scriptedSteps(script);
    const auto at = [&](size_t step, Lane lane) {
        return laneCounts(*steps[step])[static_cast<size_t>(lane)];
    };
    QCOMPARE(at(0, Lane::kWrite), 512);
    QCOMPARE(at(0, Lane::kAllocate), 32);
    QCOMPARE(at(3, Lane::kShare), 7);
    QCOMPARE(at(4, Lane::kCopyOnWrite), 7);
    QCOMPARE(at(4, Lane::kWrite), 8);
    QCOMPARE(at(steps.size() - 1, Lane::kRelease), 125 * 8 + 7 * 8);
    QCOMPARE(at(5, Lane::kRelease), 0);
}

void TimelineLayoutTest::curveKeepsItsPeaks() {
    std::vector<double> values(20'001, 10.0);
    values[7001] = 100;
    const TimelineLayout layout(QRectF(0, 0, 600, 160), 20'000, 0, 0);
    const QRectF rect = layout.curve();
    const std::vector<QPointF> points = steppedCurve(layout, rect, values, 100);
    QVERIFY(points.size() < 4 * 600);
    double top = rect.bottom();
    for (size_t i = 0; i < points.size(); ++i) {
        top = std::min(top, points[i].y());
        QVERIFY(points[i].x() >= rect.left() - 0.01 && points[i].x() <= rect.right() + 0.01);
        if (i > 0) QVERIFY(points[i].x() >= points[i - 1].x() - 1e-9);
    }
    QCOMPARE(top, rect.top());
}

void TimelineLayoutTest::emptyRun() {
    const TimelineLayout layout(QRectF(0, 0, 1400, 160), 0, 0, 0);
    QVERIFY(layout.bins().empty());
    QCOMPARE(layout.stepAt(700), 0);
    QVERIFY(steppedCurve(layout, layout.curve(), {}, 1).empty());
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::TimelineLayoutTest)
#include "timeline_layout_test.moc"
