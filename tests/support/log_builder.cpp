// SPDX-License-Identifier: MIT
#include "tests/support/log_builder.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "engine/engine.h"

namespace kvlab {
namespace {

// Words of the village that the bundled model speaks of; token id = place in this list.
const std::vector<std::string>& pieces() {
    static const std::vector<std::string> kPieces{
        " The",  " brass", " key",   " is",     " in",   " the",  " green", " chest",  ".",
        " Mira", " keeps", " Where", " pewter", "?",     " In",   " brown", " barrel", " Hugo",
        " code", " ",      "7",      "4",       "2",     " goat", " slept", " Which",  " does",
        " keep", " Emil",  " loves", " pump",   "kin",   " cake", " A",     " pink",   " bird",
        " sat",  " on",    " What",  " love",   " Some", " wind", " Rosa",  " lives",  " by",
        " old",  " mill",  " Ivo",   " baked",  " plum", " pie",  " live",  " By",     " Sven"};
    return kPieces;
}

TokenId tokenAt(int sample, int position) {
    const uint32_t mixed =
        static_cast<uint32_t>(position) * 2654435761u + static_cast<uint32_t>(sample) * 40503u;
    return TokenId((mixed >> 13) % pieces().size());
}

// Own bookkeeping, so that the fold is not tested against itself.
class Script {
  public:
    explicit Script(const LogScript& script) : script_(script) {
        refs_.assign(static_cast<size_t>(script.num_blocks), 0);
        for (int i = 0; i < script.num_blocks; ++i) free_.push_back(i);
    }

    std::vector<std::shared_ptr<const StepTrace>> run() {
        prefill();
        for (int i = 0; i < script_.num_decode_steps; ++i) decode(i + 1);
        if (script_.release) release();
        return std::move(steps_);
    }

  private:
    int take() {
        const int block = free_.front();
        free_.pop_front();
        refs_[static_cast<size_t>(block)] = 1;
        return block;
    }

    void name(StepTrace& step, TokenId token) {
        if (named_.insert({token.value, true}).second) {
            step.new_pieces.emplace_back(token, pieces()[static_cast<size_t>(token.value)]);
        }
    }

    void seal(StepTrace step) {
        step.step = static_cast<int64_t>(steps_.size());
        step.stats.num_prefill_tokens = prefill_tokens_;
        step.stats.num_decode_tokens = decode_tokens_;
        step.stats.forward_ms = 0.4 + 0.01 * (prefill_tokens_ + decode_tokens_);
        step.stats.sample_ms = 0.05;
        step.stats.total_ms = step.stats.forward_ms + 0.1;
        prefill_tokens_ = decode_tokens_ = 0;
        steps_.push_back(std::make_shared<const StepTrace>(std::move(step)));
    }

    void sample(StepTrace& step) {
        TokensSampled sampled;
        for (size_t seq = 0; seq < tables_.size(); ++seq) {
            const TokenId token = tokenAt(static_cast<int>(seq) + 1, len_[seq]);
            name(step, token);
            sampled.sequence.emplace_back(static_cast<int64_t>(seq));
            sampled.token.push_back(token);
            sampled.log_probability.push_back(-1.5f);
        }
        step.events.emplace_back(std::move(sampled));
    }

    void prefill() {
        tables_.resize(1);
        len_.assign(1, 0);
        for (int at = 0; at < script_.prompt_len; at += script_.prefill_chunk) {
            StepTrace step;
            if (at == 0) {
                SequenceStarted started;
                started.sequence = SequenceId(0);
                started.request = RequestId(0);
                for (int p = 0; p < script_.prompt_len; ++p) {
                    started.prompt.push_back(tokenAt(0, p));
                    name(step, started.prompt.back());
                }
                step.events.emplace_back(std::move(started));
            }
            const int end = std::min(at + script_.prefill_chunk, script_.prompt_len);
            BlocksAllocated allocated;
            while (static_cast<int>(tables_[0].size()) * script_.block_size < end) {
                allocated.sequence.emplace_back(0);
                allocated.block_idx.push_back(static_cast<int>(tables_[0].size()));
                tables_[0].push_back(take());
                allocated.block.emplace_back(tables_[0].back());
            }
            if (!allocated.block.empty()) step.events.emplace_back(std::move(allocated));
            TokensWritten written;
            written.sequence.emplace_back(0);
            written.first_position.push_back(at);
            written.num_tokens.push_back(end - at);
            step.events.emplace_back(std::move(written));
            len_[0] = end;
            prefill_tokens_ = end - at;
            if (end == script_.prompt_len) {
                fork(step);
                sample(step);
            }
            seal(std::move(step));
        }
    }

