// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/tuning_inputs.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/copy.h"
#include "tileops/spec/generators.h"

namespace tileops {
namespace {

constexpr uint64_t kSeed = 20261129;
constexpr double kCpuBytes = 256 << 20;
constexpr double kCpuFlops = 2e10;

int64_t next_power_of_two(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

void generate(std::string_view generator, const Tensor& tensor, const std::vector<Value>& args) {
  std::vector<spec::Val> values;
  for (const Value& arg : args) values.push_back(spec::view_of(arg));
  spec::find_generator(generator)->fill({tensor, values, kSeed, 1});
}

/// Routes that fit in the rows however they fall on the experts.
int64_t routes_that_fit(const MGroupedLayout& layout, int64_t num_rows, int64_t num_experts) {
  if (layout.is_masked()) return num_rows / 2;
  const int64_t padding = num_experts * (layout.alignment() - 1);
  return num_rows > padding ? num_rows - padding : num_rows / layout.alignment();
}

}  // namespace

std::string rows_bucket(int64_t num_rows, int64_t num_experts) {
  if (num_rows < num_experts) return fmt::format("{} rows", next_power_of_two(num_rows));
  const int64_t per_expert = (num_rows + num_experts - 1) / std::max<int64_t>(num_experts, 1);
  return fmt::format("{} rows/E", next_power_of_two(per_expert));
}

Tensor tuning_metadata(const MGroupedLayout& layout, int64_t num_rows, int64_t num_experts,
                       std::string_view routing, Device device) {
  const Tensor metadata =
      Tensor::empty({layout.is_per_row() ? num_rows : num_experts}, DType::kI32);
  const int64_t routes = routes_that_fit(layout, num_rows, num_experts);
  generate("grouped_metadata", metadata, {layout.to_value(), num_experts, routes, routing});
  return device == kCpuDevice ? metadata : cuda::to_device(metadata, device);
}

Tensor tuning_topk_ids(int64_t num_tokens, int64_t top_k, int64_t num_experts,
                       std::string_view routing) {
  const Tensor ids = Tensor::empty({num_tokens, top_k}, DType::kI32);
  if (top_k <= num_experts) {
    generate("topk_ids", ids, {num_experts, routing});
  } else {  // more choices than experts: every expert comes in turn
    for (int64_t i = 0; i < ids.num_elements(); ++i) {
      ids.data_as<int32_t>()[i] = static_cast<int32_t>(i % num_experts);
    }
  }
  return ids;
}

Tensor tuning_topk_weights(int64_t num_tokens, int64_t top_k) {
  const Tensor weights = Tensor::empty({num_tokens, top_k}, DType::kF32);
  generate("topk_weights", weights, {});
  return weights;
}

int64_t cpu_tuning_experts(int64_t num_experts, int64_t elements_per_expert, DType dtype,
                           int64_t rows_per_expert) {
  const auto elements = static_cast<double>(std::max<int64_t>(elements_per_expert, 1));
  const double by_bytes = kCpuBytes / (elements * static_cast<double>(dtype_bytes(dtype)));
  const double by_flops =
      kCpuFlops / (2 * elements * static_cast<double>(std::max<int64_t>(rows_per_expert, 1)));
  const auto fitting = static_cast<int64_t>(std::min({by_bytes, by_flops, 1e6}));
  return std::min(num_experts, std::max<int64_t>(fitting, 2));
}

}  // namespace tileops
