// SPDX-License-Identifier: Apache-2.0
// DLPack: the exchange of tensors with other frameworks, without copies.
// The structs restate the ABI of DLPack 1.1 (and of its unversioned predecessor) because the
// headers that distributions ship are older; a test compares them with PyTorch's own.
#pragma once

#include <cstdint>
#include <memory>

#include "tileops/core/tensor.h"

namespace tileops::dlpack {

inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 1;

enum DeviceCode : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kBool = 6,
  kFloat8E4M3Fn = 10,
  kFloat8E5M2 = 12
};
inline constexpr uint64_t kFlagReadOnly = 1;
inline constexpr uint64_t kFlagIsCopied = 2;

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

/// How a framework gives its tensors to C code without a capsule a tensor (DLPack 1.3): its Python
/// tensor type has a capsule "dlpack_exchange_api" as __dlpack_c_exchange_api__. Functions return 0,
/// or -1 with a Python error set (the allocator: with set_error called).
struct ExchangeApi {
  DLPackVersion version;
  ExchangeApi* prev_api;  // of an older version; null where there is none
  int (*managed_tensor_allocator)(DLTensor* prototype, DLManagedTensorVersioned** out,
                                  void* context,
                                  void (*set_error)(void* context, const char* kind,
                                                    const char* message));
  int (*managed_tensor_from_py_object)(void* object, DLManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object)(DLManagedTensorVersioned* tensor, void** out);
  int (*dltensor_from_py_object)(void* object, DLTensor* out);  // borrowed; may be null
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
};

/// A view of what `tensor` describes; `owner` is kept alive by it. Errors: as import_managed.
Tensor import_view(const DLTensor& tensor, std::shared_ptr<const void> owner);

/// Takes the tensor over: its deleter runs when the last Tensor on it goes. On an error the import
/// is not consumed: the caller still owns it. Null strides mean contiguous. A read-only tensor is
/// taken: it serves as an input, and that nothing writes to it is the caller's to see to.
/// Errors: kValue (null, negative size, misaligned data, unknown version), kDType, kDevice, kShape
/// (rank beyond kMaxRank, overflow).
Tensor import_managed(DLManagedTensor* managed);
Tensor import_managed(DLManagedTensorVersioned* managed);

/// A managed tensor that shares the storage; the consumer calls its deleter once.
/// Errors: kValue for an absent tensor, kDevice for a meta tensor, kDType for a float8 tensor in
/// the unversioned form, which has no code for it.
DLManagedTensor* export_managed(const Tensor& tensor);
DLManagedTensorVersioned* export_managed_versioned(const Tensor& tensor);

}  // namespace tileops::dlpack
