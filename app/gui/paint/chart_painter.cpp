// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/paint/chart_painter.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <QFontMetricsF>
#include <QPolygonF>
#include <QVector>

#include "app/gui/paint/block_cell_painter.h"
#include "app/gui/provenance.h"

namespace kvlab {
namespace {

// A run of words and underlined numbers on one baseline.
class Line {
  public:
    Line(QPainter& painter, QPointF baseline, const Theme& theme, double right)
        : painter_(painter), at_(baseline), theme_(theme), right_(right) {}

    Line& words(const QString& text, double points, bool bold, const QColor& color) {
        const QFont font = textFont(points, bold);
        const QFontMetricsF metrics(font, painter_.device());
        const double room = right_ - at_.x();
        if (room < 8) return *this;
        const QString shown = metrics.horizontalAdvance(text) <= room
                                  ? text
                                  : metrics.elidedText(text, Qt::ElideRight, room);
        painter_.setFont(font);
        painter_.setPen(color);
        painter_.drawText(at_, shown);
        at_.rx() += metrics.horizontalAdvance(shown);
        return *this;
    }
    // The longest that fits whole; else nothing.
    Line& note(std::initializer_list<QString> texts, double points, const QColor& color) {
        const QFontMetricsF metrics(textFont(points), painter_.device());
        for (const QString& text : texts) {
            if (metrics.horizontalAdvance(text) <= right_ - at_.x()) {
                return words(text, points, false, color);
            }
        }
        return *this;
    }
    Line& number(const QString& text, double points, bool bold, Provenance provenance) {
        const QFont font = textFont(points, bold);
        if (at_.x() + QFontMetricsF(font, painter_.device()).horizontalAdvance(text) > right_) {
            at_.setX(right_);
            return *this;
        }
        at_.rx() += drawNumber(painter_, at_, text, font, theme_.ink, provenance);
        return *this;
    }

  private:
    QPainter& painter_;
    QPointF at_;
    const Theme& theme_;
    double right_;
};

double baselineOf(QPainter& painter, const QRectF& line, const QFont& font) {
    const QFontMetricsF metrics(font, painter.device());
    return line.center().y() + metrics.capHeight() / 2;
}

void paintGhosts(QPainter& painter, const SharingScene& scene, const Theme& theme) {
    const SharingLayout& layout = scene.layout;
    const int64_t count = scene.account.blocks_unshared;
    const QColor line =
        layout.pitch() >= 5 ? theme.quiet_line : mixed(theme.panel, theme.quiet_line, 0.8);
    painter.setBrush(Qt::NoBrush);
    if (!layout.hasCells()) {
        painter.setPen(QPen(theme.quiet_line, 1, Qt::DashLine));
        painter.drawRect(layout.ghostArea());
        return;
    }
    // Dashed outlines mean ghost; at this size the gaps between the cells do the dashing.
    painter.setPen(QPen(line, layout.pitch() >= 5 ? 0.7 : 0.5));
    QVector<QRectF> cells;
    cells.reserve(static_cast<int>(count));
    for (int64_t i = 0; i < count; ++i) {
        cells.push_back(layout.ghostCell(i).adjusted(0.25, 0.25, -0.25, -0.25));
    }
    painter.drawRects(cells);
}

void paintHeld(QPainter& painter, const SharingScene& scene, const Theme& theme) {
    const SharingLayout& layout = scene.layout;
    if (!layout.hasCells()) {
        painter.setPen(QPen(theme.cell_outline, 1));
        painter.setBrush(theme.shared_fill);
        painter.drawRect(layout.heldArea());
        return;
    }
    for (size_t i = 0; i < scene.held.size(); ++i) {
        const QRectF cell = layout.heldCell(static_cast<int64_t>(i));
        const BlockVisual& visual = scene.held[i];
        if (visual.look == BlockLook::kPrivate && layout.pitch() >= 6) {
            fillWithOwner(painter, cell, 0.5, visual.owners[0], theme);
        } else {
            painter.setPen(Qt::NoPen);
            painter.setBrush(plainFill(visual, theme));
            painter.drawRect(cell);
        }
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme.cell_outline, 0.4));
        painter.drawRect(cell);
    }
}

