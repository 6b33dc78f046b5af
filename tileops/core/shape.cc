// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/shape.h"

#include "tileops/core/check.h"

namespace tileops {

Dims::Dims(std::span<const int64_t> values) {
  TILEOPS_CHECK(ErrorKind::kShape, values.size() <= kMaxRank,
                "a tensor has at most {} dimensions, got {}", kMaxRank, values.size());
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = static_cast<int>(values.size());
}

void Dims::push_back(int64_t value) {
  TILEOPS_CHECK(ErrorKind::kShape, size_ < kMaxRank, "a tensor has at most {} dimensions, got {}",
                kMaxRank, size_ + 1);
  values_[static_cast<size_t>(size_++)] = value;
}

int64_t num_elements(const Shape& shape) {
  int64_t product = 1;
  bool is_empty = false;
  for (const int64_t size : shape) {
    TILEOPS_CHECK(ErrorKind::kShape, size >= 0, "sizes must be at least 0, got shape {}",
                  to_string(shape));
    is_empty |= size == 0;
    TILEOPS_CHECK(ErrorKind::kShape,
                  !__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product),
                  "shape {} has more elements than int64 can count", to_string(shape));
  }
  return is_empty ? 0 : product;
}

Contiguous::Contiguous(const Shape& shape) : strides(shape) {
  bool is_empty = false;
  int64_t product = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = product;
    is_empty |= shape[i] == 0;
    if (shape[i] < 0 || __builtin_mul_overflow(product, std::max<int64_t>(shape[i], 1), &product)) {
      tileops::num_elements(shape);  // raises
    }
  }
  num_elements = is_empty ? 0 : product;
}

int64_t extent_elements(const Shape& shape, const Strides& strides) {
  TILEOPS_CHECK(ErrorKind::kShape, shape.size() == strides.size(),
                "shape {} needs {} strides, got {}", to_string(shape), shape.size(),
                to_string(strides));
  const bool is_empty = num_elements(shape) == 0;
  int64_t extent = 1;
  for (int i = 0; i < shape.size(); ++i) {
    TILEOPS_CHECK(ErrorKind::kShape, strides[i] >= 0, "strides must be at least 0, got {}",
                  to_string(strides));
    if (is_empty) continue;
    int64_t reach = 0;
    TILEOPS_CHECK(ErrorKind::kShape,
                  !__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) &&
                      !__builtin_add_overflow(extent, reach, &extent),
                  "shape {} with strides {} reaches further than int64 can count", to_string(shape),
                  to_string(strides));
  }
  return is_empty ? 0 : extent;
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

}  // namespace tileops
