// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/paint/memory_painter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <QFontMetricsF>

#include "app/gui/layout/thread_route.h"
#include "app/gui/provenance.h"

namespace kvlab {
namespace {

constexpr double kDimmed = 0.35;

bool tableNames(const CacheState& state, SequenceId id, BlockId block) {
    const std::vector<BlockId>& table = state.sequences[static_cast<size_t>(id.value)].table;
    return std::find(table.begin(), table.end(), block) != table.end();
}

// Blocks in full ink while the rest is dimmed; empty: all of them.
std::vector<bool> litBlocks(const MemoryScene& scene, const CacheState& state) {
    std::vector<bool> lit;
    if (!scene.dim_others || (!scene.looked_at && !scene.looked_at_sequence)) return lit;
    lit.assign(scene.visuals.size(), false);
    if (scene.looked_at) {
        lit[static_cast<size_t>(scene.looked_at->value)] = true;
    } else {
        const size_t seq = static_cast<size_t>(scene.looked_at_sequence->value);
        for (const BlockId block : state.sequences[seq].table) {
            if (block.valid()) lit[static_cast<size_t>(block.value)] = true;
        }
    }
    return lit;
}

// While a copy is under way its target shows the slots that have arrived.
BlockVisual visualOf(const MemoryScene& scene, BlockId block) {
    BlockVisual visual = scene.visuals[static_cast<size_t>(block.value)];
    if (scene.copy_progress < 1 && scene.moment.kind == Moment::Kind::kCopied &&
        scene.moment.target == block) {
        visual.num_filled = static_cast<int>(scene.copy_progress * scene.moment.num_slots);
    }
    return visual;
}

QRectF between(const QRectF& from, const QRectF& to, double share) {
    return {from.topLeft() + (to.topLeft() - from.topLeft()) * share,
            from.size() + (to.size() - from.size()) * share};
}

// The cell of `row` that names `block`, if the row shows it.
std::optional<QRectF> tableCellOf(const BlockTableRow& row,
                                  const std::vector<BlockId>& table,
                                  BlockId block) {
    for (const BlockTableCell& cell : row.cells) {
        if (table[static_cast<size_t>(cell.block_idx)] == block) return cell.rect;
    }
    return std::nullopt;
}

void paintTinyPool(QPainter& painter,
                   const MemoryScene& scene,
                   const Theme& theme,
                   const std::vector<bool>& lit) {
    // Batched by colour: thousands of cells in a handful of calls.
    const BlockPoolLayout& pool = scene.layout.pool;
    struct Batch {
        QColor color;
        bool dimmed;
        QVector<QRectF> rects;
    };
    std::vector<Batch> batches;
    QVector<QRectF> free_cells;
    for (int i = 0; i < pool.numShown(); ++i) {
        const BlockVisual& visual = scene.visuals[static_cast<size_t>(i)];
        const QRectF cell = pool.cellRect(BlockId(i));
        const bool dimmed = !lit.empty() && !lit[static_cast<size_t>(i)];
        if (visual.look == BlockLook::kFree) {
            free_cells.push_back(cell.adjusted(0.5, 0.5, -0.5, -0.5));
            continue;
        }
        const QColor color = plainFill(visual, theme);
        const auto at = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) {
            return b.color == color && b.dimmed == dimmed;
        });
        if (at == batches.end()) {
            batches.push_back({color, dimmed, {cell}});
        } else {
            at->rects.push_back(cell);
        }
    }
    painter.save();
    painter.setBrush(Qt::NoBrush);
    if (pool.cell() >= 3) {
        painter.setPen(QPen(mixed(theme.panel, theme.free_outline, 0.6), 0.6));
        painter.drawRects(free_cells);
    } else {
        // Too small for an outline: a grey dot keeps the address visible.
        painter.setPen(Qt::NoPen);
        painter.setBrush(mixed(theme.panel, theme.free_outline, 0.4));
        painter.drawRects(free_cells);
    }
    painter.setPen(Qt::NoPen);
    for (const Batch& batch : batches) {
        painter.setOpacity(batch.dimmed ? kDimmed : 1.0);
        painter.setBrush(batch.color);
        painter.drawRects(batch.rects);
    }
    painter.restore();
}

