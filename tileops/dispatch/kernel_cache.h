// SPDX-License-Identifier: Apache-2.0
// One op instance's kernels of one interface: entries by (implementation, identity), and the calls
// that lead to them.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tileops/core/once_map.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/dispatch/selection.h"

namespace tileops {

/// An entry as enumeration shows it.
struct BuiltEntry {
  std::string implementation;
  Value identity;
  std::shared_ptr<Kernel> kernel;
  bool batches_launches = false;  // as its implementation's facts say
};

/// The choice for a call, without a kernel.
struct EntryKey {
  std::string implementation;
  Value identity;
  bool operator==(const EntryKey&) const = default;
};

/// What is the same for every interface; the typed part is KernelCache<I>.
class KernelCacheBase {
 public:
  KernelCacheBase(std::shared_ptr<const KernelTable> table, std::string_view interface,
                  std::string forced, Params forced_config);
  virtual ~KernelCacheBase() = default;

  std::string_view interface() const { return interface_; }
  /// Entries that are built, in build order.
  std::vector<BuiltEntry> entries() const;
  /// Drops every entry and cached call; kernels in use live on with their users.
  virtual void clear() noexcept;

 protected:
  using EntryPtr = std::shared_ptr<const BuiltEntry>;
  using Build = std::function<std::shared_ptr<Kernel>(const BuildOptions&)>;

  /// The entry of (implementation, identity), built once. `fresh` tells whether this call built it.
  EntryPtr entry(const ImplementationInfo& implementation, const Value& identity,
                 const Build& build, const DeviceFacts& facts, bool& fresh);
  BuildOptions build_options(const DeviceFacts& facts) const;
  /// A forced configuration is honoured or refused: `config` of that implementation must have all
  /// that it forces. Errors: kValue.
  void check_forced_config(std::string_view implementation, const Params& config) const;
  /// The chosen candidate's configuration: the built kernel's, else what `config` says.
  std::string config_text(const EntryKey& key,
                          const std::function<ConfigInUse(const BuildOptions&)>& config,
                          const DeviceFacts& facts) const;
  SelectionQuery query(std::function<Refusal(size_t)> refusal,
                       std::function<std::string()> call_text) const;
  void check_interface_type(const std::type_info& type) const;
  uint64_t current_generation() const;

  std::shared_ptr<const KernelTable> table_;
  std::vector<const AnyImplementation*> implementations_;
  mutable std::shared_mutex mutex_;  // guards generation_ and the derived class's calls
  uint64_t generation_ = 0;          // counts clear(): what was chosen before it is not kept after

 private:
  struct KeyHash {
    size_t operator()(const EntryKey& key) const {
      return hash_of(key.implementation, key.identity);
    }
  };
  std::string interface_;
  std::string forced_;
  Params forced_config_;
  std::vector<const ImplementationInfo*> infos_;
  OnceMap<EntryKey, EntryPtr, KeyHash> entries_;
};

template <KernelInterface I>
class KernelCache : public KernelCacheBase {
 public:
  using Call = typename I::Call;

  KernelCache(std::shared_ptr<const KernelTable> table, std::string forced, Params forced_config)
      : KernelCacheBase(std::move(table), I::kName, std::move(forced), std::move(forced_config)) {
    check_interface_type(typeid(I));
  }

  /// The entry that serves a call: one lookup on a hit, which reads no device fact.
  EntryPtr find(const Call& call) const {
    std::shared_lock lock(mutex_);
    const auto it = calls_.find(call);
    return it == calls_.end() ? nullptr : it->second;
  }

  /// Selects and builds on a miss (I2, I3). `fresh` tells whether a kernel was built.
  /// Errors: select_implementation's, the builder's, and check_forced_config's.
  EntryPtr select(const Call& call, Device device, bool& fresh) {
    const uint64_t generation = current_generation();
    const DeviceFacts& facts = device_facts(device);
    const Implementation<I>& winner = typed(select_implementation(query(call), facts));
    EntryFor<I> wanted = winner.entry_for(call);
    EntryPtr built = entry(
        winner.info, wanted.identity,
        [&](const BuildOptions& options) { return wanted.build(options); }, facts, fresh);
    std::unique_lock lock(mutex_);
    if (generation == generation_) calls_.insert_or_assign(call, built);
    return built;
  }

  EntryKey key_for(const Call& call, const DeviceFacts& facts) const {
    const Implementation<I>& winner = typed(select_implementation(query(call), facts));
    return {winner.info.key, winner.entry_for(call).identity};
  }

  std::vector<Candidate> explain(const Call& call, const DeviceFacts& facts) const {
    std::vector<Candidate> candidates = explain_selection(query(call), facts);
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!candidates[i].chosen) continue;
      const EntryFor<I> wanted = typed(i).entry_for(call);
      candidates[i].config =
          config_text({candidates[i].key, wanted.identity}, wanted.config, facts);
    }
    return candidates;
  }

  /// A kernel for a device that need not be in the machine; it is not kept.
  std::shared_ptr<Kernel> build_for(const Call& call, const DeviceFacts& facts) const {
    const Implementation<I>& winner = typed(select_implementation(query(call), facts));
    std::shared_ptr<Kernel> kernel = winner.entry_for(call).build(build_options(facts));
    check_forced_config(winner.info.key, kernel->config());
    return kernel;
  }

  void clear() noexcept override {
    KernelCacheBase::clear();
    std::unordered_map<Call, EntryPtr, CallHash> dropped;
    std::unique_lock lock(mutex_);
    calls_.swap(dropped);
    lock.unlock();
  }

 private:
  struct CallHash {
    size_t operator()(const Call& call) const { return call.hash(); }
  };

  const Implementation<I>& typed(size_t index) const {
    return *static_cast<const Implementation<I>*>(implementations_[index]->typed.get());
  }
  SelectionQuery query(const Call& call) const {
    return KernelCacheBase::query([this, &call](size_t i) { return typed(i).refusal(call); },
                                  [&call] { return call.to_string(); });
  }

  std::unordered_map<Call, EntryPtr, CallHash> calls_;
};

}  // namespace tileops
