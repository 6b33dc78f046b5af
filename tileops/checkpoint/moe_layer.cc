// SPDX-License-Identifier: Apache-2.0
#include "tileops/checkpoint/moe_layer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tileops/checkpoint/checkpoint_files.h"
#include "tileops/checkpoint/copies.h"
#include "tileops/checkpoint/moe_config.h"
#include "tileops/core/check.h"
#include "tileops/ops/moe/fused_moe/fused_moe_settings.h"

namespace tileops {
namespace checkpoint {
namespace {

constexpr std::array kHalf{DType::kBF16, DType::kF16};
constexpr std::array kFloats{DType::kBF16, DType::kF16, DType::kF32};
constexpr std::string_view kLayers = "model.layers.";
/// Finds, checks and arranges the tensors of one layer.
class LayerReader {
 public:
  LayerReader(const std::string& dir, int64_t layer, const LoadOptions& options)
      : options_(options),
        config_(read_moe_config(dir)),
        family_(*config_.family),
        files_(CheckpointFiles::open(dir)),
        layer_(layer) {
    if (!config_.quantization.empty()) {
      note_ = fmt::format("; config.json: quant_method {}: quantised experts are not read",
                          config_.quantization);
    }
    block_ = find_block();
    is_fused_ = family_.projections[0].empty() || files_.contains(experts() + "gate_up_proj");
  }

  MoELayerCheckpoint read() {
    MoELayerCheckpoint layer{.model_type = family_.model_type,
                             .layer = layer_,
                             .routing = config_.routing,
                             .activation = config_.activation};
    read_router(layer);
    is_fused_ ? read_fused_experts(layer) : stack_experts(layer);
    if (config_.shared_inter > 0) read_shared_experts(layer);
    refuse_unknown_expert_tensors();
    run_copies(copies_, options_.progress);
    return layer;
  }

 private:
  std::string router_of(const std::string& layer, const std::string& block) const {
    return fmt::format("{}{}.{}.{}.", kLayers, layer, block, family_.router);
  }
  std::string experts() const { return block_ + "experts."; }
  std::string expert(int64_t e, size_t projection) const {
    return fmt::format("{}{}.{}.weight", experts(), e, family_.projections[projection]);
  }

  /// "model.layers.7.mlp."
  std::string find_block() const {
    for (const std::string& block : family_.blocks) {
      if (files_.contains(router_of(std::to_string(layer_), block) + "weight")) {
        return fmt::format("{}{}.{}.", kLayers, layer_, block);
      }
    }
    raise(ErrorKind::kIo, "{}: tensor {}weight: expected {}, found none; {}", files_.list(),
          router_of(std::to_string(layer_), family_.blocks[0]),
          to_string({{config_.num_experts, config_.hidden}, kFloats}), layers_with_router());
  }

  /// For a layer that has no experts, or is none of this checkpoint.
  std::string layers_with_router() const {
    std::set<int64_t> layers;
    for (const auto& [name, file] : files_.files()) {
      if (!name.starts_with(kLayers)) continue;
      const std::string number =
          name.substr(kLayers.size(), name.find('.', kLayers.size()) - kLayers.size());
      for (const std::string& block : family_.blocks) {
        if (name == router_of(number, block) + "weight") layers.insert(std::atoll(number.c_str()));
      }
    }
    if (layers.empty()) return "no layer has one";
    return fmt::format("{} layers have one, from {} to {}", layers.size(), *layers.begin(),
                       *layers.rbegin());
  }

  Tensor tensor(const std::string& name, const Shape& shape, std::span<const DType> dtypes) {
    return files_.tensor(name, {shape, dtypes}, note_);
  }
  /// A weight of an expert: all of them have the first one's dtype.
  Tensor weight(const std::string& name, const Shape& shape) {
    const Tensor found =
        tensor(name, shape, dtype_ ? std::span<const DType>(&*dtype_, 1) : std::span(kHalf));
    dtype_ = found.dtype();
    return found;
  }

  /// Scales, zero points, adapters: an expert that has more than weights is not what we compute.
  void refuse_unknown_expert_tensors() {
    std::set<std::string> known;
    for (const char* fused : {"gate_up_proj", "down_proj"}) {
      if (is_fused_) known.insert(experts() + fused);
      if (family_.is_transposed_with_biases) known.insert(experts() + fused + "_bias");
    }
    for (int64_t e = 0; e < config_.num_experts && !is_fused_; ++e) {
      for (size_t projection = 0; projection < 3; ++projection) known.insert(expert(e, projection));
    }
    const auto& all = files_.files();
    for (auto it = all.lower_bound(experts()); it != all.end(); ++it) {
      if (!it->first.starts_with(experts())) break;
      TILEOPS_CHECK(ErrorKind::kIo, known.contains(it->first),
                    "{}: tensor {}: expected none but the weights of {} experts, found {}{}",
                    it->second, it->first, config_.num_experts, files_.facts(it->first), note_);
    }
  }

