// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/memory_view.h"

#include <algorithm>

#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QToolTip>
#include <QWheelEvent>

#include "app/gui/provenance.h"

namespace kvlab {
namespace {

constexpr int kCopyMs = 350;
constexpr double kLegendFrom = 230;  // px of height; below, the blocks need the room

}  // namespace

MemoryView::MemoryView(RunHub* hub, QWidget* parent) : CanvasView(hub, parent) {
    setTitles(
        tr("Block tables → physical pool"),
        tr("each row is a sequence; each number is the physical block that holds those tokens"),
        tr("rows are sequences, numbers are blocks"));
    copy_animation_.setStartValue(0.0);
    copy_animation_.setEndValue(1.0);
    copy_animation_.setDuration(kCopyMs);
    connect(&copy_animation_, &QVariantAnimation::valueChanged, this,
            [this](const QVariant& value) {
                scene_.copy_progress = value.toDouble();
                update();
            });
}

QString MemoryView::emptySentence() const {
    const QString sentence = CanvasView::emptySentence();
    if (!sentence.isEmpty()) return sentence;
    return hub().state().blocks.empty() ? tr("This run has an empty pool.") : QString();
}

QString MemoryView::headerNote() const {
    if (!hub().hasLog()) return {};
    return scene_.moment.words;
}

bool MemoryView::hasCached() const {
    return std::any_of(scene_.visuals.begin(), scene_.visuals.end(),
                       [](const BlockVisual& v) { return v.look == BlockLook::kCached; });
}

void MemoryView::rebuild(bool geometry_changed, bool state_changed) {
    if (geometry_changed) sprites_.clear();
    if (!hub().hasLog()) {
        scene_ = {};
        had_picture_ = false;
        update();
        return;
    }
    const CacheState& state = hub().state();
    MemoryScene next;
    next.block_size = state.block_size;
    if (state_changed || scene_.visuals.size() != state.blocks.size()) {
        next.visuals = blockVisuals(state);
        markWritten(next.visuals, state, hub().log(), hub().lastApplied(), hub().currentStep());
        next.moment = momentOf(hub().log(), state, hub().cursor(), hub().lastApplied());
    } else {
        next.visuals = scene_.visuals;
        next.moment = scene_.moment;
        next.copy_progress = scene_.copy_progress;
    }
    if (state_changed && !geometry_changed) {
        copy_animation_.stop();
        if (next.moment.kind == Moment::Kind::kCopied && motion_ && isVisible()) {
            next.copy_progress = 0;
            copy_animation_.start();
        }
    } else {
        next.copy_progress = scene_.copy_progress;
    }

    const Selection& shown = hub().shown();
    const auto known = [&](SequenceId id) {
        return id.valid() && static_cast<size_t>(id.value) < state.sequences.size();
    };
    if (shown.sequence && known(*shown.sequence)) next.looked_at_sequence = shown.sequence;
    if (shown.block && shown.block->valid() &&
        static_cast<size_t>(shown.block->value) < state.blocks.size()) {
        next.looked_at = shown.block;
    } else if (shown.position && next.looked_at_sequence && state.block_size > 0) {
        const auto& table =
            state.sequences[static_cast<size_t>(next.looked_at_sequence->value)].table;
        const size_t idx = static_cast<size_t>(*shown.position / state.block_size);
        if (idx < table.size() && table[idx].valid()) next.looked_at = table[idx];
    }
    next.dim_others = hub().locked().empty() && !shown.empty();

    scene_.visuals.swap(next.visuals);  // hasCached() looks at the new ones
    const bool has_cached = hasCached();
    scene_.visuals.swap(next.visuals);
    const QRectF content = contentRect();
    MemoryLayoutOptions options;
    options.first_row = first_row_;
    options.looked_at_block = next.looked_at;
    const double pool_width = memoryPoolWidth(content.width());
    options.legend_height =
        content.height() > kLegendFrom ? legendHeight(pool_width, this, {has_cached, true}) + 8 : 0;
    next.layout = layOutMemory(content, state, options, {});

    const bool same_picture =
        had_picture_ && !geometry_changed && !next.looked_at && !scene_.looked_at &&
        next.looked_at_sequence == scene_.looked_at_sequence && !next.looked_at_sequence &&
        next.moment.kind != Moment::Kind::kCopied &&
        next.moment.kind != Moment::Kind::kCopyRefused &&
        scene_.moment.kind != Moment::Kind::kCopied &&
        scene_.moment.kind != Moment::Kind::kCopyRefused &&
        next.visuals.size() == scene_.visuals.size() &&
        next.layout.pool.pitch() == scene_.layout.pool.pitch() &&
        next.layout.pool.columns() == scene_.layout.pool.columns();
    if (same_picture) {
        QRegion changed(toWidget(headerRect()));
        changed += toWidget(next.layout.tables_area.adjusted(-4, -4, 4, 4));
        for (size_t i = 0; i < next.visuals.size(); ++i) {
            if (next.visuals[i] == scene_.visuals[i]) continue;
            changed += toWidget(next.layout.pool.cellRect(BlockId(static_cast<int64_t>(i)))
                                    .adjusted(-12, -12, 12, 12));
        }
        scene_ = std::move(next);
        update(changed);
    } else {
        scene_ = std::move(next);
        update();
    }
    had_picture_ = true;
    first_row_ = std::min(first_row_, scene_.layout.tables.maxFirstRow());
    if (scene_.looked_at) {
        setAccessibleDescription(describeBlock(state, *scene_.looked_at));
    }
}

void MemoryView::paintCanvas(QPainter& painter, const QRectF& dirty) {
    const CacheState& state = hub().state();
    paintBlockTables(painter, scene_, state, theme());
    paintBlockPool(painter, scene_, state, theme(), &sprites_, dirty);
    paintThreads(painter, scene_, state, theme());
    if (contentRect().height() > kLegendFrom) {
        paintLegend(painter, scene_.layout.legend, theme(), {hasCached(), true});
    }
}

Selection MemoryView::selectionAt(QPointF widget_point) const {
    const QPointF point = toCanvas(widget_point);
    Selection selection;
    if (!hub().hasLog()) return selection;
    const BlockTableLayout::Hit hit = scene_.layout.tables.hitTest(point);
    if (hit.row >= 0) {
        const SequenceId id = scene_.layout.sequences[static_cast<size_t>(hit.row)];
        selection.sequence = id;
        if (hit.block_idx >= 0) {
            const SequenceState& sequence = hub().state().sequences[static_cast<size_t>(id.value)];
            const BlockId block = sequence.table[static_cast<size_t>(hit.block_idx)];
            if (block.valid()) selection.block = block;
        }
        return selection;
    }
    const BlockId block = scene_.layout.pool.blockAt(point);
    if (block.valid()) selection.block = block;
    return selection;
}

bool MemoryView::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* help = static_cast<QHelpEvent*>(event);
        const Selection selection = selectionAt(help->pos());
        QString text;
        if (selection.block) {
            text = describeBlock(hub().state(), *selection.block);
        } else if (selection.sequence) {
            const SequenceState& sequence =
                hub().state().sequences[static_cast<size_t>(selection.sequence->value)];
            text = tr("sequence %1 · %2 with K/V · %3 · prompt %4")
                       .arg(QString::fromStdString(ownerLetter(sequence.id)),
                            countOf(sequence.kv_len, "token"), countOf(sequence.numHeld(), "block"),
                            countOf(sequence.prompt_len, "token"));
        }
        if (text.isEmpty()) {
            QToolTip::hideText();
        } else {
            QToolTip::showText(help->globalPos(), text, this);
        }
        return true;
    }
    if (event->type() == QEvent::ShortcutOverride && hasFocus()) {
        switch (static_cast<QKeyEvent*>(event)->key()) {
            case Qt::Key_Left:
            case Qt::Key_Right:
            case Qt::Key_Up:
            case Qt::Key_Down:
            case Qt::Key_Return:
            case Qt::Key_Enter:
                if (static_cast<QKeyEvent*>(event)->modifiers() == Qt::NoModifier) {
                    event->accept();
                    return true;
                }
                break;
            default:
                break;
        }
    }
    return CanvasView::event(event);
}

