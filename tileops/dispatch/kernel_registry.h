// SPDX-License-Identifier: Apache-2.0
// The kernel tables of every op class: what the tree declares, and what backends add.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/dispatch/implementation.h"

namespace tileops {

/// An op class's interfaces and implementations, checked. Immutable: an instance keeps the table
/// that was current when it was constructed.
struct KernelTable {
  std::string op;
  std::vector<std::string> interfaces;
  std::vector<AnyImplementation> implementations;  // the tree's, then the backends', in order added

  /// The implementations of one interface, in order.
  std::vector<const AnyImplementation*> of(std::string_view interface) const;
};

/// Declares an op class's own table; once per op. Errors: kValue (I4).
void declare_kernel_table(std::string_view op, std::vector<std::string> interfaces,
                          std::vector<AnyImplementation> implementations);

/// The op's current table. Errors: kValue for an op that no class is known for.
std::shared_ptr<const KernelTable> kernel_table(std::string_view op);

/// Adds an implementation to a kernel interface of an op, for instances constructed later (G5).
/// Errors: kValue for an unknown op or interface, a taken key, a malformed table; nothing changes.
void register_kernel_type(std::string_view op, AnyImplementation implementation);

template <KernelInterface I>
void register_kernel_type(std::string_view op, Implementation<I> implementation) {
  register_kernel_type(op, erase(std::move(implementation)));
}

/// Takes a registered implementation back. Errors: kValue where no backend added that key.
void unregister_kernel_type(std::string_view op, std::string_view key);

}  // namespace tileops
