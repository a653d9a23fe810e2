// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/inspector_panel.h"

#include <algorithm>

#include <QLabel>
#include <QVBoxLayout>

#include "app/gui/panels/widgets.h"
#include "app/gui/provenance.h"
#include "app/gui/views/account_view.h"

namespace kvlab {

namespace {

enum BlockRow { kRefCount, kFilled, kLogical, kBytes, kBorn };
enum SequenceRow { kTokensRow, kCachedRow, kBlocksRow, kTailRow, kStateRow };
enum StepRow { kRunning, kSpeed, kShared, kCopied };

constexpr int kPieceChars = 24;  // a trace may hold longer ones

QString pieceText(const RunLog& log, TokenId token) {
    QString text = QString::fromStdString(log.piece(token)).left(kPieceChars);
    if (text.isEmpty()) {
        return QStringLiteral("#%1").arg(token.value);
    }
    text.replace(QLatin1Char('\n'), QStringLiteral("⏎"));
    const QString trimmed = text.trimmed();
    return trimmed.isEmpty() ? QStringLiteral("␣") : trimmed;
}

// Step in which the block was last taken before the cursor.
std::optional<int64_t> bornStep(const RunLog& log, Cursor cursor, BlockId block) {
    for (int64_t s = std::min(cursor.step, log.numSteps() - 1); s >= 0; --s) {
        const std::vector<Event>& events = log.step(s).events;
        for (int e = static_cast<int>(events.size()) - 1; e >= 0; --e) {
            const Event& event = events[static_cast<size_t>(e)];
            const std::vector<BlockId>* taken = nullptr;
            if (const auto* allocated = std::get_if<BlocksAllocated>(&event)) {
                taken = &allocated->block;
            } else if (const auto* copied = std::get_if<BlocksCopied>(&event)) {
                taken = &copied->target;
            } else if (const auto* swapped = std::get_if<BlocksSwappedIn>(&event)) {
                taken = &swapped->block;
            }
            for (size_t i = 0; taken && i < taken->size(); ++i) {
                if ((*taken)[i] == block && Cursor{s, e, static_cast<int>(i)} < cursor) {
                    return s;
                }
            }
        }
    }
    return std::nullopt;
}

}  // namespace

InspectorPanel::InspectorPanel(RunHub* hub, QWidget* parent) : QScrollArea(parent), hub_(hub) {
    setObjectName(QStringLiteral("sidePanel"));
    setAccessibleName(tr("Inspector"));
    setWidgetResizable(true);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFocusPolicy(Qt::TabFocus);

    auto* content = new QWidget(this);
    auto* column = new QVBoxLayout(content);
    column->setContentsMargins(16, 14, 16, 8);
    column->setSpacing(6);

    selection_title_ = makeLabel({}, "section", content);
    column->addWidget(selection_title_);
    hint_ = makeLabel(tr("Point at a block, a table row or a token; click to keep it."), "quiet",
                      content);
    hint_->setWordWrap(true);
    column->addWidget(hint_);
    block_facts_ = new FactList({tr("reference count"), tr("filled"), tr("logical index"),
                                 tr("bytes"), tr("taken in step")},
                                content);
    column->addWidget(block_facts_);
    sequence_facts_ = new FactList(
        {tr("tokens"), tr("tokens with K/V"), tr("blocks"), tr("tail block"), tr("state")},
        content);
    column->addWidget(sequence_facts_);
    column->addSpacing(4);
    tokens_title_ = makeLabel(tr("TOKENS IN IT"), "section", content);
    column->addWidget(tokens_title_);
    tokens_ = new TokenChips(content);
    column->addWidget(tokens_);
    column->addSpacing(6);

    column->addWidget(makeLabel(tr("POOL"), "section", content));
    account_ = new AccountView(hub, content);
    account_->setFramed(false);
    column->addWidget(account_);
    column->addSpacing(12);

    step_title_ = makeLabel({}, "section", content);
    column->addWidget(step_title_);
    step_facts_ = new FactList(
        {tr("sequences running"), tr("tokens/s"), tr("shared blocks"), tr("copy-on-write so far")},
        content);
    column->addWidget(step_facts_);
    column->addStretch(1);
    setWidget(content);

    // One refresh for all that changes in one turn of the event loop.
    refresh_timer_.setSingleShot(true);
    refresh_timer_.setInterval(0);
    connect(&refresh_timer_, &QTimer::timeout, this, &InspectorPanel::refresh);
    connect(hub_, &RunHub::cursorMoved, this, &InspectorPanel::refreshSoon);
    connect(hub_, &RunHub::selectionChanged, this, &InspectorPanel::refreshSoon);
    connect(hub_, &RunHub::logReset, this, &InspectorPanel::refreshSoon);
    refresh();
}

void InspectorPanel::setTheme(const Theme& theme, double scale) {
    for (FactList* facts : {block_facts_, sequence_facts_, step_facts_}) {
        facts->setTheme(theme, scale);
    }
    tokens_->setTheme(theme, scale);
    account_->setTheme(theme, scale);
    setMinimumWidth(qRound(248 * scale));
}

void InspectorPanel::refreshSoon() {
    if (!refresh_timer_.isActive()) {
        refresh_timer_.start();
    }
}

void InspectorPanel::settle() {
    if (refresh_timer_.isActive()) {
        refresh_timer_.stop();
        refresh();
    }
}

void InspectorPanel::refresh() {
    const Selection& selection = hub_->shown();
    const CacheState& state = hub_->state();
    if (selection.block && selection.block->valid() &&
        static_cast<size_t>(selection.block->value) < state.blocks.size()) {
        showBlock(*selection.block);
    } else if (selection.sequence && selection.sequence->valid() &&
               static_cast<size_t>(selection.sequence->value) < state.sequences.size()) {
        showSequence(*selection.sequence);
    } else {
        showNothing();
    }
    showStep();
}

void InspectorPanel::showBlock(BlockId id) {
    const CacheState& state = hub_->state();
    const RunInfo& info = hub_->log().info();
    const BlockState& block = state.blocks[static_cast<size_t>(id.value)];
    selection_title_->setText(tr("BLOCK %1").arg(id.value));
    hint_->hide();
    block_facts_->show();
    sequence_facts_->hide();

    const SequenceState* reader = nullptr;  // whose tokens are shown
    size_t reader_idx = 0;
    QString owners;
    QString logical;
    for (const SequenceState& sequence : state.sequences) {
        const auto found = std::find(sequence.table.begin(), sequence.table.end(), id);
        if (found == sequence.table.end()) {
            continue;
        }
        const auto idx = static_cast<size_t>(found - sequence.table.begin());
        const bool wanted = hub_->shown().sequence == sequence.id;
        if (!reader || wanted) {
            reader = &sequence;
            reader_idx = idx;
        }
        owners += (owners.isEmpty() ? "" : " ") + QString::fromStdString(ownerLetter(sequence.id));
    }
    if (reader) {
        QString names = owners;
        if (block.ref_count > 3) {
            names = owners.section(' ', 0, 0) + QStringLiteral("…") + owners.section(' ', -1);
        }
        logical = tr("%1 in %2").arg(reader_idx).arg(names);
    }
    block_facts_->setFact(kRefCount, formatCount(block.ref_count), Provenance::kMeasured,
                          owners.isEmpty() ? tr("no table names this block")
                                           : tr("tables that name this block: %1").arg(owners));
    block_facts_->setFact(kFilled, tr("%1 / %2").arg(block.num_filled).arg(state.block_size),
                          Provenance::kMeasured,
                          tr("slots whose K and V are written, of the slots in a block"));
    block_facts_->setFact(kLogical, logical, Provenance::kMeasured,
                          tr("place of this block in the tables that name it"));
    const int64_t token_bytes = info.model.kvBytesPerToken(info.cache.kv_dtype);
    block_facts_->setFact(
        kBytes,
        tr("%1 × %2 = %3")
            .arg(state.block_size)
            .arg(formatBytes(token_bytes), formatBytes(token_bytes * state.block_size)),
        Provenance::kDerived,
        (info.cache.kv_dtype == DataType::kInt8
             ? tr("slots × 2 (K and V) × layers × KV heads × (head size × bytes per value + 4 of "
                  "the "
                  "scale) = %1 × 2 × %2 × %3 × (%4 × %5 + 4) = %6")
             : tr("slots × 2 (K and V) × layers × KV heads × head size × bytes per value = "
                  "%1 × 2 × %2 × %3 × %4 × %5 = %6"))
            .arg(state.block_size)
            .arg(info.model.num_layers)
            .arg(info.model.num_kv_heads)
            .arg(info.model.head_dim)
            .arg(dataTypeBytes(info.cache.kv_dtype))
            .arg(formatBytes(token_bytes * state.block_size)));
    const auto born =
        block.ref_count > 0 ? bornStep(hub_->log(), hub_->cursor(), id) : std::nullopt;
    block_facts_->setFact(kBorn, born ? formatCount(*born) : QString(), Provenance::kMeasured,
                          tr("engine step in which the block was taken from the free queue"));

    QStringList tokens;
    if (reader) {
        const size_t first = reader_idx * static_cast<size_t>(state.block_size);
        for (int i = 0; i < block.num_filled; ++i) {
            const size_t position = first + static_cast<size_t>(i);
            if (position < reader->tokens.size()) {
                tokens << pieceText(hub_->log(), reader->tokens[position]);
            }
        }
    }
    tokens_title_->setText(tr("TOKENS IN IT"));
    tokens_title_->setVisible(!tokens.isEmpty());
    tokens_->setVisible(!tokens.isEmpty());
    tokens_->setTokens(tokens);
}

void InspectorPanel::showSequence(SequenceId id) {
    const CacheState& state = hub_->state();
    const SequenceState& sequence = state.sequences[static_cast<size_t>(id.value)];
    selection_title_->setText(tr("SEQUENCE %1").arg(QString::fromStdString(ownerLetter(id))));
    hint_->hide();
    block_facts_->hide();
    sequence_facts_->show();
    const auto num_tokens = static_cast<int64_t>(sequence.tokens.size());
    sequence_facts_->setFact(
        kTokensRow, formatCount(num_tokens), Provenance::kMeasured,
        tr("%1 of the prompt + %2 sampled")
            .arg(formatCount(sequence.prompt_len), formatCount(num_tokens - sequence.prompt_len)));
    sequence_facts_->setFact(kCachedRow, formatCount(sequence.kv_len), Provenance::kMeasured,
                             tr("a sampled token has no K and V until it is fed back"));
    sequence_facts_->setFact(kBlocksRow, formatCount(sequence.numHeld()), Provenance::kMeasured,
                             tr("blocks that its table names, shared ones included"));
    QString tail;
    if (!sequence.table.empty() && !sequence.table.back().valid()) {
        tail = tr("on the host");
    } else if (!sequence.table.empty()) {
        const BlockId last = sequence.table.back();
        tail = tr("%1 (%2 / %3)")
                   .arg(last.value)
                   .arg(state.blocks[static_cast<size_t>(last.value)].num_filled)
                   .arg(state.block_size);
    }
    sequence_facts_->setFact(kTailRow, tail, Provenance::kMeasured,
                             tr("last block of its table and how full it is"));
    QString run_state = tr("running");
    if (sequence.removed) {
        run_state = tr("left");
    } else if (sequence.finish != FinishReason::kNone) {
        run_state = tr("finished");
    } else if (sequence.preempted != PreemptionKind::kNone) {
        run_state = tr("preempted");
    }
    sequence_facts_->setFact(kStateRow, run_state, Provenance::kMeasured);

    constexpr size_t kShownTokens = 24;
    QStringList tokens;
    const size_t first =
        sequence.tokens.size() > kShownTokens ? sequence.tokens.size() - kShownTokens : 0;
    for (size_t i = first; i < sequence.tokens.size(); ++i) {
        tokens << pieceText(hub_->log(), sequence.tokens[i]);
    }
    tokens_title_->setText(tr("ITS LAST TOKENS"));
    tokens_title_->setVisible(!tokens.isEmpty());
    tokens_->setVisible(!tokens.isEmpty());
    tokens_->setTokens(tokens);
}

void InspectorPanel::showNothing() {
    selection_title_->setText(tr("NOTHING SELECTED"));
    hint_->show();
    block_facts_->hide();
    sequence_facts_->hide();
    tokens_title_->hide();
    tokens_->hide();
}

void InspectorPanel::showStep() {
    const CacheState& state = hub_->state();
    const std::optional<int64_t> step = hub_->currentStep();
    // The transport counts the moment: between two steps this is the one already done.
    const bool inside = hub_->cursor().event > 0 || hub_->cursor().entry > 0;
    step_title_->setText(!step    ? tr("BEFORE THE FIRST STEP")
                         : inside ? tr("THIS STEP (%1)").arg(formatCount(*step))
                                  : tr("LAST STEP (%1)").arg(formatCount(*step)));
    const PoolAccount account = accountOf(state);
    const auto running = std::count_if(
        state.sequences.begin(), state.sequences.end(), [](const SequenceState& sequence) {
            return sequence.finish == FinishReason::kNone && !sequence.removed &&
                   sequence.preempted == PreemptionKind::kNone;
        });
    QString speed;
    QString speed_formula = tr("not measured yet");
    if (step) {
        const StepStats& stats = hub_->log().step(*step).stats;
        const int tokens = stats.num_prefill_tokens + stats.num_decode_tokens;
        if (stats.total_ms > 0) {
            speed = formatCount(static_cast<int64_t>(tokens / stats.total_ms * 1000));
            speed_formula =
                tr("%1 tokens in %2").arg(formatCount(tokens), formatMs(stats.total_ms));
        }
    }
    const bool any = hub_->hasLog();
    step_facts_->setFact(kRunning, any ? formatCount(running) : QString(), Provenance::kMeasured);
    step_facts_->setFact(kSpeed, speed, Provenance::kMeasured, speed_formula);
    step_facts_->setFact(kShared, any ? formatCount(account.shared_blocks) : QString(),
                         Provenance::kMeasured, tr("blocks with more than one reference"));
    step_facts_->setFact(kCopied, any ? formatCount(account.copy_on_write) : QString(),
                         Provenance::kMeasured,
                         tr("blocks copied because a sequence wanted to write into a shared one"));
}

}  // namespace kvlab