void paintCosts(QPainter& painter, const SharingScene& scene, const Theme& theme) {
    const QRectF area = scene.layout.costs();
    if (area.isEmpty()) return;
    const QFont font = textFont(kTextPoints + 0.5);
    const QFontMetricsF metrics(font, painter.device());
    const double line = area.height() / 3;
    const int n = scene.num_sequences;
    const PoolAccount& account = scene.account;
    painter.setFont(font);
    painter.setPen(theme.quiet_ink);
    const QRectF head(area.left(), area.top(), area.width(), line);
    Line(painter, {head.left(), baselineOf(painter, head, font)}, theme, head.right() + 1)
        .note({QStringLiteral("cost of %1, against one").arg(countOf(n, "sequence")),
               QStringLiteral("cost of %1 against 1").arg(formatCount(n))},
              kTextPoints + 0.5, theme.quiet_ink);
    const double one = n > 0 ? static_cast<double>(account.tokens_unshared) / n : 0;
    const double memory = one > 0 ? static_cast<double>(account.tokens_held) / one : 0;
    struct Bar {
        QString name;
        double value;
        bool filled;
    };
    const Bar bars[] = {
        {QStringLiteral("memory"), memory, true},
        {area.width() < 250 ? QStringLiteral("arithmetic") : QStringLiteral("decode arithmetic"),
         static_cast<double>(n), false}};
    const double label = metrics.horizontalAdvance(bars[1].name) + 14;
    const double number = metrics.horizontalAdvance(QStringLiteral("1.33×")) + 12;
    const double scale =
        std::max(0.0, std::min(area.width(), 520.0) - label - number) / std::max(n, 1);
    for (int i = 0; i < 2; ++i) {
        const QRectF row(area.left(), area.top() + (i + 1) * line, area.width(), line);
        const double baseline = baselineOf(painter, row, font);
        painter.setFont(font);
        painter.setPen(theme.ink);
        painter.drawText(QPointF(row.left(), baseline), bars[i].name);
        const double height = std::min(15.0, line - 5);
        const QRectF bar(row.left() + label, row.center().y() - height / 2,
                         std::max(2.0, bars[i].value * scale), height);
        painter.setPen(QPen(theme.cell_outline, 1));
        painter.setBrush(bars[i].filled ? theme.shared_fill : theme.panel);
        painter.drawRoundedRect(bar, 3, 3);
        drawNumber(painter, QPointF(bar.right() + 7, baseline),
                   bars[i].value > 0 ? formatRatio(bars[i].value) : noData(), font, theme.ink,
                   Provenance::kDerived);
    }
}

}  // namespace

SharingScene sharingScene(const CacheState& state, const QRectF& area, bool with_key) {
    SharingScene scene;
    scene.account = accountOf(state);
    for (const SequenceState& sequence : state.sequences) {
        if (!sequence.table.empty()) ++scene.num_sequences;
    }
    for (const BlockVisual& visual : blockVisuals(state)) {
        if (visual.ref_count > 0) scene.held.push_back(visual);
    }
    SharingLayoutInput input;
    input.blocks_unshared = scene.account.blocks_unshared;
    input.blocks_held = scene.account.active_blocks;
    input.key_height = with_key ? 22 : 0;
    scene.layout = SharingLayout(area, input);
    return scene;
}

