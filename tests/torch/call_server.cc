// SPDX-License-Identifier: Apache-2.0
// The library as a process that PyTorch scripts ask, one line a request, one line an answer:
//
//   call IN OUT          -> an op's call; IN's metadata: op, params, and perhaps implementation,
//                           transposed (inputs whose last two axes are swapped), packed
//   layer DIR N IN OUT   -> layer N of a checkpoint on the tensor `hidden` [T, H] of IN
//
// IN and OUT are safetensors files; an answer is "ok" or "error: " and the library's message.
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tileops/checkpoint/moe_layer.h"
#include "tileops/core/check.h"
#include "tileops/core/safetensors.h"
#include "tileops/moe.h"
#include "tileops/op/op_class.h"
#include "tileops/ops/register.h"
#include "tileops/spec/param_text.h"

namespace tileops {
namespace {

using Json = nlohmann::ordered_json;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The metadata of a file; a text where there is none.
class Metadata {
 public:
  explicit Metadata(const SafetensorsFile& file) : texts_(file.metadata()) {}
  std::string text(const std::string& key, const std::string& otherwise = "") const {
    const auto it = texts_.find(key);
    return it == texts_.end() ? otherwise : it->second;
  }
  Json json(const std::string& key, const std::string& otherwise) const {
    return Json::parse(text(key, otherwise));
  }

 private:
  const std::map<std::string, std::string>& texts_;
};

Params params_of(const Metadata& metadata, const spec::Entry& entry) {
  Params params;
  const Json texts = metadata.json("params", "{}");
  for (const auto& [name, value] : texts.items()) {
    params.set(name, spec::parse_param(entry, name, value.get<std::string>()));
  }
  return params;
}

std::vector<Tensor> inputs_of(const SafetensorsFile& file, const Metadata& metadata,
                              const spec::Entry& entry) {
  std::vector<Tensor> inputs(entry.inputs().size());
  for (const std::string& name : file.names()) {
    const int slot = entry.input_slot(name);
    TILEOPS_CHECK(ErrorKind::kValue, slot >= 0, "{}: {} has no input {}", file.path(), entry.name(),
                  name);
    inputs[static_cast<size_t>(slot)] = file.tensor(name);
  }
  for (const Json& name : metadata.json("transposed", "[]")) {
    Tensor& input = inputs[static_cast<size_t>(entry.input_slot(name.get<std::string>()))];
    input = input.transpose(input.rank() - 2, input.rank() - 1);
  }
  return inputs;
}

GatedActivation activation_of(const Params& params) {
  const Value* activation = params.find("activation");
  return activation == nullptr ? GatedActivation::silu_and_mul
                               : GatedActivation::from_value(*activation);
}

void call_op(const std::string& in, const std::string& out) {
  const SafetensorsFile file = SafetensorsFile::open(in);
  const Metadata metadata(file);
  const OpClass& op_class = tileops::op_class(metadata.text("op"));
  const auto entry = op_class.entry();
  const Params params = params_of(metadata, *entry);
  const std::vector<Tensor> inputs = inputs_of(file, metadata, *entry);
  std::optional<PackedExperts> packed;
  if (metadata.text("packed") == "true") {
    packed.emplace(inputs[static_cast<size_t>(entry->input_slot("w_gate_up"))],
                   inputs[static_cast<size_t>(entry->input_slot("w_down"))], activation_of(params));
  }
  const auto op = op_class.make(params, {.implementation = metadata.text("implementation")});
  const Results results = op->call({inputs, {}});
  NamedTensors outputs;
  for (int i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    outputs.emplace_back(entry->outputs()[static_cast<size_t>(i)].name, results[i]);
  }
  write_safetensors(out, outputs);
}

/// A layer with its op, made at its first request.
struct Layer {
  Layer(const std::string& dir, int64_t index)
      : tensors(open_moe_layer(dir, index)),
        op(tensors.routing, {.activation = tensors.activation}) {}
  MoELayerCheckpoint tensors;
  FusedMoEFwdOp op;
};

void compute_layer(const std::string& dir, int64_t index, const std::string& in,
                   const std::string& out) {
  static std::map<std::pair<std::string, int64_t>, std::unique_ptr<Layer>> layers;
  std::unique_ptr<Layer>& layer = layers[{dir, index}];
  if (!layer) layer = std::make_unique<Layer>(dir, index);
  const MoELayerCheckpoint& tensors = layer->tensors;
  const Tensor hidden = SafetensorsFile::open(in).tensor("hidden");
  const Tensor output =
      layer
          ->op(hidden, tensors.gating_logits(hidden), tensors.w_gate_up, tensors.w_down,
               {tensors.b_gate_up, tensors.b_down, tensors.correction_bias})
          .output;
  write_safetensors(out, {{"output", output}});
}

void answer(const std::string& line) {
  std::istringstream words(line);
  std::string what, dir, in, out;
  int64_t index = 0;
  words >> what;
  if (what == "call" && words >> in >> out) return call_op(in, out);
  if (what == "layer" && words >> dir >> index >> in >> out)
    return compute_layer(dir, index, in, out);
  raise(ErrorKind::kValue, "no request: {}", line);
}

}  // namespace
}  // namespace tileops

int main() {
  tileops::register_ops();
  for (std::string line; std::getline(std::cin, line);) {
    try {
      tileops::answer(line);
      std::cout << "ok" << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
}
