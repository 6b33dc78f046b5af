// SPDX-License-Identifier: Apache-2.0
// What the tests of numeric ops share: random and poisoned tensors, and comparisons.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tileops/core/tensor.h"

namespace tileops::testing {

/// Fresh CPU tensor with normal elements.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, double scale = 1.0) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<double> values(static_cast<size_t>(num_elements(shape)));
  for (double& value : values) value = normal(engine);
  return Tensor::from_values(shape, dtype, values);
}

inline Tensor int_tensor(const Shape& shape, const std::vector<int64_t>& values) {
  return Tensor::from_values(shape, DType::kI32, std::vector<double>(values.begin(), values.end()));
}

/// Fresh CPU tensor whose every element is NaN.
inline Tensor poisoned(const Shape& shape, DType dtype) {
  const std::vector<double> values(static_cast<size_t>(num_elements(shape)),
                                   std::numeric_limits<double>::quiet_NaN());
  return Tensor::from_values(shape, dtype, values);
}

/// Elements in row-major order, as double.
inline std::vector<double> elements(const Tensor& tensor) {
  const Tensor flat = tensor.to(DType::kF64);
  const double* data = flat.data_as<double>();
  return {data, data + flat.num_elements()};
}

/// ‖got − want‖ / ‖want‖; NaN where either holds one; ‖got‖ where want is all zeros.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline double relative_error(const Tensor& got, const Tensor& want) {
  return relative_error(elements(got), elements(want));
}

inline bool bit_equal(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.num_elements() == 0 ||
          std::memcmp(x.data(), y.data(),
                      static_cast<size_t>(x.num_elements() * dtype_bytes(x.dtype()))) == 0);
}

/// The bound that the project promises for one rounding of a float32 accumulation.
inline double tolerance(DType dtype) {
  return dtype == DType::kBF16 ? 5e-3 : dtype == DType::kF16 ? 1e-3 : 1e-5;
}

}  // namespace tileops::testing
