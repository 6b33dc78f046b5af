// SPDX-License-Identifier: Apache-2.0
// Private to the tests: a grouped product with its buffers, its float64 result and its error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tileops/cpu/grouped_gemm.h"

namespace tileops::cpu {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Buffer {  // elements of one dtype
  DType dtype;
  std::vector<std::byte> bytes;

  Buffer(DType type, int64_t count, float value = 0.0f)
      : dtype(type), bytes(static_cast<size_t>(count * dtype_bytes(type))) {
    for (int64_t i = 0; i < count; ++i) set(i, value);
  }
  void set(int64_t i, double value) { store_element(dtype, at(i), value); }
  double get(int64_t i) const { return load_element(dtype, bytes.data() + i * dtype_bytes(dtype)); }
  std::vector<double> values() const {
    std::vector<double> all;
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(dtype_bytes(dtype))) {
      all.push_back(load_element(dtype, bytes.data() + at));
    }
    return all;
  }
  std::byte* at(int64_t i) { return bytes.data() + i * dtype_bytes(dtype); }
};

inline double activate(const ActivationParams& params, double gate, double up) {
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  switch (params.kind) {
    case Activation::kNone:
      return gate;
    case Activation::kSiluAndMul:
      return gate * sigmoid(gate) * up;
    case Activation::kGeluAndMul:
      return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0))) * up;
    case Activation::kGeluTanhAndMul: {
      const double y = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
      return 0.5 * gate * (1 + std::tanh(y)) * up;
    }
    case Activation::kSwigluOai:
      break;
  }
  const double g = std::min<double>(gate, params.limit);
  const double u = std::clamp<double>(up, -params.limit, params.limit);
  return g * sigmoid(params.alpha * g) * (u + 1);
}

struct Sizes {
  int64_t n = 0, k = 0;
  std::vector<int64_t> rows;  // of each expert
};

struct Layout {
  int64_t a_col = 1, out_col = 1;  // strides
  bool gather = false, transposed_b = false;
};

