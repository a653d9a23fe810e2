// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/export/figure.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <QBuffer>
#include <QFile>
#include <QFontMetricsF>
#include <QImage>
#include <QPainter>
#include <QPdfWriter>
#include <QRegularExpression>
#include <QSaveFile>
#include <QSvgGenerator>

#include "app/gui/paint/chart_painter.h"
#include "app/gui/paint/kernel_walk_painter.h"
#include "app/gui/paint/memory_painter.h"
#include "app/gui/provenance.h"
#include "engine/error.h"

namespace kvlab {
namespace {

constexpr int kDpi = 96;
constexpr double kDotsPerMeter = kDpi / 0.0254;
constexpr double kMargin = 24;  // px

// One pass lays out and paints; run on a throw-away image first, it tells the height.
class Figure {
  public:
    Figure(const std::string& view, const RunLog& log, Cursor cursor, const FigureOptions& options)
        : view_(view),
          log_(log),
          cursor_(log.clamp(cursor)),
          options_(options),
          theme_(Theme::of(options.theme)),
          state_(log.stateAt(cursor_)) {}

    QString title() const {
        QString name;
        if (view_ == "pool") name = QStringLiteral("Physical pool");
        if (view_ == "tables") name = QStringLiteral("Block tables → physical pool");
        if (view_ == "sharing") name = QStringLiteral("What sharing saves, to scale");
        if (view_ == "timeline") name = QStringLiteral("Blocks in use, step by step");
        if (view_ == "kernel-walk") {
            name = QStringLiteral("Kernel walk: which thread block reads what");
        }
        const QString run = QString::fromStdString(log_.info().title);
        return run.isEmpty() ? name : name + QStringLiteral(" · ") + run;
    }

    QString moment() const {
        QString text;
        if (cursor_.event == 0 && cursor_.entry == 0) {
            text = cursor_.step == 0
                       ? QStringLiteral("before the first step")
                       : QStringLiteral("after step %1").arg(formatCount(cursor_.step - 1));
        } else {
            text = QStringLiteral("inside step %1, before event %2, entry %3")
                       .arg(formatCount(cursor_.step))
                       .arg(cursor_.event)
                       .arg(cursor_.entry);
        }
        return text + QStringLiteral(" of %1").arg(countOf(log_.numSteps(), "step"));
    }

    // Paints at the width of the options; returns the height.
    double paint(QPainter& painter, double height) {
        const double width = options_.width_px;
        if (!options_.transparent) {
            painter.fillRect(QRectF(0, 0, width, height), theme_.panel);
        }
        left_ = std::min(kMargin, width * 0.04);
        width_ = width - 2 * left_;
        y_ = left_;
        if (options_.title) {
            text(painter, title(), textFont(14, true), theme_.ink, 4);
            text(painter, moment(), textFont(10), theme_.quiet_ink, 12);
        }
        if (view_ == "pool" || view_ == "tables") paintMemory(painter);
        if (view_ == "sharing") paintSharingFigure(painter);
        if (view_ == "timeline") paintTimelineFigure(painter);
        if (view_ == "kernel-walk") paintWalkFigure(painter);
        paintWords(painter);
        if (options_.footer) paintFooter(painter);
        return std::ceil(y_ + left_ - 6);
    }

  private:
    // Wrapped text at y_; moves y_ below it.
    void text(QPainter& painter,
              const QString& words,
              const QFont& font,
              const QColor& color,
              double gap) {
        const QFontMetricsF metrics(font, painter.device());
        painter.setFont(font);
        painter.setPen(color);
        QString line;
        const auto flush = [&] {
            if (line.isEmpty()) return;
            painter.drawText(QPointF(left_, y_ + metrics.ascent()), line);
            y_ += metrics.height() + 1;
            line.clear();
        };
        for (const QString& word : words.split(QLatin1Char(' '), Qt::SkipEmptyParts)) {
            const QString longer = line.isEmpty() ? word : line + QLatin1Char(' ') + word;
            if (!line.isEmpty() && metrics.horizontalAdvance(longer) > width_) {
                flush();
                line = word;
            } else {
                line = longer;
            }
        }
        flush();
        y_ += gap;
    }

