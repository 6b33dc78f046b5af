// SPDX-License-Identifier: Apache-2.0
#include "tileops/dispatch/kernel_registry.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "tileops/core/check.h"
#include "tileops/dispatch/selection.h"

namespace tileops {
namespace {

struct Declared {
  std::shared_ptr<const KernelTable> current;
  size_t num_own = 0;  // implementations of the tree; the rest came from backends
};

struct Tables {
  std::mutex mutex;  // guards by_op
  std::map<std::string, Declared, std::less<>> by_op;
};

Tables& tables() {
  static auto& instance = *new Tables;
  return instance;
}

Declared& declared(Tables& t, std::string_view op) {
  const auto it = t.by_op.find(op);
  TILEOPS_CHECK(ErrorKind::kValue, it != t.by_op.end(),
                "{}: no op class of that name is known; register the class first", op);
  return it->second;
}

void replace(Declared& entry, KernelTable table) {
  check_table(table.op, table.interfaces, table.implementations);
  entry.current = std::make_shared<const KernelTable>(std::move(table));
}

}  // namespace

std::vector<const AnyImplementation*> KernelTable::of(std::string_view interface) const {
  std::vector<const AnyImplementation*> result;
  for (const AnyImplementation& implementation : implementations) {
    if (implementation.interface == interface) result.push_back(&implementation);
  }
  return result;
}

void declare_kernel_table(std::string_view op, std::vector<std::string> interfaces,
                          std::vector<AnyImplementation> implementations) {
  Tables& t = tables();
  Declared entry{.current = nullptr, .num_own = implementations.size()};
  replace(entry, {std::string(op), std::move(interfaces), std::move(implementations)});
  std::lock_guard lock(t.mutex);
  const bool inserted = t.by_op.try_emplace(std::string(op), std::move(entry)).second;
  TILEOPS_CHECK(ErrorKind::kValue, inserted, "{}: the op's kernel table is declared already", op);
}

std::shared_ptr<const KernelTable> kernel_table(std::string_view op) {
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  return declared(t, op).current;
}

void register_kernel_type(std::string_view op, AnyImplementation implementation) {
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  Declared& entry = declared(t, op);
  KernelTable table = *entry.current;
  table.implementations.push_back(std::move(implementation));
  replace(entry, std::move(table));
}

void unregister_kernel_type(std::string_view op, std::string_view key) {
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  Declared& entry = declared(t, op);
  KernelTable table = *entry.current;
  const auto first_added = table.implementations.begin() + static_cast<ptrdiff_t>(entry.num_own);
  const auto it = std::find_if(first_added, table.implementations.end(),
                               [&](const auto& i) { return i.info.key == key; });
  TILEOPS_CHECK(ErrorKind::kValue, it != table.implementations.end(),
                "{}: no backend registered a kernel type {}", op, key);
  table.implementations.erase(it);
  replace(entry, std::move(table));
}

}  // namespace tileops
