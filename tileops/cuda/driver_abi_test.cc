// SPDX-License-Identifier: Apache-2.0
// Our declarations of the driver's interface beside those of cuda.h, where that is installed.
#include "tileops/cuda/driver_abi.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

#include "tileops/cuda/tensor_map.h"

namespace tileops::cuda {
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<long long>(ours) == static_cast<long long>(theirs);
}

static_assert(sizeof(abi::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(abi::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(abi::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(abi::LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(abi::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(abi::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(abi::KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS));
static_assert(offsetof(abi::KernelNodeParams, dynamic_smem_bytes) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes));
static_assert(offsetof(abi::KernelNodeParams, arguments) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS, kernelParams));
static_assert(offsetof(abi::KernelNodeParams, context) == offsetof(CUDA_KERNEL_NODE_PARAMS, ctx));
static_assert(sizeof(abi::MemPoolProps) == sizeof(CUmemPoolProps));
static_assert(offsetof(abi::MemPoolProps, location_id) ==
              offsetof(CUmemPoolProps, location) + offsetof(CUmemLocation, id));
static_assert(offsetof(abi::MemPoolProps, max_bytes) == offsetof(CUmemPoolProps, maxSize));
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) >= 64);

static_assert(same(abi::LaunchAttributeId::kClusterDimension,
                   CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
static_assert(same(abi::LaunchAttributeId::kProgrammaticStreamSerialization,
                   CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
static_assert(same(abi::DeviceAttribute::kMultiprocessorCount,
                   CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(abi::DeviceAttribute::kL2CacheBytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(same(abi::DeviceAttribute::kComputeCapabilityMajor,
                   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(abi::DeviceAttribute::kComputeCapabilityMinor,
                   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(abi::DeviceAttribute::kMaxSharedMemoryOptIn,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(same(abi::FunctionAttribute::kMaxThreads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(same(abi::FunctionAttribute::kSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
static_assert(same(abi::FunctionAttribute::kLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
static_assert(same(abi::FunctionAttribute::kNumRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS));
static_assert(same(abi::FunctionAttribute::kMaxDynamicSharedBytes,
                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
static_assert(same(abi::CaptureMode::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(same(abi::CaptureMode::kThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
static_assert(same(abi::CaptureStatus::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE));
static_assert(same(abi::kStreamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(same(abi::kGraphAutoFreeOnLaunch, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
static_assert(same(abi::kUserObjectNoDestructorSync, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
static_assert(same(abi::kGraphUserObjectMove, CU_GRAPH_USER_OBJECT_MOVE));
static_assert(same(abi::kMemPoolReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
static_assert(same(abi::MemPoolProps().allocation_type, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(abi::MemPoolProps().location_type, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(abi::TensorMapDataType::kUInt16, CU_TENSOR_MAP_DATA_TYPE_UINT16));
static_assert(same(abi::TensorMapDataType::kInt32, CU_TENSOR_MAP_DATA_TYPE_INT32));
static_assert(same(abi::TensorMapDataType::kInt64, CU_TENSOR_MAP_DATA_TYPE_INT64));
static_assert(same(abi::TensorMapDataType::kFloat16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16));
static_assert(same(abi::TensorMapDataType::kFloat32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32));
static_assert(same(abi::TensorMapDataType::kFloat64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64));
static_assert(same(abi::TensorMapDataType::kBFloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16));
static_assert(same(Swizzle::k32, CU_TENSOR_MAP_SWIZZLE_32B));
static_assert(same(Swizzle::k128, CU_TENSOR_MAP_SWIZZLE_128B));
static_assert(same(L2Promotion::k256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B));
static_assert(same(abi::Result::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(abi::Result::kNoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(same(abi::Result::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(same(abi::Result::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(same(abi::Result::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED));
static_assert(same(abi::Result::kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(same(abi::Result::kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
static_assert(same(abi::Result::kStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
static_assert(same(abi::Result::kInvalidClusterSize, CUDA_ERROR_INVALID_CLUSTER_SIZE));

}  // namespace
}  // namespace tileops::cuda
#endif

TEST(DriverAbi, AgreesWithCudaHeader) {
#if __has_include(<cuda.h>)
  SUCCEED();
#else
  GTEST_SKIP() << "cuda.h is not installed";
#endif
}
