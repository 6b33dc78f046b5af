// SPDX-License-Identifier: Apache-2.0
// A list that only grows, which readers walk without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

namespace tileops {

/// Thread safety: one thread at a time appends; any walk it meanwhile and see what was appended
/// before they reached the end.
template <class T>
class GrowingList {
  struct Node {
    T value;
    std::atomic<Node*> next{nullptr};
  };

 public:
  class Iterator {
   public:
    using value_type = T;
    using difference_type = ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    using pointer = const T*;
    using reference = const T&;
    explicit Iterator(const Node* node = nullptr) : node_(node) {}
    const T& operator*() const { return node_->value; }
    const T* operator->() const { return &node_->value; }
    Iterator& operator++() {
      node_ = node_->next.load(std::memory_order_acquire);
      return *this;
    }
    Iterator operator++(int) { return std::exchange(*this, std::next(*this)); }
    bool operator==(const Iterator&) const = default;

   private:
    const Node* node_;
  };

  GrowingList() = default;
  ~GrowingList() {
    for (Node* node = first_.load(); node != nullptr;) {
      const std::unique_ptr<Node> last(node);
      node = last->next.load();
    }
  }
  GrowingList(const GrowingList&) = delete;
  GrowingList& operator=(const GrowingList&) = delete;

  void push_back(T value) {
    auto* node = new Node{std::move(value)};
    end_->store(node, std::memory_order_release);
    end_ = &node->next;
  }
  Iterator begin() const { return Iterator(first_.load(std::memory_order_acquire)); }
  Iterator end() const { return Iterator(); }

 private:
  std::atomic<Node*> first_{nullptr};
  std::atomic<Node*>* end_ = &first_;
};

}  // namespace tileops
