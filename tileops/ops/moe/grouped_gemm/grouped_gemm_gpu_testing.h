// SPDX-License-Identifier: Apache-2.0
// Cases, inputs and outputs of the grouped GEMM's tests on a GPU.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/testing.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/driver.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/cuda/program.h"
#include "tileops/cuda/setup.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"
#include "tileops/ops/moe/grouped_gemm/valid_rows_testing.h"

namespace tileops::testing {

inline constexpr Device kCuda0{DeviceType::kCUDA, 0};
inline constexpr unsigned kWatchdogSeconds = 120;  // a test that hangs ends the process

/// Each tile of sm90_weights_on_m, as kernel_config forces it.
inline std::vector<Params> forced_tiles() {
  const auto tile = [](int64_t features, int64_t rows, int64_t ctas,
                       int64_t ping_pong = 0) -> Params {
    return {
        {"tile_features", features}, {"tile_rows", rows}, {"ctas", ctas}, {"ping_pong", ping_pong}};
  };
  return {tile(128, 64, 1), tile(256, 64, 1), tile(128, 128, 1), tile(128, 128, 2, 1),
          tile(128, 176, 2, 1)};
}

/// Skips where there is no Hopper GPU; builds all programs once, on all processors.
template <class Base>
class GpuFixture : public Base {
 public:
  void SetUp() override {
    if (const auto reason = cuda::why_unavailable()) GTEST_SKIP() << *reason;
    if (const auto reason = cuda::why_nvrtc_unavailable()) GTEST_SKIP() << *reason;
    if (device_facts(kCuda0).archs.front() != "sm_90a") GTEST_SKIP() << "the GPU is no Hopper";
    ::alarm(kWatchdogSeconds);
    static const bool warmed = [] {
      MoEGroupedGemmFwdOp::op_class();
      cuda::kernel_cache().warm(cuda::registered_programs(), "sm_90a",
                                static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
      return true;
    }();
    (void)warmed;
  }
  void TearDown() override { ::alarm(0); }
};
using GpuTest = GpuFixture<::testing::Test>;
template <class T>
using GpuTestOf = GpuFixture<::testing::TestWithParam<T>>;

struct GemmCase {
  std::string name;
  MGroupedLayout layout;
  GatedActivation activation;
  std::vector<int64_t> counts;  // valid rows of each expert
  int64_t n = 0, k = 0;         // n: rows of b
  DType dtype = DType::kBF16;
  bool bias = false;
  std::optional<DType> out_dtype = std::nullopt;
  bool tma = true;  // sm90_weights_on_m serves it