    void paintMemory(QPainter& painter) {
        MemoryScene scene;
        scene.block_size = state_.block_size;
        scene.visuals = blockVisuals(state_);
        scene.looked_at = options_.block;
        if (scene.looked_at &&
            (!scene.looked_at->valid() ||
             static_cast<size_t>(scene.looked_at->value) >= state_.blocks.size())) {
            throw EngineError(
                ErrorKind::kBadArgument,
                "block " + std::to_string(scene.looked_at->value) + " is not in this pool of " +
                    std::to_string(state_.blocks.size()) + " blocks; choose one below that.");
        }
        const bool has_cached =
            std::any_of(scene.visuals.begin(), scene.visuals.end(),
                        [](const BlockVisual& v) { return v.look == BlockLook::kCached; });
        MemoryLayoutOptions options;
        options.with_tables = view_ == "tables";
        options.legend_height = 0;
        options.looked_at_block = options_.block;
        int num_rows = 0;
        for (const SequenceState& sequence : state_.sequences) num_rows += !sequence.removed;
        double height = width_ * 0.46;
        BlockTableMetrics metrics;
        if (options.with_tables) {
            height = std::clamp(num_rows * metrics.max_row, 180.0, 900.0);
            height = std::max(height, std::min(width_ * 0.3, 520.0));
        }
        scene.layout = layOutMemory(QRectF(left_, y_, width_, height), state_, options, metrics);
        if (options.with_tables) paintBlockTables(painter, scene, state_, theme_);
        paintBlockPool(painter, scene, state_, theme_, nullptr);
        paintThreads(painter, scene, state_, theme_);
        double bottom =
            std::max(scene.layout.pool.gridRect().bottom(), scene.layout.folded_note.bottom());
        for (const BlockTableRow& row : scene.layout.tables.rows()) {
            bottom = std::max(bottom, row.rect.bottom());
        }
        y_ = std::max(bottom, scene.layout.tables.hiddenRect().bottom()) + 14;
        y_ += paintLegend(painter, QRectF(left_, y_, width_, 22), theme_, {has_cached, false}) + 6;
    }

    void paintSharingFigure(QPainter& painter) {
        const SharingScene scene = sharingScene(
            state_, QRectF(left_, y_, width_, std::clamp(width_ * 0.5, 320.0, 460.0)), false);
        paintSharing(painter, scene, theme_);
        y_ = std::max(scene.layout.costs().bottom(), scene.layout.ratio().bottom()) + 12;
    }

    void paintTimelineFigure(QPainter& painter) {
        std::vector<LaneCounts> counts;
        std::vector<double> blocks{0};
        TimelineScene scene;
        double peak = 1;
        for (int64_t s = 0; s < log_.numSteps(); ++s) {
            counts.push_back(laneCounts(log_.step(s)));
            blocks.push_back(static_cast<double>(log_.accountAfter(s).active_blocks));
            peak = std::max(peak, blocks.back());
            for (size_t l = 0; l < kNumLanes; ++l) {
                scene.max_counts[l] = std::max(scene.max_counts[l], counts.back()[l]);
            }
        }
        scene.counts = &counts;
        scene.blocks_in_use = &blocks;
        scene.max_blocks = peak * 1.12;
        scene.layout =
            TimelineLayout(QRectF(left_, y_, width_, std::clamp(width_ * 0.25, 210.0, 360.0)),
                           log_.numSteps(), 0, 0);
        paintTimelineCurve(painter, scene, theme_);
        paintTimelineLanes(painter, scene, theme_);
        const QRectF curve = scene.layout.curve();
        const QFont font = textFont(kTextPoints);
        const QFontMetricsF metrics(font, painter.device());
        painter.setPen(QPen(theme_.hairline, 1));
        painter.drawLine(curve.bottomLeft(), curve.bottomRight());
        painter.setFont(font);
        painter.setPen(theme_.quiet_ink);
        painter.drawText(QPointF(left_, curve.top() + metrics.ascent()),
                         QStringLiteral("blocks in use"));
        painter.drawText(QPointF(left_, curve.top() + metrics.height() + metrics.ascent()),
                         QStringLiteral("peak %1").arg(formatCount(static_cast<int64_t>(peak))));
        if (cursor_ != log_.end()) {
            painter.setPen(QPen(theme_.accent, 2));
            const double x = scene.layout.xOf(static_cast<double>(cursor_.step));
            painter.drawLine(QPointF(x, curve.top()), QPointF(x, scene.layout.plot().bottom()));
        }
        y_ = scene.layout.axis().bottom() + 12;
    }