void paintSharing(QPainter& painter, const SharingScene& scene, const Theme& theme) {
    const SharingLayout& layout = scene.layout;
    const PoolAccount& account = scene.account;
    const double points = kTextPoints + 0.5;
    const auto label = [&](const QRectF& rect, const QString& what,
                           std::initializer_list<QString> why, int64_t blocks, int64_t tokens,
                           Provenance provenance) {
        const QFont font = textFont(points, true);
        Line line(painter, {rect.left(), baselineOf(painter, rect, font)}, theme, rect.right());
        const QString before = what + QStringLiteral(": ");
        const QString of_blocks =
            blocks == 1 ? QStringLiteral(" block") : QStringLiteral(" blocks");
        const QString of_tokens =
            tokens == 1 ? QStringLiteral(" token") : QStringLiteral(" tokens");
        line.words(before, points, true, theme.ink)
            .number(formatCount(blocks), points, true, provenance)
            .words(of_blocks, points, true, theme.ink);
        // The tokens whole or not at all: the cells are blocks.
        const double all =
            QFontMetricsF(font, painter.device())
                .horizontalAdvance(before + formatCount(blocks) + of_blocks + QStringLiteral(", ") +
                                   formatCount(tokens) + of_tokens);
        if (all + 4 > rect.width()) return;
        line.words(QStringLiteral(", "), points, true, theme.ink)
            .number(formatCount(tokens), points, true, provenance)
            .words(of_tokens, points, true, theme.ink)
            .note(why, kTextPoints, theme.quiet_ink);
    };
    label(layout.ghostLabel(), QStringLiteral("copied"),
          {QStringLiteral("   if every sequence kept its own"), QStringLiteral("   each its own")},
          account.blocks_unshared, account.tokens_unshared, Provenance::kDerived);
    label(layout.heldLabel(), QStringLiteral("shared"),
          {QStringLiteral("   held by the engine"), QStringLiteral("   held")},
          account.active_blocks, account.tokens_held, Provenance::kMeasured);
    paintGhosts(painter, scene, theme);
    paintHeld(painter, scene, theme);

    const QRectF ratio = layout.ratio();
    const QFont big = monoFont(20, true);
    const QFontMetricsF big_metrics(big, painter.device());
    const double value = account.active_blocks > 0 ? static_cast<double>(account.blocks_unshared) /
                                                         static_cast<double>(account.active_blocks)
                                                   : 0;
    const QString text = value > 0 ? formatRatio(value) : noData();
    const bool beside = ratio.width() >= 330;
    const double baseline = beside ? ratio.center().y() + big_metrics.capHeight() / 2
                                   : ratio.top() + 4 + big_metrics.capHeight();
    const double width =
        drawNumber(painter, {ratio.left(), baseline}, text, big, theme.ink, Provenance::kDerived);
    const QString fewer = QStringLiteral("fewer blocks");
    const QString quotient =
        QStringLiteral(": %1 / %2")
            .arg(formatCount(account.blocks_unshared), formatCount(account.active_blocks));
    const QPointF at = beside ? QPointF(ratio.left() + width + 18, baseline)
                              : QPointF(ratio.left(), baseline + 24);
    Line(painter, at, theme, ratio.right() + 1).note({fewer + quotient, fewer}, points, theme.ink);
    paintCosts(painter, scene, theme);
    if (!layout.key().isEmpty()) {
        drawProvenanceKey(painter, {layout.key().left(), layout.key().bottom() - 5}, theme,
                          layout.key().width());
    }
}

