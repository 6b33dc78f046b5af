// SPDX-License-Identifier: Apache-2.0
// Checkpoints that cannot be read: one line that names file, tensor, expected and found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_copy.h"
#include "tileops/checkpoint/moe_layer.h"
#include "tileops/core/error.h"

namespace tileops {
namespace {

using testing::CheckpointCopy;

constexpr const char* kIndex = "model.safetensors.index.json";

struct BadCase {
  std::string name;
  std::string checkpoint;
  int64_t layer = 0;
  std::function<void(CheckpointCopy&)> change;
  std::vector<std::string> says;
  ErrorKind kind = ErrorKind::kIo;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

std::string error_text(const std::string& dir, int64_t layer, ErrorKind kind) {
  try {
    open_moe_layer(dir, layer);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

class BadCheckpoint : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadCheckpoint, SaysWhatIsWrong) {
  CheckpointCopy copy(GetParam().checkpoint);
  GetParam().change(copy);
  const std::string text = error_text(copy.dir(), GetParam().layer, GetParam().kind);
  EXPECT_THAT(text, ::testing::StartsWith(copy.dir())) << "names the file";
  EXPECT_EQ(text.find('\n'), std::string::npos);
  for (const std::string& part : GetParam().says) EXPECT_THAT(text, ::testing::HasSubstr(part));
}

std::string case_name(const ::testing::TestParamInfo<BadCase>& info) { return info.param.name; }

std::function<void(CheckpointCopy&)> config(const std::string& key, const std::string& json) {
  return [=](CheckpointCopy& copy) { copy.set_config(key, json); };
}

std::function<void(CheckpointCopy&)> file(const std::string& name, const std::string& text) {
  return [=](CheckpointCopy& copy) { copy.set_file(name, text); };
}

std::function<void(CheckpointCopy&)> without(const std::string& name) {
  return [=](CheckpointCopy& copy) { copy.remove(name); };
}

/// The tensor as `change` makes it; absent: it is taken out.
std::function<void(CheckpointCopy&)> tensor(const std::string& name,
                                            const std::function<Tensor(const Tensor&)>& change) {
  return [=](CheckpointCopy& copy) {
    const Tensor changed = change(copy.tensors[name]);
    changed.defined() ? copy.tensors[name] = changed : (copy.tensors.erase(name), Tensor());
    copy.write();
  };
}

Tensor nothing(const Tensor&) { return {}; }
Tensor transposed(const Tensor& tensor) { return tensor.transpose(0, 1); }
std::function<Tensor(const Tensor&)> as(DType dtype) {
  return [dtype](const Tensor& tensor) { return tensor.to(dtype); };
}

const std::string kMixtralW3 = "model.layers.0.block_sparse_moe.experts.2.w3.weight";

INSTANTIATE_TEST_SUITE_P(
    Config, BadCheckpoint,
    ::testing::Values(
        BadCase{
            "no_config", "mixtral", 0, without("config.json"), {"config.json: cannot be opened"}},
        BadCase{"no_json",
                "mixtral",
                0,
                file("config.json", "{\"a\": "),
                {"config.json: expected a JSON object, found malformed JSON"}},
        BadCase{"no_object",
                "mixtral",
                0,
                file("config.json", "[1]"),
                {"config.json: expected a JSON object, found [1]"}},
        BadCase{"unknown_model",
                "mixtral",
                0,
                config("model_type", "\"lla\\nma\""),
                {"config.json: model_type: expected one of mixtral, qwen3_moe, deepseek_v3, "
                 "gpt_oss, found \"lla\\nma\""},
                ErrorKind::kValue},
        BadCase{"no_model_type",
                "mixtral",
                0,
                config("model_type", ""),
                {"model_type: expected a text, found none"}},
        BadCase{"no_num_experts",
                "mixtral",
                0,
                config("num_local_experts", ""),
                {"num_local_experts: expected a positive integer, found none"}},
        BadCase{"negative_size",
                "qwen3_moe",
                1,
                config("hidden_size", "-40"),
                {"hidden_size: expected a positive integer, found -40"}},
        BadCase{"huge_size",
                "qwen3_moe",
                1,
                config("hidden_size", "1e30"),
                {"hidden_size: expected a positive integer, found 1e+30"}},
        BadCase{"text_for_bool",
                "qwen3_moe",
                1,
                config("norm_topk_prob", "\"yes\""),
                {"norm_topk_prob: expected true or false, found \"yes\""}},
        BadCase{"text_for_number",
                "deepseek_v3",
                1,
                config("routed_scaling_factor", "\"2\""),
                {"routed_scaling_factor: expected a finite number, found \"2\""}},
        BadCase{"other_scoring",
                "deepseek_v3",
                1,
                config("scoring_func", "\"softmax\""),
                {"scoring_func: expected sigmoid, found \"softmax\""}},
        BadCase{"other_activation",
                "qwen3_moe",
                1,
                config("hidden_act", "\"relu2\""),
                {"hidden_act: expected silu, found \"relu2\""}},
        // An expert more than the files have: found before anything is allocated.
        BadCase{"more_experts",
                "mixtral_fused",
                0,
                config("num_local_experts", "2000000000"),
                {"model.safetensors: tensor model.layers.0.mlp.gate.weight: expected bfloat16 or "
                 "float16 or float32[2000000000, 40], found bfloat16[4, 40]"}}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Files, BadCheckpoint,
    ::testing::Values(
        BadCase{"neither_file",
                "mixtral",
                0,
                without(kIndex),
                {"expected model.safetensors or model.safetensors.index.json, found neither"}},
        BadCase{"index_without_map",
                "mixtral",
                0,
                file(kIndex, "{}"),
                {"index.json: weight_map: expected an object of texts, found none"}},
        BadCase{"index_of_numbers",
                "mixtral",
                0,
                file(kIndex, "{\"weight_map\": {\"x\": 3}}"),
                {"index.json: weight_map: \"x\": expected a text, found 3"}},
        BadCase{"no_shard",
                "mixtral",
                0,
                without("model-00001-of-00002.safetensors"),
                {"model-00001-of-00002.safetensors: cannot be opened"}},
        BadCase{"torn_shard",
                "mixtral",
                0,
                file("model-00001-of-00002.safetensors", "torn"),
                {"model-00001-of-00002.safetensors"}},
        BadCase{"shard_without_its_tensor",
                "mixtral",
                0,
                [](CheckpointCopy& copy) {
                  std::filesystem::copy_file(copy.dir() + "/model-00002-of-00002.safetensors",
                                             copy.dir() + "/model-00001-of-00002.safetensors",
                                             std::filesystem::copy_options::overwrite_existing);
                },
                {"model-00001-of-00002.safetensors: tensor model.layers.0.block_sparse_moe.",
                 "expected here by", "index.json, found none"}}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Tensors, BadCheckpoint,
    ::testing::Values(
        BadCase{"dense_layer",
                "deepseek_v3",
                0,
                [](CheckpointCopy&) {},
                {"index.json: tensor model.layers.0.mlp.gate.weight: expected bfloat16",
                 "[8, 40], found none; 2 layers have one, from 1 to 2"}},
        BadCase{"no_such_layer",
                "mixtral",
                2,
                [](CheckpointCopy&) {},
                {"tensor model.layers.2.block_sparse_moe.gate.weight: expected",
                 "found none; 2 layers have one, from 0 to 1"}},
        BadCase{"negative_layer",
                "mixtral",
                -1,
                [](CheckpointCopy&) {},
                {"tensor model.layers.-1.block_sparse_moe.gate.weight", "found none"}},
        BadCase{"missing",
                "mixtral",
                0,
                tensor(kMixtralW3, nothing),
                {"model.safetensors: tensor " + kMixtralW3 +
                 ": expected bfloat16[24, 40], found none"}},
        BadCase{"wrong_shape",
                "mixtral",
                0,
                tensor(kMixtralW3, transposed),
                {"model.safetensors: tensor " + kMixtralW3 +
                 ": expected bfloat16[24, 40], found bfloat16[40, 24]"}},
        BadCase{"two_dtypes",
                "mixtral",
                0,
                tensor(kMixtralW3, as(DType::kF16)),
                {kMixtralW3 + ": expected bfloat16[24, 40], found float16[24, 40]"}},
        BadCase{"float32_experts",
                "qwen3_moe_fused",
                0,
                tensor("model.layers.0.mlp.experts.gate_up_proj", as(DType::kF32)),
                {"gate_up_proj: expected bfloat16 or float16[6, 32, 40], found float32"}},
        BadCase{"no_correction_bias",
                "deepseek_v3",
                1,
                tensor("model.layers.1.mlp.gate.e_score_correction_bias", nothing),
                {"e_score_correction_bias: expected", "[8], found none"}},
        BadCase{"no_shared_experts",
                "deepseek_v3",
                1,
                tensor("model.layers.1.mlp.shared_experts.up_proj.weight", nothing),
                {"shared_experts.up_proj.weight: expected bfloat16[24, 40], found none"}},
        BadCase{"no_router_bias",
                "gpt_oss",
                1,
                tensor("model.layers.1.mlp.router.bias", nothing),
                {"router.bias: expected", "[5], found none"}},
        BadCase{"fewer_experts",
                "qwen3_moe",
                1,
                [](CheckpointCopy& copy) {
                  copy.set_config("num_local_experts", "5");
                  Tensor& router = copy.tensors["model.layers.1.mlp.gate.weight"];
                  router = router.narrow(0, 0, 5);
                  copy.write();
                },
                {"tensor model.layers.1.mlp.experts.5.down_proj.weight: expected none but the "
                 "weights of 5 experts, found bfloat16[40, 16]"}}),
    case_name);

/// As DeepSeek-V3 is published: float8 weights with a scale a block.
void quantise_fp8(CheckpointCopy& copy) {
  copy.set_config("quantization_config", R"({"quant_method": "fp8"})");
  const std::string name = "model.layers.1.mlp.experts.0.gate_proj.weight";
  copy.tensors[name] = copy.tensors[name].to(DType::kE4M3);
  copy.tensors[name + "_scale_inv"] = Tensor::from_values({1, 1}, DType::kF32, std::vector{1.0});
  copy.write();
}

/// As GPT-OSS is published: blocks of 4-bit floats with a scale each.
void quantise_mxfp4(CheckpointCopy& copy) {
  copy.set_config("quantization_config", R"({"quant_method": "mxfp4"})");
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj";
  copy.tensors.erase(name);
  copy.tensors[name + "_blocks"] = Tensor::empty({5, 56, 1, 16}, DType::kU8);
  copy.tensors[name + "_scales"] = Tensor::empty({5, 56, 1}, DType::kU8);
  copy.write();
}

/// Weights in float16, whose scales would go unseen.
void add_scales(CheckpointCopy& copy) {
  copy.tensors["model.layers.1.mlp.experts.3.up_proj.weight_scale"] =
      Tensor::from_values({1}, DType::kF32, std::vector{2.0});
  copy.write();
}

INSTANTIATE_TEST_SUITE_P(
    Quantised, BadCheckpoint,
    ::testing::Values(
        BadCase{"fp8",
                "deepseek_v3",
                1,
                quantise_fp8,
                {"model.safetensors: tensor model.layers.1.mlp.experts.0.gate_proj.weight: "
                 "expected bfloat16 or float16[12, 40], found float8_e4m3[12, 40]; config.json: "
                 "quant_method fp8: quantised experts are not read"}},
        BadCase{"mxfp4",
                "gpt_oss",
                0,
                quantise_mxfp4,
                {"tensor model.layers.0.mlp.experts.gate_up_proj: expected bfloat16 or "
                 "float16[5, 40, 56], found none; config.json: quant_method mxfp4: quantised"}},
        BadCase{"scales_alone",
                "qwen3_moe",
                1,
                add_scales,
                {"experts.3.up_proj.weight_scale: expected none but the weights of 6 experts, "
                 "found float32[1]"}}),
    case_name);

}  // namespace
}  // namespace tileops
