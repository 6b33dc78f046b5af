// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/param_text.h"

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/spec/entry_impl.h"
#include "tileops/spec/types.h"
#include "tileops/spec/yaml_tree.h"

namespace tileops::spec {
namespace {

/// Reads the text into the tree that YAML would give for it, so that both have one meaning.
class ParamReader {
 public:
  explicit ParamReader(std::string_view text) : text_(text) {}

  YamlNode read() {
    YamlNode node = read_value(0);
    skip_spaces();
    if (at_ != text_.size()) fail(fmt::format("'{}' is left over", text_.substr(at_)));
    return node;
  }

 private:
  [[noreturn]] static void fail(const std::string& fault) { throw ExprFault("S205", fault); }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}' is missing at position {}", c, at_));
  }
  /// Before the next item of a list or mapping that `close` ends.
  void expect_comma(char close) {
    skip_spaces();
    expect(at_ == text_.size() ? close : ',');
  }

  YamlNode read_value(size_t depth) {
    if (depth > kMaxYamlDepth) fail("it is nested too deep");
    if (take('[')) return read_list(depth);
    if (take('"')) return read_quoted();
    YamlNode name = read_word();
    if (!take('{')) return name;
    YamlNode constructor;
    constructor.kind = YamlNode::Kind::kMap;
    constructor.members.emplace_back(name.scalar, read_fields(depth));
    return constructor;
  }

  YamlNode read_list(size_t depth) {
    YamlNode list;
    list.kind = YamlNode::Kind::kList;
    while (!take(']')) {
      if (!list.items.empty()) expect_comma(']');
      list.items.push_back(read_value(depth + 1));
    }
    return list;
  }

  YamlNode read_fields(size_t depth) {
    YamlNode fields;
    fields.kind = YamlNode::Kind::kMap;
    while (!take('}')) {
      if (!fields.members.empty()) expect_comma('}');
      std::string field = read_word().scalar;
      expect(':');
      fields.members.emplace_back(std::move(field), read_value(depth + 1));
    }
    return fields;
  }

  YamlNode read_quoted() {
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) fail("a quote is not closed");
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.quoted = true;
    node.scalar = text_.substr(at_, end - at_);
    at_ = end + 1;
    return node;
  }

  YamlNode read_word() {
    skip_spaces();
    const size_t end = std::min(text_.find_first_of(" ,:[]{}\"", at_), text_.size());
    if (end == at_) fail(fmt::format("a value is missing at position {}", at_));
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.scalar = text_.substr(at_, end - at_);
    at_ = end;
    return node;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Value parse_param(const Entry& entry, std::string_view param, std::string_view text) {
  const auto params = entry.params();
  std::vector<std::string_view> names;
  for (size_t i = 0; i < params.size(); ++i) {
    names.push_back(params[i].name);
    if (params[i].name != param) continue;
    try {
      return value_from_yaml(ParamReader(text).read(), entry.impl().param_types[i]);
    } catch (const ExprFault& fault) {
      raise(ErrorKind::kValue, "{}: parameter {} ({}), got '{}': {}", entry.name(), param,
            params[i].type_text, text, fault.what());
    }
  }
  raise(ErrorKind::kValue, "{}: there is no parameter {}; there are: {}", entry.name(), param,
        names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace tileops::spec
