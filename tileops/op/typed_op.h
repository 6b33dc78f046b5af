// SPDX-License-Identifier: Apache-2.0
// TypedOp: what a C++ op class writes to declare itself.
//
//   class MoEExpertMLPFwdOp : public TypedOp<MoEExpertMLPFwdOp> {
//    public:
//     static constexpr std::string_view kName = "MoEExpertMLPFwdOp";
//     using delegate_types = DelegateTypes<Stage<"gate_up", MoEGroupedGemmFwdOp>,
//                                          Stage<"down", MoEGroupedGemmFwdOp>>;
//     static std::shared_ptr<MoEExpertMLPFwdOp> from_params(const Params&, const OpOptions&);
//         // or with a third argument, const Injected&, where the class names what is injected
//     static Tensor invoke(const Op& op, …);   // packs the arguments, calls op.call, unpacks
//     …
//   };
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tileops/op/op.h"

namespace tileops {

/// A string literal as a template argument.
template <size_t N>
struct Literal {
  constexpr Literal(const char (&text)[N]) { std::copy_n(text, N, chars); }  // NOLINT
  constexpr std::string_view view() const { return {chars, N - 1}; }
  char chars[N];
};

/// A stage of a composite: its name and the class of the sub-ops that it holds.
template <Literal Name, class OpT>
struct Stage {
  static constexpr std::string_view kName = Name.view();
  using Class = OpT;
};

template <class... Stages>
struct DelegateTypes {
  static constexpr std::array<std::string_view, sizeof...(Stages)> kNames{Stages::kName...};
  template <Literal Name>
  static constexpr bool declares = ((Stages::kName == Name.view()) || ...);

  /// The class that a stage holds.
  template <Literal Name, class First, class... Rest>
  static auto find_class() {
    if constexpr (First::kName == Name.view())
      return std::type_identity<typename First::Class>{};
    else
      return find_class<Name, Rest...>();
  }
  template <Literal Name>
  using Class = typename decltype(find_class<Name, Stages...>())::type;

  static std::vector<StageType> list() {
    return {StageType{std::string(Stages::kName), &Stages::Class::op_class(), [](const Op& op) {
                        return dynamic_cast<const typename Stages::Class*>(&op) != nullptr;
                      }}...};
  }
};

template <KernelInterface I>
InterfaceType interface_type() {
  InterfaceType type{std::string(I::kName),
                     [](std::shared_ptr<const KernelTable> table, std::string forced,
                        Params forced_config) -> std::unique_ptr<KernelCacheBase> {
                       return std::make_unique<KernelCache<I>>(std::move(table), std::move(forced),
                                                               std::move(forced_config));
                     }};
  if constexpr (OpenToForeign<I>) type.adapt = &adapt<I>;
  return type;
}

template <class... Interfaces>
struct KernelInterfaces {
  static std::vector<InterfaceType> list() { return {interface_type<Interfaces>()...}; }
};

/// A held sub-op, callable as its stage's class is.
template <class OpT>
class Held {
 public:
  Held() = default;
  explicit Held(std::shared_ptr<Op> op) : op_(std::move(op)) {}
  template <class... Args>
  auto operator()(Args&&... args) const {
    return OpT::invoke(*op_, std::forward<Args>(args)...);
  }
  const std::shared_ptr<Op>& op() const { return op_; }
  explicit operator bool() const { return op_ != nullptr; }

 private:
  std::shared_ptr<Op> op_;
};

template <class Self>
class TypedOp : public Op {
 public:
  // What a class leaves out of its declaration.
  using delegate_types = DelegateTypes<>;
  using interfaces = KernelInterfaces<>;
  static std::vector<AnyImplementation> kernel_types() { return {}; }
  static std::vector<std::string> injected() { return {}; }
  static constexpr bool kTunable = true;

  /// The class's description; the first ask declares the class. Errors: kValue (I4).
  static const OpClass& op_class() {
    static const OpClass& declared = OpClass::declare(
        {.name = std::string(Self::kName),
         .delegate_types = Self::delegate_types::list(),
         .interfaces = Self::interfaces::list(),
         .kernel_types = Self::kernel_types(),
         .injected = Self::injected(),
         .tunable = Self::kTunable,
         .type = &typeid(Self),
         .make = [](const Params& params, const OpOptions& options,
                    const Injected& injected) -> std::shared_ptr<Op> {
           if constexpr (requires { Self::from_params(params, options, injected); })
             return Self::from_params(params, options, injected);
           else
             return Self::from_params(params, options);
         }});
    return declared;
  }

 protected:
  explicit TypedOp(Params params, OpOptions options = {}, std::vector<Tensor> tensors = {})
      : Op(op_class(), std::move(params), std::move(options), std::move(tensors)) {}

  /// Holds the sub-op of (stage, identity): `given`, else one built from `args` and this op's
  /// inherited options. The stage is a literal: one that the class does not declare is no program.
  /// Errors: kDelegate (B); what the sub-op's constructor throws.
  template <Literal StageName, class... Args>
  auto delegate_for(const Value& identity, std::shared_ptr<Op> given, Args&&... args) const {
    static_assert(Self::delegate_types::template declares<StageName>,
                  "delegate_for: the stage is not among this class's delegate_types");
    using Class = typename Self::delegate_types::template Class<StageName>;
    const auto make = [&]() -> std::shared_ptr<Op> {
      return std::make_shared<Class>(args..., inherited_options());
    };
    return Held<Class>(
        Op::delegate_for(StageName.view(), identity, std::move(given), std::cref(make)));
  }
};

}  // namespace tileops