  void read_router(MoELayerCheckpoint& layer) {
    const std::string router = block_ + family_.router;
    const int64_t num_experts = config_.num_experts;
    layer.router_weight = tensor(router + ".weight", {num_experts, config_.hidden}, kFloats);
    if (family_.is_transposed_with_biases) {
      layer.router_bias = tensor(router + ".bias", {num_experts}, kFloats);
    }
    if (family_.has_correction_bias) {
      const Tensor bias = tensor(router + ".e_score_correction_bias", {num_experts}, kFloats);
      layer.correction_bias = bias.dtype() == DType::kF32 ? bias : bias.to(DType::kF32);
    }
  }

  void read_fused_experts(MoELayerCheckpoint& layer) {
    const int64_t e = config_.num_experts, h = config_.hidden, f = config_.inter;
    const std::string gate_up = experts() + "gate_up_proj", down = experts() + "down_proj";
    if (!family_.is_transposed_with_biases) {
      layer.w_gate_up = weight(gate_up, {e, 2 * f, h});
      layer.w_down = weight(down, {e, h, f});
      return;
    }
    layer.w_gate_up = transposed(weight(gate_up, {e, h, 2 * f}));
    layer.w_down = transposed(weight(down, {e, f, h}));
    layer.b_gate_up = weight(gate_up + "_bias", {e, 2 * f});
    layer.b_down = weight(down + "_bias", {e, h});
  }

  /// [E, C, R] of [E, R, C], a view or a tensor that the copies will fill.
  Tensor transposed(const Tensor& whole) {
    const Tensor view = whole.transpose(1, 2);
    if (options_.transposed == TransposedWeights::kView) return view;
    Tensor stacked = Tensor::empty(view.shape(), view.dtype());
    for (int64_t e = 0; e < whole.size(0); ++e) {
      copies_.push_back({view.select(0, e), stacked.select(0, e)});
    }
    return stacked;
  }

  void stack_experts(MoELayerCheckpoint& layer) {
    const int64_t num_experts = config_.num_experts, h = config_.hidden, f = config_.inter;
    std::vector<std::array<Tensor, 3>> sources;
    for (int64_t e = 0; e < num_experts; ++e) {
      sources.push_back({weight(expert(e, 0), {f, h}), weight(expert(e, 1), {f, h}),
                         weight(expert(e, 2), {h, f})});
    }
    layer.w_gate_up = Tensor::empty({num_experts, 2 * f, h}, *dtype_);
    layer.w_down = Tensor::empty({num_experts, h, f}, *dtype_);
    for (int64_t e = 0; e < num_experts; ++e) {
      const auto& [gate, up, down] = sources[static_cast<size_t>(e)];
      copy_gate_up(gate, up, layer.w_gate_up.select(0, e));
      copies_.push_back({down, layer.w_down.select(0, e)});
    }
  }

  void read_shared_experts(MoELayerCheckpoint& layer) {
    const std::string shared = block_ + "shared_experts.";
    const int64_t h = config_.hidden, s = config_.shared_inter;
    const Tensor gate = weight(shared + "gate_proj.weight", {s, h});
    const Tensor up = weight(shared + "up_proj.weight", {s, h});
    layer.shared_w_down = weight(shared + "down_proj.weight", {h, s});
    layer.shared_w_gate_up = Tensor::empty({2 * s, h}, *dtype_);
    copy_gate_up(gate, up, layer.shared_w_gate_up);
  }

  /// Gate rows, then up rows.
  void copy_gate_up(const Tensor& gate, const Tensor& up, const Tensor& stacked) {
    const int64_t rows = gate.size(0);
    copies_.push_back({gate, stacked.narrow(0, 0, rows)});
    copies_.push_back({up, stacked.narrow(0, rows, rows)});
  }

  const LoadOptions& options_;
  const MoEConfig config_;
  const MoEFamily& family_;
  CheckpointFiles files_;
  const int64_t layer_;
  std::string note_;   // what every message ends with
  std::string block_;  // "model.layers.7.mlp."
  bool is_fused_ = false;
  std::optional<DType> dtype_;  // of the experts' weights
  std::vector<Copy> copies_;
};

}  // namespace
}  // namespace checkpoint

Params MoELayerCheckpoint::params() const {
  return layer_params(routing, {.activation = activation});
}

MoELayerCheckpoint open_moe_layer(const std::string& dir, int64_t layer,
                                  const LoadOptions& options) {
  return checkpoint::LayerReader(dir, layer, options).read();
}

}  // namespace tileops
