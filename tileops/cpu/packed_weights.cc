// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/packed_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/cpu/kernels.h"
#include "tileops/cpu/parallel.h"

namespace tileops::cpu {
namespace {

int64_t element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

/// Some panels at a time, and where columns lie side by side some of K: neighbours share its pages.
void pack_experts(const WeightsView& b, const PackedShape& shape, std::byte* data) {
  const int64_t num_panels = shape.num_panels(), k_padded = shape.k_padded();
  const int64_t step = b.k_stride == 1 ? k_padded : kStridedChunk;
  const int64_t bytes_per_k = kPanelColumns * element_bytes(b.dtype);
  parallel_for(shape.num_experts * num_panels, 8, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < k_padded; k += step) {
      for (int64_t i = begin; i < end; ++i) {
        pack_panel(b, shape, i / num_panels, i % num_panels, k, std::min(k + step, k_padded),
                   data + i * shape.panel_bytes() + k * bytes_per_k);
      }
    }
  });
}

/// A whole panel's columns where they lie side by side along N; false where they do not.
bool pack_panel_columns(const std::array<const std::byte*, 32>& rows, const WeightsView& b,
                        GateLayout gate, int64_t num_k, int64_t k_padded, std::byte* out) {
  const int64_t bytes = element_bytes(b.dtype);
  if (b.n_stride != 1 || rows[15] == nullptr || rows[31] == nullptr) return false;
  const ColumnPanel panel{.left = rows[0],
                          .right = gate == GateLayout::kInterleaved ? nullptr : rows[16],
                          .k_stride_bytes = b.k_stride * bytes,
                          .num_k = std::max<int64_t>(num_k, 0),
                          .k_padded = k_padded};
  isa_kernels(active_isa()).pack_columns(panel, b.dtype, out);
  return true;
}

/// Weights whose K is not contiguous: 32 rows of at most 32 k, copied element by element.
void pack_panel_strided(const std::array<const std::byte*, 32>& rows, const WeightsView& b,
                        int64_t num_k, int64_t k_padded, std::byte* out) {
  const int64_t bytes = element_bytes(b.dtype);
  alignas(64) std::array<std::byte, 32 * 32 * 4> block;
  for (int64_t k = 0; k < k_padded; k += kKAlign) {
    const int64_t count = std::clamp<int64_t>(num_k - k, 0, kKAlign);
    std::array<const std::byte*, 32> copies{};
    for (size_t c = 0; c < rows.size(); ++c) {
      if (rows[c] == nullptr) continue;
      std::byte* copy = block.data() + c * kKAlign * 4;
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(copy + i * bytes, rows[c] + (k + i) * b.k_stride * bytes,
                    static_cast<size_t>(bytes));
      }
      copies[c] = copy;
    }
    isa_kernels(active_isa())
        .pack_panel(copies.data(), b.dtype, count, kKAlign, out + k * kPanelColumns * bytes);
  }
}

}  // namespace

int64_t PackedShape::source_row(int64_t panel, int64_t column) const {
  const int64_t output = panel * outputs_per_panel() + column % outputs_per_panel();
  if (output >= num_outputs()) return -1;
  if (gate == GateLayout::kNone) return output;
  const int64_t is_up = column / outputs_per_panel();
  return gate == GateLayout::kStacked ? is_up * num_outputs() + output : 2 * output + is_up;
}

PackedShape packed_shape(const WeightsView& b, GateLayout gate) {
  TILEOPS_CHECK(ErrorKind::kDType,
                b.dtype == DType::kBF16 || b.dtype == DType::kF16 || b.dtype == DType::kF32,
                "packed weights: dtype must be bf16, f16 or f32, got {}",
                dtype_short_name(b.dtype));
  TILEOPS_CHECK(ErrorKind::kShape, gate == GateLayout::kNone || b.n % 2 == 0,
                "packed weights: N must be even with a gated activation, got {}", b.n);
  return {.num_experts = b.num_experts, .n = b.n, .k = b.k, .dtype = b.dtype, .gate = gate};
}

void pack_panel(const WeightsView& b, const PackedShape& shape, int64_t expert, int64_t panel,
                int64_t k_begin, int64_t k_end, std::byte* out) {
  const int64_t bytes = element_bytes(b.dtype);
  const std::byte* data = static_cast<const std::byte*>(b.data);
  std::array<const std::byte*, 32> rows;
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    const int64_t row = shape.source_row(panel, c);
    rows[static_cast<size_t>(c)] =
        row < 0
            ? nullptr
            : data + (expert * b.expert_stride + row * b.n_stride + k_begin * b.k_stride) * bytes;
  }
  const int64_t num_k = std::min(b.k, k_end) - k_begin;
  if (b.k_stride != 1) {
    if (pack_panel_columns(rows, b, shape.gate, num_k, k_end - k_begin, out)) return;
    return pack_panel_strided(rows, b, num_k, k_end - k_begin, out);
  }
  isa_kernels(active_isa()).pack_panel(rows.data(), b.dtype, num_k, k_end - k_begin, out);
}

PackedWeights::PackedWeights(const WeightsView& b, GateLayout gate)
    : shape_(packed_shape(b, gate)), allocator_(&allocator_for(DeviceType::kCPU)) {
  if (shape_.bytes() == 0) return;
  data_ =
      static_cast<std::byte*>(allocator_->allocate(static_cast<size_t>(shape_.bytes()), Stream()));
  pack_experts(b, shape_, data_);
}

PackedWeights::PackedWeights(const WeightsView& b, GateLayout gate, std::span<std::byte> storage)
    : shape_(packed_shape(b, gate)), data_(storage.data()) {
  TILEOPS_CHECK(ErrorKind::kValue, static_cast<int64_t>(storage.size()) >= shape_.bytes(),
                "packed weights: storage must hold {} bytes, got {}", shape_.bytes(),
                storage.size());
  TILEOPS_CHECK(ErrorKind::kValue, reinterpret_cast<uintptr_t>(data_) % kLineBytes == 0,
                "packed weights: storage must be aligned to {} bytes", kLineBytes);
  pack_experts(b, shape_, data_);
}

PackedWeights::PackedWeights(PackedWeights&& other) noexcept
    : shape_(other.shape_),
      data_(std::exchange(other.data_, nullptr)),
      allocator_(std::exchange(other.allocator_, nullptr)) {}

PackedWeights& PackedWeights::operator=(PackedWeights&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(data_, other.data_);
  std::swap(allocator_, other.allocator_);
  return *this;
}

PackedWeights::~PackedWeights() {
  if (allocator_ == nullptr || data_ == nullptr) return;
  allocator_->deallocate(data_, static_cast<size_t>(shape_.bytes()), Stream());
}

}  // namespace tileops::cpu
