// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>

#include "tileops/checkpoint/moe_layer.h"
#include "tileops/core/check.h"
#include "tileops/cpu/parallel.h"

namespace tileops {
namespace {

constexpr int64_t kTokensOfATask = 4;
constexpr size_t kLanes = 16;  // partial sums, so that the compiler vectorises

float dot(const float* a, const float* b, int64_t size) {
  std::array<float, kLanes> sums{};
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kLanes) <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (float lane : sums) sum += lane;
  return sum;
}

}  // namespace

Tensor MoELayerCheckpoint::gating_logits(const Tensor& hidden) const {
  const int64_t num_experts = router_weight.size(0), size = router_weight.size(1);
  TILEOPS_CHECK(ErrorKind::kShape, hidden.rank() == 2 && hidden.size(1) == size,
                "gating_logits: hidden must be [T, {}], got {}", size, to_string(hidden));
  TILEOPS_CHECK(ErrorKind::kDType, is_floating(hidden.dtype()),
                "gating_logits: hidden must be floating, got {}", to_string(hidden));
  const Tensor x = hidden.to(DType::kF32), weight = router_weight.to(DType::kF32);
  const Tensor bias = router_bias.defined() ? router_bias.to(DType::kF32) : Tensor();
  const Tensor logits = Tensor::empty({hidden.size(0), num_experts}, DType::kF32);
  cpu::parallel_for(hidden.size(0), kTokensOfATask, [&](int64_t begin, int64_t end) {
    for (int64_t e = 0; e < num_experts; ++e) {
      const float added = bias.defined() ? bias.data_as<float>()[e] : 0.0F;
      for (int64_t token = begin; token < end; ++token) {
        const float* row = x.data_as<float>() + token * size;
        logits.data_as<float>()[token * num_experts + e] =
            dot(row, weight.data_as<float>() + e * size, size) + added;
      }
    }
  });
  return logits;
}

}  // namespace tileops
