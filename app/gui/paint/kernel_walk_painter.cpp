// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/paint/kernel_walk_painter.h"

#include <algorithm>

#include <QFontMetricsF>

#include "app/gui/paint/block_cell_painter.h"
#include "app/gui/provenance.h"
#include "engine/trace/event.h"

namespace kvlab {
namespace {

constexpr double kLine = 18, kGutter = 26;

QString range(int begin, int end) {
    return end - begin == 1 ? formatCount(begin)
                            : QStringLiteral("%1–%2").arg(formatCount(begin), formatCount(end - 1));
}

void drawLine(QPainter& painter, const QRectF& rect, const QString& text, const QFont& font) {
    const QFontMetricsF metrics(font, painter.device());
    painter.setFont(font);
    painter.drawText(QPointF(rect.left(), rect.center().y() + metrics.capHeight() / 2),
                     metrics.elidedText(text, Qt::ElideRight, rect.width()));
}

// Words and counted numbers on one line; what finds no room is left out whole.
class Writer {
  public:
    Writer(QPainter& painter, const QRectF& rect, const Theme& theme)
        : painter_(painter),
          theme_(theme),
          metrics_(textFont(kTextPoints), painter.device()),
          x_(rect.left()),
          right_(rect.right()),
          baseline_(rect.center().y() + metrics_.capHeight() / 2) {}
    void add(const QString& number, const QString& words) {
        const QFontMetricsF mono(monoFont(kTextPoints), painter_.device());
        const double needed =
            mono.horizontalAdvance(number) + metrics_.horizontalAdvance(words) + 5;
        if (full_ || x_ + needed > right_) {
            full_ = true;
            return;
        }
        if (!number.isEmpty()) {
            x_ += drawNumber(painter_, {x_, baseline_}, number, monoFont(kTextPoints), theme_.ink,
                             Provenance::kMeasured);
            x_ += 5;
        }
        painter_.setFont(textFont(kTextPoints));
        painter_.setPen(theme_.quiet_ink);
        painter_.drawText(QPointF(x_, baseline_), words);
        x_ += metrics_.horizontalAdvance(words);
    }

