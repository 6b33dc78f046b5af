// SPDX-License-Identifier: Apache-2.0
// Layers of checkpoints that transformers wrote, computed here and compared with its own blocks.
#include "tileops/checkpoint/moe_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_copy.h"
#include "tests/support/testing.h"
#include "tileops/core/safetensors.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::checkpoint_dir;
using testing::CheckpointCopy;
using testing::elements;
using testing::relative_error;
using testing::tolerance;

struct Case {
  std::string checkpoint;
  std::string hidden_of;  // the checkpoint whose folder holds what the layer takes and gives
  int64_t layer = 0;
};

void PrintTo(const Case& which, std::ostream* out) { *out << which.checkpoint; }

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return info.param.checkpoint + "_layer_" + std::to_string(info.param.layer);
}

SafetensorsFile hidden_file(const std::string& checkpoint, int64_t layer) {
  return SafetensorsFile::open(checkpoint_dir(checkpoint) + "/hidden." + std::to_string(layer) +
                               ".safetensors");
}

Tensor rows_of(const Tensor& batch) {
  return batch.reshape({batch.size(0) * batch.size(1), batch.size(2)});
}

class LayerAgainstTransformers : public ::testing::TestWithParam<Case> {
 protected:
  LayerAgainstTransformers()
      : file_(hidden_file(GetParam().hidden_of, GetParam().layer)),
        layer_(open_moe_layer(checkpoint_dir(GetParam().checkpoint), GetParam().layer)),
        hidden_(rows_of(file_.tensor("hidden"))) {}

  void expect_near(const Tensor& got, const std::string& expected) const {
    EXPECT_LE(relative_error(got, rows_of(file_.tensor(expected))), tolerance(DType::kBF16))
        << expected;
  }

  SafetensorsFile file_;
  MoELayerCheckpoint layer_;
  Tensor hidden_;
};

TEST_P(LayerAgainstTransformers, RoutedExperts) {
  for (const char* implementation : {"", "reference"}) {
    const FusedMoEFwdOp op(layer_.routing, {.activation = layer_.activation},
                           {.implementation = implementation});
    const Tensor routed =
        op(hidden_, layer_.gating_logits(hidden_), layer_.w_gate_up, layer_.w_down,
           {layer_.b_gate_up, layer_.b_down, layer_.correction_bias})
            .output;
    expect_near(routed,
                file_.contains("expected.routed_output") ? "expected.routed_output" : "expected");
  }
}

TEST_P(LayerAgainstTransformers, SharedExperts) {
  const auto op = FusedMoESharedExpertFwdOp::from_params(layer_.params(), {});
  const auto out = (*op)(hidden_, layer_.gating_logits(hidden_), layer_.w_gate_up, layer_.w_down,
                         {layer_.b_gate_up, layer_.b_down, layer_.correction_bias,
                          layer_.shared_w_gate_up, layer_.shared_w_down});
  const bool has_shared = layer_.model_type == "deepseek_v3";
  ASSERT_EQ(out.shared_output.defined(), has_shared);
  if (!has_shared) return expect_near(out.routed_output, "expected");
  expect_near(out.routed_output, "expected.routed_output");
  expect_near(out.shared_output, "expected.shared_output");
  std::vector<double> sum = elements(out.routed_output);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += elements(out.shared_output)[i];
  EXPECT_LE(relative_error(sum, elements(file_.tensor("expected"))), tolerance(DType::kBF16));
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, LayerAgainstTransformers,
    ::testing::Values(Case{"mixtral", "mixtral", 0},        // one shard holds it whole
                      Case{"mixtral", "mixtral", 1},        // two shards, an expert in each
                      Case{"mixtral_fused", "mixtral", 0},  // one file, the block called mlp
                      Case{"mixtral_fused", "mixtral", 1},
                      Case{"qwen3_moe", "qwen3_moe", 1},              // layer 0 is dense
                      Case{"qwen3_moe_fused", "qwen3_moe_fused", 0},  // not renormalised
                      Case{"qwen3_moe_fused", "qwen3_moe_fused", 1},
                      Case{"qwen3_moe_trained", "qwen3_moe_trained", 1},  // of a text, skewed
                      Case{"qwen3_moe_trained", "qwen3_moe_trained", 2},
                      Case{"deepseek_v3", "deepseek_v3", 1}, Case{"deepseek_v3", "deepseek_v3", 2},
                      Case{"deepseek_v3_fused", "deepseek_v3", 1},
                      Case{"deepseek_v3_fused", "deepseek_v3", 2}, Case{"gpt_oss", "gpt_oss", 0},
                      Case{"gpt_oss", "gpt_oss", 1}),
    case_name);