void paintTimelineLanes(QPainter& painter, const TimelineScene& scene, const Theme& theme) {
    const TimelineLayout& layout = scene.layout;
    const QFont font = textFont(kTextPoints);
    const QFontMetricsF metrics(font, painter.device());
    const std::vector<TimelineLayout::Bin> bins = layout.bins();
    for (int l = 0; l < kNumLanes; ++l) {
        const Lane lane = static_cast<Lane>(l);
        const QRectF rect = layout.laneRect(lane);
        painter.setFont(font);
        painter.setPen(theme.quiet_ink);
        const QRectF label = layout.laneLabel(lane);
        painter.drawText(QPointF(label.left(), label.center().y() + metrics.capHeight() / 2),
                         QLatin1String(laneName(lane)));
        painter.setPen(QPen(theme.hairline, 1));
        const double y = std::floor(rect.center().y()) + 0.5;
        painter.drawLine(QPointF(rect.left(), y), QPointF(rect.right(), y));
        if (!scene.counts) continue;
        const double max_count = std::max(1, scene.max_counts[static_cast<size_t>(l)]);
        painter.setPen(Qt::NoPen);
        painter.setBrush(theme.ink);
        for (const TimelineLayout::Bin& bin : bins) {
            int count = 0;
            for (int64_t s = bin.first_step; s <= bin.last_step; ++s) {
                if (static_cast<size_t>(s) >= scene.counts->size()) break;
                count = std::max(count,
                                 (*scene.counts)[static_cast<size_t>(s)][static_cast<size_t>(l)]);
            }
            if (count == 0) continue;
            // Taller ticks did more; the root keeps one token visible beside a prefill chunk.
            const double height =
                3 + (rect.height() - 7) * std::sqrt(static_cast<double>(count) / max_count);
            const double width = std::clamp(bin.width * 0.55, 1.2, 5.0);
            painter.drawRoundedRect(
                QRectF(bin.x + (bin.width - width) / 2, y - height / 2, width, height),
                std::min(width, 4.0) / 2, std::min(width, 4.0) / 2);
        }
    }
    painter.setFont(font);
    const QRectF axis = layout.axis();
    painter.setPen(theme.quiet_ink);
    painter.drawText(
        QPointF(layout.laneLabel(Lane::kWrite).left(), axis.center().y() + metrics.capHeight() / 2),
        QStringLiteral("step"));
    for (const int64_t moment : layout.axisMoments(64)) {
        const double x = layout.xOf(static_cast<double>(moment));
        const QString text = formatCount(moment);
        const double width = metrics.horizontalAdvance(text);
        painter.setPen(QPen(theme.quiet_line, 1));
        painter.drawLine(QPointF(x, axis.top()), QPointF(x, axis.top() + 3));
        painter.setPen(theme.quiet_ink);
        const double left = std::clamp(x - width / 2, axis.left(), axis.right() - width + 10);
        painter.drawText(QPointF(left, axis.top() + 4 + metrics.ascent()), text);
    }
}

void paintTimelineCurve(QPainter& painter, const TimelineScene& scene, const Theme& theme) {
    if (!scene.blocks_in_use) return;
    const QRectF rect = scene.layout.curve();
    const std::vector<QPointF> points =
        steppedCurve(scene.layout, rect, *scene.blocks_in_use, scene.max_blocks);
    if (points.empty()) return;
    QPolygonF line(QVector<QPointF>(points.begin(), points.end()));
    QPolygonF area = line;
    area.append(QPointF(line.last().x(), rect.bottom()));
    area.append(QPointF(line.first().x(), rect.bottom()));
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.accent_tint);
    painter.drawPolygon(area);
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(theme.accent, 1.6));
    painter.drawPolyline(line);
}

void paintMinimap(QPainter& painter, const TimelineScene& scene, const Theme& theme) {
    const TimelineLayout& layout = scene.layout;
    const QRectF map = layout.minimap();
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.hairline);
    painter.drawRoundedRect(map, 3, 3);
    if (scene.blocks_in_use && scene.blocks_in_use->size() > 1) {
        const int64_t n = static_cast<int64_t>(scene.blocks_in_use->size()) - 1;
        QPolygonF area;
        area.append(map.bottomLeft());
        const int columns = std::max(2, static_cast<int>(map.width()));
        for (int i = 0; i <= columns; ++i) {
            const int64_t moment = n * i / columns;
            const double share =
                (*scene.blocks_in_use)[static_cast<size_t>(moment)] / scene.max_blocks;
            area.append(QPointF(map.left() + map.width() * i / columns,
                                map.bottom() - share * (map.height() - 1)));
        }
        area.append(map.bottomRight());
        painter.setBrush(mixed(theme.hairline, theme.accent, 0.45));
        painter.drawPolygon(area);
    }
    const QRectF window = layout.minimapWindow();
    if (window.width() < map.width() - 1) {
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme.accent, 1.6));
        painter.drawRoundedRect(window.adjusted(0.5, -0.5, -0.5, 0.5), 3, 3);
    }
}