  private:
    QPainter& painter_;
    const Theme& theme_;
    QFontMetricsF metrics_;
    double x_, right_, baseline_;
    bool full_ = false;
};

void paintGrid(QPainter& painter, const KernelWalkScene& scene, const Theme& theme) {
    const double cell = scene.grid.cell();
    for (int l = 0; l < static_cast<int>(scene.walk->attention.launches.size()); ++l) {
        const AttentionLaunch& launch = scene.walk->attention.launches[static_cast<size_t>(l)];
        painter.setPen(theme.ink);
        const QRectF caption = scene.grid.caption(l);
        if (!caption.isEmpty()) {
            drawLine(painter, caption,
                     QStringLiteral("%1 · grid %2 × %3 × %4 (rows, heads, parts)")
                         .arg(kernelName(launch.kernel))
                         .arg(launch.grid_x)
                         .arg(launch.grid_y)
                         .arg(launch.grid_z),
                     textFont(kTextPoints, true));
        }
        painter.setPen(theme.quiet_ink);
        for (int y = 0; y < launch.grid_y && cell >= 11; ++y) {
            const QRectF label = scene.grid.label(l, y);
            if (label.isEmpty()) continue;
            const QString head = launch.num_slices == 1 || y % launch.num_slices == 0
                                     ? QStringLiteral("head %1").arg(y / launch.num_slices)
                                     : QStringLiteral("slice %1").arg(y % launch.num_slices);
            drawLine(painter, label, head, textFont(kTextPoints));
        }
        for (int i = 0; i < static_cast<int>(launch.thread_blocks.size()); ++i) {
            const QRectF rect = scene.grid.cellRect(l, i);
            if (rect.isEmpty()) continue;
            const AttentionThreadBlock& thread_block = launch.thread_blocks[static_cast<size_t>(i)];
            const bool reads =
                std::any_of(thread_block.runs.begin(), thread_block.runs.end(),
                            [](const AttentionRun& run) { return !run.reads.empty(); });
            painter.setPen(QPen(theme.cell_outline, 1));
            if (!reads) {
                // A part behind the end of a short context.
                painter.setPen(QPen(theme.free_outline, 1));
                painter.setBrush(theme.free_fill);
                painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
                if (cell >= 8)
                    drawHatch(painter, rect.adjusted(1, 1, -1, -1), theme.quiet_line, 4, 0.8);
            } else {
                const int owner = scene.ownerOf(thread_block.runs.front());
                if (cell >= 14) {
                    paintOwnerBadge(painter, rect, owner, theme);
                    continue;
                }
                fillWithOwner(painter, rect, cell >= 8 ? 3 : 0, owner, theme);
                if (cell >= 8) {
                    painter.setBrush(Qt::NoBrush);
                    painter.setPen(QPen(theme.cell_outline, 1));
                    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3);
                }
            }
        }
    }
    const QRectF chosen = scene.grid.cellRect(scene.launch, scene.thread_block);
    if (!chosen.isEmpty()) paintSelectionRing(painter, chosen, theme);
}

void paintDetail(QPainter& painter, const KernelWalkScene& scene, const Theme& theme) {
    const AttentionThreadBlock& chosen = scene.chosen();
    const AttentionLaunch& launch = scene.chosenLaunch();
    QRectF line(scene.detail.left(), scene.detail.top(), scene.detail.width(), kLine + 1);
    painter.setPen(theme.ink);
    drawLine(painter, line,
             QStringLiteral("Thread block (%1, %2, %3)").arg(chosen.x).arg(chosen.y).arg(chosen.z),
             textFont(kTextPoints + 1, true));
    line.translate(0, kLine + 1);
    const AttentionRun* run = scene.steps[static_cast<size_t>(scene.step)].run;
    if (run == nullptr && !chosen.runs.empty()) run = &chosen.runs.front();
    if (run == nullptr) return;
    const int owner = scene.ownerOf(*run);
    const QRectF badge(line.left(), line.top() + 1, 16, 16);
    paintOwnerBadge(painter, badge, owner, theme);
    painter.setPen(theme.ink);
    QString words = QStringLiteral("%1 %2 · KV head %3 · query %4 %5")
                        .arg(run->row_end - run->row_begin == 1 ? QStringLiteral("row")
                                                                : QStringLiteral("rows"),
                             range(run->row_begin, run->row_end))
                        .arg(run->kv_head)
                        .arg(run->num_heads == 1 ? QStringLiteral("head") : QStringLiteral("heads"),
                             range(run->first_head, run->first_head + run->num_heads));
    if (launch.num_splits > 1) {
        words += QStringLiteral(" · part %1 of %2").arg(chosen.z + 1).arg(launch.num_splits);
    }
    words += run->begin < run->end
                 ? QStringLiteral(" · positions %1").arg(range(run->begin, run->end))
                 : QStringLiteral(" · nothing to read: the context ends before this part");
    drawLine(painter, line.adjusted(22, 0, 0, 0), words, textFont(kTextPoints));

    const QFont number_font = monoFont(kTextPoints, true);
    const QFont index_font = textFont(kCellLetterPoints);
    for (int s = scene.strip.first(); s < scene.strip.first() + scene.strip.numShown(); ++s) {
        const QRectF rect = scene.strip.cellRect(s);
        const WalkStep& step = scene.steps[static_cast<size_t>(s)];
        const bool is_current = s == scene.step;
        const bool is_done = s < scene.step;
        painter.setPen(QPen(is_current ? theme.accent : theme.panel_border, is_current ? 2.4 : 1));
        painter.setBrush(is_done || is_current ? theme.accent_tint : theme.panel);
        painter.drawRoundedRect(rect.adjusted(1, 1, -1, -1), 4, 4);
        painter.setPen(is_done || is_current ? theme.ink : theme.quiet_ink);
        if (step.read == nullptr) {
            drawCentred(painter, rect, QStringLiteral("merge"), textFont(kCellLetterPoints, true));
            continue;
        }
        drawCentred(painter, QRectF(rect.left(), rect.top() + 2, rect.width(), 12),
                    QStringLiteral("[%1]").arg(step.read->block_idx), index_font);
        drawCentred(painter, QRectF(rect.left(), rect.top() + 13, rect.width(), 17),
                    QString::number(step.read->block), number_font);
    }
    painter.setPen(theme.ink);
    drawLine(painter, scene.hop, walkStepWords(scene), monoFont(kTextPoints));
}

void paintTotals(QPainter& painter, const KernelWalkScene& scene, const Theme& theme) {
    const AttentionWalk& walk = scene.walk->attention;
    const AttentionLaunch& launch = scene.chosenLaunch();
    const WalkTotals totals = totalsOf(walk);
    painter.setPen(QPen(theme.hairline, 1));
    painter.drawLine(QPointF(scene.totals.left(), scene.totals.top() + 0.5),
                     QPointF(scene.totals.right(), scene.totals.top() + 0.5));
    QRectF line(scene.totals.left(), scene.totals.top() + 5, scene.totals.width(), kLine);
    painter.setPen(theme.quiet_ink);
    const QString rows = launch.rows_per_thread_block == 1 ? formatCount(launch.num_rows)
                                                           : QStringLiteral("⌈%1 ÷ %2⌉")
                                                                 .arg(formatCount(launch.num_rows))
                                                                 .arg(launch.rows_per_thread_block);
    drawLine(
        painter, line,
        QStringLiteral("grid = %1 %2 × %3 KV heads%4 × %5 = %6, %7 threads and %8 of shared "
                       "memory each")
            .arg(rows, launch.rows_per_thread_block == 1 ? QStringLiteral("rows")
                                                         : QStringLiteral("tiles of rows"))
            .arg(walk.num_kv_heads)
            .arg(launch.num_slices > 1 ? QStringLiteral(" · %1 slices").arg(launch.num_slices)
                                       : QString(),
                 launch.num_splits > 1
                     ? QStringLiteral("%1 parts of the context").arg(launch.num_splits)
                     : QStringLiteral("1 part (not split)"),
                 countOf(int64_t{launch.grid_x} * launch.grid_y * launch.grid_z, "thread block"))
            .arg(launch.num_threads)
            .arg(formatBytes(launch.shared_bytes)),
        textFont(kTextPoints));
    line.translate(0, kLine);
    Writer writer(painter, line, theme);
    writer.add({}, QStringLiteral("recorded in layer %1:  ").arg(walk.layer));
    writer.add(formatCount(totals.num_thread_blocks), QStringLiteral("thread blocks ·  "));
    writer.add(formatCount(totals.num_threads), QStringLiteral("threads ·  "));
    writer.add(formatCount(totals.num_reads), QStringLiteral("block-table entries read ·  "));
    writer.add(formatBytes(totals.num_rows * walk.row_bytes), QStringLiteral("of K and V read"));
    if (totals.num_repeated > 0) {
        writer.add({}, QStringLiteral("  (and "));
        writer.add(formatCount(totals.num_repeated),
                   QStringLiteral("rows again, from the nearest cache)"));
    }
}

}  // namespace

