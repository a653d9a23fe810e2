// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/paint/kernel_walk_painter.h"

#include <algorithm>

#include <QFontMetricsF>

#include "app/gui/paint/block_cell_painter.h"
#include "app/gui/provenance.h"
#include "engine/trace/event.h"

namespace kvlab {
namespace {

constexpr double kLine = 18, kGutter = 26, kTotalsHeight = 2 * kLine + 6;
// Two lines of words, one line of the strip, two of the hop.
constexpr double kLeastHalves = 2 * kLine + 5 + WalkStripLayout::kCellHeight + 2 + 2 * kLine + 6;

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

// The first of the wordings, longest first, that finds room; the last one is cut if it must be.
void drawFirstFitting(QPainter& painter,
                      const QRectF& rect,
                      const QStringList& wordings,
                      const QFont& font) {
    const QFontMetricsF metrics(font, painter.device());
    for (const QString& words : wordings) {
        if (words == wordings.last() || metrics.horizontalAdvance(words) <= rect.width()) {
            return drawLine(painter, rect, words, font);
        }
    }
}

QStringList wrapped(const QString& words, const QFontMetricsF& metrics, double width) {
    QStringList lines(QString{});
    for (const QString& word : words.split(QLatin1Char(' '))) {
        const QString longer = lines.last().isEmpty() ? word : lines.last() + ' ' + word;
        if (lines.last().isEmpty() || metrics.horizontalAdvance(longer) <= width) {
            lines.last() = longer;
        } else {
            lines.append(word);
        }
    }
    return lines;
}

// Whole or not at all: half an explanation explains nothing. Returns the height it took.
double drawWrapped(QPainter& painter, const QRectF& room, const QString& words, const QFont& font) {
    const QStringList lines = wrapped(words, QFontMetricsF(font, painter.device()), room.width());
    if (static_cast<double>(lines.size()) * kLine > room.height()) return 0;
    QRectF line(room.left(), room.top(), room.width(), kLine);
    for (const QString& text : lines) {
        drawLine(painter, line, text, font);
        line.translate(0, kLine);
    }
    return line.top() - room.top();
}

// A thread block is a disc: the squares of every picture are KV blocks.
void paintDisc(
    QPainter& painter, const QRectF& rect, int owner, bool with_letter, const Theme& theme) {
    fillWithOwner(painter, rect, rect.width() / 2, owner, theme);
    if (with_letter && ownerIsStriped(owner)) {
        const double inset = rect.width() * 0.19;
        painter.setPen(Qt::NoPen);
        painter.setBrush(theme.owner_fill[ownerFillIndex(owner)]);
        painter.drawEllipse(rect.adjusted(inset, inset, -inset, -inset));
    }
    painter.setPen(QPen(theme.cell_outline, 1));
    painter.setBrush(Qt::NoBrush);
    painter.drawEllipse(rect.adjusted(0.5, 0.5, -0.5, -0.5));
    if (!with_letter) return;
    painter.setPen(theme.owner_ink[ownerFillIndex(owner)]);
    drawCentred(painter, rect, QString::fromStdString(ownerLetter(SequenceId(owner))),
                monoFont(std::max(kCellLetterPoints, rect.width() * 0.36), true));
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
        const double needed = mono.horizontalAdvance(number) + metrics_.horizontalAdvance(words) +
                              5 + (num_numbers_ > 0 ? metrics_.horizontalAdvance(kDot) : 0);
        if (full_ || x_ + needed > right_) {
            full_ = true;
            return;
        }
        if (!number.isEmpty()) {
            if (num_numbers_++ > 0) {
                painter_.setFont(textFont(kTextPoints));
                painter_.setPen(theme_.quiet_ink);
                painter_.drawText(QPointF(x_, baseline_), kDot);
                x_ += metrics_.horizontalAdvance(kDot);
            }
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
    const QString kDot = QStringLiteral("  ·  ");
    QPainter& painter_;
    const Theme& theme_;
    QFontMetricsF metrics_;
    double x_, right_, baseline_;
    bool full_ = false;
    int num_numbers_ = 0;
};

bool readsAnything(const AttentionThreadBlock& thread_block) {
    return std::any_of(thread_block.runs.begin(), thread_block.runs.end(),
                       [](const AttentionRun& run) { return !run.reads.empty(); });
}

QRectF roomBelowGrid(const KernelWalkScene& scene) {
    double bottom = scene.grid_area.top();
    for (int l = 0; l < static_cast<int>(scene.walk->attention.launches.size()); ++l) {
        const AttentionLaunch& launch = scene.walk->attention.launches[static_cast<size_t>(l)];
        for (int i = 0; i < static_cast<int>(launch.thread_blocks.size()); ++i) {
            bottom = std::max(bottom, scene.grid.cellRect(l, i).bottom());
        }
    }
    return QRectF(scene.grid_area.left(), bottom + 8, scene.grid_area.width(),
                  scene.grid_area.bottom() - bottom - 8);
}

const QString kKeyWords = QStringLiteral(
    "Keys: arrows choose the thread block, comma and full stop the entry; the table and the pool "
    "above light up.");

void paintGrid(QPainter& painter, const KernelWalkScene& scene, const Theme& theme, bool live) {
    const double cell = scene.grid.cell();
    for (int l = 0; l < static_cast<int>(scene.walk->attention.launches.size()); ++l) {
        const AttentionLaunch& launch = scene.walk->attention.launches[static_cast<size_t>(l)];
        painter.setPen(theme.ink);
        const QRectF caption = scene.grid.caption(l);
        if (!caption.isEmpty()) {
            const QString name = kernelName(launch.kernel);
            const QString grid = QStringLiteral("grid %1 × %2 × %3")
                                     .arg(launch.grid_x)
                                     .arg(launch.grid_y)
                                     .arg(launch.grid_z);
            const QString axes =
                QStringLiteral(" (%1, KV heads, parts)")
                    .arg(launch.rows_per_thread_block == 1 ? QStringLiteral("rows")
                                                           : QStringLiteral("tiles of rows"));
            drawFirstFitting(painter, caption,
                             {name + QStringLiteral(" · ") + grid + axes,
                              name + QStringLiteral(" · ") + grid, grid + axes, grid},
                             textFont(kTextPoints, true));
        }
        painter.setPen(theme.quiet_ink);
        for (int y = 0; y < launch.grid_y; ++y) {
            const QRectF label = scene.grid.label(l, y);
            if (label.isEmpty()) continue;
            const QString head = launch.num_slices == 1 || y % launch.num_slices == 0
                                     ? QStringLiteral("KV head %1").arg(y / launch.num_slices)
                                     : QStringLiteral("slice %1").arg(y % launch.num_slices);
            drawLine(painter, label, head, textFont(kTextPoints));
        }
        for (int i = 0; i < static_cast<int>(launch.thread_blocks.size()); ++i) {
            const QRectF rect = scene.grid.cellRect(l, i);
            if (rect.isEmpty()) continue;
            const AttentionThreadBlock& thread_block = launch.thread_blocks[static_cast<size_t>(i)];
            if (!readsAnything(thread_block)) {
                // A part behind the end of a short context.
                painter.setPen(QPen(theme.free_outline, 1));
                painter.setBrush(theme.free_fill);
                painter.drawEllipse(rect.adjusted(0.5, 0.5, -0.5, -0.5));
                const double inset = rect.width() * 0.15;
                if (cell >= 8) {
                    drawHatch(painter, rect.adjusted(inset, inset, -inset, -inset),
                              theme.quiet_line, 4, 0.8);
                }
            } else {
                paintDisc(painter, rect, scene.ownerOf(thread_block.runs.front()), cell >= 14,
                          theme);
            }
        }
    }
    const QRectF chosen = scene.grid.cellRect(scene.launch, scene.thread_block);
    if (!chosen.isEmpty()) {
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme.panel, 4.6));
        painter.drawEllipse(chosen.adjusted(-0.5, -0.5, 0.5, 0.5));
        painter.setPen(QPen(theme.accent, 2.8));
        painter.drawEllipse(chosen.adjusted(-0.5, -0.5, 0.5, 0.5));
    }
    if (scene.stacked) return;
    // What the signs mean, where the grid leaves room.
    painter.setPen(theme.quiet_ink);
    const QRectF room = roomBelowGrid(scene);
    if (drawWrapped(painter, room, walkGridWords(scene, live), textFont(kTextPoints)) == 0) {
        drawWrapped(painter, room, QStringLiteral("Disc: a thread block. Square: a KV block."),
                    textFont(kTextPoints));
    }
}

// No room for a third line of words above the strip.
bool isCompact(const KernelWalkScene& scene) {
    return scene.stacked || scene.detail.height() < 150;
}

void paintDetail(QPainter& painter, const KernelWalkScene& scene, const Theme& theme, bool live) {
    const AttentionThreadBlock& chosen = scene.chosen();
    const AttentionLaunch& launch = scene.chosenLaunch();
    QRectF line(scene.detail.left(), scene.detail.top(), scene.detail.width(), kLine + 1);
    painter.setPen(theme.ink);
    const QString title =
        QStringLiteral("Thread block (%1, %2, %3)").arg(chosen.x).arg(chosen.y).arg(chosen.z);
    drawLine(painter, line, title, textFont(kTextPoints + 1, true));
    line.translate(0, kLine + 1);
    const AttentionRun* run = scene.steps[static_cast<size_t>(scene.step)].run;
    if (run == nullptr && !chosen.runs.empty()) run = &chosen.runs.front();
    if (run == nullptr) return;
    const int owner = scene.ownerOf(*run);
    paintDisc(painter, QRectF(line.left(), line.top() + 1, 17, 17), owner, true, theme);
    painter.setPen(theme.ink);
    const QString who =
        QStringLiteral("%1 %2 · KV head %3 · query %4 %5")
            .arg(
                run->row_end - run->row_begin == 1 ? QStringLiteral("row") : QStringLiteral("rows"),
                range(run->row_begin, run->row_end))
            .arg(run->kv_head)
            .arg(run->num_heads == 1 ? QStringLiteral("head") : QStringLiteral("heads"),
                 range(run->first_head, run->first_head + run->num_heads));
    QString part;
    if (launch.num_splits > 1) {
        part = QStringLiteral("part %1 of %2 · ").arg(chosen.z + 1).arg(launch.num_splits);
    }
    part += run->begin < run->end
                ? QStringLiteral("positions %1").arg(range(run->begin, run->end))
                : QStringLiteral("nothing to read: the context ends before this part");
    const QRectF beside = line.adjusted(23, 0, 0, 0);
    drawFirstFitting(painter, beside, {who, QString(who).replace("query ", QString()), who},
                     textFont(kTextPoints));
    if (isCompact(scene)) {
        const double used = QFontMetricsF(textFont(kTextPoints + 1, true), painter.device())
                                .horizontalAdvance(title) +
                            10;
        const QRectF behind = line.translated(0, -kLine - 1).adjusted(used, 0, 0, 0);
        drawFirstFitting(painter, behind,
                         {part, part.section(QStringLiteral(" · "), -1), QString()},
                         textFont(kTextPoints));
    } else {
        drawLine(painter, beside.translated(0, kLine), part, textFont(kTextPoints));
    }

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
    // One line, or two where it is narrow.
    const QString hop = walkStepWords(scene);
    const QFontMetricsF mono(monoFont(kTextPoints), painter.device());
    QStringList lines{hop};
    const qsizetype cut = hop.indexOf(QStringLiteral(" · "));
    if (mono.horizontalAdvance(hop) > scene.hop.width() && cut > 0) {
        lines = {hop.left(cut), hop.mid(cut + 3)};
        const qsizetype round = lines.last().lastIndexOf(QStringLiteral(" · "));
        if (round > 0 && mono.horizontalAdvance(lines.last()) > scene.hop.width()) {
            lines.last().truncate(round);
        }
    }
    QRectF at = scene.hop;
    for (const QString& words : lines) {
        drawLine(painter, at, words, monoFont(kTextPoints));
        at.translate(0, kLine);
    }
    if (scene.stacked) return;
    painter.setPen(theme.quiet_ink);
    const QRectF room(at.left(), at.top() + 6, at.width(), scene.detail.bottom() - at.top() - 6);
    const double taken = drawWrapped(painter, room, walkLessonWords(scene), textFont(kTextPoints));
    if (taken == 0 || !live) return;
    drawWrapped(painter, room.adjusted(0, taken + 4, 0, 0), kKeyWords, textFont(kTextPoints));
}

// Below both halves, over the whole width: the step first, then the signs and the keys.
void paintWords(QPainter& painter, const KernelWalkScene& scene, const Theme& theme, bool live) {
    QRectF room = scene.words;
    painter.setPen(theme.ink);
    room.adjust(0, drawWrapped(painter, room, walkLessonWords(scene), textFont(kTextPoints)) + 4, 0,
                0);
    painter.setPen(theme.quiet_ink);
    const QString rest = walkGridWords(scene, live) + (live ? ' ' + kKeyWords : QString());
    drawWrapped(painter, room, rest, textFont(kTextPoints));
}

double wrappedHeight(const QString& words, double width) {
    const QFontMetricsF metrics(textFont(kTextPoints));
    return static_cast<double>(wrapped(words, metrics, width).size()) * kLine;
}

// Of the longest that the walk says in any of its steps, so that nothing jumps.
double lessonHeight(const KernelWalkScene& scene, double width) {
    KernelWalkScene other = scene;
    double height = 0;
    for (const size_t step : {size_t{0}, scene.steps.size() - 1}) {
        other.step = static_cast<int>(step);
        height = std::max(height, wrappedHeight(walkLessonWords(other), width));
    }
    return height;
}

double wordsHeight(const KernelWalkScene& scene, double width) {
    return lessonHeight(scene, width) + 4 +
           wrappedHeight(walkGridWords(scene, true) + ' ' + kKeyWords, width);
}

void layOutHalves(KernelWalkScene& scene, const QRectF& upper) {
    // Where it is narrow the walk's words need the room more than the discs.
    const double share = scene.stacked && upper.width() < 560 ? 0.37 : 0.44;
    const double grid_width = std::floor((upper.width() - kGutter) * share);
    scene.grid_area = QRectF(upper.left(), upper.top(), grid_width, upper.height());
    scene.detail = QRectF(upper.left() + grid_width + kGutter, upper.top(),
                          upper.width() - grid_width - kGutter, upper.height());
    scene.hop =
        QRectF(scene.detail.left(), scene.detail.bottom() - kLine, scene.detail.width(), kLine);
    // Two lines of words below the strip where one is too narrow for them.
    const double hop_lines = scene.detail.width() < 420 ? 2 : 1;
    scene.hop.moveTop(scene.detail.bottom() - hop_lines * kLine);
    const double words = (isCompact(scene) ? 2 : 3) * kLine + 5;
    scene.strip_area = QRectF(scene.detail.left(), scene.detail.top() + words, scene.detail.width(),
                              scene.hop.top() - scene.detail.top() - words - 2);
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

// Side by side, and every word has its room.
bool allWordsFit(const KernelWalkScene& scene) {
    const QRectF signs = roomBelowGrid(scene);
    if (scene.grid.isFolded() ||
        wrappedHeight(walkGridWords(scene, true), signs.width()) > signs.height()) {
        return false;
    }
    const double hop_lines = scene.detail.width() < 420 ? 2 : 1;
    const double room = scene.detail.bottom() - scene.hop.top() - hop_lines * kLine - 6;
    return lessonHeight(scene, scene.detail.width()) + 4 +
               wrappedHeight(kKeyWords, scene.detail.width()) <=
           room;
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
    const QString grid =
        QStringLiteral(
            "grid = %1 %2 × %3 KV heads%4 × %5 = %6, %7 threads and %8 of shared "
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
            .arg(formatBytes(launch.shared_bytes));
    const QString count =
        countOf(int64_t{launch.grid_x} * launch.grid_y * launch.grid_z, "thread block");
    drawFirstFitting(painter, line,
                     {grid, grid.section(QStringLiteral(", "), 0, 0),
                      QStringLiteral("%1 × %2 × %3 = %4 of %5 threads")
                          .arg(launch.grid_x)
                          .arg(launch.grid_y)
                          .arg(launch.grid_z)
                          .arg(count)
                          .arg(launch.num_threads)},
                     textFont(kTextPoints));
    line.translate(0, kLine);
    Writer writer(painter, line, theme);
    if (line.width() < 620) {
        // What the reader counts in the picture comes first where not all has room.
        writer.add({}, QStringLiteral("layer %1:  ").arg(walk.layer));
        writer.add(formatCount(totals.num_reads), QStringLiteral("table entries read"));
        writer.add(formatBytes(totals.num_rows * walk.row_bytes), QStringLiteral("of K and V"));
        return;
    }
    writer.add({}, QStringLiteral("recorded in layer %1:  ").arg(walk.layer));
    writer.add(formatCount(totals.num_thread_blocks), QStringLiteral("thread blocks"));
    writer.add(formatCount(totals.num_threads), QStringLiteral("threads"));
    writer.add(formatCount(totals.num_reads), QStringLiteral("block-table entries read"));
    writer.add(formatBytes(totals.num_rows * walk.row_bytes), QStringLiteral("of K and V read"));
    if (totals.num_repeated > 0) {
        writer.add(formatCount(totals.num_repeated),
                   QStringLiteral("rows read again, from the nearest cache"));
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
    return QStringLiteral("table %1[%2] = KV block %3 · positions %4 → slots %5 · round %6")
        .arg(QString::fromStdString(ownerLetter(SequenceId(scene.ownerOf(*step.run)))))
        .arg(read.block_idx)
        .arg(read.block)
        .arg(range(read.begin, read.end), range(slot, slot + read.end - read.begin))
        .arg(read.round);
}

QString walkLessonWords(const KernelWalkScene& scene) {
    const WalkStep& step = scene.steps[static_cast<size_t>(scene.step)];
    const AttentionLaunch& launch = scene.chosenLaunch();
    const bool several = launch.num_splits > 1;
    if (scene.steps.size() == 1) {
        return QStringLiteral(
            "The context ends before this part of it: the thread block reads no entry and hands "
            "on an empty result.");
    }
    if (step.read == nullptr) {
        return several ? QStringLiteral(
                             "Its part is read. The warps join what they gathered; a second kernel "
                             "then joins the parts of each row into one output.")
                       : QStringLiteral(
                             "All its entries are read. The warps join what they gathered and "
                             "write the row's attention output.");
    }
    return QStringLiteral(
               "Each square is an entry of %1's block table, [index] over KV block: the thread "
               "block looks up where the next %2 tokens lie, reads their K and V of KV head %3 "
               "once for %4, and keeps a running maximum, sum and output. %5After the last entry "
               "comes the merge.")
        .arg(QString::fromStdString(ownerLetter(SequenceId(scene.ownerOf(*step.run)))))
        .arg(scene.walk->attention.block_size)
        .arg(step.run->kv_head)
        .arg(countOf(step.run->num_heads, "query head"),
             scene.chosen().runs.size() > 1
                 ? QStringLiteral("Its rows are walked in groups, so an entry comes again for "
                                  "each group. ")
                 : QString());
}

QString walkGridWords(const KernelWalkScene& scene, bool live) {
    const AttentionLaunch& launch = scene.chosenLaunch();
    const auto& launches = scene.walk->attention.launches;
    const bool has_idle =
        std::any_of(launches.begin(), launches.end(), [](const AttentionLaunch& any) {
            return !std::all_of(any.thread_blocks.begin(), any.thread_blocks.end(), readsAnything);
        });
    return QStringLiteral(
               "Each disc is a thread block: %1 threads of the GPU that work together. Its letter "
               "is the sequence whose K and V it reads%2. Side by side: %3; below each other: KV "
               "heads. %4KV blocks are the squares.")
        .arg(launch.num_threads)
        .arg(has_idle ? QStringLiteral("; a hatched one has nothing to read") : QString(),
             launch.num_splits > 1 ? QStringLiteral("the parts of its context")
             : launch.rows_per_thread_block > 1
                 ? QStringLiteral("tiles of %1 rows, the tokens of a prompt's chunk")
                       .arg(launch.rows_per_thread_block)
                 : QStringLiteral("rows of the batch"),
             live ? QStringLiteral("A click chooses one; ") : QString());
}

void layOutKernelWalk(KernelWalkScene& scene, const QRectF& area) {
    scene.stacked = false;
    scene.words = QRectF();
    scene.totals = QRectF(area.left(), area.bottom() - kTotalsHeight, area.width(), kTotalsHeight);
    layOutHalves(scene, area.adjusted(0, 0, 0, -kTotalsHeight - 4));
}

double layOutKernelWalkWhole(KernelWalkScene& scene, const QRectF& room, double narrow_width) {
    layOutKernelWalk(scene, room);
    if (allWordsFit(scene)) return room.height();
    const double width = narrow_width;
    const double words = wordsHeight(scene, width);
    const double below = 4 + words + 6 + kTotalsHeight;
    const double halves = std::max(kLeastHalves, room.height() - below);
    scene.stacked = true;
    layOutHalves(scene, QRectF(room.left(), room.top(), width, halves));
    scene.words = QRectF(room.left(), room.top() + halves + 4, width, words);
    scene.totals = QRectF(room.left(), scene.words.bottom() + 6, width, kTotalsHeight);
    return scene.totals.bottom() - room.top();
}

void paintKernelWalk(QPainter& painter,
                     const KernelWalkScene& scene,
                     const Theme& theme,
                     bool live) {
    paintGrid(painter, scene, theme, live);
    paintDetail(painter, scene, theme, live);
    if (scene.stacked) paintWords(painter, scene, theme, live);
    paintTotals(painter, scene, theme);
}

}  // namespace kvlab
