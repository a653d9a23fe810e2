// SPDX-License-Identifier: MIT
#include "app/cli/run_output.h"

#include <array>
#include <cstdio>

#include "engine/text_format.h"

namespace kvlab {

namespace {

std::string number(const char* format, double value) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), format, value);
    return text.data();
}

// One decimal; what rounds to 0 but is not 0 says so.
std::string percent(double share) {
    if (share > 0 && share < 0.0005) return "below 0.1 %";
    return number("%.1f %%", share * 100);
}

}  // namespace

std::string timeText(const std::optional<double>& ms) {
    if (!ms) return "-";
    // A small model on a large assumed machine.
    if (*ms > 0 && *ms < 0.0995) return number("%.4f ms", *ms);
    if (*ms < 9.995) return number("%.2f ms", *ms);
    if (*ms < 999.95) return number("%.1f ms", *ms);
    if (*ms < 120'000) return number("%.2f s", *ms / 1000);
    const auto seconds = static_cast<int64_t>(*ms / 1000);
    if (seconds < 7200) {
        return formatCount(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
    }
    return formatCount(seconds / 3600) + " h " + std::to_string(seconds / 60 % 60) + " min";
}

StepTime measuredStepTime(const StepTotals& steps) {
    StepTime time;
    if (steps.num_steps == 0) return time;
    time.attention_ms = steps.attention_ms;
    time.matmul_ms = steps.matmul_ms;
    time.sampling_ms = steps.sample_ms;
    time.copies_ms = steps.copy_ms;
    time.other_ms = steps.otherMs();
    time.total_ms = steps.total_ms;
    return time;
}

StepTime assumedStepTime(const StepCost& cost) {
    StepTime time;
    time.source = "assumed";
    time.attention_ms = cost.attention_ms;
    time.matmul_ms = cost.matmul_ms;
    time.copies_ms = cost.copy_ms;
    time.other_ms = cost.overhead_ms;
    time.total_ms = cost.total();
    return time;
}

Json wasteJson(const WasteAccount& waste) {
    const auto share = [&](int64_t slot_steps) {
        return waste.pool_slots > 0 ? Json(waste.shareOf(slot_steps)) : Json(nullptr);
    };
    const int64_t held = waste.pool_slots - waste.free_slots;
    return {{"used", share(waste.used_slots)},
            {"tail", share(waste.tail_slots)},
            {"reserved_for_later", share(waste.reserved_slots)},
            {"never_used", share(waste.never_used_slots)},
            {"free", share(waste.free_slots)},
            {"external", share(waste.external_slots)},
            {"used_of_held",
             held > 0 ? Json(static_cast<double>(waste.used_slots) / static_cast<double>(held))
                      : Json(nullptr)}};
}

Json concurrencyJson(const WasteAccount& waste, const StepTotals& steps) {
    return {{"running", {{"mean", waste.meanRunning()}, {"max", waste.max_running}}},
            {"waiting", {{"mean", steps.perStep(steps.num_waiting)}, {"max", steps.max_waiting}}}};
}

Json stepTimeJson(const StepTime& time) {
    return {{"source", time.source},
            {"attention_ms", numberOrNull(time.attention_ms)},
            {"matmul_ms", numberOrNull(time.matmul_ms)},
            {"sampling_ms", numberOrNull(time.sampling_ms)},
            {"copies_ms", numberOrNull(time.copies_ms)},
            {"other_ms", numberOrNull(time.other_ms)},
            {"total_ms", numberOrNull(time.total_ms)}};
}

void printWaste(const WasteAccount& waste, CacheLayout layout) {
    if (waste.pool_slots == 0) return;
    const auto share = [&](int64_t slot_steps) { return percent(waste.shareOf(slot_steps)); };
    std::printf("slots      used %s, ", share(waste.used_slots).c_str());
    if (layout == CacheLayout::kSlab) {
        std::printf("reserved for later %s, never used %s, free %s",
                    share(waste.reserved_slots).c_str(), share(waste.never_used_slots).c_str(),
                    share(waste.free_slots).c_str());
        if (waste.external_slots > 0) {
            std::printf(" (%s while a request waited for a longer run)",
                        share(waste.external_slots).c_str());
        }
    } else {
        std::printf("tail of the last block %s, free %s", share(waste.tail_slots).c_str(),
                    share(waste.free_slots).c_str());
    }
    std::printf("; mean over the steps\n");
}

void printStepTime(const StepTime& time) {
    if (!time.total_ms || *time.total_ms <= 0) return;
    std::printf("steps      %s:", timeText(time.total_ms).c_str());
    const char* separator = " ";
    const auto part = [&](const char* name, const std::optional<double>& ms) {
        if (!ms) return;
        std::printf("%s%s %s", separator, name, percent(*ms / *time.total_ms).c_str());
        separator = ", ";
    };
    part("attention", time.attention_ms);
    part("matmul", time.matmul_ms);
    part("sampling", time.sampling_ms);
    part("copies", time.copies_ms);
    part("other", time.other_ms);
    std::printf(" (%s)\n", time.source);
}

}  // namespace kvlab
