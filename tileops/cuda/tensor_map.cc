// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/tensor_map.h"

#include <algorithm>
#include <memory>

#include "tileops/core/hash.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"

namespace tileops::cuda {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 32;
constexpr int64_t kMaxStrideBytes = int64_t{1} << 40;
constexpr int32_t kMaxBox = 256;

abi::TensorMapDataType data_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return abi::TensorMapDataType::kFloat64;
    case DType::kF32:
      return abi::TensorMapDataType::kFloat32;
    case DType::kF16:
      return abi::TensorMapDataType::kFloat16;
    case DType::kBF16:
      return abi::TensorMapDataType::kBFloat16;
    case DType::kI64:
      return abi::TensorMapDataType::kInt64;
    case DType::kI32:
      return abi::TensorMapDataType::kInt32;
    case DType::kI16:
      return abi::TensorMapDataType::kUInt16;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return abi::TensorMapDataType::kUInt8;
  }
  raise(ErrorKind::kInternal, "tensor map: dtype {} has no type of its own",
        static_cast<int>(dtype));
}

/// Bytes of a swizzled row of shared memory; 0 without swizzle.
int64_t span_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::kNone ? 0 : int64_t{16} << static_cast<int>(swizzle);
}

void check_spec(const TensorMapSpec& spec) {
  constexpr auto kKind = ErrorKind::kValue;
  TILEOPS_CHECK(kKind, spec.rank >= 1 && spec.rank <= TensorMapSpec::kMaxRank,
                "tensor map: rank must be 1 to {}, got {}", TensorMapSpec::kMaxRank, spec.rank);
  const auto address = reinterpret_cast<uintptr_t>(spec.data);
  TILEOPS_CHECK(kKind, address != 0 && address % 16 == 0,
                "tensor map: the address must be a multiple of 16, got {:#x}", address);
  const int64_t element = dtype_bytes(spec.dtype);
  for (int i = 0; i < spec.rank; ++i) {
    TILEOPS_CHECK(kKind, spec.dims[i] >= 1 && spec.dims[i] <= kMaxDim,
                  "tensor map: dimension {} must be 1 to 2^32, got {}", i, spec.dims[i]);
    TILEOPS_CHECK(kKind, spec.box[i] >= 1 && spec.box[i] <= kMaxBox,
                  "tensor map: box extent {} must be 1 to {}, got {}", i, kMaxBox, spec.box[i]);
  }
  for (int i = 0; i + 1 < spec.rank; ++i) {
    const int64_t bytes = spec.strides[i] * element;
    TILEOPS_CHECK(kKind, bytes >= 0 && bytes % 16 == 0 && bytes < kMaxStrideBytes,
                  "tensor map: the stride of dimension {} must be a multiple of 16 bytes below "
                  "2^40, got {} bytes ({} x {})",
                  i + 1, bytes, spec.strides[i], dtype_name(spec.dtype));
  }
  const int64_t row_bytes = spec.box[0] * element;
  TILEOPS_CHECK(kKind, row_bytes % 16 == 0,
                "tensor map: the box's rows must be a multiple of 16 bytes, got {}", row_bytes);
  const int64_t span = span_bytes(spec.swizzle);
  TILEOPS_CHECK(kKind, span == 0 || row_bytes <= span,
                "tensor map: rows of {} bytes do not fit the swizzle of {}", row_bytes, span);
}

/// The latest maps of a thread, by what tells them apart most: those of all layers of a model, so
/// that none is encoded anew at each call.
struct Cache {
  static constexpr size_t kWays = 8;
  struct Set {
    std::array<TensorMapSpec, kWays> specs{};  // a null address: empty
    std::array<TensorMap, kWays> maps{};
    size_t next = 0;  // way to be overwritten
  };
  std::array<Set, 64> sets{};

  Set& set_of(const TensorMapSpec& spec) {
    return sets[hash_of(spec.data, spec.dims[1], spec.dims[2], spec.box[0], spec.box[1]) %
                sets.size()];
  }
};

Cache::Set& set_of(const TensorMapSpec& spec) {
  thread_local const auto cache = std::make_unique<Cache>();
  return cache->set_of(spec);
}

}  // namespace

TensorMap encode_tensor_map(const TensorMapSpec& spec, Device device) {
  check_spec(spec);
  std::array<uint64_t, TensorMapSpec::kMaxRank> dims{};
  std::array<uint64_t, TensorMapSpec::kMaxRank - 1> strides{};
  std::array<uint32_t, TensorMapSpec::kMaxRank> box{};
  std::array<uint32_t, TensorMapSpec::kMaxRank> element_strides{};
  const int64_t element = dtype_bytes(spec.dtype);
  std::copy(spec.dims.begin(), spec.dims.end(), dims.begin());
  std::copy(spec.box.begin(), spec.box.end(), box.begin());
  std::transform(spec.strides.begin(), spec.strides.end(), strides.begin(),
                 [element](int64_t stride) { return static_cast<uint64_t>(stride * element); });
  element_strides.fill(1);

  const ContextGuard context(device);
  TensorMap map;
  TILEOPS_DRIVER_CHECK(driver().tensor_map_encode_tiled(
                           &map, data_type_of(spec.dtype), static_cast<uint32_t>(spec.rank),
                           const_cast<void*>(spec.data), dims.data(), strides.data(), box.data(),
                           element_strides.data(), /*interleave=*/0, static_cast<int>(spec.swizzle),
                           static_cast<int>(spec.l2_promotion), /*fill=*/0),
                       "encoding a tensor map of {} dimensions at {} on {}", spec.rank, spec.data,
                       to_string(device));
  return map;
}

TensorMap cached_tensor_map(const TensorMapSpec& spec, Device device) {
  Cache::Set& set = set_of(spec);
  const auto found = std::find(set.specs.begin(), set.specs.end(), spec);
  if (found != set.specs.end() && spec.data != nullptr) {
    return set.maps[static_cast<size_t>(found - set.specs.begin())];
  }
  const TensorMap map = encode_tensor_map(spec, device);
  set.specs[set.next] = spec;
  set.maps[set.next] = map;
  set.next = (set.next + 1) % Cache::kWays;
  return map;
}

}  // namespace tileops::cuda