TEST(MoELayerCheckpoint, PerExpertAndFusedFormsAreTheSameBits) {
  for (const char* family : {"mixtral", "deepseek_v3"}) {
    const MoELayerCheckpoint stacked = open_moe_layer(checkpoint_dir(family), 1);
    const MoELayerCheckpoint fused =
        open_moe_layer(checkpoint_dir(std::string(family) + "_fused"), 1);
    EXPECT_TRUE(bit_equal(stacked.w_gate_up, fused.w_gate_up));
    EXPECT_TRUE(bit_equal(stacked.w_down, fused.w_down));
    EXPECT_TRUE(bit_equal(stacked.router_weight, fused.router_weight));
  }
}

TEST(MoELayerCheckpoint, ParametersOfEachFamily) {
  const auto params = [](const char* name, int64_t layer) {
    return to_string(open_moe_layer(checkpoint_dir(name), layer).params());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(params("mixtral", 0),
              HasSubstr("top_k=2, scoring_func=softmax, renormalize=true, num_expert_group=1, "
                        "topk_group=1, routed_scaling_factor=1.0, activation=silu_and_mul"));
  EXPECT_THAT(params("qwen3_moe", 1), HasSubstr("top_k=3, scoring_func=softmax, renormalize=true"));
  EXPECT_THAT(params("qwen3_moe_fused", 1),
              HasSubstr("top_k=3, scoring_func=softmax, renormalize=false"));
  EXPECT_THAT(params("deepseek_v3", 1),
              HasSubstr("top_k=3, scoring_func=sigmoid, renormalize=true, num_expert_group=4, "
                        "topk_group=2, routed_scaling_factor=2.5"));
  EXPECT_THAT(params("gpt_oss", 0), HasSubstr("activation=swigluoai{alpha: 1.702, limit: 7.0}"));
}

TEST(MoELayerCheckpoint, FusedWeightsAreViewsOfTheFile) {
  int64_t num_copies = 0;
  const LoadOptions count{.progress = [&](const LoadProgress&) { ++num_copies; }};
  const MoELayerCheckpoint mixtral = open_moe_layer(checkpoint_dir("mixtral_fused"), 0, count);
  EXPECT_TRUE(mixtral.w_gate_up.is_contiguous());
  const MoELayerCheckpoint gpt_oss = open_moe_layer(checkpoint_dir("gpt_oss"), 0, count);
  EXPECT_EQ(gpt_oss.w_gate_up.shape(), (Shape{5, 56, 40}));
  EXPECT_EQ(gpt_oss.w_gate_up.strides(), (Strides{56 * 40, 1, 56}));
  EXPECT_EQ(gpt_oss.w_down.shape(), (Shape{5, 40, 28}));
  EXPECT_EQ(gpt_oss.w_down.strides(), (Strides{28 * 40, 1, 40}));
  EXPECT_EQ(num_copies, 0);
}

TEST(MoELayerCheckpoint, TransposedWeightsAreCopiedWhereAsked) {
  int64_t num_copies = 0;
  const MoELayerCheckpoint view = open_moe_layer(checkpoint_dir("gpt_oss"), 1);
  const MoELayerCheckpoint copy =
      open_moe_layer(checkpoint_dir("gpt_oss"), 1,
                     {.transposed = TransposedWeights::kCopy,
                      .progress = [&](const LoadProgress&) { ++num_copies; }});
  EXPECT_EQ(num_copies, 2 * 5);
  EXPECT_TRUE(copy.w_gate_up.is_contiguous() && copy.w_down.is_contiguous());
  EXPECT_TRUE(bit_equal(copy.w_gate_up, view.w_gate_up));
  EXPECT_TRUE(bit_equal(copy.w_down, view.w_down));
}

TEST(MoELayerCheckpoint, ProgressCountsTheBytesOfTheCopies) {
  std::vector<LoadProgress> told;
  open_moe_layer(checkpoint_dir("deepseek_v3"), 1,
                 {.progress = [&](const LoadProgress& progress) { told.push_back(progress); }});
  ASSERT_EQ(told.size(), 8 * 3 + 2);  // each expert's three, the shared gate and up
  int64_t before = 0;
  for (const LoadProgress& progress : told) {
    EXPECT_GT(progress.done_bytes, before);
    before = progress.done_bytes;
    EXPECT_EQ(progress.total_bytes, 2 * (8 * 3 * 12 * 40 + 2 * 24 * 40));
  }
  EXPECT_EQ(before, told.back().total_bytes);
}

TEST(MoELayerCheckpoint, ALayerOutlivesItsFile) {
  auto copy = std::make_unique<CheckpointCopy>("mixtral_fused");
  const MoELayerCheckpoint layer = open_moe_layer(copy->dir(), 0);
  const std::vector<double> before = elements(layer.w_down);
  copy.reset();
  EXPECT_EQ(elements(layer.w_down), before);
}

TEST(MoELayerCheckpoint, ModelSafetensorsComesBeforeAnIndex) {
  CheckpointCopy copy("mixtral");
  copy.write();
  copy.set_file("model.safetensors.index.json", "{}");
  EXPECT_TRUE(bit_equal(open_moe_layer(copy.dir(), 1).w_gate_up,
                        open_moe_layer(checkpoint_dir("mixtral"), 1).w_gate_up));
}

TEST(MoELayerCheckpoint, ThePublishedKeyOfTheNumberOfExperts) {
  const CheckpointCopy copy("qwen3_moe");
  copy.set_config("num_local_experts", "");
  copy.set_config("num_experts", "6");
  EXPECT_EQ(open_moe_layer(copy.dir(), 1).w_down.size(0), 6);
}

TEST(MoELayerCheckpoint, OtherFloatsOfRouterAndBiases) {
  CheckpointCopy copy("deepseek_v3");
  for (auto& [name, tensor] : copy.tensors) {
    if (name.ends_with("mlp.gate.weight")) tensor = tensor.to(DType::kF32);
    if (name.ends_with("e_score_correction_bias")) tensor = tensor.to(DType::kBF16);
    if (name.ends_with("proj.weight")) tensor = tensor.to(DType::kF16);
  }
  copy.write();
  const MoELayerCheckpoint layer = open_moe_layer(copy.dir(), 2);
  EXPECT_EQ(layer.router_weight.dtype(), DType::kF32);
  EXPECT_EQ(layer.correction_bias.dtype(), DType::kF32);
  EXPECT_EQ(layer.w_gate_up.dtype(), DType::kF16);
  EXPECT_EQ(layer.shared_w_down.dtype(), DType::kF16);
}

TEST(GatingLogits, EqualTheSumsInFloat64) {
  const MoELayerCheckpoint layer = open_moe_layer(checkpoint_dir("gpt_oss"), 1);
  const Tensor hidden = rows_of(hidden_file("gpt_oss", 1).tensor("hidden"));
  const Tensor logits = layer.gating_logits(hidden);
  std::vector<double> want;
  for (int64_t token = 0; token < hidden.size(0); ++token) {
    for (int64_t e = 0; e < 5; ++e) {
      double sum = layer.router_bias.at({e});
      for (int64_t h = 0; h < 40; ++h)
        sum += hidden.at({token, h}) * layer.router_weight.at({e, h});
      want.push_back(sum);
    }
  }
  EXPECT_LE(relative_error(elements(logits), want), 1e-6);
}

TEST(GatingLogits, ATokenHasTheSameBitsAloneAndFromAStridedView) {
  const MoELayerCheckpoint layer = open_moe_layer(checkpoint_dir("mixtral"), 0);
  const Tensor hidden = rows_of(hidden_file("mixtral", 0).tensor("hidden"));
  const Tensor logits = layer.gating_logits(hidden);
  for (int64_t token = 0; token < hidden.size(0); ++token) {
    EXPECT_TRUE(
        bit_equal(layer.gating_logits(hidden.narrow(0, token, 1)), logits.narrow(0, token, 1)));
  }
  const Tensor transposed = hidden.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(bit_equal(layer.gating_logits(transposed), logits));
  EXPECT_EQ(layer.gating_logits(hidden.narrow(0, 0, 0)).shape(), (Shape{0, 4}));
}

}  // namespace
}  // namespace tileops
