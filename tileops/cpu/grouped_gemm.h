// SPDX-License-Identifier: Apache-2.0
// Grouped matrix product over row segments: the one driver that the CPU's expert ops stand on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tileops/core/dtype.h"
#include "tileops/cpu/features.h"
#include "tileops/cpu/packed_weights.h"

namespace tileops::cpu {

/// Rows [row_begin, row_begin + num_rows) of a and out belong to one expert.
struct RowSegment {
  int64_t row_begin = 0, num_rows = 0;
  int32_t expert = 0;
};

/// Matrix a [rows, K]: row i is row index[i] of data where an index is given, else row i. Strides
/// in elements.
struct RowsView {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // kBF16, kF16 or kF32
  int64_t row_stride = 0, col_stride = 1;
  const int32_t* index = nullptr;
};

/// Matrix out [rows, outputs]. Strides in elements.
struct RowsOut {
  void* data = nullptr;
  DType dtype = DType::kBF16;  // kBF16, kF16 or kF32
  int64_t row_stride = 0, col_stride = 1;
};

/// bias [E, N] in b's row order; absent where data is null.
struct BiasView {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  int64_t expert_stride = 0, n_stride = 1;
};

/// Gated activations, act(gate) · up: rows of b stacked (F gate, then F up), for kSwigluOai
/// interleaved (2j, 2j + 1). kGeluAndMul is the erf form. kSwigluOai: g = min(gate, limit), u =
/// clamp(up, ±limit), g·sigmoid(alpha·g)·(u + 1).
enum class Activation : uint8_t { kNone, kSiluAndMul, kGeluAndMul, kGeluTanhAndMul, kSwigluOai };

struct ActivationParams {
  Activation kind = Activation::kNone;
  float alpha = 1.702f, limit = 7.0f;  // kSwigluOai
};

GateLayout gate_layout(Activation kind);

/// The inner loop on packed weights: bf16 or f16 widened in registers and f32 FMA; vdpbf16ps; AMX
/// tiles. kAuto, where a and b are bf16, takes AMX where the level has it, else vdpbf16ps where the
/// level has it and bf16_dot_outruns_fma(); in all other cases kFma.
enum class InnerLoop : uint8_t { kAuto, kFma, kBf16Dot, kAmx };

struct GemmOptions {
  InnerLoop inner_loop = InnerLoop::kAuto;
  /// A row's result is bit-equal whatever rows are computed with it: one inner loop for every row
  /// count. Packed weights have this always; for unpacked ones it gives up the streaming kernel of
  /// few rows.
  bool batch_invariant = false;
  int num_threads = 0;          // 0: as many as OpenMP gives
  std::optional<IsaLevel> isa;  // none: active_isa()
};

struct GroupedGemm {
  std::span<const RowSegment> segments;  // distinct rows; an expert may come more than once
  RowsView a;
  WeightsView b;  // data may be null where packed_b is given
  const PackedWeights* packed_b = nullptr;
  BiasView bias;
  ActivationParams activation;
  RowsOut out;
  /// Outputs [first_output, first_output + num_outputs) alone, which are the columns of out; -1:
  /// all from the first on. first_output is a multiple of 32.
  int64_t first_output = 0, num_outputs = -1;
};

/// out[i,:] = act(a[i,:] · b[e]ᵀ + bias[e]) for each row i of each segment; float32 accumulation,
/// one rounding, at the store.
/// Shapes: a [M,K], b [E,N,K], bias [E,N], out [M,N], with an activation [M,N/2]; any size from 0,
///         any strides. Rows of out outside the segments are left as they were; rows of a outside
///         them are not read.
/// Units:  strides in elements; workspace in bytes, 64-byte aligned; left empty, it is allocated.
/// Bits:   equal from run to run and for any thread count; with batch_invariant also for packed
///         and unpacked weights; under kFma also for kAvx2 and kAvx512.
/// Errors: kShape (packed_b of another shape or gate layout, odd N with an activation, outputs that
///         are not there), kDType,
///         kValue (expert outside [0, E), workspace too small, an inner loop or level that the
///         machine or the dtypes do not have).
void grouped_gemm(const GroupedGemm& problem, const GemmOptions& options = {},
                  std::span<std::byte> workspace = {});

/// Bytes of workspace that grouped_gemm with the same arguments uses.
int64_t workspace_bytes(const GroupedGemm& problem, const GemmOptions& options = {});

/// The kernels that grouped_gemm with the same arguments runs, such as "avx512_fma packed" or
/// "avx512_stream, avx512_fma pack_on_the_fly".
std::string describe(const GroupedGemm& problem, const GemmOptions& options = {});

}  // namespace tileops::cpu
