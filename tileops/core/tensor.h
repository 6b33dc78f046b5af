// SPDX-License-Identifier: Apache-2.0
// Tensor: a strided view of shared storage, compatible with DLPack.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tileops/core/device.h"
#include "tileops/core/dtype.h"
#include "tileops/core/shape.h"

namespace tileops {

/// Memory that tensors share; freed (its deleter called once) when the last of them goes.
class Storage {
 public:
  using Deleter = std::function<void(void*)>;
  Storage(void* data, int64_t bytes, Device device, Deleter deleter);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  /// Extent in bytes, from data(): no view of the storage reaches beyond it.
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void* data_;
  int64_t bytes_;
  Device device_;
  Deleter deleter_;
};

/// A strided tensor. Copying shares the storage. A default-constructed Tensor is absent: it stands
/// for an optional input that was not given.
/// Thread safety: as for std::shared_ptr; contents are the caller's to synchronise.
class Tensor {
 public:
  Tensor() = default;

  /// Fresh, uninitialised, contiguous. A meta tensor has facts and no storage.
  /// Errors: kShape (negative size, overflow), kOutOfMemory, kDevice.
  static Tensor empty(const Shape& shape, DType dtype, Device device = kCpuDevice);
  /// Fresh CPU tensor with these elements in row-major order, converted to dtype.
  /// Errors: kShape where values.size() is not the shape's element count.
  static Tensor from_values(const Shape& shape, DType dtype, std::span<const double> values);
  /// A view of `data` with these strides (in elements); `owner` is kept alive by the tensor (may be
  /// null: borrowed memory that must outlive every copy).
  /// Errors: kShape (ranks differ, negative size or stride, extent beyond int64), kValue (null or
  /// misaligned data, elements present).
  static Tensor from_blob(void* data, const Shape& shape, const Strides& strides, DType dtype,
                          Device device, std::shared_ptr<const void> owner);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }

  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device() : kCpuDevice; }
  const Shape& shape() const { return shape_; }
  /// In elements; may be 0 (expanded), never negative.
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.size(); }
  /// Size of dimension i; negative i counts from the end. Errors: kShape.
  int64_t size(int i) const;
  int64_t stride(int i) const;
  int64_t num_elements() const { return num_elements_; }
  bool is_contiguous() const;

  /// Address of the first element; null on meta and when there are no elements.
  void* data() const { return data_; }
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data_);
  }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// Views (no copy). Errors: kShape, kValue; `reshape` where the strides do not allow a view.
  Tensor narrow(int dim, int64_t start, int64_t length) const;
  Tensor select(int dim, int64_t index) const;
  Tensor transpose(int dim_a, int dim_b) const;
  Tensor reshape(const Shape& shape) const;
  Tensor as_strided(const Shape& shape, const Strides& strides, int64_t offset_elements) const;
  /// The same elements, contiguous: this tensor itself where it is so already, else a copy (CPU).
  Tensor contiguous() const;
  /// A contiguous CPU copy with another dtype. Errors: kDevice for a tensor that is not on the CPU.
  Tensor to(DType dtype) const;

  /// Element at a multi-index, as double (CPU). Errors: kShape (index), kDevice.
  double at(std::initializer_list<int64_t> index) const;

  /// Whether two tensors' elements can share a byte: exact for contiguous ones, else by extent.
  bool overlaps(const Tensor& other) const;
  /// Same storage, first element, shape, strides and dtype.
  bool is_same_view(const Tensor& other) const;

 private:
  Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, const Shape& shape,
         const Strides& strides, int64_t num_elements, DType dtype);
  Tensor view(const Shape& shape, const Strides& strides, int64_t offset_elements) const;
  int resolve_dim(const char* who, int dim) const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_bytes_ = 0;  // of the first element in the storage; meta views differ only in it
  void* data_ = nullptr;
  Shape shape_;
  Strides strides_;
  int64_t num_elements_ = 0;
  DType dtype_ = DType::kF32;
};

/// "bfloat16[8, 4096] on cpu", with the strides where not contiguous; "absent".
std::string to_string(const Tensor& tensor);

/// Copies elements of `source` into `destination`: CPU tensors of one shape; dtypes may differ.
/// Errors: kShape, kDevice, kValue (absent).
void copy_elements(const Tensor& source, const Tensor& destination);

}  // namespace tileops