    void paintWalkFigure(QPainter& painter) {
        const FigureWalk& wish = options_.walk;
        KernelWalkScene scene;
        scene.walk = wish.walk.get();
        const auto inside = [](int value, size_t count) {
            return std::clamp(value, 0, static_cast<int>(count) - 1);
        };
        scene.launch = inside(wish.launch, scene.walk->attention.launches.size());
        scene.thread_block = inside(wish.thread_block, scene.chosenLaunch().thread_blocks.size());
        scene.steps = walkSteps(scene.chosen());
        scene.step = wish.step < 0 ? static_cast<int>(scene.steps.size()) / 2
                                   : inside(wish.step, scene.steps.size());
        const double height = std::clamp(width_ * 0.3, 300.0, 420.0);
        layOutKernelWalk(scene, QRectF(left_, y_, width_, height));
        paintKernelWalk(painter, scene, theme_, false);
        y_ += height + 10;
    }

    void paintWords(QPainter& painter) {
        const PoolAccount account = accountOf(state_);
        const RunInfo& info = log_.info();
        const int64_t token_bytes = info.model.kvBytesPerToken(info.cache.kv_dtype);
        text(painter, accountSentence(account), textFont(9.5), theme_.ink, 2);
        QString units = QStringLiteral("1 block = %1").arg(countOf(state_.block_size, "token"));
        if (token_bytes > 0) {
            units +=
                QStringLiteral(" × %1 = %2")
                    .arg(formatBytes(token_bytes), formatBytes(token_bytes * state_.block_size));
        }
        units += QStringLiteral(" of K and V; ordinals count from 0");
        text(painter, units, textFont(9.5), theme_.ink, 2);
        QString caption = QStringLiteral("Counts come from the engine's own log (measured).");
        if (view_ == "kernel-walk") {
            caption += QStringLiteral(" The walk was recorded in the launch itself (measured).");
        }
        if (view_ == "sharing") {
            caption += QStringLiteral(
                " What copying would take is the sum of all block tables; ratios follow from the"
                " two (derived).");
        }
        text(painter, caption, textFont(9.5), theme_.quiet_ink, 4);
        if (view_ == "sharing") {
            const QFontMetricsF metrics(textFont(kTextPoints), painter.device());
            drawProvenanceKey(painter, {left_, y_ + metrics.ascent() + 2}, theme_, width_);
            y_ += metrics.height() + 8;
        }
    }

    void paintFooter(QPainter& painter) {
        const RunInfo& info = log_.info();
        painter.setPen(QPen(theme_.hairline, 1));
        painter.drawLine(QPointF(left_, y_ + 3.5), QPointF(left_ + width_, y_ + 3.5));
        y_ += 9;
        const auto known = [](const std::string& value) {
            return value.empty() ? noData() : QString::fromStdString(value);
        };
        text(painter,
             QStringLiteral("KV Lab %1 · preset %2 · seed %3 · model %4 · %5 on %6")
                 .arg(known(info.build), known(info.title), QString::number(info.sampling.seed),
                      known(info.model.name), known(info.backend), known(info.device)),
             textFont(kTextPoints), theme_.quiet_ink, 0);
    }

