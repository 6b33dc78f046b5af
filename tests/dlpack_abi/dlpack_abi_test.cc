// SPDX-License-Identifier: Apache-2.0
// tileops/core/dlpack.h restates an ABI: here each size, offset and code is compared with the original.
#include DLPACK_HEADER

#include <cstddef>
#include <cstdio>

#include "tileops/core/dlpack.h"

#define SAME_OFFSET(type, field)                                                   \
  static_assert(offsetof(::type, field) == offsetof(tileops::dlpack::type, field), \
                #type "::" #field)

namespace ours = tileops::dlpack;

static_assert(sizeof(::DLDevice) == sizeof(ours::DLDevice));
static_assert(sizeof(::DLDataType) == sizeof(ours::DLDataType));
static_assert(sizeof(::DLTensor) == sizeof(ours::DLTensor));
static_assert(sizeof(::DLManagedTensor) == sizeof(ours::DLManagedTensor));
static_assert(sizeof(::DLManagedTensorVersioned) == sizeof(ours::DLManagedTensorVersioned));
SAME_OFFSET(DLTensor, data);
SAME_OFFSET(DLTensor, device);
SAME_OFFSET(DLTensor, ndim);
SAME_OFFSET(DLTensor, dtype);
SAME_OFFSET(DLTensor, shape);
SAME_OFFSET(DLTensor, strides);
SAME_OFFSET(DLTensor, byte_offset);
SAME_OFFSET(DLManagedTensor, manager_ctx);
SAME_OFFSET(DLManagedTensor, deleter);
SAME_OFFSET(DLManagedTensorVersioned, version);
SAME_OFFSET(DLManagedTensorVersioned, manager_ctx);
SAME_OFFSET(DLManagedTensorVersioned, deleter);
SAME_OFFSET(DLManagedTensorVersioned, flags);
SAME_OFFSET(DLManagedTensorVersioned, dl_tensor);

static_assert(DLPACK_MAJOR_VERSION == ours::kMajorVersion);
static_assert(kDLCPU == static_cast<int>(ours::kCpu) && kDLCUDA == static_cast<int>(ours::kCuda));
static_assert(kDLCUDAHost == static_cast<int>(ours::kCudaHost));
static_assert(kDLCUDAManaged == static_cast<int>(ours::kCudaManaged));
static_assert(kDLInt == static_cast<int>(ours::kInt) && kDLUInt == static_cast<int>(ours::kUInt));
static_assert(kDLFloat == static_cast<int>(ours::kFloat) &&
              kDLBfloat == static_cast<int>(ours::kBfloat));
static_assert(kDLBool == static_cast<int>(ours::kBool));
static_assert(kDLFloat8_e4m3fn == static_cast<int>(ours::kFloat8E4M3Fn));
static_assert(kDLFloat8_e5m2 == static_cast<int>(ours::kFloat8E5M2));
static_assert(DLPACK_FLAG_BITMASK_READ_ONLY == ours::kFlagReadOnly);
static_assert(DLPACK_FLAG_BITMASK_IS_COPIED == ours::kFlagIsCopied);

#if DLPACK_MINOR_VERSION >= 3
#define SAME_MEMBER(theirs, field) \
  static_assert(offsetof(::DLPackExchangeAPI, theirs) == offsetof(ours::ExchangeApi, field), #field)
static_assert(sizeof(::DLPackExchangeAPI) == sizeof(ours::ExchangeApi));
SAME_MEMBER(header.version, version);
SAME_MEMBER(header.prev_api, prev_api);
SAME_MEMBER(managed_tensor_allocator, managed_tensor_allocator);
SAME_MEMBER(managed_tensor_from_py_object_no_sync, managed_tensor_from_py_object);
SAME_MEMBER(managed_tensor_to_py_object_no_sync, managed_tensor_to_py_object);
SAME_MEMBER(dltensor_from_py_object_no_sync, dltensor_from_py_object);
SAME_MEMBER(current_work_stream, current_work_stream);
#endif

int main() { std::puts("DLPack's structs and codes are PyTorch's"); }
