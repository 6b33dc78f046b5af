// SPDX-License-Identifier: Apache-2.0
// Implementation: one way to compute a kernel interface's calls, with what it declares of itself.
//
// A kernel interface is a struct
//   struct GroupedGemm {
//     static constexpr std::string_view kName = "grouped_gemm";
//     using Call = GroupedGemmCall;      // immutable value: ==, hash() and to_string(call)
//     using Kernel = GroupedGemmKernel;  // derives from tileops::Kernel, adds run(args)
//   };
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "tileops/core/value.h"
#include "tileops/dispatch/kernel.h"

namespace tileops {

template <class I>
concept KernelInterface = requires(const typename I::Call& call) {
  { I::kName } -> std::convertible_to<std::string_view>;
  requires std::derived_from<typename I::Kernel, Kernel>;
  requires std::equality_comparable<typename I::Call>;
  { call.hash() } -> std::convertible_to<size_t>;
  { call.to_string() } -> std::convertible_to<std::string>;
};

/// Why an implementation does not serve a call; none where it does.
using Refusal = std::optional<std::string>;

/// What a builder gets beyond the call.
struct BuildOptions {
  Params kernel_config;     // forced by the op's user; empty where it is not
  std::string device_name;  // as the device's facts have it; finds the device's tuning table
};

/// A configuration and where it is from.
struct ConfigInUse {
  Params values;
  ConfigOrigin origin = ConfigOrigin::kDefault;
};

/// What `entry_for` returns: the identity that covers every argument which changes what is built,
/// and the builder, which runs once per (implementation, identity) of an op instance.
template <KernelInterface I>
struct EntryFor {
  Value identity;
  std::function<std::shared_ptr<typename I::Kernel>(const BuildOptions&)> build;
  /// The configuration that a kernel built now would begin with; empty where there is none to
  /// choose.
  std::function<ConfigInUse(const BuildOptions&)> config = {};
};

/// What an implementation declares, the same for every interface.
struct ImplementationInfo {
  std::string key;                      // "cpu_blocked": unique within the op
  std::vector<DeviceType> devices;      // device types that it runs on
  std::vector<std::string> archs = {};  // one of these is needed; empty: any of its device type
  bool general = false;                 // below every other; one a device type and interface
  std::vector<std::string> preferred_over = {};
  /// It reaches the device through tileops::cuda::launch alone, so that a composite may put its
  /// launches off (core/launch_batch.h); before a kernel of any other, what was put off is sent.
  bool batches_launches = false;
};

template <KernelInterface I>
struct Implementation {
  ImplementationInfo info;
  /// Reads the call alone, so that its answer can be cached by the call.
  std::function<Refusal(const typename I::Call&)> refusal;
  std::function<EntryFor<I>(const typename I::Call&)> entry_for;
};

/// An implementation with its interface's type erased, as tables and registries keep it.
struct AnyImplementation {
  ImplementationInfo info;
  std::string interface;
  const std::type_info* interface_type = nullptr;
  std::shared_ptr<const void> typed;  // Implementation<I>
};

template <KernelInterface I>
AnyImplementation erase(Implementation<I> implementation) {
  return {implementation.info, std::string(I::kName), &typeid(I),
          std::make_shared<const Implementation<I>>(std::move(implementation))};
}

}  // namespace tileops
