// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/packed_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "tileops/core/error.h"

namespace tileops::cpu {
namespace {

/// Bits of packed element (panel column c, k), read as packed_weights.h tells the layout.
uint64_t packed_bits(const std::byte* panel, DType dtype, int64_t c, int64_t k) {
  uint64_t bits = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&bits, panel + k * 128 + c * 4, 4);
  } else if (dtype == DType::kBF16) {
    std::memcpy(&bits, panel + k / 2 * 128 + c * 4 + k % 2 * 2, 2);
  } else {
    std::memcpy(&bits, panel + k / 2 * 128 + c / 16 * 64 + k % 2 * 32 + c % 16 * 2, 2);
  }
  return bits;
}

class PackedLayout : public ::testing::TestWithParam<DType> {};

TEST_P(PackedLayout, HoldsEveryElementAndZerosElsewhere) {
  const DType dtype = GetParam();
  const int64_t bytes = dtype_bytes(dtype);
  for (const bool transposed : {false, true}) {
    for (const GateLayout gate :
         {GateLayout::kNone, GateLayout::kStacked, GateLayout::kInterleaved}) {
      const int64_t experts = 2, n = 74, k = 35;
      std::vector<std::byte> data(static_cast<size_t>(experts * n * k * bytes));
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37 % 251 + 1);
      WeightsView b{.data = data.data(),
                    .dtype = dtype,
                    .num_experts = experts,
                    .n = n,
                    .k = k,
                    .expert_stride = n * k,
                    .n_stride = k};
      if (transposed) std::tie(b.n_stride, b.k_stride) = std::pair<int64_t, int64_t>(1, n);
      const PackedWeights packed(b, gate);
      const PackedShape& shape = packed.shape();
      int64_t found = 0;
      for (int64_t i = 0; i < experts * shape.num_panels() * 32 * shape.k_padded(); ++i) {
        const int64_t kk = i % shape.k_padded(), c = i / shape.k_padded() % 32;
        const int64_t p = i / shape.k_padded() / 32 % shape.num_panels();
        const int64_t e = i / shape.k_padded() / 32 / shape.num_panels();
        const int64_t row = shape.source_row(p, c);
        uint64_t want = 0;
        if (row >= 0 && kk < k) {
          const int64_t element = e * b.expert_stride + row * b.n_stride + kk * b.k_stride;
          std::memcpy(&want, data.data() + element * bytes, static_cast<size_t>(bytes));
          ++found;
        }
        ASSERT_EQ(packed_bits(packed.panel(e, p), dtype, c, kk), want)
            << "panel " << p << " column " << c << " k " << kk;
      }
      EXPECT_EQ(found, experts * n * k);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, PackedLayout,
                         ::testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& info) {
                           return std::string(dtype_short_name(info.param));
                         });

TEST(PackedWeights, GateAndUpOfAnOutputShareAPanel) {
  const PackedShape stacked{.num_experts = 1, .n = 100, .k = 1, .gate = GateLayout::kStacked};
  EXPECT_EQ(stacked.source_row(1, 3), 19);
  EXPECT_EQ(stacked.source_row(1, 16 + 3), 50 + 19);
  EXPECT_EQ(stacked.source_row(3, 2), -1);
  PackedShape interleaved = stacked;
  interleaved.gate = GateLayout::kInterleaved;
  EXPECT_EQ(interleaved.source_row(1, 3), 38);
  EXPECT_EQ(interleaved.source_row(1, 16 + 3), 39);
}

TEST(PackedWeights, UsesTheCallersStorage) {
  const std::vector<float> data = {1, 2, 3, 4, 5, 6};
  const WeightsView b{
      .data = data.data(), .dtype = DType::kF32, .num_experts = 1, .n = 2, .k = 3, .n_stride = 3};
  alignas(64) static std::byte storage[4096];
  EXPECT_EQ(packed_shape(b, GateLayout::kNone).bytes(), 4096);
  const PackedWeights packed(b, GateLayout::kNone, storage);
  EXPECT_EQ(packed.panel(0, 0), storage);
  try {
    PackedWeights too_small(b, GateLayout::kNone, std::span(storage).first(100));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("must hold 4096 bytes, got 100"));
  }
}

TEST(PackedWeights, Moves) {
  const std::vector<float> data = {1};
  const WeightsView b{.data = data.data(), .dtype = DType::kF32, .num_experts = 1, .n = 1, .k = 1};
  PackedWeights first(b, GateLayout::kNone);
  const std::byte* panel = first.panel(0, 0);
  PackedWeights second(std::move(first));
  EXPECT_EQ(second.panel(0, 0), panel);
  first = std::move(second);
  EXPECT_EQ(first.panel(0, 0), panel);
}

}  // namespace
}  // namespace tileops::cpu
