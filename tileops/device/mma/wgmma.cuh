// SPDX-License-Identifier: Apache-2.0
// wgmma: 64 x N x 16 products of two K-major shared-memory tiles, accumulated in float32 registers.
#pragma once

#include "tileops/device/ptx/convert.cuh"
#include "tileops/device/ptx/mbarrier.cuh"

namespace tileops::device {

constexpr int kSwizzleBytes = 128;  // a row of a k_tile: 64 16-bit values
constexpr int kTileK = 64;
constexpr int kWgmmaK = 16;

/// Describes a K-major tile whose rows are 128 bytes, in TMA's 128-byte swizzle: groups of 8 rows
/// lie 1024 bytes apart; the tile starts at a multiple of 1024.
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{8 * kSwizzleBytes / 16} << 32;
  return kSwizzle128 | kGroupStride | ((smem_address(tile) & 0x3ffff) >> 4);
}

/// Descriptor distance between two steps of kWgmmaK along K inside the swizzled row.
constexpr uint64_t kDescriptorStepK = kWgmmaK * 2 / 16;

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `kPending` committed groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Pins accumulators between products and their readers: the compiler must not move a read of them
/// above the wait, which as an instruction does not mention them.
template <int kSize>
__device__ __forceinline__ void wgmma_pin(float (&d)[kSize]) {
#pragma unroll
  for (float& value : d) asm volatile("" : "+f"(value)::"memory");
}

/// d[0 .. kN / 2) += a [64, 16] . b [kN, 16]^T. Lane l of warp w holds row 16 w + l / 4, columns
/// 8 i + 2 (l % 4) and + 1, as d[4 i] and d[4 i + 1]; of row + 8 it holds the same columns as
/// d[4 i + 2] and d[4 i + 3].
template <class T, int kN>
struct Wgmma;

// clang-format off
// Operand lists by 8 registers; then the specialisations: N, its registers, the operands after.
#define TILEOPS_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TILEOPS_R16 TILEOPS_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TILEOPS_R24 TILEOPS_R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TILEOPS_R32 TILEOPS_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TILEOPS_R40 TILEOPS_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TILEOPS_R48 TILEOPS_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TILEOPS_R56 TILEOPS_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TILEOPS_R64 TILEOPS_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TILEOPS_R72 TILEOPS_R64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TILEOPS_R80 TILEOPS_R72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TILEOPS_R88 TILEOPS_R80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TILEOPS_R96 TILEOPS_R88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TILEOPS_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define TILEOPS_D16 TILEOPS_D8(0), TILEOPS_D8(8)
#define TILEOPS_D24 TILEOPS_D16, TILEOPS_D8(16)
#define TILEOPS_D32 TILEOPS_D24, TILEOPS_D8(24)
#define TILEOPS_D40 TILEOPS_D32, TILEOPS_D8(32)
#define TILEOPS_D48 TILEOPS_D40, TILEOPS_D8(40)
#define TILEOPS_D56 TILEOPS_D48, TILEOPS_D8(48)
#define TILEOPS_D64 TILEOPS_D56, TILEOPS_D8(56)
#define TILEOPS_D72 TILEOPS_D64, TILEOPS_D8(64)
#define TILEOPS_D80 TILEOPS_D72, TILEOPS_D8(72)
#define TILEOPS_D88 TILEOPS_D80, TILEOPS_D8(80)
#define TILEOPS_D96 TILEOPS_D88, TILEOPS_D8(88)

#define TILEOPS_WGMMA(T, N, REGISTERS, A, B, ...)                                                \
  template <>                                                                                    \
  struct Wgmma<T, N> {                                                                           \
    template <int kSize>                                                                         \
    static __device__ __forceinline__ void mma(float (&d)[kSize], uint64_t a, uint64_t b) {      \
      static_assert(kSize >= N / 2, "Wgmma: d holds N / 2 values a thread");                     \
      asm volatile(                                                                              \
          "{\n.reg .pred accumulate;\nsetp.eq.u32 accumulate, 1, 1;\n"                           \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" REGISTERS "}, %" #A   \
          ", %" #B ", accumulate, 1, 1, 0, 0;\n}"                                                \
          : __VA_ARGS__                                                                          \
          : "l"(a), "l"(b));                                                                     \
    }                                                                                            \
  };
#define TILEOPS_WGMMA_BOTH(N, REGISTERS, A, B, ...)    \
  TILEOPS_WGMMA(bf16, N, REGISTERS, A, B, __VA_ARGS__) \
  TILEOPS_WGMMA(f16, N, REGISTERS, A, B, __VA_ARGS__)

TILEOPS_WGMMA_BOTH(16, TILEOPS_R8, 8, 9, TILEOPS_D8(0))
TILEOPS_WGMMA_BOTH(32, TILEOPS_R16, 16, 17, TILEOPS_D16)
TILEOPS_WGMMA_BOTH(48, TILEOPS_R24, 24, 25, TILEOPS_D24)
TILEOPS_WGMMA_BOTH(64, TILEOPS_R32, 32, 33, TILEOPS_D32)
TILEOPS_WGMMA_BOTH(80, TILEOPS_R40, 40, 41, TILEOPS_D40)
TILEOPS_WGMMA_BOTH(96, TILEOPS_R48, 48, 49, TILEOPS_D48)
TILEOPS_WGMMA_BOTH(112, TILEOPS_R56, 56, 57, TILEOPS_D56)
TILEOPS_WGMMA_BOTH(128, TILEOPS_R64, 64, 65, TILEOPS_D64)
TILEOPS_WGMMA_BOTH(144, TILEOPS_R72, 72, 73, TILEOPS_D72)
TILEOPS_WGMMA_BOTH(160, TILEOPS_R80, 80, 81, TILEOPS_D80)
TILEOPS_WGMMA_BOTH(176, TILEOPS_R88, 88, 89, TILEOPS_D88)
TILEOPS_WGMMA_BOTH(192, TILEOPS_R96, 96, 97, TILEOPS_D96)

// clang-format on
#undef TILEOPS_WGMMA_BOTH
#undef TILEOPS_WGMMA

}  // namespace tileops::device
