// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/dlpack.h"

#include <array>
#include <memory>
#include <span>
#include <utility>

#include "tileops/core/check.h"

namespace tileops::dlpack {
namespace {

struct DTypeCode {
  DType dtype;
  uint8_t code;
  uint8_t bits;
};

constexpr std::array<DTypeCode, kNumDTypes> kDTypeCodes = {{
    {DType::kF64, kFloat, 64},
    {DType::kF32, kFloat, 32},
    {DType::kF16, kFloat, 16},
    {DType::kBF16, kBfloat, 16},
    {DType::kE4M3, kFloat8E4M3Fn, 8},
    {DType::kE5M2, kFloat8E5M2, 8},
    {DType::kI64, kInt, 64},
    {DType::kI32, kInt, 32},
    {DType::kI16, kInt, 16},
    {DType::kI8, kInt, 8},
    {DType::kU8, kUInt, 8},
    {DType::kBool, kBool, 8},
}};

DType import_dtype(const DLDataType& type) {
  TILEOPS_CHECK(ErrorKind::kDType, type.lanes == 1, "dlpack import: lanes must be 1, got {}",
                type.lanes);
  for (const DTypeCode& known : kDTypeCodes) {
    if (known.code == type.code && known.bits == type.bits) return known.dtype;
  }
  raise(ErrorKind::kDType, "dlpack import: there is no dtype of type code {} with {} bits",
        type.code, type.bits);
}

DLDataType export_dtype(DType dtype) {
  const DTypeCode& known = kDTypeCodes[static_cast<size_t>(dtype)];
  return {known.code, known.bits, 1};
}

Device import_device(const DLDevice& device) {
  switch (device.device_type) {
    case kCpu:
    case kCudaHost:
      return kCpuDevice;
    case kCuda:
    case kCudaManaged:
      TILEOPS_CHECK(ErrorKind::kDevice, device.device_id >= 0,
                    "dlpack import: the CUDA device's index must be at least 0, got {}",
                    device.device_id);
      return {DeviceType::kCUDA, device.device_id};
    default:
      raise(ErrorKind::kDevice,
            "dlpack import: device type {} is not served; it must be 1 (CPU), 2 (CUDA), 3 (CUDA "
            "host) or 13 (CUDA managed)",
            device.device_type);
  }
}

Dims import_dims(const char* what, const int64_t* values, int32_t ndim) {
  const Dims dims(std::span(values, static_cast<size_t>(ndim)));
  for (const int64_t value : dims) {
    TILEOPS_CHECK(ErrorKind::kValue, value >= 0, "dlpack import: {} must be at least 0, got {}",
                  what, to_string(dims));
  }
  return dims;
}

/// Address of the first element.
void* import_data(const DLTensor& tensor, DType dtype, const Shape& shape) {
  if (num_elements(shape) == 0) return nullptr;
  TILEOPS_CHECK(ErrorKind::kValue, tensor.data != nullptr, "dlpack import: null data for {}{}",
                dtype_name(dtype), to_string(shape));
  uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data);
  TILEOPS_CHECK(ErrorKind::kValue, !__builtin_add_overflow(address, tensor.byte_offset, &address),
                "dlpack import: byte_offset {} reaches beyond the address space",
                tensor.byte_offset);
  TILEOPS_CHECK(ErrorKind::kValue, address % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0,
                "dlpack import: data at {:#x} is not aligned to the {} bytes of {}", address,
                dtype_bytes(dtype), dtype_name(dtype));
  return reinterpret_cast<void*>(address);
}

/// Owns a consumer's half of a managed tensor; empty until the import has succeeded.
template <class Managed>
struct Consumed {
  Managed* managed = nullptr;
  Consumed() = default;
  Consumed(const Consumed&) = delete;
  Consumed& operator=(const Consumed&) = delete;
  ~Consumed() {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  }
};

template <class Managed>
Tensor consume(Managed* managed) {
  auto owner = std::make_shared<Consumed<Managed>>();
  Tensor tensor = import_view(managed->dl_tensor, owner);
  owner->managed = managed;
  return tensor;
}

/// The ABI's pointers are not const, and consumers do not write.
int64_t* dims(const Dims& values) {
  return values.empty() ? nullptr : const_cast<int64_t*>(values.begin());
}

template <class Managed>
struct Exported {
  Tensor tensor;
  Managed managed{};
};

template <class Managed>
Managed* produce(const Tensor& tensor) {
  TILEOPS_CHECK(ErrorKind::kValue, tensor.defined(), "dlpack export: the tensor is absent");
  TILEOPS_CHECK(ErrorKind::kDevice, tensor.device().type != DeviceType::kMeta,
                "dlpack export: a meta tensor has no data to share, got {}", to_string(tensor));
  auto exported = std::make_unique<Exported<Managed>>();
  exported->tensor = tensor;
  const bool is_cuda = tensor.device().type == DeviceType::kCUDA;
  Managed& managed = exported->managed;
  managed.dl_tensor = {.data = tensor.data(),
                       .device = {is_cuda ? kCuda : kCpu, tensor.device().index},
                       .ndim = tensor.rank(),
                       .dtype = export_dtype(tensor.dtype()),
                       .shape = dims(exported->tensor.shape()),
                       .strides = dims(exported->tensor.strides()),
                       .byte_offset = 0};
  managed.manager_ctx = exported.get();
  managed.deleter = [](Managed* self) {
    std::unique_ptr<Exported<Managed>>(static_cast<Exported<Managed>*>(self->manager_ctx));
  };
  return &exported.release()->managed;
}

}  // namespace