void paintPlayhead(QPainter& painter,
                   const TimelineLayout& layout,
                   double moment,
                   const Theme& theme) {
    const QRectF map = layout.minimap();
    painter.setPen(QPen(theme.ink, 1.6));
    const double map_x = layout.minimapX(moment);
    painter.drawLine(QPointF(map_x, map.top() - 1), QPointF(map_x, map.bottom() + 1));
    if (moment < layout.first() - 1e-9 || moment > layout.last() + 1e-9) return;
    const double x = layout.xOf(moment);
    painter.setPen(QPen(theme.accent, 2));
    painter.drawLine(QPointF(x, layout.plot().top()), QPointF(x, layout.plot().bottom()));
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.accent);
    painter.drawEllipse(QPointF(x, layout.plot().top() + 1), 4.5, 4.5);
}

double paintAccount(QPainter& painter,
                    const QRectF& area,
                    const PoolAccount& account,
                    int block_size,
                    int64_t bytes_per_token,
                    const Theme& theme) {
    const QFont font = textFont(kTextPoints);
    const QFont bold = textFont(kTextPoints + 0.5, true);
    const QFontMetricsF metrics(font, painter.device());
    const double line = std::ceil(metrics.height()) + 4;
    const bool has_pool = account.total_blocks > 0;
    double y = area.top();

    enum class Fill { kActive, kUnused, kCached, kFree };
    struct Part {
        QString name;
        int64_t count;
        Fill fill;
    };
    const auto paintBar = [&](const QRectF& bar, const std::vector<Part>& parts, int64_t total) {
        int num_parts = 0;
        for (const Part& part : parts) num_parts += part.count > 0;
        const double room = bar.width() - 2.0 * std::max(0, num_parts - 1);
        double x = bar.left();
        for (const Part& part : parts) {
            if (part.count == 0 || total == 0) continue;
            const double width =
                room * static_cast<double>(part.count) / static_cast<double>(total);
            const QRectF rect(x, bar.top(), std::max(width, 1.0), bar.height());
            const double radius = std::min(3.0, rect.width() / 2);
            QPen pen(part.fill == Fill::kFree ? theme.free_outline : theme.cell_outline, 1);
            if (part.fill == Fill::kCached) pen.setDashPattern({1.2, 1.8});
            painter.setPen(pen);
            painter.setBrush(part.fill == Fill::kActive   ? theme.accent
                             : part.fill == Fill::kCached ? theme.cached_fill
                                                          : theme.free_fill);
            painter.drawRoundedRect(rect, radius, radius);
            if (part.fill == Fill::kUnused) {
                drawHatch(painter, rect.adjusted(1, 1, -1, -1), theme.ink, 3.2, 0.8);
            }
            x += width + 2;
        }
    };
    const auto paintParts = [&](const std::vector<Part>& parts) {
        double x = area.left();
        for (const Part& part : parts) {
            const QString count = has_pool ? formatCount(part.count) : noData();
            const double width = 15 + metrics.horizontalAdvance(part.name + QLatin1Char(' ')) +
                                 metrics.horizontalAdvance(count);
            if (x > area.left() && x + width > area.right()) {
                x = area.left();
                y += line;
            }
            const QRectF swatch(x, y + line / 2 - 5, 10, 10);
            paintBar(swatch, {{part.name, 1, part.fill}}, 1);
            const double baseline = y + line / 2 + metrics.capHeight() / 2;
            painter.setPen(theme.quiet_ink);
            painter.setFont(font);
            painter.drawText(QPointF(x + 15, baseline), part.name);
            const double at = x + 15 + metrics.horizontalAdvance(part.name + QLatin1Char(' '));
            drawNumber(painter, {at, baseline}, count, font, theme.ink, Provenance::kMeasured);
            x += width + 14;
        }
        y += line + 2;
    };
    const auto paintHead = [&](const QString& text, const QString& total) {
        painter.setFont(bold);
        painter.setPen(theme.ink);
        const double baseline = y + line / 2 + metrics.capHeight() / 2;
        painter.drawText(QPointF(area.left(), baseline), text);
        painter.setFont(font);
        painter.setPen(theme.quiet_ink);
        painter.drawText(QPointF(area.right() - metrics.horizontalAdvance(total), baseline), total);
        y += line;
    };
    const auto paintWords = [&](const QString& text) {
        const QRectF rect(area.left(), y, area.width(), line * 2);
        const QRectF used = painter.boundingRect(rect, Qt::TextWordWrap, text);
        painter.setFont(font);
        painter.setPen(theme.quiet_ink);
        painter.drawText(rect, Qt::TextWordWrap, text);
        y += std::max(used.height(), metrics.height()) + 3;
    };
    painter.setFont(font);

    const std::vector<Part> blocks{{QStringLiteral("active"), account.active_blocks, Fill::kActive},
                                   {QStringLiteral("cached"), account.cached_blocks, Fill::kCached},
                                   {QStringLiteral("free"), account.free_blocks, Fill::kFree}};
    paintHead(QStringLiteral("Blocks"),
              has_pool ? countOf(account.total_blocks, "block") : noData());
    paintBar({area.left() + 0.5, y + 0.5, area.width() - 1, 15}, blocks, account.total_blocks);
    y += 20;
    paintParts(blocks);
    y += 4;
    const int64_t num_slots = account.total_blocks * block_size;
    const std::vector<Part> tokens{
        {QStringLiteral("tokens"), account.tokens_held, Fill::kActive},
        {QStringLiteral("empty"), account.slots_unused, Fill::kUnused},
        {QStringLiteral("cached"), account.cached_blocks * block_size, Fill::kCached},
        {QStringLiteral("free"), account.free_blocks * block_size, Fill::kFree}};
    paintHead(QStringLiteral("Token slots"), has_pool ? countOf(num_slots, "slot") : noData());
    paintBar({area.left() + 0.5, y + 0.5, area.width() - 1, 15}, tokens, num_slots);
    y += 20;
    paintParts(tokens);
    if (has_pool) {
        y += 2;
        paintWords(account.slots_allocated > 0
                       ? QStringLiteral("%1 of %2 active slots hold tokens (%3)")
                             .arg(formatCount(account.tokens_held),
                                  formatCount(account.slots_allocated),
                                  formatPercent(static_cast<double>(account.tokens_held) /
                                                static_cast<double>(account.slots_allocated))
                                      .replace(QLatin1Char(' '), QChar::Nbsp))
                       : QStringLiteral("no slot is in use"));
        if (bytes_per_token > 0) {
            paintWords(QStringLiteral("1 block = %1 × %2 = %3")
                           .arg(formatCount(block_size), formatBytes(bytes_per_token),
                                formatBytes(bytes_per_token * block_size)));
        }
        if (account.free_blocks + account.cached_blocks == 0) {
            // An octagon and words, never the colour alone.
            const double r = 7;
            const QPointF c(area.left() + r, y + line / 2);
            QPolygonF octagon;
            for (int i = 0; i < 8; ++i) {
                const double angle = (i + 0.5) * 3.14159265358979 / 4;
                octagon << c + QPointF(std::cos(angle), std::sin(angle)) * r;
            }
            painter.setPen(Qt::NoPen);
            painter.setBrush(theme.alarm);
            painter.drawPolygon(octagon);
            painter.setPen(theme.ink);
            painter.setFont(bold);
            painter.drawText(QPointF(area.left() + 2 * r + 6, c.y() + metrics.capHeight() / 2),
                             QStringLiteral("no free block"));
            y += line;
        }
    }
    return y - area.top();
}

QString accountSentence(const PoolAccount& account) {
    return QStringLiteral(
               "%1 active + %2 cached + %3 free = %4 · %5 of %6 active slots hold tokens")
        .arg(formatCount(account.active_blocks), formatCount(account.cached_blocks),
             formatCount(account.free_blocks), countOf(account.total_blocks, "block"),
             formatCount(account.tokens_held), formatCount(account.slots_allocated));
}

}  // namespace kvlab
