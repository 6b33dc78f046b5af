// SPDX-License-Identifier: Apache-2.0
// What the host passes to the sm_90a grouped GEMM kernels: plain structs, read by NVRTC and by C++.
//
// Launch contract (kernel `tileops::grouped_gemm::sm90_kernel<Config>` of grouped_gemm_sm90.cuh)
//   name      the text of `choose_config(problem).kernel_name()`, as an NVRTC name expression
//   grid      config.grid(number of SMs); the hand-over of split tiles wants one CTA an SM
//   cluster   {config.ctas, 1, 1}
//   CTA       {384, 1, 1}
//   smem      config.smem_bytes() dynamic, with the function's limit raised to it
//   argument  one GroupedGemmSm90Params by value; may be launched with programmatic serialisation
//   options   --gpu-architecture=sm_90a --std=c++20 and an include root that holds tileops/
// Tensor maps (not for kStrided): 16-bit elements (BFLOAT16 or FLOAT16), interleave none, swizzle
// 128B unless said, L2 promotion 128B, fill zeros, element strides 1. Dimensions innermost first;
// strides of dimensions 1 and up, here in elements, in bytes multiples of 16; bases aligned to 16.
//   tokens_large  {K, rows}  {lda}  box {64, 64}
//   tokens_small  {K, rows}  {lda}  box {64, 16}
//   weights       {K, N, E}  {ldb, ldeb}  box {64, 128, 1}
//     stacked gate and up  {K, 8, 2, F/8, E}  {ldb, U ldb, 8 ldb, ldeb}   box {64, 8, 2, 8, 1}
//     with U rows from gate to up: F, or more where b is a part of wider weights
//     interleaved          {K, 8, 2, F/8, E}  {2 ldb, ldb, 16 ldb, ldeb}  box {64, 8, 2, 8, 1}
//   out_large     {N, rows}  {ldo}  box {64, 32}    (16-bit outputs alone)
//   out_small     {N, rows}  {ldo}  box {64, 16}
//     gated       {F, rows}  {ldo}  boxes {32, 32} and {32, 16}, swizzle 64B
// Applicability of kTma: K > 0, K % 8 == 0, N % 8 == 0 (gated: F = N / 2, F % 8 == 0);
// a, b, out aligned to 16 bytes, as their strides in bytes; the innermost dimension contiguous; a
// masked a and out are one matrix of E * max_m evenly spaced rows. kStrided serves everything.
// Rows fewer than 2^31; all offsets are 64-bit.
// Workspace: partial_sums takes config.workspace_floats() floats, partial_flags
// config.workspace_flags() words and work_counters kWorkCounters words that are zero before the
// first launch; the kernel leaves them zero. Launches that may overlap need one workspace each.
#pragma once

#include "tileops/device/epilogue/activation_kind.h"

namespace tileops::grouped_gemm {

enum class ElementType : int32_t { kBF16, kF16, kF32 };

using ActivationKind = device::ActivationKind;

constexpr int64_t kMaxSmemBytes = 232448;  // of one CTA on sm_90
constexpr int64_t kBarrierBytes = 1024;

/// Dynamic shared memory: a ring of `stages` slots, each of tile_features weight rows and tile_rows
/// token rows of 64 values; staging for each of two warpgroups; barriers.
TILEOPS_DEVICE constexpr int64_t ring_bytes(int64_t tile_features, int64_t tile_rows,
                                            int64_t stages) {
  return stages * (tile_features + tile_rows) * 128;
}
TILEOPS_DEVICE constexpr int64_t staging_bytes(int64_t tile_features, int64_t tile_rows,
                                               int64_t stages) {
  const int64_t free = kMaxSmemBytes - kBarrierBytes - ring_bytes(tile_features, tile_rows, stages);
  return free >= 2 * 32768 ? 32768 : free >= 2 * 16384 ? 16384 : 8192;
}
TILEOPS_DEVICE constexpr int64_t smem_bytes(int64_t tile_features, int64_t tile_rows,
                                            int64_t stages) {
  return ring_bytes(tile_features, tile_rows, stages) +
         2 * staging_bytes(tile_features, tile_rows, stages) + kBarrierBytes;
}

constexpr int64_t kWorkCounters = 3;

/// How operands come to shared memory.
enum class LoadKind : int32_t {
  kTma,      // by TMA
  kStrided,  // any strides, alignment, K and N; out of any strides
};

/// A TMA descriptor (CUtensorMap).
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

struct GroupedGemmSm90Params {
  TensorMap weights;
  TensorMap tokens_large;
  TensorMap tokens_small;
  TensorMap out_large;  // unused by 32-bit outputs
  TensorMap out_small;

  void* out;               // [rows, N] (gated: [rows, F])
  int64_t out_row_stride;  // strides in elements
  const void* bias;        // [E, N] of the input type, in b's row order; null without bias
  int64_t bias_expert_stride;
  const int32_t* metadata;  // see device::GroupKind and metadata_stride
  float* partial_sums;
  uint32_t* partial_flags;
  uint32_t* work_counters;  // kWorkCounters
  uint32_t* rows_written;   // null, or counters for the launch after: see device::AwaitedRows
  uint32_t* rows_awaited;   // null, or rows_written of the launch before, of tiles as large

  // device::GroupKind: 0 end rows, 1 segments (per_row_segments), 2 masked, 3 all rows of one expert
  int32_t group_kind;
  int32_t num_experts;
  int32_t alignment;          // of segment starts; 1 = tight
  int32_t max_m;              // masked
  int32_t num_rows;           // of a and out
  int32_t num_features;       // of out: N, gated F
  int32_t num_k_tiles;        // ceil(K / 64), at least 1
  int32_t lone_tile_k_tiles;  // see device::WorkShape; choose_config's values
  int32_t split_cost_k_tiles;

  float swiglu_alpha;
  float swiglu_limit;
  int32_t metadata_stride;  // in elements; unused by segments
  int32_t num_writers;      // of rows_awaited

  // kStrided. Masked operands of uneven slabs: expert strides are slab stride - max_m * row stride,
  // otherwise 0.
  int32_t k;
  const void* a;
  int64_t a_row_stride;
  const void* b;
  int64_t a_expert_stride;
  int64_t a_k_stride;
  int64_t b_expert_stride;
  int64_t b_row_stride;
  int64_t b_k_stride;
  int64_t out_expert_stride;
  int64_t out_feature_stride;
  int64_t bias_row_stride;
  int32_t up_distance;            // gated: rows from a feature's gate to its up
  int32_t num_writers_and_reads;  // of rows_awaited
  int32_t num_row_counters;       // of rows_written and rows_awaited
};

/// Kernel `tileops::grouped_gemm::per_row_segments`: turns per_row metadata (ids [num_rows], -1 or
/// num_experts for padding) into segments [E, 2] = first row, end row, every bit of which the
/// caller has set. grid ceil(num_rows / 256), CTA 256, no dynamic shared memory.
struct PerRowSegmentsParams {
  const int32_t* ids;
  int64_t ids_stride;  // in elements
  int32_t* segments;
  int32_t num_rows;
  int32_t num_experts;
};

}  // namespace tileops::grouped_gemm
