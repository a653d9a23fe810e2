// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/timeline_view.h"

#include <QTest>
#include <QWheelEvent>

#include "tests/support/log_builder.h"

namespace kvlab {

class TimelineViewTest : public QObject {
    Q_OBJECT

  private slots:
    void init();
    void dragScrubs();
    void liveRunGrowsAndTagReturnsToTheEnd();
    void keysZoomAndMove();
    void anotherLogStartsAfresh();

  private:
    QPoint at(double moment) const {
        const TimelineLayout& layout = view_->timelineLayout();
        return QPointF(layout.xOf(moment), layout.curve().center().y()).toPoint();
    }
    std::unique_ptr<RunHub> hub_;
    std::unique_ptr<TimelineView> view_;
};

void TimelineViewTest::init() {
    view_.reset();
    hub_ = std::make_unique<RunHub>();
    view_ = std::make_unique<TimelineView>(hub_.get());
    view_->resize(1300, 164);
    hub_->setLog(scriptedLog(), false);
    view_->show();
    QVERIFY(QTest::qWaitForWindowExposed(view_.get()));
}

void TimelineViewTest::dragScrubs() {
    QTest::mousePress(view_.get(), Qt::LeftButton, {}, at(30));
    QCOMPARE(hub_->cursor().step, 30);
    QTest::mouseMove(view_.get(), at(70));
    QTRY_COMPARE(hub_->cursor().step, 70);
    QTest::mouseRelease(view_.get(), Qt::LeftButton, {}, at(70));
    QTest::mouseMove(view_.get(), at(10));
    QCOMPARE(hub_->cursor().step, 70);
    const TimelineLayout& layout = view_->timelineLayout();
    QTest::mouseClick(view_.get(), Qt::LeftButton, {},
                      QPointF(layout.minimapX(52), layout.minimap().center().y()).toPoint());
    QCOMPARE(hub_->cursor().step, 52);
}

void TimelineViewTest::liveRunGrowsAndTagReturnsToTheEnd() {
    const LogScript script;
    const auto steps = scriptedSteps(script);
    hub_->setLog(std::make_shared<RunLog>(scriptedInfo(script)), true);
    for (const auto& step : steps) hub_->appendStep(step);
    QCOMPARE(view_->timelineLayout().numSteps(), static_cast<int64_t>(steps.size()));
    QVERIFY(hub_->atEnd());
    QCOMPARE(view_->stepsBehind(), 0);
    hub_->setCursor({60, 0, 0});
    QCOMPARE(view_->stepsBehind(), static_cast<int64_t>(steps.size()) - 60);
    const QRectF curve = view_->timelineLayout().curve();
    QTest::mouseClick(
        view_.get(), Qt::LeftButton, {},
        QPoint(static_cast<int>(curve.right()) - 30, static_cast<int>(curve.top()) + 10));
    QVERIFY(hub_->atEnd());
}

void TimelineViewTest::keysZoomAndMove() {
    hub_->setCursor({50, 0, 0});
    QTest::keyClick(view_.get(), Qt::Key_W);
    const double span = view_->timelineLayout().last() - view_->timelineLayout().first();
    QVERIFY(span < 104);
    const double first = view_->timelineLayout().first();
    QTest::keyClick(view_.get(), Qt::Key_D);
    QVERIFY(view_->timelineLayout().first() > first);
    QTest::keyClick(view_.get(), Qt::Key_A);
    for (int i = 0; i < 10; ++i) QTest::keyClick(view_.get(), Qt::Key_S);
    QCOMPARE(view_->timelineLayout().first(), 0.0);
    QCOMPARE(view_->timelineLayout().last(), 104.0);
}

void TimelineViewTest::anotherLogStartsAfresh() {
    const QImage before = view_->grab().toImage();
    LogScript script;
    script.num_decode_steps = 500;
    script.num_blocks = 600;
    hub_->setLog(scriptedLog(script), false);
    QCOMPARE(view_->timelineLayout().numSteps(), 504);
    QVERIFY(view_->grab().toImage() != before);
    hub_->setLog(nullptr, false);
    QCOMPARE(view_->stepsBehind(), 0);
    view_->grab();
}

}  // namespace kvlab

QTEST_MAIN(kvlab::TimelineViewTest)
#include "timeline_view_test.moc"
