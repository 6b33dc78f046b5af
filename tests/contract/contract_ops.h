// SPDX-License-Identifier: Apache-2.0
// Small ops of the tests' own: leaves, composites of both kinds, three levels of nesting, every
// effect. Each asks a hook at every step, so that a test can count, fail or spoil it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/contract_support.h"
#include "tileops/op/typed_op.h"

namespace tileops::contract {

// The kernel interface of ScaleOp.
struct ScaleCall {
  int64_t m = 0, n = 0;
  DType dtype = DType::kF32;
  double factor = 1;
  std::string tag;
  Device device;
  bool operator==(const ScaleCall&) const = default;
  size_t hash() const;
  std::string to_string() const;
};
class ScaleKernel : public Kernel {
 public:
  ScaleKernel(std::string key, double factor, std::string tag)
      : key_(std::move(key)), factor_(factor), tag_(std::move(tag)) {}
  void run(const Tensor& x, const Tensor& y) const;
  bool tunable() const override { return true; }
  void request_tune() override;
  Params config() const override { return {{"tile", tile_.load()}}; }

 private:
  const std::string key_;
  const double factor_;
  const std::string tag_;
  std::atomic<int> tile_{1};
};
struct Scale {
  static constexpr std::string_view kName = "scale";
  using Call = ScaleCall;
  using Kernel = ScaleKernel;
};
/// An implementation of Scale that serves what `refusal` lets through.
Implementation<Scale> scale_implementation(ImplementationInfo info,
                                           std::function<Refusal(const ScaleCall&)> refusal);

// The kernel interface of MixOp: y += x.
class MixKernel : public Kernel {
 public:
  void run(const Tensor& x, const Tensor& y) const;
};
struct Mix {
  static constexpr std::string_view kName = "mix";
  using Call = ScaleCall;
  using Kernel = MixKernel;
};

/// What every op here with one input and one `out` shares.
template <class Self>
class UnaryOp : public TypedOp<Self> {
 public:
  using TypedOp<Self>::TypedOp;
  Tensor operator()(const Tensor& x, const Tensor& out = {}) const { return invoke(*this, x, out); }
  static Tensor invoke(const Op& op, const Tensor& x, const Tensor& out = {}) {
    const Tensor inputs[] = {x};
    const Tensor outs[] = {out};
    return op.call({inputs, std::span(outs, out.defined() ? 1 : 0)})[0];
  }
};

class ScaleOp : public UnaryOp<ScaleOp> {
 public:
  static constexpr std::string_view kName = "TestScaleFwdOp";
  using interfaces = KernelInterfaces<Scale>;
  static std::vector<AnyImplementation> kernel_types();

  explicit ScaleOp(double factor = 2, std::string tag = "", OpOptions options = {});
  static std::shared_ptr<ScaleOp> from_params(const Params& params, const OpOptions& options);
  ScaleCall spec_of(const Tensor& x) const;

 protected:
  Results forward(Call& call) const override;

 private:
  double factor_;
  std::string tag_;
};

/// Derives from the class that stages declare.
class DerivedScaleOp : public ScaleOp {
 public:
  using ScaleOp::ScaleOp;
};

/// Another class, of the same signature, with nothing to tune.
class TwinOp : public UnaryOp<TwinOp> {
 public:
  static constexpr std::string_view kName = "TestTwinFwdOp";
  static constexpr bool kTunable = false;
  explicit TwinOp(double factor = 2, std::string tag = "", OpOptions options = {});
  static std::shared_ptr<TwinOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;
};

class ShiftOp : public TypedOp<ShiftOp> {
 public:
  static constexpr std::string_view kName = "TestShiftFwdOp";
  explicit ShiftOp(OpOptions options = {});
  static std::shared_ptr<ShiftOp> from_params(const Params& params, const OpOptions& options);
  Tensor operator()(const Tensor& x, const Tensor& shift = {}) const {
    return invoke(*this, x, shift);
  }
  static Tensor invoke(const Op& op, const Tensor& x, const Tensor& shift = {});

 protected:
  Results forward(Call& call) const override;
};

class ChainOp : public UnaryOp<ChainOp> {
 public:
  static constexpr std::string_view kName = "TestChainFwdOp";
  using delegate_types = DelegateTypes<Stage<"first", ScaleOp>, Stage<"second", ScaleOp>>;
  static std::vector<std::string> injected() { return {"first_op", "second_op"}; }

  explicit ChainOp(double factor = 2, std::string tag = "", std::shared_ptr<Op> first_op = nullptr,
                   std::shared_ptr<Op> second_op = nullptr, OpOptions options = {});
  static std::shared_ptr<ChainOp> from_params(const Params& params, const OpOptions& options,
                                              const Injected& injected);

 protected:
  Results forward(Call& call) const override;

 private:
  std::string tag_;
  Held<ScaleOp> first_, second_;
};

class NestOp : public UnaryOp<NestOp> {
 public:
  static constexpr std::string_view kName = "TestNestFwdOp";
  using delegate_types = DelegateTypes<Stage<"inner", ChainOp>, Stage<"last", ScaleOp>>;
  explicit NestOp(std::string tag = "", std::shared_ptr<Op> inner_op = nullptr,
                  OpOptions options = {});
  static std::shared_ptr<NestOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;

