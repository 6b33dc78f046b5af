// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "tileops/dispatch/kernel_registry.h"
#include "tileops/op/op_class.h"
#include "tileops/op/trace.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

std::string_view index_kind_name(spec::IndexValue::Kind kind) {
  switch (kind) {
    case spec::IndexValue::Kind::kDim:
      return "Dim";
    case spec::IndexValue::Kind::kDType:
      return "DType";
    case spec::IndexValue::Kind::kSeq:
      return "sequence";
    default:
      return "unknown";
  }
}

std::vector<std::string> marks_of(const spec::TensorDecl& decl) {
  std::vector<std::string> marks;
  const auto add = [&](bool is_so, const char* mark) {
    if (is_so) marks.emplace_back(mark);
  };
  add(decl.optional, "optional");
  add(decl.keyword_only, "keyword only");
  add(decl.buffer_out, "buffer: out");
  add(decl.mutated, "mutated");
  add(decl.metadata, "metadata");
  add(decl.contiguous, "contiguous");
  add(decl.on_cpu, "device: cpu");
  return marks;
}

Json tensors_json(std::span<const spec::TensorDecl> decls) {
  Json json = Json::array();
  for (const spec::TensorDecl& decl : decls) {
    json.push_back({{"name", decl.name},
                    {"dtype", decl.dtype_text},
                    {"shape", decl.shape_text},
                    {"marks", marks_of(decl)},
                    {"doc", decl.doc}});
  }
  return json;
}

Json params_json(const spec::Entry& entry) {
  Json json = Json::array();
  for (const spec::ParamDecl& param : entry.params()) {
    json.push_back(
        {{"name", param.name},
         {"type", param.type_text},
         {"default", param.default_value ? Json(to_string(*param.default_value)) : Json()},
         {"keyword_only", param.keyword_only},
         {"doc", param.doc}});
  }
  return json;
}

Json composition_json(const spec::Entry& entry) {
  Json json = Json::array();
  for (const spec::Stage& stage : entry.composition()) {
    Json each{{"stage", stage.name},
              {"op", stage.op},
              {"kernel", stage.kernel},
              {"optional", stage.optional}};
    const auto sub_op = stage.op.empty() ? nullptr : spec::find_entry(stage.op);
    each["stages"] = sub_op == nullptr ? Json::array() : composition_json(*sub_op);
    json.push_back(std::move(each));
  }
  return json;
}

Json kernels_json(const spec::Entry& entry) {
  Json json = Json::array();
  if (find_op_class(entry.name()) == nullptr) return json;
  const auto table = kernel_table(entry.name());
  for (const AnyImplementation& each : table->implementations) {
    Json devices = Json::array();
    for (DeviceType type : each.info.devices) devices.push_back(device_type_name(type));
    json.push_back({{"interface", each.interface},
                    {"key", each.info.key},
                    {"devices", std::move(devices)},
                    {"archs", each.info.archs},
                    {"general", each.info.general},
                    {"preferred_over", each.info.preferred_over}});
  }
  return json;
}

Json workloads_json(const spec::Entry& entry) {
  Json json = Json::array();
  for (const spec::WorkloadCase& each : spec::workload_cases(entry)) {
    json.push_back({{"id", each.id},
                    {"tags", each.tags},
                    {"params", to_string(each.params)},
                    {"indices", to_string(each.indices)}});
  }
  return json;
}

Json show_json(const spec::Entry& entry) {
  Json indices = Json::array();
  for (const spec::IndexDecl& index : entry.indices()) {
    indices.push_back(
        {{"name", index.name}, {"kind", index_kind_name(index.kind)}, {"derived", index.derived}});
  }
  return {{"name", entry.name()},
          {"summary", entry.summary()},
          {"kind", entry.is_composite() ? "composite" : "leaf"},
          {"node", entry.has_compile_boundary() ? Json(node_name(entry, "")) : Json()},
          {"ref_api", entry.ref_api()},
          {"source", entry.source()},
          {"params", params_json(entry)},
          {"indices", std::move(indices)},
          {"inputs", tensors_json(entry.inputs())},
          {"outputs", tensors_json(entry.outputs())},
          {"composition", composition_json(entry)},
          {"kernels", kernels_json(entry)},
          {"workloads", workloads_json(entry)}};
}