WalkTotals totalsOf(const AttentionWalk& walk) {
    WalkTotals totals;
    for (const AttentionLaunch& launch : walk.launches) {
        totals.num_thread_blocks += static_cast<int64_t>(launch.thread_blocks.size());
        totals.num_threads +=
            static_cast<int64_t>(launch.thread_blocks.size()) * launch.num_threads;
        for (const AttentionThreadBlock& thread_block : launch.thread_blocks) {
            for (const AttentionRun& run : thread_block.runs) {
                totals.num_reads += static_cast<int64_t>(run.reads.size());
                totals.num_rows += run.num_key_rows + run.num_value_rows;
                totals.num_repeated += run.num_repeated;
            }
        }
    }
    return totals;
}

std::vector<WalkStep> walkSteps(const AttentionThreadBlock& thread_block) {
    std::vector<WalkStep> steps;
    for (const AttentionRun& run : thread_block.runs) {
        for (const AttentionRead& read : run.reads) steps.push_back({&run, &read});
    }
    steps.push_back({thread_block.runs.empty() ? nullptr : &thread_block.runs.back(), nullptr});
    return steps;
}

QString kernelName(const std::string& written) {
    QString name = QString::fromStdString(written);
    name.remove(QLatin1Char('('));
    return name.section(QLatin1Char('<'), 0, 0).remove(QLatin1Char(')')).trimmed();
}

