// SPDX-License-Identifier: Apache-2.0
#include "tileops/dispatch/selection.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "tileops/core/check.h"

namespace tileops {
namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool runs_on(const ImplementationInfo& info, DeviceType type) {
  return std::find(info.devices.begin(), info.devices.end(), type) != info.devices.end();
}

std::string device_type_names(const std::vector<DeviceType>& types) {
  std::vector<std::string_view> names;
  names.reserve(types.size());
  for (DeviceType type : types) names.push_back(device_type_name(type));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Why the implementation cannot run on the device at all; empty where it can.
std::string unavailable(const ImplementationInfo& info, const DeviceFacts& facts) {
  if (!runs_on(info, facts.device.type)) {
    return fmt::format("runs on {}, the call is on {}", device_type_names(info.devices),
                       to_string(facts.device));
  }
  const bool has_arch = info.archs.empty() ||
                        std::any_of(info.archs.begin(), info.archs.end(),
                                    [&](const auto& arch) { return contains(facts.archs, arch); });
  if (has_arch) return {};
  return fmt::format(
      "needs {}, {} has {}", fmt::join(info.archs, " or "), to_string(facts.device),
      facts.archs.empty() ? "none of them" : fmt::format("{}", fmt::join(facts.archs, ", ")));
}

using Infos = std::span<const ImplementationInfo* const>;

const ImplementationInfo* find(Infos infos, std::string_view key) {
  const auto it = std::find_if(infos.begin(), infos.end(), [&](auto* i) { return i->key == key; });
  return it == infos.end() ? nullptr : *it;
}

/// Whether `a` is preferred over `b`, through any chain of declarations; `general` is below all.
bool preferred(Infos infos, const ImplementationInfo& a, const ImplementationInfo& b) {
  if (b.general && !a.general) return true;
  std::set<std::string_view> seen;
  std::vector<const ImplementationInfo*> open{&a};
  while (!open.empty()) {
    const ImplementationInfo* at = open.back();
    open.pop_back();
    for (const std::string& key : at->preferred_over) {
      if (key == b.key) return true;
      if (const auto* next = find(infos, key); next != nullptr && seen.insert(key).second) {
        open.push_back(next);
      }
    }
  }
  return false;
}

void check_one(std::string_view op, std::span<const std::string> interfaces,
               const AnyImplementation& implementation) {
  const ImplementationInfo& info = implementation.info;
  TILEOPS_CHECK(ErrorKind::kValue, !info.key.empty(), "{}: an implementation of {} has no key", op,
                implementation.interface);
  TILEOPS_CHECK(
      ErrorKind::kValue,
      std::find(interfaces.begin(), interfaces.end(), implementation.interface) != interfaces.end(),
      "{}: {} implements {}, which the op does not declare; it declares {}", op, info.key,
      implementation.interface, fmt::join(interfaces, ", "));
  TILEOPS_CHECK(ErrorKind::kValue, !info.devices.empty(), "{}: {} names no device type", op,
                info.key);
  TILEOPS_CHECK(ErrorKind::kValue, info.archs.empty() || info.devices.size() == 1,
                "{}: {} names archs ({}) with {} device types ({}); archs go with exactly one", op,
                info.key, fmt::join(info.archs, ", "), info.devices.size(),
                device_type_names(info.devices));
}

void check_pairs(std::string_view op, const std::string& interface, Infos infos) {
  for (const ImplementationInfo* info : infos) {
    for (const std::string& key : info->preferred_over) {
      TILEOPS_CHECK(ErrorKind::kValue, find(infos, key) != nullptr,
                    "{}: {} is preferred over {}, which is no implementation of {}", op, info->key,
                    key, interface);
    }
    TILEOPS_CHECK(ErrorKind::kValue, !preferred(infos, *info, *info),
                  "{}: the preferences of {} form a circle", op, info->key);
    TILEOPS_CHECK(ErrorKind::kValue, !info->general || info->preferred_over.empty(),
                  "{}: {} is general, so below every other, and yet preferred over {}", op,
                  info->key, fmt::join(info->preferred_over, ", "));
    for (const ImplementationInfo* other : infos) {
      if (other == info || !info->general || !other->general) continue;
      for (DeviceType type : info->devices) {
        TILEOPS_CHECK(ErrorKind::kValue, !runs_on(*other, type),
                      "{}: {} and {} are both general for {} on {}; one can be", op, info->key,
                      other->key, interface, device_type_name(type));
      }
    }
  }
}

/// Every implementation's reason against serving; empty where it can serve.
std::vector<std::string> reasons_against(const SelectionQuery& query, const DeviceFacts& facts) {
  std::vector<std::string> reasons(query.implementations.size());
  for (size_t i = 0; i < reasons.size(); ++i) {
    const ImplementationInfo& info = *query.implementations[i];
    if (!query.forced.empty() && info.key != query.forced) {
      reasons[i] = fmt::format("{} is forced", query.forced);
      continue;
    }
    reasons[i] = unavailable(info, facts);
    if (!reasons[i].empty()) continue;
    if (Refusal refusal = query.refusal(i)) reasons[i] = *refusal;
  }
  return reasons;
}

/// Fills in who loses to whom; returns the indices that none of the rest is preferred over.
std::vector<size_t> winners(const SelectionQuery& query, std::vector<std::string>& reasons) {
  std::vector<size_t> able;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) able.push_back(i);
  }
  std::vector<size_t> best;
  for (size_t i : able) {
    const ImplementationInfo& info = *query.implementations[i];
    const auto better = std::find_if(able.begin(), able.end(), [&](size_t j) {
      return j != i && preferred(query.implementations, *query.implementations[j], info);
    });
    if (better == able.end()) {
      best.push_back(i);
    } else {
      reasons[i] = fmt::format("{} is preferred", query.implementations[*better]->key);
    }
  }
  return best;
}