Tensor import_view(const DLTensor& source, std::shared_ptr<const void> owner) {
  const DType dtype = import_dtype(source.dtype);
  const Device device = import_device(source.device);
  TILEOPS_CHECK(ErrorKind::kValue, source.ndim >= 0,
                "dlpack import: ndim must be at least 0, got {}", source.ndim);
  TILEOPS_CHECK(ErrorKind::kValue, source.ndim == 0 || source.shape != nullptr,
                "dlpack import: null shape for {} dimensions", source.ndim);
  const Shape shape = import_dims("sizes", source.shape, source.ndim);
  const Strides strides = source.strides == nullptr
                              ? contiguous_strides(shape)
                              : import_dims("strides", source.strides, source.ndim);
  return Tensor::from_blob(import_data(source, dtype, shape), shape, strides, dtype, device,
                           std::move(owner));
}

Tensor import_managed(DLManagedTensor* managed) {
  TILEOPS_CHECK(ErrorKind::kValue, managed != nullptr, "dlpack import: null managed tensor");
  return consume(managed);
}

Tensor import_managed(DLManagedTensorVersioned* managed) {
  TILEOPS_CHECK(ErrorKind::kValue, managed != nullptr, "dlpack import: null managed tensor");
  TILEOPS_CHECK(ErrorKind::kValue, managed->version.major == kMajorVersion,
                "dlpack import: version {}.{} is not served; the major version must be {}",
                managed->version.major, managed->version.minor, kMajorVersion);
  return consume(managed);
}

DLManagedTensor* export_managed(const Tensor& tensor) {
  const bool is_float8 = tensor.dtype() == DType::kE4M3 || tensor.dtype() == DType::kE5M2;
  TILEOPS_CHECK(ErrorKind::kDType, !is_float8,
                "dlpack export: unversioned DLPack has no {}; ask for the versioned form",
                dtype_name(tensor.dtype()));
  return produce<DLManagedTensor>(tensor);
}

DLManagedTensorVersioned* export_managed_versioned(const Tensor& tensor) {
  DLManagedTensorVersioned* managed = produce<DLManagedTensorVersioned>(tensor);
  managed->version = {kMajorVersion, kMinorVersion};
  return managed;
}

}  // namespace tileops::dlpack