QString walkStepWords(const KernelWalkScene& scene) {
    const WalkStep& step = scene.steps[static_cast<size_t>(scene.step)];
    const int block_size = scene.walk->attention.block_size;
    if (step.read == nullptr) {
        if (scene.steps.size() == 1) return QStringLiteral("nothing was read: an empty result");
        return scene.chosenLaunch().num_splits > 1
                   ? QStringLiteral(
                         "merge: its warps join maximum, sum and output; "
                         "mergePartsKernel joins the %1 parts")
                         .arg(scene.chosenLaunch().num_splits)
                   : QStringLiteral("merge: maximum, sum and output are joined and written");
    }
    const AttentionRead& read = *step.read;
    const int slot = read.block * block_size + read.begin % block_size;
    return QStringLiteral("table %1[%2] = %3 · positions %4 → slots %5 · round %6")
        .arg(QString::fromStdString(ownerLetter(SequenceId(scene.ownerOf(*step.run)))))
        .arg(read.block_idx)
        .arg(read.block)
        .arg(range(read.begin, read.end), range(slot, slot + read.end - read.begin))
        .arg(read.round);
}

void layOutKernelWalk(KernelWalkScene& scene, const QRectF& area) {
    const double totals_height = 2 * kLine + 6;
    const QRectF upper = area.adjusted(0, 0, 0, -totals_height - 4);
    scene.totals = QRectF(area.left(), area.bottom() - totals_height, area.width(), totals_height);
    const double grid_width = std::floor((upper.width() - kGutter) * 0.44);
    scene.grid_area = QRectF(upper.left(), upper.top(), grid_width, upper.height());
    scene.detail = QRectF(upper.left() + grid_width + kGutter, upper.top(),
                          upper.width() - grid_width - kGutter, upper.height());
    scene.hop =
        QRectF(scene.detail.left(), scene.detail.bottom() - kLine, scene.detail.width(), kLine);
    scene.strip_area =
        QRectF(scene.detail.left(), scene.detail.top() + 2 * kLine + 8, scene.detail.width(),
               scene.hop.top() - scene.detail.top() - 2 * kLine - 12);
    std::vector<GridDims> grids;
    for (const AttentionLaunch& launch : scene.walk->attention.launches) {
        grids.push_back({launch.grid_x, launch.grid_y, launch.grid_z});
    }
    scene.grid = KernelGridLayout(scene.grid_area, grids);
    scene.strip =
        WalkStripLayout(scene.strip_area, static_cast<int>(scene.steps.size()), scene.step);
    // Close below what it explains.
    const int last = scene.strip.first() + scene.strip.numShown() - 1;
    scene.hop.moveTop(
        std::min(scene.hop.top(), scene.strip.cellRect(std::max(last, 0)).bottom() + 6));
}

void paintKernelWalk(QPainter& painter, const KernelWalkScene& scene, const Theme& theme) {
    paintGrid(painter, scene, theme);
    paintDetail(painter, scene, theme);
    paintTotals(painter, scene, theme);
}

}  // namespace kvlab
