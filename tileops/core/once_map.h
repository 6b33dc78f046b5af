// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tileops/core/error.h"

namespace tileops {

/// A map whose values are each built once: concurrent askers of a key wait for its builder, a build
/// that throws is forgotten, and no lock is held while building.
template <class Key, class Value, class Hash = std::hash<Key>>
class OnceMap {
 public:
  struct Found {
    Value value;
    bool fresh;  // this call built it
  };

  /// The value, or a default-constructed one where it is not there (or still being built).
  Value find(const Key& key) const {
    std::shared_lock lock(mutex_);
    const auto it = slots_.find(key);
    return it != slots_.end() && it->second->ready() ? it->second->value.get() : Value();
  }

  /// Errors: what `build` throws; kInternal where `build` asks for the key that it builds.
  template <class Build>
  Found get_or_build(const Key& key, Build&& build) {
    std::promise<Value> promise;
    auto slot = std::make_shared<Slot>(promise.get_future().share());
    {
      std::unique_lock lock(mutex_);
      const auto [it, inserted] = slots_.try_emplace(key, slot);
      if (!inserted) {
        slot = it->second;
        lock.unlock();
        return {wait(*slot), false};
      }
      slot->order = next_order_++;
    }
    try {
      promise.set_value(build());
    } catch (...) {
      forget(key, slot);
      promise.set_exception(std::current_exception());
    }
    return {slot->value.get(), true};
  }

  /// Everything that is built, in the order in which building began.
  std::vector<std::pair<Key, Value>> built() const {
    std::vector<std::pair<int64_t, std::pair<Key, Value>>> ordered;
    {
      std::shared_lock lock(mutex_);
      for (const auto& [key, slot] : slots_) {
        if (slot->ready()) ordered.push_back({slot->order, {key, slot->value.get()}});
      }
    }
    std::sort(ordered.begin(), ordered.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::pair<Key, Value>> result;
    result.reserve(ordered.size());
    for (auto& [order, item] : ordered) result.push_back(std::move(item));
    return result;
  }

  /// What is dropped is destroyed outside the lock: its destructors may be the user's code.
  void clear() noexcept {
    std::unordered_map<Key, std::shared_ptr<Slot>, Hash> dropped;
    std::unique_lock lock(mutex_);
    slots_.swap(dropped);
    lock.unlock();
  }

 private:
  struct Slot {
    explicit Slot(std::shared_future<Value> future)
        : value(std::move(future)), builder(std::this_thread::get_id()) {}
    bool ready() const {
      return value.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    std::shared_future<Value> value;
    int64_t order = 0;
    std::thread::id builder;
  };

  static Value wait(const Slot& slot) {
    if (slot.builder == std::this_thread::get_id() && !slot.ready()) {
      throw Error(ErrorKind::kInternal, "a builder asked for the very thing that it is building");
    }
    return slot.value.get();
  }

  void forget(const Key& key, const std::shared_ptr<Slot>& slot) {
    std::unique_lock lock(mutex_);
    const auto it = slots_.find(key);
    if (it != slots_.end() && it->second == slot) slots_.erase(it);
  }

  mutable std::shared_mutex mutex_;  // guards slots_ and next_order_
  std::unordered_map<Key, std::shared_ptr<Slot>, Hash> slots_;
  int64_t next_order_ = 0;
};

}  // namespace tileops
