// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/roofline.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

int64_t align_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

Val of_real(double value) {
  Val val;
  val.kind = Val::Kind::kFloat;
  val.real = value;
  return val;
}

/// Elements of a metadata tensor, row-major; copied off the strides, not off the device.
std::vector<int64_t> read_metadata(const ExprNode& node, const Env& env) {
  const CallFacts& facts = env.roofline->facts;
  const Entry& entry = env.roofline->signature.entry();
  TILEOPS_CHECK(ErrorKind::kState,
                facts.inputs[static_cast<size_t>(node.slot)].device.type != DeviceType::kMeta,
                "{}: {} is on meta: it has no contents to price the call by", entry.name(),
                node.text);
  const Tensor tensor = env.roofline->metadata(node.text);
  TILEOPS_CHECK(ErrorKind::kState, tensor.defined(), "{}: {} was not kept with the call",
                entry.name(), node.text);
  const Tensor plain = tensor.contiguous();
  std::vector<int64_t> values(static_cast<size_t>(plain.num_elements()));
  const int64_t step = dtype_bytes(plain.dtype());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* element = plain.data_as<std::byte>() + static_cast<int64_t>(i) * step;
    values[i] = static_cast<int64_t>(load_element(plain.dtype(), element));
  }
  return values;
}

/// Valid rows of each expert, by the layout's metadata; of per_row metadata the padding inside a
/// segment cannot be told from its rows, and counts.
std::vector<int64_t> rows_per_expert(const std::vector<int64_t>& metadata, const SumValue& layout,
                                     int64_t num_experts) {
  std::vector<int64_t> rows(static_cast<size_t>(num_experts));
  const bool masked = layout.constructor == "masked";
  if (!masked && *layout.field("metadata_kind")->as_string() == "per_row") {
    for (int64_t expert : metadata) {
      if (expert >= 0 && expert < num_experts) ++rows[static_cast<size_t>(expert)];
    }
    return rows;
  }
  const int64_t limit = masked ? *layout.field("max_m")->as_int() : 0;
  const int64_t unit = masked ? 1 : *layout.field("alignment")->as_int();
  int64_t end = 0;
  for (size_t e = 0; e < rows.size() && e < metadata.size(); ++e) {
    rows[e] = masked ? std::clamp<int64_t>(metadata[e], 0, limit)
                     : std::max<int64_t>(0, metadata[e] - align_up(end, unit));
    end = metadata[e];
  }
  return rows;
}

Val price_stage(const ExprNode& call, Env& env) {
  const auto value = env.roofline->staged
                         ? env.roofline->staged(call.kids[0].text, call.kids[1].text)
                         : std::nullopt;
  return value ? of_real(*value) : evaluate(call.kids[2], env);
}

double evaluate_cost(const Formula& formula, Env& env, const EntryImpl& entry) {
  try {
    const Val val = evaluate(formula.expr.root, env);
    if (!val.is_number()) throw EvalFailure("it gives no number");
    if (!std::isfinite(val.as_real()) || val.as_real() < 0) {
      throw EvalFailure(fmt::format("it gives {}", val.as_real()));
    }
    return val.as_real();
  } catch (const EvalFailure& failure) {
    raise(ErrorKind::kSpec, "{}: {}: '{}' failed: {}", entry.name, formula.field, formula.expr.text,
          failure.what());
  }
}

}  // namespace

Traffic tensor_traffic(const Entry& entry, const CallFacts& facts) {
  const EntryImpl& impl = entry.impl();
  Traffic traffic;
  for (size_t i = 0; i < impl.inputs.size(); ++i) {
    const int64_t bytes = facts.inputs[i].bytes();
    if (!impl.input_specs[i].write_only) traffic.read_bytes += bytes;
    if ((facts.mutated >> i & 1u) != 0) traffic.written_bytes += bytes;
  }
  for (size_t j = 0; j < impl.outputs.size(); ++j) {
    if (impl.output_specs[j].alias < 0) traffic.written_bytes += facts.outputs[j].bytes();
  }
  return traffic;
}

Val evaluate_roofline_builtin(const ExprNode& call, Env& env) {
  if (env.roofline == nullptr) throw EvalFailure(fmt::format("{}() has no call here", call.text));
  const auto primitive = static_cast<Primitive>(call.slot);
  if (primitive == Primitive::kStaged) return price_stage(call, env);
  if (primitive == Primitive::kDistinct || primitive == Primitive::kValidIds) {
    const int64_t bound = evaluate_int(call.kids[1], env);
    std::vector<int64_t> values = read_metadata(call.kids[0], env);
    std::erase_if(values, [&](int64_t value) { return value < 0 || value >= bound; });
    if (primitive == Primitive::kValidIds) return of_real(static_cast<double>(values.size()));
    std::sort(values.begin(), values.end());
    const auto end = std::unique(values.begin(), values.end());
    return of_real(static_cast<double>(end - values.begin()));
  }
  const Val layout = evaluate(call.kids[1], env);
  const int64_t num_experts = evaluate_int(call.kids[2], env);
  const auto rows = rows_per_expert(read_metadata(call.kids[0], env), *layout.sum, num_experts);
  double total = 0;
  for (int64_t count : rows) {
    total += primitive == Primitive::kValidRows ? static_cast<double>(count) : (count > 0 ? 1 : 0);
  }
  return of_real(total);
}

Cost evaluate_roofline(const RooflineCall& call) {
  const EntryImpl& entry = call.signature.entry().impl();
  Env env = call.signature.plan().env();
  env.indices = call.facts.indices.data();
  env.inputs = call.facts.inputs.data();
  env.roofline = &call;
  TILEOPS_CHECK(ErrorKind::kSpec, entry.flops, "{}: roofline: the spec has no formula", entry.name);
  Cost cost;
  cost.flops = evaluate_cost(*entry.flops, env, entry);
  if (entry.bytes) {
    cost.bytes = evaluate_cost(*entry.bytes, env, entry);
  } else {
    const Traffic traffic = tensor_traffic(call.signature.entry(), call.facts);
    cost.bytes =
        static_cast<double>(traffic.read_bytes) + static_cast<double>(traffic.written_bytes);
  }
  return cost;
}

}  // namespace tileops::spec