 private:
  std::string tag_;
  Held<ChainOp> inner_;
  Held<ScaleOp> last_;
};

class DeepOp : public UnaryOp<DeepOp> {
 public:
  static constexpr std::string_view kName = "TestDeepFwdOp";
  using delegate_types = DelegateTypes<Stage<"middle", NestOp>, Stage<"tail", ScaleOp>>;
  explicit DeepOp(std::string tag = "", std::shared_ptr<Op> middle_op = nullptr,
                  OpOptions options = {});
  static std::shared_ptr<DeepOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;

 private:
  std::string tag_;
  Held<NestOp> middle_;
  Held<ScaleOp> tail_;
};

/// E2: holds a sub-op per N, in forward.
class WidthOp : public UnaryOp<WidthOp> {
 public:
  static constexpr std::string_view kName = "TestWidthFwdOp";
  using delegate_types = DelegateTypes<Stage<"by_width", ScaleOp>>;
  explicit WidthOp(std::string tag = "", OpOptions options = {});
  static std::shared_ptr<WidthOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;

 private:
  std::string tag_;
};

/// A composite with kernels of its own, in two roles.
class MixOp : public UnaryOp<MixOp> {
 public:
  static constexpr std::string_view kName = "TestMixFwdOp";
  using delegate_types = DelegateTypes<Stage<"scale", ScaleOp>>;
  using interfaces = KernelInterfaces<Mix, Scale>;
  static std::vector<AnyImplementation> kernel_types();
  explicit MixOp(OpOptions options = {});
  static std::shared_ptr<MixOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;

 private:
  Held<ScaleOp> scale_;
};

class EffectsOp : public TypedOp<EffectsOp> {
 public:
  static constexpr std::string_view kName = "TestEffectsFwdOp";
  EffectsOp(bool in_place, bool want_sums, OpOptions options = {});
  static std::shared_ptr<EffectsOp> from_params(const Params& params, const OpOptions& options);
  Results operator()(const Tensor& x, const Tensor& out = {}) const;

 protected:
  Results forward(Call& call) const override;
};

class AliasOp : public UnaryOp<AliasOp> {
 public:
  static constexpr std::string_view kName = "TestAliasFwdOp";
  explicit AliasOp(OpOptions options = {});
  static std::shared_ptr<AliasOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;
};

class TableOp : public TypedOp<TableOp> {
 public:
  static constexpr std::string_view kName = "TestTableFwdOp";
  explicit TableOp(Tensor table, OpOptions options = {});
  static std::shared_ptr<TableOp> from_params(const Params& params, const OpOptions& options);
  Tensor operator()() const { return call({})[0]; }

 protected:
  Results forward(Call& call) const override;

 private:
  Tensor table_;
};

class CountOp : public TypedOp<CountOp> {
 public:
  static constexpr std::string_view kName = "TestCountFwdOp";
  explicit CountOp(OpOptions options = {});
  static std::shared_ptr<CountOp> from_params(const Params& params, const OpOptions& options);
  Tensor operator()(const Tensor& x, const Tensor& rows) const;

 protected:
  Results forward(Call& call) const override;
};

class ProbeOp : public TypedOp<ProbeOp> {
 public:
  static constexpr std::string_view kName = "TestProbeFwdOp";
  explicit ProbeOp(bool want_sums, OpOptions options = {});
  static std::shared_ptr<ProbeOp> from_params(const Params& params, const OpOptions& options);
  Results operator()(const Tensor& x) const;

 protected:
  Results forward(Call& call) const override;
};

class RuleOp : public UnaryOp<RuleOp> {
 public:
  static constexpr std::string_view kName = "TestRuleFwdOp";
  using delegate_types = DelegateTypes<Stage<"scale", ScaleOp>>;
  explicit RuleOp(OpOptions options = {});
  static std::shared_ptr<RuleOp> from_params(const Params& params, const OpOptions& options);

 protected:
  Results forward(Call& call) const override;

 private:
  Held<ScaleOp> scale_;
};

/// A composite whose forward a test gives, and which holds what a test says.
class FreeOp : public UnaryOp<FreeOp> {
 public:
  static constexpr std::string_view kName = "TestFreeFwdOp";
  using delegate_types =
      DelegateTypes<Stage<"a", ScaleOp>, Stage<"b", ScaleOp>, Stage<"c", ChainOp>>;
  using Body = std::function<Tensor(const FreeOp& self, Call& call)>;

  explicit FreeOp(Body body = {}, OpOptions options = {});
  static std::shared_ptr<FreeOp> from_params(const Params& params, const OpOptions& options);

  /// delegate_for, open to tests: builds a ScaleOp (stage c: a ChainOp) where nothing is given.
  std::shared_ptr<Op> hold(std::string_view stage, const Value& identity,
                           std::shared_ptr<Op> given = nullptr) const;
  std::shared_ptr<Op> hold_made(std::string_view stage, const Value& identity,
                                const std::function<std::shared_ptr<Op>()>& make) const {
    return Op::delegate_for(stage, identity, nullptr, make);
  }
  using Op::inherited_options;

 protected:
  Results forward(Call& call) const override;

 private:
  Body body_;
};

}  // namespace tileops::contract
