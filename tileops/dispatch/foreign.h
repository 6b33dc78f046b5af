// SPDX-License-Identifier: Apache-2.0
// Implementations from another language: they join a kernel interface in names and tensors instead
// of its C++ types. An interface is open to them where its call lists its fields (call_fields.h)
// and its arguments are the op's tensors:
//
//   struct Args {
//     const Tensor& a; const Tensor& bias; const Tensor& out;
//     std::array<Tensor, 3> tensors() const { return {a, bias, out}; }  // inputs, then outputs
//   };
//   struct GroupedGemm { …; using Args = grouped_gemm::Args; };
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"

namespace tileops {

/// A foreign implementation's kernel.
class ForeignKernel : public Kernel {
 public:
  /// Computes a call: fills its outputs. The tensors are in the signature's order, inputs then
  /// outputs; an absent one keeps its slot. Thread safety: called from several threads at once.
  virtual void run(std::span<const Tensor> tensors) const = 0;
};

/// Implementation<I> with the call's fields by name. What the functions throw reaches the caller of
/// the op unchanged. Thread safety: they are called from several threads at once.
struct ForeignImplementation {
  ImplementationInfo info;
  std::function<Refusal(const Params& call)> refusal;
  /// Covers what changes the build.
  std::function<Value(const Params& call)> identity;
  /// Null is kBackend.
  std::function<std::shared_ptr<ForeignKernel>(const Params& call, const BuildOptions&)> build;
};

template <class I>
concept OpenToForeign = KernelInterface<I> && HasFields<typename I::Call> &&
    requires(const typename I::Args& args) {
  {std::span<const Tensor>(args.tensors())};
};

/// A foreign kernel as one of an interface.
template <OpenToForeign I>
class ForeignAdapter final : public I::Kernel {
 public:
  explicit ForeignAdapter(std::shared_ptr<ForeignKernel> kernel) : kernel_(std::move(kernel)) {}

  void run(const typename I::Args& args) const override { kernel_->run(args.tensors()); }
  bool tunable() const override { return kernel_->tunable(); }
  void request_tune() override { kernel_->request_tune(); }
  Params config() const override { return kernel_->config(); }
  ConfigOrigin config_origin() const override { return kernel_->config_origin(); }

 private:
  std::shared_ptr<ForeignKernel> kernel_;
};

template <OpenToForeign I>
AnyImplementation adapt(ForeignImplementation implementation) {
  using Call = typename I::Call;
  const auto foreign = std::make_shared<const ForeignImplementation>(std::move(implementation));
  return erase(Implementation<I>{
      .info = foreign->info,
      .refusal = [foreign](const Call& call) { return foreign->refusal(field_values(call)); },
      .entry_for = [foreign](const Call& call) -> EntryFor<I> {
        const Params values = field_values(call);
        return {
            foreign->identity(values),
            [foreign, values](const BuildOptions& options) -> std::shared_ptr<typename I::Kernel> {
              std::shared_ptr<ForeignKernel> kernel = foreign->build(values, options);
              if (kernel == nullptr) return nullptr;
              return std::make_shared<ForeignAdapter<I>>(std::move(kernel));
            }};
      }});
}

}  // namespace tileops