    void fork(StepTrace& step) {
        if (script_.num_samples < 2) return;
        SequencesForked forked;
        for (int i = 1; i < script_.num_samples; ++i) {
            forked.parent.emplace_back(0);
            forked.child.emplace_back(i);
            forked.sample_idx.push_back(i);
            tables_.push_back(tables_[0]);
            len_.push_back(len_[0]);
            for (const int block : tables_[0]) ++refs_[static_cast<size_t>(block)];
        }
        step.events.emplace_back(std::move(forked));
    }

    void decode(int) {
        StepTrace step;
        BlocksAllocated allocated;
        BlocksCopied copied;
        TokensWritten written;
        for (size_t seq = 0; seq < tables_.size(); ++seq) {
            const int idx = len_[seq] / script_.block_size;
            const SequenceId id(static_cast<int64_t>(seq));
            if (idx == static_cast<int>(tables_[seq].size())) {
                allocated.sequence.push_back(id);
                allocated.block_idx.push_back(idx);
                tables_[seq].push_back(take());
                allocated.block.emplace_back(tables_[seq].back());
            } else if (refs_[static_cast<size_t>(tables_[seq][static_cast<size_t>(idx)])] > 1) {
                int& entry = tables_[seq][static_cast<size_t>(idx)];
                copied.sequence.push_back(id);
                copied.block_idx.push_back(idx);
                copied.source.emplace_back(entry);
                --refs_[static_cast<size_t>(entry)];
                entry = take();
                copied.target.emplace_back(entry);
                copied.num_slots.push_back(len_[seq] % script_.block_size);
            }
            written.sequence.push_back(id);
            written.first_position.push_back(len_[seq]++);
            written.num_tokens.push_back(1);
        }
        if (!allocated.block.empty()) step.events.emplace_back(std::move(allocated));
        if (!copied.target.empty()) step.events.emplace_back(std::move(copied));
        step.events.emplace_back(std::move(written));
        decode_tokens_ = static_cast<int>(tables_.size());
        sample(step);
        seal(std::move(step));
    }

    void release() {
        StepTrace step;
        SequencesFinished finished;
        BlocksReleased released;
        SequencesRemoved removed;
        for (size_t seq = 0; seq < tables_.size(); ++seq) {
            const SequenceId id(static_cast<int64_t>(seq));
            finished.sequence.push_back(id);
            finished.reason.push_back(FinishReason::kLength);
            while (!tables_[seq].empty()) {
                released.sequence.push_back(id);
                released.block_idx.push_back(static_cast<int>(tables_[seq].size()) - 1);
                released.block.emplace_back(tables_[seq].back());
                tables_[seq].pop_back();
            }
            removed.sequence.push_back(id);
        }
        step.events.emplace_back(std::move(finished));
        step.events.emplace_back(std::move(released));
        step.events.emplace_back(std::move(removed));
        seal(std::move(step));
    }

    LogScript script_;
    std::deque<int> free_;
    std::vector<int> refs_;
    std::vector<std::vector<int>> tables_;
    std::vector<int> len_;  // tokens with K/V
    std::map<int, bool> named_;
    std::vector<std::shared_ptr<const StepTrace>> steps_;
    int prefill_tokens_ = 0, decode_tokens_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<const StepTrace>> scriptedSteps(const LogScript& script) {
    return Script(script).run();
}

RunInfo scriptedInfo(const LogScript& script) {
    RunInfo info;
    info.model.name = "Village 1M";
    info.model.architecture = "llama";
    info.model.num_layers = 4;
    info.model.num_heads = 4;
    info.model.num_kv_heads = 2;
    info.model.head_dim = 64;
    info.model.embedding_dim = 128;
    info.model.vocab_size = static_cast<int>(pieces().size());
    info.model.context_len = 4096;
    info.cache.block_size = script.block_size;
    info.cache.num_blocks = script.num_blocks;
    info.cache.kv_dtype = DataType::kF16;
    info.sampling.temperature = 0.8f;
    info.sampling.seed = 7;
    info.num_samples = script.num_samples;
    info.max_tokens = script.num_decode_steps + 1;
    info.backend = "cpu";
    info.device = "scripted";
    info.build = "0.1.0";
    info.title = "best-of-8";
    return info;
}

std::shared_ptr<RunLog> scriptedLog(const LogScript& script) {
    auto log = std::make_shared<RunLog>(scriptedInfo(script));
    for (const auto& step : scriptedSteps(script)) log->append(step);
    return log;
}

std::shared_ptr<RunLog> windowedLog() {
    RunInfo info = scriptedInfo({});
    info.model.layer_windows.assign(static_cast<size_t>(info.model.num_layers), 40);
    EngineConfig config;
    config.cache = info.cache;
    Engine engine(info.model, config, AccountingOptions{});
    EngineRequest request;
    request.prompt.assign(100, TokenId(1));
    request.num_samples = 2;
    request.max_tokens = 40;
    engine.submit(request);
    info.cache = engine.config().cache;
    auto log = std::make_shared<RunLog>(info);
    while (const auto step = engine.step()) log->append(step);
    return log;
}

}  // namespace kvlab
