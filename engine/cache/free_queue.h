// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace kvlab {

// The turn of free blocks: a doubly linked list through arrays indexed by block id, so that the
// front, the end and any block in between (a run that a slab takes) are reached in O(1).
//
//   front → 7 ⇄ 8 ⇄ 9 ⇄ 4          next_[7] = 8, previous_[8] = 7, …; kOutside: not in the queue
//
// Ids are 0 … capacity - 1. The caller keeps the protocol: front() and popFront() want a queue that
// is not empty, pushBack() a block outside it, remove() a block in it.
template <class IdType>
class FreeQueue {
  public:
    FreeQueue() = default;
    // Holds every id in ascending order.
    explicit FreeQueue(int capacity) {
        next_.assign(static_cast<size_t>(capacity), kOutside);
        previous_.assign(static_cast<size_t>(capacity), kOutside);
        for (int id = 0; id < capacity; ++id) pushBack(IdType(id));
    }
    // Holds none of them.
    static FreeQueue withoutAny(int capacity) {
        FreeQueue queue;
        queue.next_.assign(static_cast<size_t>(capacity), kOutside);
        queue.previous_.assign(static_cast<size_t>(capacity), kOutside);
        return queue;
    }

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    bool contains(IdType id) const {
        return id.valid() && static_cast<size_t>(id.value) < next_.size() &&
               next_[static_cast<size_t>(id.value)] != kOutside;
    }
    IdType front() const { return IdType(head_); }

    void pushBack(IdType id) {
        next(id.value) = kEnd;
        previous(id.value) = tail_;
        (tail_ == kEnd ? head_ : next(tail_)) = id.value;
        tail_ = id.value;
        ++size_;
    }
    void popFront() { remove(front()); }
    void remove(IdType id) {
        const int32_t before = previous(id.value), after = next(id.value);
        (before == kEnd ? head_ : next(before)) = after;
        (after == kEnd ? tail_ : previous(after)) = before;
        next(id.value) = previous(id.value) = kOutside;
        --size_;
    }
    // Blocks before it; -1 outside the queue. Walks the queue.
    int64_t placeOf(IdType id) const {
        if (!contains(id)) return -1;
        int64_t place = 0;
        for (const IdType other : *this) {
            if (other == id) break;
            ++place;
        }
        return place;
    }

    class Iterator {
      public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = IdType;
        using difference_type = std::ptrdiff_t;
        using pointer = const IdType*;
        using reference = IdType;
        Iterator() = default;
        Iterator(const FreeQueue* queue, int32_t at) : queue_(queue), at_(at) {}
        IdType operator*() const { return IdType(at_); }
        Iterator& operator++() {
            at_ = queue_->next_[static_cast<size_t>(at_)];
            return *this;
        }
        Iterator operator++(int) {
            Iterator before = *this;
            ++*this;
            return before;
        }
        bool operator==(const Iterator& other) const { return at_ == other.at_; }

      private:
        const FreeQueue* queue_ = nullptr;
        int32_t at_ = kEnd;
    };
    Iterator begin() const { return {this, head_}; }
    Iterator end() const { return {this, kEnd}; }

    // Same blocks in the same order.
    bool operator==(const FreeQueue& other) const {
        return head_ == other.head_ && size_ == other.size_ && next_ == other.next_;
    }

  private:
    static constexpr int32_t kEnd = -1;
    static constexpr int32_t kOutside = -2;
    int32_t& next(int32_t id) { return next_[static_cast<size_t>(id)]; }
    int32_t& previous(int32_t id) { return previous_[static_cast<size_t>(id)]; }

    std::vector<int32_t> next_, previous_;
    int32_t head_ = kEnd, tail_ = kEnd;
    size_t size_ = 0;
};

}  // namespace kvlab