enum class LegendItem { kShared, kOwner, kPartial, kWriting, kCached, kFree };

struct LegendEntry {
    LegendItem item;
    QString words;
};

std::vector<LegendEntry> legendEntries(const LegendOptions& options, double width) {
    const bool brief = width < 430;
    const auto words = [brief](const char* full, const char* short_form) {
        return QString::fromUtf8(brief ? short_form : full);
    };
    std::vector<LegendEntry> entries{
        {LegendItem::kShared, words("shared, ×count", "shared")},
        {LegendItem::kOwner, words("one owner, letter", "one owner")},
        {LegendItem::kPartial, words("hatch: empty slots", "empty slots")},
    };
    if (options.with_writing) {
        entries.push_back({LegendItem::kWriting, words("ring: written now", "written now")});
    }
    if (options.with_cached) {
        entries.push_back({LegendItem::kCached, words("cached, count 0", "cached")});
    }
    entries.push_back({LegendItem::kFree, words("free", "free")});
    return entries;
}

constexpr double kSwatch = 16, kSwatchGap = 6, kItemGap = 16, kLegendLine = 22;

}  // namespace

void paintBlockTables(QPainter& painter,
                      const MemoryScene& scene,
                      const CacheState& state,
                      const Theme& theme) {
    const std::vector<bool> lit = litBlocks(scene, state);
    const QFont count_font = textFont(kTextPoints);
    for (const BlockTableRow& row : scene.layout.tables.rows()) {
        const SequenceId id = scene.layout.sequences[static_cast<size_t>(row.row)];
        const SequenceState& sequence = state.sequences[static_cast<size_t>(id.value)];
        bool row_lit = lit.empty() || scene.looked_at_sequence == id;
        if (!lit.empty() && scene.looked_at) {
            row_lit = row_lit || tableNames(state, id, *scene.looked_at);
        }
        painter.setOpacity(row_lit ? 1.0 : kDimmed);
        paintOwnerBadge(painter, row.badge, id.value, theme);
        if (scene.looked_at_sequence == id && !scene.looked_at) {
            paintSelectionRing(painter, row.badge, theme);
        }
        for (const BlockTableCell& cell : row.cells) {
            const BlockId block = sequence.table[static_cast<size_t>(cell.block_idx)];
            if (!block.valid()) {
                painter.setOpacity(row_lit ? 1.0 : kDimmed);
                if (cell.block_idx < sequence.num_left) {
                    paintLeftCell(painter, cell.rect, theme);
                } else {
                    paintHostCell(painter, cell.rect, theme);
                }
                continue;
            }
            const bool cell_lit = lit.empty() || lit[static_cast<size_t>(block.value)];
            painter.setOpacity(cell_lit ? 1.0 : kDimmed);
            paintTableCell(painter, cell.rect, block, visualOf(scene, block), scene.block_size,
                           theme);
            if (scene.looked_at == block) {
                paintSelectionRing(painter, cell.rect, theme);
            } else if (scene.moment.kind != Moment::Kind::kNone && scene.moment.target == block &&
                       visualOf(scene, block).being_written) {
                painter.setBrush(Qt::NoBrush);
                painter.setPen(QPen(theme.ink, 2.6));
                painter.drawRoundedRect(cell.rect, 5.5, 5.5);
            }
        }
        painter.setOpacity(row_lit ? 1.0 : kDimmed);
        painter.setPen(theme.quiet_ink);
        for (const QRectF& ellipsis : row.ellipses) {
            drawCentred(painter, ellipsis, QStringLiteral("⋯"), textFont(11, true));
        }
        if (!row.count.isEmpty()) {
            painter.setFont(count_font);
            painter.drawText(row.count, Qt::AlignVCenter | Qt::AlignLeft,
                             countOf(sequence.kv_len, "token"));
        }
    }
    painter.setOpacity(1.0);
    if (scene.layout.tables.numHidden() > 0) {
        const QRectF rect = scene.layout.tables.hiddenRect();
        const QFontMetricsF metrics(count_font, painter.device());
        QString words =
            QStringLiteral("showing %1 of %2")
                .arg(scene.layout.tables.rows().size())
                .arg(countOf(static_cast<int64_t>(scene.layout.sequences.size()), "sequence"));
        const QString more = words + QStringLiteral(" · wheel for the others");
        if (metrics.horizontalAdvance(more) <= rect.width()) words = more;
        painter.setPen(theme.quiet_ink);
        painter.setFont(count_font);
        painter.drawText(QPointF(rect.left(), rect.center().y() + metrics.capHeight() / 2),
                         metrics.elidedText(words, Qt::ElideRight, rect.width()));
    }
}