std::string listing(const SelectionQuery& query, const std::vector<std::string>& reasons) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < reasons.size(); ++i) {
    parts.push_back(fmt::format("{} ({})", query.implementations[i]->key,
                                reasons[i].empty() ? "would serve" : reasons[i]));
  }
  return parts.empty() ? "it has no implementation" : fmt::format("{}", fmt::join(parts, "; "));
}

void fill(const SelectionQuery& query, const std::vector<std::string>& reasons,
          const std::vector<size_t>& best, std::vector<Candidate>& candidates) {
  candidates.clear();
  const bool decided = best.size() == 1;
  for (size_t i = 0; i < reasons.size(); ++i) {
    const bool chosen = decided && best.front() == i;
    std::string reason = reasons[i];
    if (chosen)
      reason = query.forced.empty() ? "serves" : "serves, as forced";
    else if (reason.empty())
      reason = "would serve, and so would another: no preference decides";
    candidates.push_back({query.implementations[i]->key, chosen, std::move(reason)});
  }
}

}  // namespace

void check_table(std::string_view op, std::span<const std::string> interfaces,
                 std::span<const AnyImplementation> implementations) {
  std::set<std::string_view> keys;
  for (const AnyImplementation& implementation : implementations) {
    check_one(op, interfaces, implementation);
    TILEOPS_CHECK(ErrorKind::kValue, keys.insert(implementation.info.key).second,
                  "{}: the key {} is taken; choose another", op, implementation.info.key);
  }
  for (const std::string& interface : interfaces) {
    std::vector<const ImplementationInfo*> infos;
    const std::type_info* type = nullptr;
    for (const AnyImplementation& implementation : implementations) {
      if (implementation.interface != interface) continue;
      if (type == nullptr) type = implementation.interface_type;
      TILEOPS_CHECK(ErrorKind::kValue, *implementation.interface_type == *type,
                    "{}: {} implements another C++ type that is also named {}", op,
                    implementation.info.key, interface);
      infos.push_back(&implementation.info);
    }
    check_pairs(op, interface, infos);
  }
}

size_t select_implementation(const SelectionQuery& query, const DeviceFacts& facts,
                             std::vector<Candidate>* candidates) {
  TILEOPS_CHECK(ErrorKind::kOpNotAvailable,
                query.forced.empty() || find(query.implementations, query.forced) != nullptr,
                "{}: {} has no implementation {} to force; candidates: {}", query.op,
                query.interface, query.forced,
                listing(query, std::vector<std::string>(query.implementations.size())));
  std::vector<std::string> reasons = reasons_against(query, facts);
  const std::vector<size_t> best = winners(query, reasons);
  if (candidates != nullptr) fill(query, reasons, best, *candidates);
  TILEOPS_CHECK(ErrorKind::kOpNotAvailable, !best.empty(),
                "{}: no implementation of {} serves {} on {}; candidates: {}", query.op,
                query.interface, query.call_text(), to_string(facts.device),
                listing(query, reasons));
  TILEOPS_CHECK(ErrorKind::kAmbiguousSelection, best.size() == 1,
                "{}: several implementations of {} serve {} on {} and no preference decides; "
                "candidates: {}; declare preferred_over",
                query.op, query.interface, query.call_text(), to_string(facts.device),
                listing(query, reasons));
  return best.front();
}

std::vector<Candidate> explain_selection(const SelectionQuery& query, const DeviceFacts& facts) {
  std::vector<std::string> reasons = reasons_against(query, facts);
  const std::vector<size_t> best = winners(query, reasons);
  std::vector<Candidate> candidates;
  fill(query, reasons, best, candidates);
  return candidates;
}

}  // namespace tileops