std::string tensors_text(const Json& tensors) {
  std::string text;
  for (const Json& each : tensors) {
    const std::string marks = joined(each["marks"]);
    text += fmt::format("  {}: {} {}{}{}\n", text_of(each["name"]), text_of(each["dtype"]),
                        text_of(each["shape"]), marks.empty() ? "" : "  " + marks,
                        each["doc"] == "" ? "" : "  # " + text_of(each["doc"]));
  }
  return text;
}

std::string params_text(const Json& params) {
  std::string text;
  for (const Json& each : params) {
    text += fmt::format("  {}: {}{}{}\n", text_of(each["name"]), text_of(each["type"]),
                        each["default"].is_null() ? "" : " = " + text_of(each["default"]),
                        each["doc"] == "" ? "" : "  # " + text_of(each["doc"]));
  }
  return text;
}

std::string composition_text(const Json& stages, int depth) {
  std::string text;
  for (const Json& each : stages) {
    const bool is_op = each["op"] != "";
    text += fmt::format("{:>{}}{}: {}{}{}\n", "", 2 * depth, text_of(each["stage"]),
                        is_op ? "" : "kernel ", text_of(each[is_op ? "op" : "kernel"]),
                        each["optional"] ? "  optional" : "");
    text += composition_text(each["stages"], depth + 1);
  }
  return text;
}

std::string kernels_text(const Json& kernels) {
  std::string text;
  for (const Json& each : kernels) {
    text += fmt::format("  {}/{}: {}", text_of(each["interface"]), text_of(each["key"]),
                        joined(each["devices"]));
    if (!each["archs"].empty()) text += " with " + joined(each["archs"]);
    if (each["general"]) text += "  general";
    if (!each["preferred_over"].empty())
      text += "  preferred over " + joined(each["preferred_over"]);
    text += "\n";
  }
  return text;
}

std::string workloads_text(const Json& workloads) {
  std::string text;
  for (const Json& each : workloads) {
    text += fmt::format("  {}  [{}]  {}; {}\n", text_of(each["id"]), joined(each["tags"]),
                        text_of(each["params"]), text_of(each["indices"]));
  }
  return text;
}

std::string show_text(const Json& json) {
  std::string text = fmt::format("{}: {}, from {}\n", text_of(json["name"]), text_of(json["kind"]),
                                 text_of(json["source"]));
  const auto line = [&](const char* word, const Json& value) {
    if (value.is_string() && value != "") text += fmt::format("{}: {}\n", word, text_of(value));
  };
  line("summary", json["summary"]);
  line("as", json["ref_api"]);
  line("graph node", json["node"]);
  const auto section = [&](const char* word, const std::string& lines) {
    if (!lines.empty()) text += fmt::format("{}\n{}", word, lines);
  };
  section("parameters", params_text(json["params"]));
  section("inputs", tensors_text(json["inputs"]));
  section("outputs", tensors_text(json["outputs"]));
  section("composition", composition_text(json["composition"], 1));
  section("kernels", kernels_text(json["kernels"]));
  section("workloads", workloads_text(json["workloads"]));
  return text;
}

int show(const Common& common, const std::string& name) {
  const Json json = show_json(*spec::entry(name));
  print(common.json ? json.dump(2) + "\n" : show_text(json));
  return kSuccess;
}

}  // namespace

void add_show(CLI::App& app, Chosen& chosen) {
  const auto name = std::make_shared<std::string>();
  CLI::App& command =
      add_command(app, chosen, "show", "An op's signature, composition, kernels and workloads",
                  [&chosen, name] { return show(chosen.common, *name); });
  command.add_option("op", *name, "Name of the op")->required()->type_name("OP");
}

}  // namespace tileops::tools
