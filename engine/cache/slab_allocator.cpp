// SPDX-License-Identifier: MIT
#include "engine/cache/slab_allocator.h"

#include <algorithm>

#include "engine/error.h"

namespace kvlab {

BlockId SlabAllocator::firstFit(int count) const {
    for (const auto& [first, length] : runs_) {
        if (length >= count) return BlockId(first);
    }
    return BlockId();
}

void SlabAllocator::take(BlockId first, int count) {
    auto run = runs_.upper_bound(first.value);
    KVLAB_CHECK(run != runs_.begin(), "a slab was taken that is not free");
    --run;
    const int begin = run->first, end = run->first + run->second;
    KVLAB_CHECK(first.value + count <= end, "a slab was taken that is not free");
    runs_.erase(run);
    if (begin < first.value) runs_[begin] = first.value - begin;
    if (first.value + count < end) runs_[first.value + count] = end - first.value - count;
}

void SlabAllocator::free(BlockId block) {
    int begin = block.value, length = 1;
    const auto after = runs_.lower_bound(block.value);
    if (after != runs_.begin()) {
        const auto before = std::prev(after);
        KVLAB_CHECK(before->first + before->second <= block.value, "a block was freed twice");
        if (before->first + before->second == block.value) {
            begin = before->first;
            length += before->second;
        }
    }
    if (after != runs_.end()) {
        KVLAB_CHECK(after->first != block.value, "a block was freed twice");
        if (after->first == block.value + 1) {
            length += after->second;
            runs_.erase(after);
        }
    }
    runs_[begin] = length;
}

int SlabAllocator::longestRun() const {
    int longest = 0;
    for (const auto& [first, length] : runs_) longest = std::max(longest, length);
    return longest;
}

}  // namespace kvlab
