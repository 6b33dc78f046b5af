// SPDX-License-Identifier: Apache-2.0
// The combinations of cases that an entry can be in.
#include "tileops/spec/plan.h"

namespace tileops::spec {
namespace {

constexpr size_t kMaxCases = 4096;

/// Whether two discriminants can have these labels at once.
bool consistent(const Discriminant& a, int a_label, const Discriminant& b, int b_label) {
  const auto label = [](const Discriminant& d, int i) {
    return i < 0 ? std::string_view() : std::string_view(d.labels[static_cast<size_t>(i)]);
  };
  if (a.path == b.path) {
    const bool a_presence = a.node.op == ExprOp::kPresent;
    const bool b_presence = b.node.op == ExprOp::kPresent;
    if (a_presence && !b_presence) {
      return (label(a, a_label) == "true") == (label(b, b_label) != "None");
    }
    if (b_presence && !a_presence) return consistent(b, b_label, a, a_label);
  }
  return true;
}

bool consistent(const EntryImpl& entry, const CaseKey& key) {
  for (size_t i = 0; i < key.size(); ++i) {
    for (size_t j = i + 1; j < key.size(); ++j) {
      if (!consistent(entry.discriminants[i], key[i], entry.discriminants[j], key[j])) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<CaseKey> all_cases(const EntryImpl& entry) {
  std::vector<CaseKey> keys{{}};
  for (const Discriminant& discriminant : entry.discriminants) {
    std::vector<CaseKey> longer;
    for (const CaseKey& key : keys) {
      for (int label = 0; label < static_cast<int>(discriminant.labels.size()); ++label) {
        if (longer.size() == kMaxCases) break;
        longer.push_back(key);
        longer.back().push_back(label);
      }
    }
    keys = std::move(longer);
  }
  std::erase_if(keys, [&](const CaseKey& key) { return !consistent(entry, key); });
  return keys;
}

}  // namespace tileops::spec
