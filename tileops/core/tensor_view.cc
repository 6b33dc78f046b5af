// SPDX-License-Identifier: Apache-2.0
// Views of tensors, and copies between them.
#include <cstddef>
#include <cstring>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/core/tensor.h"

namespace tileops {
namespace {

/// Dimensions of a view with those of size 1 left out and neighbours merged where one continues the
/// other in memory.
Dims merged(const Shape& shape, const Strides& strides, Strides& merged_strides) {
  Dims sizes;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const int last = sizes.size() - 1;
    int64_t span = 0;
    if (last >= 0 && !__builtin_mul_overflow(shape[i], strides[i], &span) &&
        merged_strides[last] == span) {
      sizes[last] *= shape[i];
      merged_strides[last] = strides[i];
    } else {
      sizes.push_back(shape[i]);
      merged_strides.push_back(strides[i]);
    }
  }
  return sizes;
}

/// Strides that lay `target` over the elements of a view without a copy; false if there are none.
bool view_strides(const Shape& shape, const Strides& strides, const Shape& target,
                  Strides& result) {
  Strides run_strides;
  const Dims runs = merged(shape, strides, run_strides);
  result = contiguous_strides(target);
  int run = runs.size() - 1;
  int64_t covered = 1;  // elements of the current run that dimensions so far have taken
  for (int i = target.size() - 1; i >= 0; --i) {
    if (target[i] == 1) continue;
    if (run < 0 || runs[run] % (covered * target[i]) != 0) return false;
    result[i] = run_strides[run] * covered;
    covered *= target[i];
    if (covered == runs[run]) {
      covered = 1;
      --run;
    }
  }
  return true;
}

void copy_row(const Tensor& source, const std::byte* from, int64_t from_stride,
              const Tensor& destination, std::byte* to, int64_t to_stride, int64_t count) {
  const int64_t from_bytes = dtype_bytes(source.dtype());
  const int64_t to_bytes = dtype_bytes(destination.dtype());
  const bool is_same_dtype = source.dtype() == destination.dtype();
  for (int64_t i = 0; i < count; ++i) {
    // From the row's start: one stride past its last element may not be an address.
    const std::byte* read = from + i * from_stride * from_bytes;
    std::byte* written = to + i * to_stride * to_bytes;
    if (is_same_dtype) {
      std::memcpy(written, read, static_cast<size_t>(to_bytes));
    } else {
      store_element(destination.dtype(), written, load_element(source.dtype(), read));
    }
  }
}

}  // namespace

Tensor Tensor::view(const Shape& shape, const Strides& strides, int64_t offset_elements) const {
  return Tensor(storage_, offset_bytes_ + offset_elements * dtype_bytes(dtype_), shape, strides,
                tileops::num_elements(shape), dtype_);
}

Tensor Tensor::narrow(int dim, int64_t start, int64_t length) const {
  const int i = resolve_dim("narrow", dim);
  TILEOPS_CHECK(ErrorKind::kShape,
                start >= 0 && length >= 0 && start <= shape_[i] && length <= shape_[i] - start,
                "narrow: {} elements from {} on are not within dimension {} of {}", length, start,
                dim, to_string(*this));
  Shape shape = shape_;
  shape[i] = length;
  const int64_t offset = num_elements_ == 0 || length == 0 ? 0 : start * strides_[i];
  return view(shape, strides_, offset);
}

Tensor Tensor::select(int dim, int64_t index) const {
  const int i = resolve_dim("select", dim);
  TILEOPS_CHECK(ErrorKind::kShape, index >= 0 && index < shape_[i],
                "select: there is no index {} in dimension {} of {}", index, dim, to_string(*this));
  Shape shape;
  Strides strides;
  for (int d = 0; d < rank(); ++d) {
    if (d == i) continue;
    shape.push_back(shape_[d]);
    strides.push_back(strides_[d]);
  }
  return view(shape, strides, num_elements_ == 0 ? 0 : index * strides_[i]);
}

Tensor Tensor::transpose(int dim_a, int dim_b) const {
  const int a = resolve_dim("transpose", dim_a);
  const int b = resolve_dim("transpose", dim_b);
  Shape shape = shape_;
  Strides strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return view(shape, strides, 0);
}

Tensor Tensor::reshape(const Shape& shape) const {
  TILEOPS_CHECK(ErrorKind::kValue, defined(), "reshape: the tensor is absent");
  TILEOPS_CHECK(ErrorKind::kShape, tileops::num_elements(shape) == num_elements_,
                "reshape: {} does not have the {} elements of {}", to_string(*this),
                tileops::num_elements(shape), to_string(shape));
  Strides strides = contiguous_strides(shape);
  TILEOPS_CHECK(ErrorKind::kShape,
                num_elements_ == 0 || view_strides(shape_, strides_, shape, strides),
                "reshape: {} cannot be viewed as {} without a copy; make it contiguous first",
                to_string(*this), to_string(shape));
  return view(shape, strides, 0);
}

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides,
                          int64_t offset_elements) const {
  TILEOPS_CHECK(ErrorKind::kValue, defined(), "as_strided: the tensor is absent");
  const int64_t extent = extent_elements(shape, strides);
  const int64_t available = (storage_->bytes() - offset_bytes_) / dtype_bytes(dtype_);
  TILEOPS_CHECK(
      ErrorKind::kShape,
      offset_elements >= 0 && offset_elements <= available && extent <= available - offset_elements,
      "as_strided: {} with strides {} from element {} on reaches beyond the {} elements "
      "that the storage has from there",
      to_string(shape), to_string(strides), offset_elements, available);
  return view(shape, strides, offset_elements);
}

void copy_elements(const Tensor& source, const Tensor& destination) {
  for (const Tensor* tensor : {&source, &destination}) {
    TILEOPS_CHECK(ErrorKind::kValue, tensor->defined(), "copy_elements: a tensor is absent");
    TILEOPS_CHECK(ErrorKind::kDevice, tensor->device().type == DeviceType::kCPU,
                  "copy_elements: tensors must be on the cpu, got {}", to_string(*tensor));
  }
  TILEOPS_CHECK(ErrorKind::kShape, source.shape() == destination.shape(),
                "copy_elements: shapes differ: {} into {}", to_string(source),
                to_string(destination));
  if (source.num_elements() == 0) return;
  if (source.dtype() == destination.dtype() && source.is_contiguous() &&
      destination.is_contiguous()) {
    std::memmove(destination.data(), source.data(),
                 static_cast<size_t>(source.num_elements() * dtype_bytes(source.dtype())));
    return;
  }
  const int inner = source.rank() - 1;
  const int64_t row = inner < 0 ? 1 : source.shape()[inner];
  Dims index = source.shape();
  for (int i = 0; i < index.size(); ++i) index[i] = 0;
  for (int64_t done = 0; done < source.num_elements(); done += row) {
    int64_t from = 0;
    int64_t to = 0;
    for (int i = 0; i < inner; ++i) {
      from += index[i] * source.strides()[i];
      to += index[i] * destination.strides()[i];
    }
    copy_row(source, source.data_as<std::byte>() + from * dtype_bytes(source.dtype()),
             inner < 0 ? 1 : source.strides()[inner], destination,
             destination.data_as<std::byte>() + to * dtype_bytes(destination.dtype()),
             inner < 0 ? 1 : destination.strides()[inner], row);
    for (int i = inner - 1; i >= 0 && ++index[i] == source.shape()[i]; --i) index[i] = 0;
  }
}

}  // namespace tileops
