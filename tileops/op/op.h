// SPDX-License-Identifier: Apache-2.0
// Op: a callable object with a spec. This base holds sub-ops and kernels, runs the seven steps of a
// call, keeps its record, and undoes what a failed call selected. docs/contract.md numbers the
// rules.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tileops/core/growing_list.h"
#include "tileops/core/launch_batch.h"
#include "tileops/core/once_map.h"
#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/dispatch/kernel_cache.h"
#include "tileops/dispatch/results.h"
#include "tileops/dispatch/target.h"
#include "tileops/op/call.h"
#include "tileops/op/explanation.h"
#include "tileops/op/op_class.h"
#include "tileops/op/record.h"
#include "tileops/spec/roofline.h"
#include "tileops/spec/signature.h"

namespace tileops {

/// The identity of a sub-op whose arguments are fixed when the composite is constructed.
inline constexpr Value::None settled{};

/// A sub-op as enumeration shows it.
struct HeldDelegate {
  std::string stage;
  Value identity;
  std::shared_ptr<Op> op;
};

/// A configuration in use, and where it is from.
struct KernelConfig {
  std::string implementation;
  Params values;
  ConfigOrigin origin = ConfigOrigin::kDefault;
};

/// A kernel of an op, answering selection without building or running.
template <KernelInterface I>
class KernelRef {
 public:
  KernelRef() = default;
  explicit KernelRef(std::shared_ptr<const BuiltEntry> entry) : entry_(std::move(entry)) {}
  /// Runs the kernel; nothing where the call is only explained.
  template <class... Args>
  void run(Args&&... args) const {
    if (entry_ == nullptr) return;
    static_cast<const typename I::Kernel&>(*entry_->kernel).run(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<const BuiltEntry> entry_;
};

/// Thread safety: one instance may be called from several threads at once, on different streams.
class Op {
 public:
  virtual ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  const OpClass& op_class() const { return op_class_; }
  const std::string& name() const { return op_class_.name(); }
  const spec::Signature& signature() const { return *signature_; }
  const spec::Entry& entry() const { return signature_->entry(); }
  /// Parameters in the spec's order, defaults filled in; as the constructor gave them.
  const Params& params() const { return signature_->params(); }
  const Params& given_params() const { return given_params_; }
  const OpOptions& options() const { return options_; }
  /// Names this instance in traced graphs; never handed out again.
  const std::string& key() const { return key_; }

  /// Calls the op (D1). Inputs and `out` buffers in the signature's order.
  /// Errors: the signature's, selection's, the kernels'; the op is then as before (H1-H4).
  Results call(const spec::CallTensors& tensors) const;

  /// The same as a node of another framework's graph runs it: last_call stays as it was (F3).
  Results call_as_node(const spec::CallTensors& tensors) const;

  /// The last completed call. Errors: kState before any.
  RecordPtr last_call() const;
  /// The price of the last call by the spec's formula. Errors: kState before any call; kSpec.
  spec::Cost eval_roofline() const;
  /// What serves the last call, stage by stage, and why not the others. Errors: kState before any.
  Explanation explain() const;

  /// Held sub-ops: in stage order, then in build order.
  std::vector<HeldDelegate> held_delegates() const;
  /// Every kernel of every entry, then those of the held sub-ops, each exactly once.
  std::vector<std::shared_ptr<Kernel>> iter_kernels() const;
  /// Entries of one of this op's interfaces. Errors: kValue for an interface it does not declare.
  std::vector<BuiltEntry> built_entries(std::string_view interface) const;
  /// Configurations in use, of each entry that has one.
  std::vector<KernelConfig> kernel_config() const;
  /// Puts this op and everything that it holds in tuned mode; idempotent. Kernels that are built
  /// already tune now. Errors: what tuning throws; the mode stays, and the next call tries again.
  void request_tune() const;
  bool tuned() const { return tuned_.load(std::memory_order_acquire); }
  /// Who serves: "builtin", a target's name, or none while undecided.
  std::optional<std::string> serving_target() const;

 protected:
  /// Errors: kValue (no such entry, a parameter), kType; those of the spec's construction checks.
  Op(const OpClass& op_class, Params params, OpOptions options = {},
     std::vector<Tensor> construction_tensors = {});

  /// Computes a checked call. Results in the signature's order.
  virtual Results forward(Call& call) const = 0;

  /// Options for the sub-ops that the base class builds: they inherit how, not what.
  OpOptions inherited_options() const;

  /// The untyped delegate_for (B): `make` builds the sub-op where nothing is held under
  /// (stage, identity) yet and `given` is null. Errors: kDelegate; what `make` throws.
  std::shared_ptr<Op> delegate_for(std::string_view stage, const Value& identity,
                                   std::shared_ptr<Op> given,
                                   const std::function<std::shared_ptr<Op>()>& make) const;

  /// The only way from `forward` to a kernel (I1): the entry that serves `spec`, built on a miss.
  /// Errors: kOpNotAvailable, kAmbiguousSelection; what the builder throws.
  template <KernelInterface I>
  KernelRef<I> kernel_for(Call& call, const typename I::Call& spec) const;

 public:
  /// Selects without building, for a device with these facts; whatever the call's device type, it
  /// is never touched. Errors: kOpNotAvailable, kAmbiguousSelection.
  template <KernelInterface I>
  EntryKey key_for(const typename I::Call& spec, const DeviceFacts& facts) const {
    return typed_cache<I>().key_for(spec, facts);
  }

 private:
  friend class Call;
  friend class CallMode;

  struct DelegateKey {
    size_t stage;
    Value identity;
    bool operator==(const DelegateKey&) const = default;
  };
  struct DelegateKeyHash {
    size_t operator()(const DelegateKey& key) const { return hash_of(key.stage, key.identity); }
  };
  struct TargetKernelKey {
    std::shared_ptr<const TargetBuilder> builder;  // a call that outlived an undo builds for itself
    Device device;
    std::vector<spec::TensorFacts> inputs;  // without strides
    bool operator==(const TargetKernelKey&) const = default;
  };
  struct TargetKernelKeyHash {
    size_t operator()(const TargetKernelKey& key) const;
  };
  struct HeldSlot {
    DelegateKey key;
    std::shared_ptr<Op> op;
  };

  // The seven steps (op_call.cc).
  Results run_call(const spec::CallTensors& tensors, bool keeps_record) const;
  Results run_steps(Call& call) const;
  Results compute(Call& call) const;
  RecordPtr last_record() const;  // null before any call
  Results run_selected(Call& call) const;
  Results run_target(Call& call, const ServingTarget& serving) const;
  std::shared_ptr<TargetKernel> build_target_kernel(const TargetKernelKey& key, const Call& call,
                                                    const ServingTarget& serving) const;
  Results allocate_results(const Call& call) const;
  std::shared_ptr<const ServingTarget> settle_target(Call& call) const;
  void check_serves(const ServingTarget& serving) const;
  void complete(RecordPtr record) const noexcept;  // the former record dies outside the lock
  void undo_selection() const noexcept;

  // Holding (op_delegates.cc).
  std::shared_ptr<Op> hold(const DelegateKey& key, const std::shared_ptr<Op>& given,
                           const std::function<std::shared_ptr<Op>()>& make) const;
  void check_may_hold(const DelegateKey& key, const Op& sub_op) const;
  void warn_unused_given(const DelegateKey& key, const Op& held, const Op& given) const;
  bool holds(const Op& op) const;
  std::optional<size_t> stage_of(const Op& sub_op) const;

  // Kernels and tuning (op_kernels.cc).
  KernelCacheBase& cache(std::string_view interface) const;
  template <KernelInterface I>
  KernelCache<I>& typed_cache() const {
    return static_cast<KernelCache<I>&>(cache(I::kName));
  }
  void kernel_built(const BuiltEntry& entry) const;
  void tune_fresh(const std::function<void()>& tune) const;
  void tune_own_kernels() const;
  void tune_target_kernel(TargetKernel& kernel, const std::string& target) const;
  void set_tuned() const;
  void warn_once(std::atomic<bool>& done, const std::string& text) const;

  const OpClass& op_class_;
  const Params given_params_;
  const OpOptions options_;
  const std::vector<Tensor> construction_tensors_;
  const Device default_device_;  // of calls without tensors
  const std::shared_ptr<const spec::Signature> signature_;
  const std::string key_;
  std::vector<std::unique_ptr<KernelCacheBase>> caches_;  // in interface order

  mutable OnceMap<DelegateKey, std::shared_ptr<Op>, DelegateKeyHash> delegates_;
  mutable OnceMap<TargetKernelKey, std::shared_ptr<TargetKernel>, TargetKernelKeyHash>
      target_kernels_;
  mutable std::mutex mutex_;            // guards appending to held_, serving_ and last_call_
  mutable GrowingList<HeldSlot> held_;  // in build order
  mutable std::shared_ptr<const ServingTarget> serving_;
  mutable std::atomic<bool> serves_itself_{false};  // serving_ is there and has no builder
  mutable RecordPtr last_call_;
  mutable std::mutex tuning_;  // one tuner at a time
  mutable std::atomic<bool> tuned_{false};
  mutable std::atomic<bool> tuning_failed_{false};
  mutable std::atomic<bool> warned_given_{false};
  mutable std::atomic<bool> warned_target_tuning_{false};
};

/// The live instance of a key. Errors: kState naming the class of a key whose op is gone.
const Op& instance_of(std::string_view key);

template <KernelInterface I>
KernelRef<I> Op::kernel_for(Call& call, const typename I::Call& spec) const {
  KernelCache<I>& kernels = typed_cache<I>();
  if (call.mode_ != nullptr) {
    call.mode_->kernel_asked(
        *this, I::kName,
        {.explain = [&](const DeviceFacts& facts) { return kernels.explain(spec, facts); },
         .build = [&](const DeviceFacts& facts) { return kernels.build_for(spec, facts); }});
    return KernelRef<I>();
  }
  std::shared_ptr<const BuiltEntry> entry = kernels.find(spec);
  if (entry == nullptr) {
    bool fresh = false;
    entry = kernels.select(spec, call.device(), fresh);
    if (fresh) kernel_built(*entry);
  }
  if (tuning_failed_.load(std::memory_order_acquire)) tune_own_kernels();
  if (!entry->batches_launches) submit_launches();
  call.note_kernel(I::kName, entry);
  return KernelRef<I>(std::move(entry));
}

}  // namespace tileops
