// SPDX-License-Identifier: Apache-2.0
#include "contract/contract_support.h"

#include <map>
#include <mutex>
#include <utility>

#include "tileops/core/log.h"
#include "tileops/dispatch/target.h"
#include "tileops/op/explain.h"

namespace tileops::contract {
namespace {

struct Steps {
  std::mutex mutex;  // guards counts
  std::map<std::pair<Point, std::string>, int> counts;
  Hook hook;  // set while no other thread runs
};

Steps& steps() {
  static auto& instance = *new Steps;
  return instance;
}

std::mutex warnings_mutex;
std::vector<std::string> warnings;

}  // namespace

bool at(Point point, const std::string& tag) {
  Steps& s = steps();
  {
    std::lock_guard lock(s.mutex);
    ++s.counts[{point, tag}];
  }
  return s.hook != nullptr && s.hook(point, tag);
}

int count_of(Point point, const std::string& tag) {
  Steps& s = steps();
  std::lock_guard lock(s.mutex);
  return s.counts[{point, tag}];
}

void reset_counts() {
  Steps& s = steps();
  std::lock_guard lock(s.mutex);
  s.counts.clear();
}

HookGuard::HookGuard(Hook hook) { steps().hook = std::move(hook); }
HookGuard::~HookGuard() { steps().hook = nullptr; }

Tensor feed(const std::string& tag, const Tensor& x) {
  return at(Point::kFeed, tag) ? x.select(0, 0) : x;
}

Tensor result_of(const std::string& tag, const Tensor& y) {
  return at(Point::kResult, tag) ? Tensor::empty({1, 1, 1}, y.dtype(), y.device()) : y;
}

Tensor iota(int64_t m, int64_t n, DType dtype) {
  std::vector<double> values(static_cast<size_t>(m * n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  return Tensor::from_values({m, n}, dtype, values);
}

std::vector<double> values_of(const Tensor& tensor) {
  const Tensor flat = tensor.to(DType::kF64);
  return {flat.data_as<double>(), flat.data_as<double>() + flat.num_elements()};
}

Tensor on_meta(const Tensor& tensor) { return meta_like(tensor); }

Warnings::Warnings() {
  std::lock_guard lock(warnings_mutex);
  warnings.clear();
  set_warning_handler([](std::string_view text) {
    std::lock_guard inner(warnings_mutex);
    warnings.emplace_back(text);
  });
}

Warnings::~Warnings() { set_warning_handler(nullptr); }

std::vector<std::string> Warnings::seen() const {
  std::lock_guard lock(warnings_mutex);
  return warnings;
}

TargetGuard::~TargetGuard() {
  try {
    unregister_target(name_);
  } catch (const Error&) {
    // Nothing is registered any more: the test took it back itself.
  }
}

}  // namespace tileops::contract