void MemoryView::mouseMoveEvent(QMouseEvent* event) { hoverAt(event->position()); }

void MemoryView::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton) return CanvasView::mousePressEvent(event);
    const Selection selection = selectionAt(event->position());
    hub().lock(selection == hub().locked() ? Selection() : selection);
}

void MemoryView::leaveEvent(QEvent*) { hoverAt({}); }

void MemoryView::wheelEvent(QWheelEvent* event) {
    const int max_row = scene_.layout.tables.maxFirstRow();
    if (max_row == 0 || !scene_.layout.tables_area.contains(toCanvas(event->position()))) {
        return event->ignore();
    }
    const int rows = event->angleDelta().y() > 0 ? -1 : 1;
    first_row_ = std::clamp(first_row_ + rows, 0, max_row);
    refresh(true);
    event->accept();
}

void MemoryView::walk(int dx, int dy) {
    const BlockId from = scene_.looked_at.value_or(BlockId());
    const BlockId to = scene_.layout.pool.neighbour(from, dx, dy);
    if (!to.valid()) return;
    forgetMouse();
    Selection selection;
    selection.block = to;
    if (hub().locked().empty()) {
        hub().hover(selection);
    } else {
        hub().lock(selection);
    }
}

void MemoryView::keyPressEvent(QKeyEvent* event) {
    switch (event->key()) {
        case Qt::Key_Left:
        case Qt::Key_Comma:
            return walk(-1, 0);
        case Qt::Key_Right:
        case Qt::Key_Period:
            return walk(1, 0);
        case Qt::Key_Up:
            return walk(0, -1);
        case Qt::Key_Down:
            return walk(0, 1);
        case Qt::Key_Return:
        case Qt::Key_Enter: {
            Selection selection;
            selection.block = scene_.looked_at;
            hub().lock(selection == hub().locked() ? Selection() : selection);
            return;
        }
        case Qt::Key_Escape:
            if (hub().shown().empty()) break;
            hub().lock({});
            hub().hover({});
            return;
        default:
            break;
    }
    CanvasView::keyPressEvent(event);
}

}  // namespace kvlab