void paintBlockPool(QPainter& painter,
                    const MemoryScene& scene,
                    const CacheState& state,
                    const Theme& theme,
                    BlockCellSprites* sprites,
                    const QRectF& clip) {
    const BlockPoolLayout& pool = scene.layout.pool;
    const std::vector<bool> lit = litBlocks(scene, state);
    if (pool.cell() < 6) {
        paintTinyPool(painter, scene, theme, lit);
    } else {
        for (int i = 0; i < pool.numShown(); ++i) {
            const QRectF cell = pool.cellRect(BlockId(i));
            if (!clip.isNull() && !clip.intersects(cell.adjusted(-6, -6, 6, 6))) continue;
            const bool dimmed = !lit.empty() && !lit[static_cast<size_t>(i)];
            painter.setOpacity(dimmed ? kDimmed : 1.0);
            const BlockVisual visual = visualOf(scene, BlockId(i));
            if (sprites) {
                sprites->draw(painter, cell, visual, scene.block_size, theme);
            } else {
                paintBlockCell(painter, cell, visual, scene.block_size, theme);
            }
        }
        painter.setOpacity(1.0);
    }
    if (pool.isFolded()) {
        painter.setPen(theme.quiet_ink);
        painter.setFont(textFont(kTextPoints));
        painter.drawText(
            scene.layout.folded_note, Qt::AlignVCenter | Qt::AlignLeft,
            QStringLiteral("showing %1 of %2")
                .arg(formatCount(pool.numShown()), countOf(pool.numBlocks(), "block")));
    }
}

void paintThreads(QPainter& painter,
                  const MemoryScene& scene,
                  const CacheState& state,
                  const Theme& theme) {
    const MemoryLayout& layout = scene.layout;
    const BlockPoolLayout& pool = layout.pool;
    const auto threadsTo = [&](BlockId block, std::optional<SequenceId> strong) {
        const QRectF to = pool.cellRect(block);
        if (to.isEmpty()) return;
        // Strong last, so that it lies on top of the shared part of the way.
        for (const bool pass_strong : {false, true}) {
            for (const BlockTableRow& row : layout.tables.rows()) {
                const SequenceId id = layout.sequences[static_cast<size_t>(row.row)];
                const auto& table = state.sequences[static_cast<size_t>(id.value)].table;
                const auto from = tableCellOf(row, table, block);
                const bool is_strong = !strong || strong == id;
                if (!from || is_strong != pass_strong) continue;
                QColor color = theme.accent;
                if (!is_strong) color = mixed(theme.panel, theme.accent, 0.45);
                drawThread(painter,
                           routeThread(*from, row.gutter_y, layout.channel_x, to, pool.gap()),
                           color, strong ? (is_strong ? 2.0 : 1.0) : 1.3, false);
            }
        }
        paintSelectionRing(painter, to, theme);
    };
    painter.setOpacity(1.0);
    if (scene.looked_at) threadsTo(*scene.looked_at, scene.looked_at_sequence);

    const Moment& moment = scene.moment;
    if (moment.kind == Moment::Kind::kCopyRefused && !scene.looked_at) {
        threadsTo(moment.source, moment.sequence);
        // The bar that keeps the pen out of a shared block.
        const QRectF source = pool.cellRect(moment.source);
        if (!source.isEmpty()) {
            const double bar = std::max(3.0, pool.gap());
            painter.fillRect(QRectF(source.left() - 2, source.top() - pool.gap() / 2 - bar / 2 - 1,
                                    source.width() + 4, bar),
                             theme.ink);
        }
    }
    if (moment.kind == Moment::Kind::kCopied) {
        const QRectF from = pool.cellRect(moment.source), to = pool.cellRect(moment.target);
        if (from.isEmpty() || to.isEmpty()) return;
        // The writer's thread lets go of the source when the last slot has arrived.
        const double share = std::clamp((scene.copy_progress - 0.7) / 0.3, 0.0, 1.0);
        const QRectF swinging = between(from, to, share * share * (3 - 2 * share));
        if (!scene.looked_at) {
            for (const BlockTableRow& row : layout.tables.rows()) {
                const SequenceId id = layout.sequences[static_cast<size_t>(row.row)];
                const auto& table = state.sequences[static_cast<size_t>(id.value)].table;
                const bool writer = id == moment.sequence;
                const BlockId block = writer ? moment.target : moment.source;
                const auto cell = tableCellOf(row, table, block);
                if (!cell) continue;
                drawThread(painter,
                           routeThread(*cell, row.gutter_y, layout.channel_x + (writer ? 4 : 0),
                                       writer ? swinging : from, pool.gap()),
                           writer ? theme.accent : mixed(theme.panel, theme.accent, 0.45),
                           writer ? 2.4 : 1.0, false);
            }
        }
        // The copy itself: from source to target through the gaps between the cells.
        const double half = std::max(pool.gap(), 2.0) / 2;
        const double below = from.bottom() + half + 1;
        QPolygonF way({{from.center().x(), from.bottom()}, {from.center().x(), below}});
        if (from.top() == to.top()) {
            way << QPointF(to.center().x(), below) << QPointF(to.center().x(), to.bottom() - 2);
        } else {
            const double left = to.left() - half;
            way << QPointF(left, below) << QPointF(left, to.center().y())
                << QPointF(to.left() + 1, to.center().y());
        }
        drawThread(painter, way, theme.ink, 2.0, true);
    }
}

