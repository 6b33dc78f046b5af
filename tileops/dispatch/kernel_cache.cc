// SPDX-License-Identifier: Apache-2.0
#include "tileops/dispatch/kernel_cache.h"

#include "tileops/core/check.h"
#include "tileops/core/log.h"

namespace tileops {

KernelCacheBase::KernelCacheBase(std::shared_ptr<const KernelTable> table,
                                 std::string_view interface, std::string forced,
                                 BuildOptions build_options)
    : table_(std::move(table)),
      implementations_(table_->of(interface)),
      interface_(interface),
      forced_(std::move(forced)),
      build_options_(std::move(build_options)) {
  for (const AnyImplementation* implementation : implementations_) {
    infos_.push_back(&implementation->info);
  }
}

std::vector<BuiltEntry> KernelCacheBase::entries() const {
  std::vector<BuiltEntry> result;
  for (const auto& [key, built] : entries_.built()) result.push_back(*built);
  return result;
}

void KernelCacheBase::clear() noexcept {
  entries_.clear();
  std::unique_lock lock(mutex_);
  ++generation_;
}

uint64_t KernelCacheBase::current_generation() const {
  std::shared_lock lock(mutex_);
  return generation_;
}

void KernelCacheBase::check_interface_type(const std::type_info& type) const {
  for (const AnyImplementation* implementation : implementations_) {
    TILEOPS_CHECK(ErrorKind::kValue, *implementation->interface_type == type,
                  "{}: {} was registered for another C++ type that is also named {}", table_->op,
                  implementation->info.key, interface_);
  }
}

KernelCacheBase::EntryPtr KernelCacheBase::entry(const EntryKey& key, const Build& build,
                                                 bool& fresh) {
  const auto found = entries_.get_or_build(key, [&]() -> EntryPtr {
    std::shared_ptr<Kernel> kernel = build(build_options_);
    TILEOPS_CHECK(ErrorKind::kBackend, kernel != nullptr, "{}: {} built no kernel for identity {}",
                  table_->op, key.implementation, to_string(key.identity));
    if (log_on(Log::kBuild)) {
      log_line(Log::kBuild, fmt::format("op={} impl={} identity={}", table_->op, key.implementation,
                                        to_string(key.identity)));
    }
    return std::make_shared<const BuiltEntry>(BuiltEntry{key.implementation, key.identity, kernel});
  });
  fresh = found.fresh;
  return found.value;
}

SelectionQuery KernelCacheBase::query(std::function<Refusal(size_t)> refusal,
                                      std::function<std::string()> call_text) const {
  return {table_->op, interface_, infos_, std::move(refusal), forced_, std::move(call_text)};
}

}  // namespace tileops
