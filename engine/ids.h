// SPDX-License-Identifier: MIT
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace kvlab {

// A number that cannot be mistaken for another kind of number: a block id passed as a slot does not
// compile. -1 means "none" for every kind.
template <class Tag>
struct Id {
    int32_t value = -1;

    constexpr Id() = default;
    constexpr explicit Id(int64_t v) : value(static_cast<int32_t>(v)) {}
    constexpr bool valid() const { return value >= 0; }
    constexpr auto operator<=>(const Id&) const = default;
};

// Physical block in the pool; one id stands for the same block in all layers.
using BlockId = Id<struct BlockTag>;
// Block of the host pool, where preempted sequences wait.
using HostBlockId = Id<struct HostBlockTag>;
// Place of one token in the pool: block id * block_size + offset.
using SlotIndex = Id<struct SlotTag>;
// One running sequence (one sample of a request).
using SequenceId = Id<struct SequenceTag>;
// One request; it runs as `samples` sequences.
using RequestId = Id<struct RequestTag>;
// Entry of the model's vocabulary.
using TokenId = Id<struct TokenTag>;

}  // namespace kvlab

template <class Tag>
struct std::hash<kvlab::Id<Tag>> {
    size_t operator()(const kvlab::Id<Tag>& id) const noexcept {
        return std::hash<int32_t>{}(id.value);
    }
};
