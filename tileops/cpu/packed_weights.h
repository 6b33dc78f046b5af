// SPDX-License-Identifier: Apache-2.0
// Weights of experts in the one order that every matrix kernel of the CPU reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tileops/core/allocator.h"
#include "tileops/core/dtype.h"

namespace tileops::cpu {

/// Expert weights b [E, N, K] as a model holds them; strides in elements, 64-bit, any sign.
struct WeightsView {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // kBF16, kF16 or kF32
  int64_t num_experts = 0, n = 0, k = 0;
  int64_t expert_stride = 0, n_stride = 0, k_stride = 1;
};

/// Which two rows of b make one output: none; row j and row N/2 + j; rows 2j and 2j + 1.
enum class GateLayout : uint8_t { kNone, kStacked, kInterleaved };

/// Sizes of packed weights. A panel is 32 packed columns and all of K, contiguous: for each line of
/// 64 bytes along K, 16 columns beside 16 columns. A line holds 16 columns times a pair of k: bf16
/// as [16][2] (the B tile of AMX and the operand of vdpbf16ps), f16 as [2][16]; f32 lines hold one
/// k. K is padded with zeros to 32, columns to whole panels. With a gate layout the first 16
/// columns of panel p are the gates of outputs 16p..16p+15, the last 16 their ups.
struct PackedShape {
  int64_t num_experts = 0, n = 0, k = 0;
  DType dtype = DType::kBF16;
  GateLayout gate = GateLayout::kNone;
  bool operator==(const PackedShape&) const = default;

  int64_t outputs_per_panel() const { return gate == GateLayout::kNone ? 32 : 16; }
  int64_t num_outputs() const { return gate == GateLayout::kNone ? n : n / 2; }
  int64_t num_panels() const {
    return (num_outputs() + outputs_per_panel() - 1) / outputs_per_panel();
  }
  int64_t k_padded() const { return (k + 31) / 32 * 32; }
  int64_t panel_bytes() const { return k_padded() * 32 * (dtype == DType::kF32 ? 4 : 2); }
  int64_t expert_bytes() const { return num_panels() * panel_bytes(); }
  int64_t bytes() const { return num_experts * expert_bytes(); }

  /// Row of b that packed column c of panel p holds; -1 for padding.
  int64_t source_row(int64_t panel, int64_t column) const;
};

/// Owner (or borrower) of packed weights; move-only.
class PackedWeights {
 public:
  /// Packs all of b, on num_threads() threads, into storage from the process's allocator.
  /// Errors: kShape (odd n with a gate layout), kDType, kOutOfMemory.
  PackedWeights(const WeightsView& b, GateLayout gate);
  /// The same into the caller's storage of at least PackedShape::bytes() bytes, 64-byte aligned,
  /// which must outlive it. Errors: also kValue (storage too small or misaligned).
  PackedWeights(const WeightsView& b, GateLayout gate, std::span<std::byte> storage);
  PackedWeights(PackedWeights&& other) noexcept;
  PackedWeights& operator=(PackedWeights&& other) noexcept;
  ~PackedWeights();

  const PackedShape& shape() const { return shape_; }
  const std::byte* panel(int64_t expert, int64_t panel_idx) const {
    return data_ + expert * shape_.expert_bytes() + panel_idx * shape_.panel_bytes();
  }

 private:
  PackedShape shape_;
  std::byte* data_ = nullptr;
  Allocator* allocator_ = nullptr;  // of data_; null where that is the caller's
};

/// The shape that b takes when packed. Errors: kShape (odd n with a gate layout), kDType.
PackedShape packed_shape(const WeightsView& b, GateLayout gate);

/// Packs columns of one panel for k_begin <= k < k_end (multiples of 32, up to k_padded) into out,
/// contiguous.
void pack_panel(const WeightsView& b, const PackedShape& shape, int64_t expert, int64_t panel,
                int64_t k_begin, int64_t k_end, std::byte* out);

}  // namespace tileops::cpu
