// SPDX-License-Identifier: MIT
#include "app/cli/bench/bench.h"

#include <ctime>

#include "app/cli/bench/machine_speed.h"
#include "engine/clock.h"
#include "engine/error.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "engine/workload/corpus_prompt.h"

namespace kvlab {

namespace {

double cpuSeconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double elapsedMs(const std::function<void()>& work) {
    const SteadyClock clock;
    const double begin = clock.nowMs();
    work();
    return clock.nowMs() - begin;
}

double threadCpuMs(const std::function<void()>& work) {
    const double begin = cpuSeconds();
    work();
    return 1000 * (cpuSeconds() - begin);
}

ModelConfig generatedModelConfig(bool quick) {
    ModelConfig config;
    config.name = quick ? "generated, tiny" : "generated, 100M";
    config.architecture = "llama";
    config.num_layers = quick ? 2 : 12;
    config.num_heads = quick ? 4 : 12;
    config.num_kv_heads = quick ? 2 : 4;
    config.head_dim = quick ? 16 : 64;
    config.rope_dim = config.head_dim;
    config.embedding_dim = config.num_heads * config.head_dim;
    config.feed_forward_dim = quick ? 96 : 2048;
    config.vocab_size = quick ? 300 : 32'000;
    config.context_len = 2048;
    return config;
}

MachineSpeed& BenchContext::machine() const {
    if (!machine_) machine_ = std::make_shared<MachineSpeed>(config.num_threads, quick);
    return *machine_;
}

const LoadedModel& BenchContext::generated() const {
    if (!generated_.weights) {
        generated_.weights =
            ModelWeights::random(generatedModelConfig(quick), 1, true, TensorType::kF16);
    }
    return generated_;
}

EngineRequest makeRequest(
    const LoadedModel& model, int prompt_len, int samples, int tokens, uint64_t seed) {
    EngineRequest request;
    if (model.tokenizer) {
        request.prompt = corpusPrompt(*model.tokenizer, seed, prompt_len);
    } else {
        for (int i = 0; i < prompt_len; ++i) {
            const int token = (static_cast<int>(seed % 1000) + i) * 37;
            request.prompt.push_back(TokenId(token % model.weights->config.vocab_size));
        }
    }
    request.num_samples = samples;
    request.max_tokens = tokens;
    request.ignore_eos = true;
    return request;
}

std::unique_ptr<Engine> makeEngine(const LoadedModel& model,
                                   EngineConfig config,
                                   const std::vector<EngineRequest>& requests) {
    if (config.cache.num_blocks == 0) {
        for (const EngineRequest& request : requests) {
            config.cache.num_blocks +=
                static_cast<int>(Engine::worstCaseBlocks(request, config.cache));
        }
    }
    auto engine = std::make_unique<Engine>(model.weights, model.tokenizer, config);
    for (const EngineRequest& request : requests) engine->submit(request);
    return engine;
}

DecodeTimes timeDecode(const LoadedModel& model,
                       const EngineConfig& config,
                       const std::vector<EngineRequest>& requests,
                       const std::function<void(std::shared_ptr<const StepTrace>)>& on_step) {
    const std::unique_ptr<Engine> engine = makeEngine(model, config, requests);
    int num_samples = 0;
    for (const EngineRequest& request : requests) num_samples += request.num_samples;
    DecodeTimes sum;
    int num_timed = 0;
    while (true) {
        std::shared_ptr<const StepTrace> step;
        const double ms = elapsedMs([&] {
            step = engine->step();
            if (step && on_step) on_step(step);
        });
        if (!step) break;
        if (step->stats.num_prefill_tokens == 0 && step->stats.num_decode_tokens == num_samples) {
            sum.step_ms += ms;
            sum.attention_ms += step->stats.attention_ms;
            ++num_timed;
        }
    }
    KVLAB_CHECK(num_timed > 0, "no decode step was timed");
    return {sum.step_ms / num_timed, sum.attention_ms / num_timed};
}

}  // namespace kvlab