    std::string view_;
    const RunLog& log_;
    Cursor cursor_;
    FigureOptions options_;
    const Theme& theme_;
    CacheState state_;
    double left_ = 0, width_ = 0, y_ = 0;
};

void prepare(QPainter& painter) {
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setRenderHint(QPainter::TextAntialiasing);
}

// What the generator leaves to be wished for: a size in px instead of millimetres; fonts to fall
// back to, since a reader's machine may lack ours; and the width of every text, so that another
// font cannot push it into its neighbour.
QByteArray finished(const QByteArray& generated, const QSize& size, QPaintDevice* device) {
    QString svg = QString::fromUtf8(generated);
    static const QRegularExpression kSize(
        QStringLiteral("width=\"[0-9.]+mm\" height=\"[0-9.]+mm\""));
    svg.replace(kSize,
                QStringLiteral("width=\"%1\" height=\"%2\"").arg(size.width()).arg(size.height()));

    // Text widths are no part of the "tiny" profile that the generator claims.
    svg.replace(QStringLiteral("version=\"1.2\" baseProfile=\"tiny\""),
                QStringLiteral("version=\"1.1\""));

    static const QRegularExpression kText(QStringLiteral("<text ([^>]*)>([^<]*)</text>"));
    static const QRegularExpression kPixels(QStringLiteral("font-size=\"([0-9.]+)\""));
    static const QRegularExpression kWeight(QStringLiteral("font-weight=\"([0-9]+)\""));
    QString result;
    qsizetype done = 0;
    for (auto texts = kText.globalMatch(svg); texts.hasNext();) {
        const QRegularExpressionMatch text = texts.next();
        const QString attributes = text.captured(1);
        const double points = kPixels.match(attributes).captured(1).toDouble() * 72 / kDpi;
        const bool bold = kWeight.match(attributes).captured(1).toInt() >= 600;
        const bool mono = attributes.contains(QStringLiteral("font-family=\"JetBrains Mono\""));
        QString words = text.captured(2);
        words.replace(QStringLiteral("&lt;"), QStringLiteral("<"));
        words.replace(QStringLiteral("&gt;"), QStringLiteral(">"));
        words.replace(QStringLiteral("&quot;"), QStringLiteral("\""));
        words.replace(QStringLiteral("&amp;"), QStringLiteral("&"));
        result += QStringView(svg).mid(done, text.capturedStart(1) - done);
        done = text.capturedStart(1);
        if (points > 0) {
            const QFont font = mono ? monoFont(points, bold) : textFont(points, bold);
            const double width = QFontMetricsF(font, device).horizontalAdvance(words);
            result += QStringLiteral("textLength=\"%1\" lengthAdjust=\"spacingAndGlyphs\" ")
                          .arg(QString::number(width, 'f', 2));
        }
    }
    result += QStringView(svg).mid(done);
    result.replace(QStringLiteral("font-family=\"Inter\""),
                   QStringLiteral("font-family=\"Inter, DejaVu Sans, sans-serif\""));
    result.replace(QStringLiteral("font-family=\"JetBrains Mono\""),
                   QStringLiteral("font-family=\"JetBrains Mono, DejaVu Sans Mono, monospace\""));
    return result.toUtf8();
}

// The writer knows no way to leave the date of creation out. The same length keeps the table of
// offsets valid.
void fixDate(QByteArray& pdf) {
    const QByteArray key("/CreationDate (D:");
    const QByteArray date("19700101000000");
    const qsizetype at = pdf.indexOf(key);
    if (at >= 0) pdf.replace(at + key.size(), date.size(), date);
}

}  // namespace

FigureFormat figureFormatOf(const std::string& name) {
    const size_t dot = name.rfind('.');
    std::string ending = dot == std::string::npos ? name : name.substr(dot + 1);
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (ending == "svg") return FigureFormat::kSvg;
    if (ending == "png") return FigureFormat::kPng;
    if (ending == "pdf") return FigureFormat::kPdf;
    if (ending == "csv" || ending == "json") {
        throw EngineError(ErrorKind::kUnsupported,
                          "figures as " + ending + " are not built yet; use svg, png or pdf.");
    }
    throw EngineError(ErrorKind::kBadArgument,
                      "\"" + ending + "\" is no figure format; use svg, png or pdf.");
}

const std::vector<std::string>& figureViews() {
    static const std::vector<std::string> kViews{"pool", "tables", "sharing", "timeline",
                                                 "kernel-walk"};
    return kViews;
}

QByteArray renderFigure(const std::string& view,
                        const RunLog& log,
                        Cursor cursor,
                        const FigureOptions& options,
                        FigureFormat format) {
    if (std::find(figureViews().begin(), figureViews().end(), view) == figureViews().end()) {
        throw EngineError(ErrorKind::kBadArgument,
                          "there is no view \"" + view +
                              "\"; use pool, tables, sharing, timeline or kernel-walk.");
    }
    if (view == "kernel-walk" &&
        (!options.walk.walk || options.walk.walk->attention.launches.empty())) {
        throw EngineError(ErrorKind::kBadArgument,
                          "this moment has no kernel walk: it is recorded where a run on simt "
                          "computes attention, and a trace holds none; choose such a step of a "
                          "lesson.");
    }
    if (options.width_px < 240 || options.width_px > 8192) {
        throw EngineError(ErrorKind::kBadArgument, "a figure is 240 to 8192 px wide, not " +
                                                       std::to_string(options.width_px) + ".");
    }
    if (!(options.scale >= 0.25 && options.scale <= 8)) {
        throw EngineError(ErrorKind::kBadArgument, "the scale of a picture is 0.25 to 8.");
    }
    Figure figure(view, log, cursor, options);
    double height = 0;
    {
        QImage scratch(1, 1, QImage::Format_ARGB32_Premultiplied);
        scratch.setDotsPerMeterX(static_cast<int>(kDotsPerMeter));
        scratch.setDotsPerMeterY(static_cast<int>(kDotsPerMeter));
        QPainter painter(&scratch);
        prepare(painter);
        height = figure.paint(painter, 1);
    }
    const QSize size(options.width_px, static_cast<int>(height));
    QByteArray bytes;
    QBuffer buffer(&bytes);
    buffer.open(QIODevice::WriteOnly);
    if (format == FigureFormat::kSvg) {
        QSvgGenerator generator;
        generator.setOutputDevice(&buffer);
        generator.setResolution(kDpi);
        generator.setSize(size);
        generator.setViewBox(QRect(QPoint(0, 0), size));
        generator.setTitle(figure.title());
        generator.setDescription(figure.moment() + QStringLiteral(". ") +
                                 accountSentence(accountOf(log.stateAt(log.clamp(cursor)))));
        QPainter painter(&generator);
        prepare(painter);
        figure.paint(painter, height);
        painter.end();
        buffer.close();
        return finished(bytes, size, &generator);
    }
    if (format == FigureFormat::kPng) {
        QImage image((QSizeF(size) * options.scale).toSize(), QImage::Format_ARGB32_Premultiplied);
        if (image.isNull()) {
            throw EngineError(
                ErrorKind::kOutOfMemory,
                "there is no memory for a picture of that size; use a smaller scale.");
        }
        image.setDotsPerMeterX(static_cast<int>(kDotsPerMeter));
        image.setDotsPerMeterY(static_cast<int>(kDotsPerMeter));
        image.setDevicePixelRatio(options.scale);
        image.fill(Qt::transparent);
        QPainter painter(&image);
        prepare(painter);
        figure.paint(painter, height);
        painter.end();
        image.setDotsPerMeterX(static_cast<int>(std::lround(kDotsPerMeter * options.scale)));
        image.setDotsPerMeterY(static_cast<int>(std::lround(kDotsPerMeter * options.scale)));
        if (!image.save(&buffer, "PNG")) {
            throw EngineError(ErrorKind::kOutOfMemory,
                              "the picture could not be encoded; use a smaller scale.");
        }
        return bytes;
    }
    QPdfWriter writer(&buffer);
    writer.setResolution(kDpi);
    writer.setTitle(figure.title());
    writer.setCreator(QStringLiteral("KV Lab"));
    writer.setPageSize(QPageSize(QSizeF(size) * 72.0 / kDpi, QPageSize::Point));
    writer.setPageMargins(QMarginsF(0, 0, 0, 0));
    QPainter painter(&writer);
    prepare(painter);
    figure.paint(painter, height);
    painter.end();
    buffer.close();
    fixDate(bytes);
    return bytes;
}

void exportFigure(const std::string& view,
                  const RunLog& log,
                  Cursor cursor,
                  const FigureOptions& options,
                  FigureFormat format,
                  const std::string& path) {
    const QByteArray bytes = renderFigure(view, log, cursor, options, format);
    const QString name = QString::fromStdString(path);
    const auto write = [&](QFileDevice& file, QIODevice::OpenMode mode) {
        const bool written = file.open(mode) && file.write(bytes) == bytes.size() && file.flush();
        if (!written) {
            throw EngineError(ErrorKind::kBadFile, "cannot write the figure " + path + ": " +
                                                       file.errorString().toStdString() +
                                                       "; write elsewhere, or free some space");
        }
    };
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::is_other(status)) {
        // A device or a pipe: renaming would put a file in its place.
        QFile file(name);
        write(file, QIODevice::WriteOnly | QIODevice::Unbuffered);
        return;
    }
    QSaveFile file(name);
    write(file, QIODevice::WriteOnly);
    if (!file.commit()) {
        throw EngineError(ErrorKind::kBadFile, "cannot write the figure " + path + ": " +
                                                   file.errorString().toStdString() +
                                                   "; write elsewhere, or free some space");
    }
}

}  // namespace kvlab