double paintLegend(QPainter& painter,
                   const QRectF& area,
                   const Theme& theme,
                   const LegendOptions& options) {
    const QFont font = textFont(kTextPoints);
    const QFontMetricsF metrics(font, painter.device());
    double x = area.left(), y = area.top();
    for (const LegendEntry& entry : legendEntries(options, area.width())) {
        const double width = kSwatch + kSwatchGap + metrics.horizontalAdvance(entry.words);
        if (x > area.left() && x + width > area.right()) {
            x = area.left();
            y += kLegendLine;
        }
        BlockVisual visual;
        visual.num_filled = 4;
        visual.owners[0] = 0;
        visual.num_owners = 1;
        visual.ref_count = 1;
        visual.look = BlockLook::kPrivate;
        switch (entry.item) {
            case LegendItem::kShared:
                visual.look = BlockLook::kShared;
                visual.ref_count = 8;
                break;
            case LegendItem::kOwner:
                break;
            case LegendItem::kPartial:
                visual.num_filled = 1;
                break;
            case LegendItem::kWriting:
                visual.being_written = true;
                visual.written_end = 1;
                visual.owners[0] = 1;
                break;
            case LegendItem::kCached:
                visual.look = BlockLook::kCached;
                visual.ref_count = 0;
                break;
            case LegendItem::kFree:
                visual.look = BlockLook::kFree;
                visual.ref_count = 0;
                break;
        }
        paintBlockCell(painter, QRectF(x, y + 2, kSwatch, kSwatch), visual, 4, theme);
        painter.setPen(theme.quiet_ink);
        painter.setFont(font);
        painter.drawText(
            QPointF(x + kSwatch + kSwatchGap, y + 2 + kSwatch / 2 + metrics.capHeight() / 2),
            entry.words);
        x += width + kItemGap;
    }
    return y + kLegendLine - area.top();
}

double legendHeight(double width, const QPaintDevice* device, const LegendOptions& options) {
    const QFontMetricsF metrics(textFont(kTextPoints), const_cast<QPaintDevice*>(device));
    double x = 0, y = kLegendLine;
    for (const LegendEntry& entry : legendEntries(options, width)) {
        const double item = kSwatch + kSwatchGap + metrics.horizontalAdvance(entry.words);
        if (x > 0 && x + item > width) {
            x = 0;
            y += kLegendLine;
        }
        x += item + kItemGap;
    }
    return y;
}

}  // namespace kvlab
