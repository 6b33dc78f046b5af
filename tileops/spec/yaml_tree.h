// SPDX-License-Identifier: Apache-2.0
// YAML text as a plain tree with line numbers. Anchors, aliases, tags and repeated keys are faults,
// and depth and size are capped, so that no text can make a reader loop or explode.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tileops/spec/report.h"

namespace tileops::spec {

inline constexpr size_t kMaxYamlBytes = 4 << 20;
inline constexpr size_t kMaxYamlNodes = 200'000;
inline constexpr size_t kMaxYamlDepth = 48;
inline constexpr size_t kMaxYamlKeys = 1024;  // of one mapping

struct YamlNode {
  enum class Kind : unsigned char { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;  // a quoted scalar is text, whatever it looks like
  int line = 0;
  std::string scalar;
  std::vector<YamlNode> items;                            // kList
  std::vector<std::pair<std::string, YamlNode>> members;  // kMap, in file order
  std::vector<int> key_lines;                             // of members

  YamlNode();  // out of line, as `members` needs the complete type
  ~YamlNode();
  YamlNode(const YamlNode& other);
  YamlNode(YamlNode&& other) noexcept;
  YamlNode& operator=(const YamlNode& other);
  YamlNode& operator=(YamlNode&& other) noexcept;

  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
  /// The member of that name, or null.
  const YamlNode* find(std::string_view key) const;
};

/// The text's only document. Faults go to `report`; a text that cannot be read gives a null node.
YamlNode read_yaml(std::string_view text, Report& report);

}  // namespace tileops::spec
