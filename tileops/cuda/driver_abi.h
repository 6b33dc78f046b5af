// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's and NVRTC's binary interface that the library uses, declared here
// so that no CUDA toolkit is needed to build. Values and layouts: cuda.h and nvrtc.h of CUDA 12.0
// and later, which keep them stable; driver_abi_test.cc compares them where cuda.h is installed.
#pragma once

#include <cstddef>
#include <cstdint>

// The driver's handles, named as in cuda.h so that both can be included together.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;
struct CUuserObject_st;
struct CUmemPoolHandle_st;
struct _nvrtcProgram;

namespace tileops::cuda::abi {

using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;
using GraphNode = CUgraphNode_st*;
using UserObject = CUuserObject_st*;
using MemPool = CUmemPoolHandle_st*;
using DeviceOrdinal = int;
using DevicePtr = unsigned long long;

/// Error codes that the library acts on; others are passed on by the driver's name.
enum class Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kUnsupportedPtxVersion = 222,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kSystemDriverMismatch = 803,
  kCompatNotSupported = 804,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureImplicit = 906,
  kStreamCaptureWrongThread = 908,
  kInvalidClusterSize = 912,
  kUnknown = 999,
};

enum class DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kL2CacheBytes = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryOptIn = 97,
};

enum class FunctionAttribute : int {
  kMaxThreads = 0,
  kSharedBytes = 1,
  kLocalBytes = 3,
  kNumRegisters = 4,
  kMaxDynamicSharedBytes = 8,
};

enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned long long kGraphAutoFreeOnLaunch = 1;
inline constexpr unsigned kUserObjectNoDestructorSync = 1;
inline constexpr unsigned kGraphUserObjectMove = 1;
inline constexpr int kMemPoolReleaseThreshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

enum class LaunchAttributeId : int {
  kClusterDimension = 4,
  kProgrammaticStreamSerialization = 6,
};

union LaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } cluster_dim;
  int programmatic_serialization;
};

struct alignas(8) LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  LaunchAttributeValue value;
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned cta_x, cta_y, cta_z;
  unsigned dynamic_smem_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

/// Of a kernel in a graph; grid, CTA and shared memory as in LaunchConfig.
struct KernelNodeParams {
  Function function;
  unsigned grid_x, grid_y, grid_z;
  unsigned cta_x, cta_y, cta_z;
  unsigned dynamic_smem_bytes;
  void** arguments;
  void** extra;
  void* kernel;     // instead of `function`
  Context context;  // null: the current one
};

struct MemPoolProps {
  int allocation_type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  int location_type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int location_id = 0;
  void* win32_security_attributes = nullptr;
  size_t max_bytes = 0;
  unsigned short usage = 0;
  unsigned char reserved[54] = {};
};

enum class TensorMapDataType : int {
  kUInt8 = 0,
  kUInt16 = 1,
  kInt32 = 3,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};

using NvrtcProgram = _nvrtcProgram*;
enum class NvrtcResult : int { kSuccess = 0, kCompilation = 6, kBuiltinOperationFailure = 7 };

}  // namespace tileops::cuda::abi
