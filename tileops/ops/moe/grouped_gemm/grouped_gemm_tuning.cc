// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_tuning.h"

#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/perf/random_tensor.h"

namespace tileops::grouped_gemm {

std::string tuning_bucket(const Call& call) {
  return fmt::format("{} {} {} to {} E{} N{} K{}{}{}, {}", to_string(call.layout.to_value()),
                     to_string(call.activation.to_value()), dtype_short_name(call.dtype),
                     dtype_short_name(call.out_dtype), call.num_experts, call.n, call.k,
                     call.has_bias ? " bias" : "", call.batch_invariant ? " batch_invariant" : "",
                     rows_bucket(call.num_rows, call.num_experts));
}

TuningTensors make_tuning_tensors(const Call& call) {
  const bool masked = call.layout.is_masked();
  const int64_t max_m = call.layout.max_m();
  const auto rows_of = [&](int64_t columns) {
    return masked ? Shape{call.num_experts, max_m, columns} : Shape{call.num_rows, columns};
  };
  const int64_t features = call.activation.is_none() ? call.n : call.n / 2;
  TuningTensors t;
  t.a = perf::random_tensor(rows_of(call.k), call.dtype, call.device, 1);
  t.b = perf::random_tensor({call.num_experts, call.n, call.k}, call.dtype, call.device, 2, 0.05F);
  if (call.has_bias) {
    t.bias = perf::random_tensor({call.num_experts, call.n}, call.dtype, call.device, 3);
  }
  t.out = Tensor::empty(rows_of(features), call.out_dtype, call.device);
  for (size_t i = 0; i < kTuningRoutings.size(); ++i) {
    t.metadata[i] = tuning_metadata(call.layout, call.num_rows, call.num_experts,
                                    kTuningRoutings[i], call.device);
  }
  return t;
}

Call cpu_tuning_call(Call call) {
  if (call.num_experts == 0) return call;
  const int64_t rows_per_expert = (call.num_rows + call.num_experts - 1) / call.num_experts;
  const int64_t experts =
      cpu_tuning_experts(call.num_experts, call.n * call.k, call.dtype, rows_per_expert);
  call.num_rows = call.layout.is_masked()
                      ? experts * call.layout.max_m()
                      : std::max<int64_t>(call.num_rows * experts / call.num_experts, 1);
  call.num_experts = experts;
  return call;
}

}  // namespace tileops::grouped_gemm