  int64_t num_features() const { return activation.is_none() ? n : n / 2; }
  /// [rows] or [E, max_m]; contiguous ones with a few rows after the last expert's.
  Shape leading() const {
    const auto num_experts = static_cast<int64_t>(counts.size());
    if (layout.is_masked()) return {num_experts, layout.max_m()};
    const int64_t step = layout.alignment();
    int64_t rows = 0;
    for (int64_t count : counts) rows = (rows + step - 1) / step * step + count;
    return {(rows + step + 2) / step * step};
  }
};

struct GemmInputs {
  Tensor a, b, metadata, bias;
  GemmInputs to(Device device) const {
    return {cuda::to_device(a, device), cuda::to_device(b, device),
            cuda::to_device(metadata, device), cuda::to_device(bias, device)};
  }
};

inline Tensor make_metadata(const GemmCase& c) {
  const auto num_experts = static_cast<int64_t>(c.counts.size());
  if (c.layout.is_masked()) return int_tensor({num_experts}, c.counts);
  const int64_t step = c.layout.alignment(), num_rows = c.leading()[0];
  std::vector<int64_t> ends, ids(static_cast<size_t>(num_rows), num_experts);
  int64_t end = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t begin = (end + step - 1) / step * step;
    end = begin + c.counts[static_cast<size_t>(e)];
    std::fill(ids.begin() + begin, ids.begin() + end, e);
    ends.push_back(end);
  }
  return c.layout.is_per_row() ? int_tensor({num_rows}, ids) : int_tensor({num_experts}, ends);
}

/// On the CPU; rows of a that are no expert's are NaN.
inline GemmInputs make_inputs(const GemmCase& c, uint64_t seed) {
  const auto num_experts = static_cast<int64_t>(c.counts.size());
  Shape shape = c.leading();
  shape.push_back(c.k);
  GemmInputs inputs{poisoned(shape, c.dtype),
                    random_tensor({num_experts, c.n, c.k}, c.dtype, seed + 100,
                                  1 / std::sqrt(static_cast<double>(c.k + 1))),
                    make_metadata(c),
                    c.bias ? random_tensor({num_experts, c.n}, c.dtype, seed + 200) : Tensor()};
  const Tensor values = random_tensor(shape, c.dtype, seed);
  const int64_t row_bytes = c.k * dtype_bytes(c.dtype);
  const int64_t num_rows = c.k == 0 ? 0 : values.num_elements() / c.k;
  for (const ExpertRows& r : expert_rows(c.layout, inputs.metadata, num_experts, num_rows)) {
    const auto at = [&](const Tensor& t) {
      return t.data_as<std::byte>() + r.row_begin * row_bytes;
    };
    std::memcpy(at(inputs.a), at(values), static_cast<size_t>(r.num_rows * row_bytes));
  }
  return inputs;
}

/// In float32: by the reference where that takes no seconds, else by the CPU's kernel.
inline Tensor cpu_result(const GemmCase& c, const GemmInputs& inputs) {
  int64_t rows = 0;
  for (int64_t count : c.counts) rows += count;
  const char* implementation = rows * c.n * c.k < 4'000'000 ? "reference" : "cpu_blocked";
  const MoEGroupedGemmFwdOp op(c.layout, c.activation, DType::kF32,
                               {.implementation = implementation});
  return op(inputs.a, inputs.b, inputs.metadata, {.bias = inputs.bias});
}

/// An output on the GPU among NaNs: rows before and after it, columns beside it.
class MarginedOutput {
 public:
  explicit MarginedOutput(const GemmCase& c) : case_(c) {
    const Shape leading = c.leading();
    const int64_t columns = c.num_features() + (c.tma ? 8 : 3);
    Shape shape = leading;
    if (!c.layout.is_masked()) shape[0] += 3;
    shape.push_back(columns);
    backing_ = cuda::to_device(poisoned(shape, c.out_dtype.value_or(c.dtype)), kCuda0);
    out_ = view(backing_);
  }

  const Tensor& out() const { return out_; }
  Tensor host_backing() const { return cuda::to_host(backing_); }
  Tensor host() const { return view(host_backing()); }

  /// Elements that are not NaN any more outside the experts' rows. Of a per_row layout only those
  /// in the margins count.
  int64_t written_outside(const Tensor& metadata, int64_t num_experts) const {
    const Tensor backing = host_backing();
    const Tensor out = view(backing);
    const RowMatrix m = row_matrix(case_.layout, out);
    std::vector<ExpertRows> rows{{0, 0, m.num_rows}};
    if (!case_.layout.is_per_row()) {
      rows = expert_rows(case_.layout, metadata, num_experts, m.num_rows);
    }
    for (const ExpertRows& r : rows) {
      for (int64_t row = 0; row < r.num_rows; ++row) poison(out, m, r.row_begin + row);
    }
    const std::vector<double> values = elements(backing);
    return std::count_if(values.begin(), values.end(), [](double v) { return !std::isnan(v); });
  }

 private:
  Tensor view(const Tensor& backing) const {
    const Tensor rows =
        case_.layout.is_masked() ? backing : backing.narrow(0, 1, case_.leading()[0]);
    return rows.narrow(rows.rank() - 1, 0, case_.num_features());
  }
  static void poison(const Tensor& out, const RowMatrix& m, int64_t row) {
    const int64_t bytes = dtype_bytes(out.dtype());
    std::memset(out.data_as<std::byte>() + m.offset(row) * bytes, 0xff,
                static_cast<size_t>(m.num_columns * bytes));
  }

  GemmCase case_;
  Tensor backing_;
  Tensor out_;
};

}  // namespace tileops::testing
