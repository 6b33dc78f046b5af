// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>

namespace tileops::spec {
namespace {

struct Refused {
  std::string_view code;
  int line;
  std::string message;
};

int line_of(const YAML::Mark& mark) { return mark.is_null() ? 0 : mark.line + 1; }

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(Report& report) : report_(report) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    YamlNode node;
    node.line = line_of(mark);
    add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused{"S103", line_of(mark), "aliases are not part of the language"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode node;
    node.line = line_of(mark);
    node.quoted = tag == "!";
    node.kind = YamlNode::Kind::kScalar;
    node.scalar = value;
    if (!node.quoted && (value.empty() || value == "~" || value == "null")) {
      node.kind = YamlNode::Kind::kNull;
    }
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

  YamlNode take() { return std::move(root_); }

 private:
  struct Frame {
    YamlNode node;
    bool has_key = false;
    bool skip = false;  // the value of a repeated key
    std::string key;
    int key_line = 0;
  };

  static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) throw Refused{"S103", line_of(mark), "anchors are not part of the language"};
  }
  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{"S103", line_of(mark), fmt::format("tag {} is not part of the language", tag)};
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (stack_.size() >= kMaxYamlDepth) {
      throw Refused{"S102", line_of(mark), fmt::format("nested deeper than {}", kMaxYamlDepth)};
    }
    Frame frame;
    frame.node.kind = kind;
    frame.node.line = line_of(mark);
    stack_.push_back(std::move(frame));
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (++count_ > kMaxYamlNodes) {
      throw Refused{"S102", node.line, fmt::format("more than {} nodes", kMaxYamlNodes)};
    }
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& top = stack_.back();
    if (top.node.is_list()) {
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      take_key(top, node);
    } else {
      top.has_key = false;
      if (top.skip) return;
      top.node.members.emplace_back(std::move(top.key), std::move(node));
      top.node.key_lines.push_back(top.key_line);
    }
  }

  void take_key(Frame& top, const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kScalar) {
      throw Refused{"S101", node.line, "a key must be a word"};
    }
    if (top.node.members.size() == kMaxYamlKeys) {
      throw Refused{"S102", node.line, fmt::format("more than {} keys", kMaxYamlKeys)};
    }
    top.has_key = true;
    top.key = node.scalar;
    top.key_line = node.line;
    top.skip = top.node.find(node.scalar) != nullptr;
    if (top.skip) {
      report_.add("S104", {"", "", node.line}, fmt::format("key '{}' comes twice", node.scalar));
    }
  }

  Report& report_;
  YamlNode root_;
  std::vector<Frame> stack_;
  size_t count_ = 0;
};

}  // namespace

YamlNode::YamlNode() = default;
YamlNode::~YamlNode() = default;
YamlNode::YamlNode(const YamlNode& other) = default;
YamlNode::YamlNode(YamlNode&& other) noexcept = default;
YamlNode& YamlNode::operator=(const YamlNode& other) = default;
YamlNode& YamlNode::operator=(YamlNode&& other) noexcept = default;

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& [name, node] : members) {
    if (name == key) return &node;
  }
  return nullptr;
}

YamlNode read_yaml(std::string_view text, Report& report) {
  if (text.size() > kMaxYamlBytes) {
    report.add("S102", {}, fmt::format("more than {} bytes", kMaxYamlBytes));
    return {};
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder first(report);
    if (!parser.HandleNextDocument(first)) return {};
    TreeBuilder second(report);
    if (parser.HandleNextDocument(second)) {
      report.add("S108", {}, "more than one document");
    }
    return first.take();
  } catch (const Refused& refused) {
    report.add(refused.code, {"", "", refused.line}, refused.message);
  } catch (const YAML::Exception& error) {
    report.add("S101", {"", "", line_of(error.mark)}, error.msg);
  }
  return {};
}

}  // namespace tileops::spec
