// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/instance_keys.h"

#include <atomic>
#include <map>
#include <mutex>

#include "tileops/core/check.h"
#include "tileops/op/op.h"

namespace tileops {
namespace {

struct Instances {
  std::mutex mutex;  // guards by_key
  std::map<std::string, const Op*, std::less<>> by_key;
  std::atomic<uint64_t> next{1};
};

Instances& instances() {
  static auto& instance = *new Instances;
  return instance;
}

}  // namespace

std::string new_instance_key(std::string_view op_class, std::string_view fingerprint) {
  return fmt::format("{}#{}.{}", op_class, instances().next.fetch_add(1), fingerprint);
}

void announce_instance(const std::string& key, const Op& op) {
  Instances& i = instances();
  std::lock_guard lock(i.mutex);
  i.by_key.emplace(key, &op);
}

void retire_instance(const std::string& key) noexcept {
  Instances& i = instances();
  std::lock_guard lock(i.mutex);
  i.by_key.erase(key);
}

const Op& instance_of(std::string_view key) {
  Instances& i = instances();
  std::lock_guard lock(i.mutex);
  const auto it = i.by_key.find(key);
  TILEOPS_CHECK(ErrorKind::kState, it != i.by_key.end(),
                "{}: the {} instance of this key is gone; keep it alive while its graph is used",
                key, key.substr(0, key.find('#')));
  return *it->second;
}

}  // namespace tileops
