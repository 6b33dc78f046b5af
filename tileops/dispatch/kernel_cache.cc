// SPDX-License-Identifier: Apache-2.0
#include "tileops/dispatch/kernel_cache.h"

#include "tileops/core/check.h"
#include "tileops/core/log.h"

namespace tileops {

std::string_view config_origin_name(ConfigOrigin origin) {
  switch (origin) {
    case ConfigOrigin::kDefault:
      return "default";
    case ConfigOrigin::kTable:
      return "table";
    case ConfigOrigin::kTuned:
      return "tuned";
    default:
      return "forced";
  }
}

KernelCacheBase::KernelCacheBase(std::shared_ptr<const KernelTable> table,
                                 std::string_view interface, std::string forced,
                                 Params forced_config)
    : table_(std::move(table)),
      implementations_(table_->of(interface)),
      interface_(interface),
      forced_(std::move(forced)),
      forced_config_(std::move(forced_config)) {
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

BuildOptions KernelCacheBase::build_options(const DeviceFacts& facts) const {
  return {forced_config_, facts.name};
}

void KernelCacheBase::check_forced_config(std::string_view implementation,
                                          const Params& config) const {
  for (const auto& [key, value] : forced_config_) {
    const Value* const used = config.find(key);
    if (used != nullptr && *used == value) continue;
    raise(ErrorKind::kValue, "{}: kernel_config: {} {}, got {}; leave it out or force another",
          table_->op, implementation,
          config.size() == 0 ? "has nothing to configure" : "would run with " + to_string(config),
          to_string(forced_config_));
  }
}

std::string KernelCacheBase::config_text(
    const EntryKey& key, const std::function<ConfigInUse(const BuildOptions&)>& config,
    const DeviceFacts& facts) const {
  ConfigInUse used;
  if (const EntryPtr built = entries_.find(key)) {
    used = {built->kernel->config(), built->kernel->config_origin()};
  } else if (config) {
    used = config(build_options(facts));
  } else {
    return "";  // the kernel may have one; only building it would tell
  }
  check_forced_config(key.implementation, used.values);
  if (used.values.size() == 0) return "";
  return fmt::format("{} ({})", to_string(used.values), config_origin_name(used.origin));
}

KernelCacheBase::EntryPtr KernelCacheBase::entry(const ImplementationInfo& implementation,
                                                 const Value& identity, const Build& build,
                                                 const DeviceFacts& facts, bool& fresh) {
  const EntryKey key{implementation.key, identity};
  const auto found = entries_.get_or_build(key, [&]() -> EntryPtr {
    std::shared_ptr<Kernel> kernel = build(build_options(facts));
    TILEOPS_CHECK(ErrorKind::kBackend, kernel != nullptr, "{}: {} built no kernel for identity {}",
                  table_->op, key.implementation, to_string(key.identity));
    check_forced_config(key.implementation, kernel->config());
    if (log_on(Log::kBuild)) {
      log_line(Log::kBuild, fmt::format("op={} impl={} identity={}", table_->op, key.implementation,
                                        to_string(key.identity)));
    }
    return std::make_shared<const BuiltEntry>(
        BuiltEntry{key.implementation, key.identity, kernel, implementation.batches_launches});
  });
  fresh = found.fresh;
  return found.value;
}

SelectionQuery KernelCacheBase::query(std::function<Refusal(size_t)> refusal,
                                      std::function<std::string()> call_text) const {
  return {table_->op, interface_, infos_, std::move(refusal), forced_, std::move(call_text)};
}

}  // namespace tileops
