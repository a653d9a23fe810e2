// SPDX-License-Identifier: MIT
#include <array>

#include "app/cli/bench/bench.h"
#include "app/cli/bench/bench_math.h"
#include "engine/cache/block_pool.h"

namespace kvlab {

// The same kernels over a paged pool and over contiguous runs; what block tables cost. Requests
// with prompts of their own: samples of one would share its blocks in the paged pool alone, and
// reading them again from the processor's cache is another effect.
BenchResult benchLayout(const BenchContext& context) {
    const int prompt_len = context.sized(512, 16);
    const int num_steps = context.sized(48, 2);
    // The first requests decode while the others' prompts are still read, a step each.
    const int max_tokens = num_steps + 9;
    std::vector<EngineRequest> requests;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        requests.push_back(makeRequest(context.model, prompt_len, 1, max_tokens, seed));
    }
    std::array<EngineConfig, 2> configs = {context.config, context.config};
    configs[0].cache.layout = CacheLayout::kPaged;
    configs[1].cache.layout = CacheLayout::kSlab;
    configs[1].cache.max_len = prompt_len + max_tokens;
    // The same bytes for both.
    int64_t num_blocks = 0;
    for (const EngineRequest& request : requests) {
        num_blocks += Engine::worstCaseBlocks(request, configs[1].cache);
    }
    std::array<std::vector<double>, 2> times;
    for (int round = 0; round < context.rounds(); ++round) {
        for (size_t i = 0; i < configs.size(); ++i) {
            configs[i].cache.num_blocks = static_cast<int>(num_blocks);
            times[i].push_back(timeDecode(context.model, configs[i], requests).attention_ms);
        }
    }
    const double paged_ms = median(times[0]);
    const double slab_ms = median(times[1]);
    return {"layout",
            "ms of attention/step",
            {{"paged", paged_ms}, {"slab", slab_ms}},
            {{"paged_to_slab", paged_ms / slab_ms, 0.9, 1.1}},
            context.rounds()};
}

// Nanoseconds of one allocation and one release, all blocks taken and given back, by pool size.
BenchResult benchPool(const BenchContext& context) {
    struct Case {
        explicit Case(int n) : num_blocks(n), pool(n, 16), taken(static_cast<size_t>(n)) {}
        int num_blocks;
        BlockPool pool;
        std::vector<BlockId> taken;
        std::vector<double> times;
    };
    std::vector<std::unique_ptr<Case>> cases;
    for (const int num_blocks : {1'000, 10'000, 100'000, 1'000'000}) {
        cases.push_back(std::make_unique<Case>(context.sized(num_blocks, num_blocks / 100)));
    }
    for (int round = 0; round < context.rounds(); ++round) {
        for (const auto& c : cases) {
            // Small pools are over within a clock tick or two, so they run more often.
            const int num_turns = std::max(1, 100'000 / c->num_blocks);
            const double ms = threadCpuMs([&] {
                for (int turn = 0; turn < num_turns; ++turn) {
                    for (BlockId& block : c->taken) block = c->pool.allocate();
                    for (const BlockId block : c->taken) c->pool.release(block);
                }
            });
            c->times.push_back(ms * 1e6 / (double{1} * num_turns * c->num_blocks));
        }
    }
    BenchResult result{"pool", "ns/block", {}, {}, context.rounds()};
    const std::array<const char*, 4> names = {"1000_blocks", "10000_blocks", "100000_blocks",
                                              "1000000_blocks"};
    for (size_t i = 0; i < cases.size(); ++i) {
        result.medians.emplace_back(names[i], median(cases[i]->times));
    }
    const double ratio = result.medians.back().second / result.medians.front().second;
    result.ratios.push_back({"1000000_blocks_to_1000", ratio, {}, 3.0});
    return result;
}

}  // namespace kvlab
