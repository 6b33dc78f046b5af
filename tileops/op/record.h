// SPDX-License-Identifier: Apache-2.0
// CallRecord: what remains of one completed call. Immutable once it is an op's last_call.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/inline_vector.h"
#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/dispatch/kernel_cache.h"
#include "tileops/dispatch/results.h"
#include "tileops/spec/facts.h"
#include "tileops/spec/roofline.h"
#include "tileops/spec/signature.h"

namespace tileops {

class OpClass;
class CallRecord;
using RecordPtr = std::shared_ptr<const CallRecord>;

/// One kernel of the op's own that the call ran.
struct KernelUse {
  std::string_view interface;
  std::shared_ptr<const BuiltEntry> entry;
};

/// Thread safety: immutable; metadata tensors' contents are the caller's to keep.
class CallRecord {
 public:
  static constexpr size_t kMaxMetadata = 4;
  static constexpr size_t kMaxKernels = 4;

  CallRecord(const OpClass& op_class, std::shared_ptr<const spec::Signature> signature);

  const std::string& op() const;
  const spec::Signature& signature() const { return *signature_; }
  const spec::CallFacts& facts() const { return facts_; }
  Device device() const { return facts_.device; }
  std::string_view effect_branch() const { return facts_.effect_branch; }

  /// A Dim index of the signature. Errors: kValue naming the op and what there is.
  int64_t index(std::string_view name) const;
  /// Any index or parameter. Errors: kValue.
  Value value(std::string_view name) const;
  /// Facts of an input or output by name. Errors: kValue.
  const spec::TensorFacts& tensor(std::string_view name) const;
  /// Bytes of the call's tensors, each read or written once.
  spec::Traffic traffic() const;
  /// Names of the outputs and mutated inputs that the call wrote.
  std::vector<std::string> written() const;
  /// A metadata input, for reading its contents later; absent where it was not given.
  /// Errors: kValue (no metadata input of that name), kState (a meta call has no contents; a stage's
  /// call on a GPU keeps none).
  Tensor metadata(std::string_view input) const;

  /// Declared stages, in order.
  std::vector<std::string> stage_names() const;
  /// Records of the sub-op calls of a stage in completion order; empty where nothing ran.
  /// Errors: kDelegate for a stage that the class does not declare.
  std::vector<RecordPtr> stages(std::string_view stage) const;

  /// The target that served: "builtin", a registered target, or "" where nothing ran.
  const std::string& served_by() const { return served_by_; }
  /// The op's own kernels that ran, in order.
  std::span<const KernelUse> kernels() const { return {kernels_.data(), num_kernels_}; }
  /// Host time of the call; none unless set_call_timing(true).
  std::optional<double> elapsed_us() const { return elapsed_us_; }

 private:
  friend class Call;
  friend class CallMode;
  friend class Op;
  struct Filed {
    size_t stage;
    RecordPtr record;
  };

  const OpClass* op_class_;
  std::shared_ptr<const spec::Signature> signature_;
  spec::CallFacts facts_;
  InlineVector<Tensor, kMaxMetadata> metadata_;
  bool keeps_metadata_ = true;
  std::array<KernelUse, kMaxKernels> kernels_;
  size_t num_kernels_ = 0;
  std::vector<Filed> filed_;
  std::string served_by_;
  std::optional<double> elapsed_us_;
};

/// The price of a call by its spec's formula; a composite's by what its staged records say.
/// Errors: kSpec (the formula failed), kState (it reads metadata of a meta call).
spec::Cost price(const CallRecord& record);

/// Switches the timing of calls on the host on or off, for the whole process (off at the start).
void set_call_timing(bool on);

}  // namespace tileops
