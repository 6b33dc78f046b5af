// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/packed_weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/cpu/kernels.h"
#include "tileops/cpu/parallel.h"

namespace tileops::cpu {
namespace {

constexpr int64_t kHugePage = 2 << 20;

int64_t element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

std::byte* allocate_lines(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kLineBytes;
  const auto padded = static_cast<size_t>((bytes + alignment - 1) / alignment * alignment);
  void* data = std::aligned_alloc(static_cast<size_t>(alignment), padded);
  TILEOPS_CHECK(ErrorKind::kOutOfMemory, data != nullptr, "packed weights: no {} bytes", bytes);
  if (alignment == kHugePage) madvise(data, padded, MADV_HUGEPAGE);  // a wish: pages work without
  return static_cast<std::byte*>(data);
}

void pack_experts(const WeightsView& b, const PackedShape& shape, std::byte* data) {
  const int64_t num_panels = shape.num_panels();
  parallel_for(shape.num_experts * num_panels, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pack_panel(b, shape, i / num_panels, i % num_panels, 0, shape.k_padded(),
                 data + i * shape.panel_bytes());
    }
  });
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
  if (b.k_stride != 1) return pack_panel_strided(rows, b, num_k, k_end - k_begin, out);
  isa_kernels(active_isa()).pack_panel(rows.data(), b.dtype, num_k, k_end - k_begin, out);
}

PackedWeights::PackedWeights(const WeightsView& b, GateLayout gate)
    : shape_(packed_shape(b, gate)), data_(allocate_lines(shape_.bytes())), owned_(true) {
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
      owned_(std::exchange(other.owned_, false)) {}

PackedWeights& PackedWeights::operator=(PackedWeights&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(data_, other.data_);
  std::swap(owned_, other.owned_);
  return *this;
}

PackedWeights::~PackedWeights() {
  if (owned_) std::free(data_);
}

}  // namespace tileops::cpu
