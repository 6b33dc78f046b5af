// SPDX-License-Identifier: Apache-2.0
// Private to tileops/cpu: what the drivers call for each instruction set. Lines are 64 bytes;
// panels as in packed_weights.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tileops/cpu/features.h"
#include "tileops/cpu/grouped_gemm.h"
#include "tileops/cpu/weighted_sum.h"

namespace tileops::cpu {

constexpr int64_t kPanelColumns = 32;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kKAlign = 32;
/// Of K, where a weight's rows lie a page apart: so many pages that translations are kept while
/// neighbouring panels read them.
constexpr int64_t kStridedChunk = 256;

/// One block of packed rows times one panel over a range of K: c[r][0..32) (+)= a[r][:] ·
/// b[:][0..32).
struct TileArgs {
  const std::byte* a = nullptr;  // [k lines][rows][64 bytes]
  const std::byte* b = nullptr;
  int64_t k = 0;  // a multiple of 32
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
  const std::byte* prefetch = nullptr;  // weights that a later call reads
  int64_t prefetch_step = 0;            // bytes of them fetched for each 2 of k: 0, 64 or 128
};

/// Rows [row_begin, row_begin + rows) of a, k of their elements.
struct RowBlock {
  const RowsView* rows = nullptr;
  int64_t row_begin = 0;
  int num_rows = 0;
  int64_t k = 0;
};

/// An inner loop: how a block of rows is packed, and multiplied. Each row's sums run over k in
/// ascending order, whatever the other rows of the block are.
struct MicroKernel {
  const char* name = nullptr;
  int max_rows = 0;
  int row_align = 1;          // packed blocks hold a multiple of so many rows
  int64_t a_bytes_per_k = 0;  // of one packed row
  void (*pack_rows)(const RowBlock& block, std::byte* out) = nullptr;
  void (*tile)(int rows, const TileArgs& args) = nullptr;
  void (*begin)() = nullptr;  // around the tiles of a task, on its thread
  void (*end)() = nullptr;
};

/// Few rows times unpacked weight rows that lie contiguous along K, each read once.
struct StreamArgs {
  const float* a = nullptr;  // from pack_stream_rows
  int num_rows = 0;
  const std::byte* const* columns = nullptr;  // one weight row each; null for padding
  int64_t num_columns = 0;                    // a multiple of 16
  DType dtype = DType::kBF16;
  int64_t k = 0;
  float* c = nullptr;  // [num_rows][ldc]
  int64_t ldc = 0;
};

/// float32 sums of some rows and whole panels -> bias, activation, cast, store.
struct FinishArgs {
  const float* c = nullptr;
  int64_t ldc = 0;
  int num_rows = 0;
  const float* bias = nullptr;  // in packed column order, or null
  ActivationParams activation;
  int64_t num_outputs = 0;
  const RowsOut* out = nullptr;
  int64_t out_row = 0, out_col = 0;
};

/// A whole panel of weights whose columns lie side by side: element (k, c) of a side is c elements
/// after side + k · k_stride_bytes. Without a right side the columns alternate: left, right, left.
struct ColumnPanel {
  const std::byte* left = nullptr;
  const std::byte* right = nullptr;
  int64_t k_stride_bytes = 0;
  int64_t num_k = 0, k_padded = 0;  // zeros beyond num_k
};

struct IsaKernels {
  const char* name = nullptr;
  MicroKernel fma[3];  // by weight_slot()
  int max_stream_rows = 0;
  void (*pack_stream_rows)(const RowBlock& block, DType weight_dtype, float* out) = nullptr;
  void (*stream)(const StreamArgs& args) = nullptr;
  void (*finish)(const FinishArgs& args) = nullptr;
  /// 32 source rows (null: zeros), num_k valid elements each, padded with zeros to k_padded.
  void (*pack_panel)(const std::byte* const* rows, DType dtype, int64_t num_k, int64_t k_padded,
                     std::byte* out) = nullptr;
  void (*pack_columns)(const ColumnPanel& panel, DType dtype, std::byte* out) = nullptr;
  void (*weighted_sum)(const WeightedSum& sum) = nullptr;
};

constexpr int weight_slot(DType dtype) {
  return dtype == DType::kF32 ? 0 : dtype == DType::kBF16 ? 1 : 2;
}

/// Elements that pack_stream_rows writes for each row: k padded to 32.
constexpr int64_t stream_row_elements(int64_t k) { return (k + kKAlign - 1) / kKAlign * kKAlign; }

/// [k / 32][packed_rows][32] bfloat16 of a bf16 block, zeros beyond its rows and k.
void pack_rows_bf16(const RowBlock& block, int packed_rows, std::byte* out);

const IsaKernels& isa_kernels(IsaLevel level);
const MicroKernel& bf16_dot_kernel();
const MicroKernel& amx_bf16_kernel();

}  // namespace tileops::cpu