/// A problem with its buffers: rows between segments, and gaps of strides, hold NaN.
struct Fixture {
  Fixture(const Sizes& sizes, DType dtype, DType out_dtype, Activation kind, bool with_bias,
          const Layout& layout = {})
      : experts(static_cast<int64_t>(sizes.rows.size())) {
    int64_t row = 1;  // one row of no segment before each segment
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t count = sizes.rows[static_cast<size_t>(e)];
      segments.push_back({.row_begin = row, .num_rows = count, .expert = static_cast<int32_t>(e)});
      row += count + 1;
    }
    total_rows = row;
    problem.activation.kind = kind;
    outputs = kind == Activation::kNone ? sizes.n : sizes.n / 2;
    problem.a = {
        .dtype = dtype, .row_stride = sizes.k * layout.a_col + 3, .col_stride = layout.a_col};
    problem.b = {.dtype = dtype,
                 .num_experts = experts,
                 .n = sizes.n,
                 .k = sizes.k,
                 .n_stride = layout.transposed_b ? 1 : sizes.k + 5,
                 .k_stride = layout.transposed_b ? sizes.n + 2 : 1};
    problem.b.expert_stride =
        layout.transposed_b ? sizes.k * problem.b.k_stride + 7 : sizes.n * problem.b.n_stride + 7;
    problem.out = {.dtype = out_dtype,
                   .row_stride = outputs * layout.out_col + 2,
                   .col_stride = layout.out_col};
    fill(sizes, with_bias, layout);
    reset_out();
  }

  void fill(const Sizes& sizes, bool with_bias, const Layout& layout) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const DType dtype = problem.a.dtype;
    a = Buffer(dtype, total_rows * problem.a.row_stride + 1, kNaN);
    b = Buffer(dtype, experts * problem.b.expert_stride + 1, kNaN);
    index.resize(static_cast<size_t>(total_rows));
    for (int64_t i = 0; i < total_rows; ++i) {
      index[static_cast<size_t>(i)] = static_cast<int32_t>(layout.gather ? total_rows - 1 - i : i);
    }
    for (const RowSegment& s : segments) {
      for (int64_t i = s.row_begin; i < s.row_begin + s.num_rows; ++i) {
        for (int64_t k = 0; k < sizes.k; ++k) a.set(a_index(i, k), normal(random));
      }
      for (int64_t n = 0; n < sizes.n; ++n) {
        for (int64_t k = 0; k < sizes.k; ++k) {
          b.set(b_index(s.expert, n, k), normal(random) / std::sqrt(double(sizes.k)));
        }
      }
    }
    problem.segments = segments;
    problem.a.data = a.bytes.data();
    if (layout.gather) problem.a.index = index.data();
    problem.b.data = b.bytes.data();
    if (!with_bias) return;
    bias = Buffer(dtype, experts * sizes.n);
    for (int64_t i = 0; i < experts * sizes.n; ++i) bias.set(i, normal(random));
    problem.bias = {.data = bias.bytes.data(), .dtype = dtype, .expert_stride = sizes.n};
  }

  void reset_out() {
    out = Buffer(problem.out.dtype, total_rows * problem.out.row_stride, kNaN);
    problem.out.data = out.bytes.data();
  }

  int64_t a_index(int64_t row, int64_t k) const {
    return index[static_cast<size_t>(row)] * problem.a.row_stride + k * problem.a.col_stride;
  }
  int64_t b_index(int64_t e, int64_t n, int64_t k) const {
    return e * problem.b.expert_stride + n * problem.b.n_stride + k * problem.b.k_stride;
  }
  int64_t out_index(int64_t row, int64_t col) const {
    return row * problem.out.row_stride + col * problem.out.col_stride;
  }

  double dot(const RowSegment& s, int64_t row, int64_t n) const {
    double sum = bias.bytes.empty() ? 0.0 : bias.get(s.expert * problem.b.n + n);
    for (int64_t k = 0; k < problem.b.k; ++k) {
      sum += a_values[static_cast<size_t>(a_index(row, k))] *
             b_values[static_cast<size_t>(b_index(s.expert, n, k))];
    }
    return sum;
  }

  void compute_reference() {
    a_values = a.values();
    b_values = b.values();
    reference.assign(out.bytes.size(), kNaN);
    const Activation kind = problem.activation.kind;
    for (const RowSegment& s : segments) {
      for (int64_t row = s.row_begin; row < s.row_begin + s.num_rows; ++row) {
        for (int64_t j = 0; j < outputs; ++j) {
          const bool interleaved = kind == Activation::kSwigluOai;
          const double gate = dot(s, row, interleaved ? 2 * j : j);
          const double up =
              kind == Activation::kNone ? 0.0 : dot(s, row, interleaved ? 2 * j + 1 : outputs + j);
          reference[static_cast<size_t>(out_index(row, j))] =
              activate(problem.activation, gate, up);
        }
      }
    }
  }

  /// Relative norm of the error; infinite where a written element is NaN or another one was
  /// touched.
  double error() const {
    double difference = 0.0, norm = 0.0;
    const int64_t count = static_cast<int64_t>(out.bytes.size()) / dtype_bytes(out.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const double want = reference[static_cast<size_t>(i)], got = out.get(i);
      if (std::isnan(want) != std::isnan(got)) return std::numeric_limits<double>::infinity();
      if (std::isnan(want)) continue;
      difference += (got - want) * (got - want);
      norm += want * want;
    }
    return norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
  }

  int64_t experts, total_rows = 0, outputs = 0;
  std::vector<RowSegment> segments;
  std::vector<int32_t> index;
  Buffer a{DType::kF32, 0}, b{DType::kF32, 0}, bias{DType::kF32, 0}, out{DType::kF32, 0};
  std::vector<double> a_values, b_values, reference;
  GroupedGemm problem;
};

}  // namespace tileops::cpu
