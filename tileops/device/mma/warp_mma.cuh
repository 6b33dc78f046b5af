// SPDX-License-Identifier: Apache-2.0
// mma.sync: 16 x 8 x 16 products of a warp's registers, accumulated in float32.
#pragma once

#include "tileops/device/ptx/convert.cuh"

namespace tileops::device {

/// d += a [16, 16] . b [8, 16]^T, tiles as load_matrices gives them: a's quarters (rows 0-7, K 0-7),
/// (rows 8-15, K 0-7), (rows 0-7, K 8-15), (rows 8-15, K 8-15); b's halves along K. Lane l holds row
/// l / 4, columns 2 (l % 4) and + 1 as d[0] and d[1], the same columns of row + 8 as d[2] and d[3].
template <class T>
__device__ __forceinline__ void warp_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b_low,
                                         uint32_t b_high);

#define TILEOPS_WARP_MMA(T)                                                                        \
  template <>                                                                                      \
  __device__ __forceinline__ void warp_mma<T>(float(&d)[4], const uint32_t(&a)[4], uint32_t b_low, \
                                              uint32_t b_high) {                                   \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T                                \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));           \
  }
TILEOPS_WARP_MMA(bf16)
TILEOPS_WARP_MMA(f16)
#undef TILEOPS_WARP_MMA

}  // namespace tileops::device
