// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what the driver is given, and the rules that are checked before.
#include "tileops/cuda/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tileops/core/error_testing.h"
#include "tileops/cuda/fake_driver.h"

namespace tileops::cuda {
namespace {

using ::testing::ElementsAre;

alignas(16) std::byte memory[64];

TensorMapSpec weights() {
  return {.data = memory,
          .rank = 3,
          .dims = {128, 64, 8},
          .strides = {136, 136 * 64},
          .box = {64, 32, 1}};
}

TEST(TensorMap, StridesAreGivenInBytes) {
  FakeDriver fake;
  encode_tensor_map(weights(), kCuda0);
  EXPECT_THAT(fake.tensor_map_dims, ElementsAre(128, 64, 8));
  EXPECT_THAT(fake.tensor_map_strides, ElementsAre(272, 272 * 64));
  EXPECT_THAT(fake.tensor_map_box, ElementsAre(64, 32, 1));
  static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) == 64);
}

TEST(TensorMap, EqualSpecsAreEncodedOnce) {
  FakeDriver fake;
  TensorMapSpec other = weights();
  other.dims[1] = 63;
  for (int i = 0; i < 3; ++i) {
    cached_tensor_map(weights(), kCuda0);
    cached_tensor_map(other, kCuda0);
  }
  EXPECT_EQ(fake.num_tensor_maps, 2);
}

TEST(TensorMap, MapsOfManyLayersAreKept) {
  const FakeDriver fake;
  for (int turn = 0; turn < 3; ++turn) {
    for (uintptr_t layer = 0; layer < 200; ++layer) {
      TensorMapSpec spec = weights();
      spec.data = reinterpret_cast<void*>(0x10000000 + (layer << 21));
      cached_tensor_map(spec, kCuda0);
    }
  }
  EXPECT_LE(fake.num_tensor_maps, 250) << "but for a few that meet in one place";
}

TEST(TensorMap, EachRuleIsNamed) {
  const FakeDriver fake;
  const auto refusal = [](auto change) {
    TensorMapSpec spec = weights();
    change(spec);
    return error_of([&] { encode_tensor_map(spec, kCuda0); });
  };
  EXPECT_EQ(refusal([](auto& s) { s.rank = 6; }),
            "ValueError: tensor map: rank must be 1 to 5, got 6");
  EXPECT_EQ(refusal([](auto& s) { s.data = reinterpret_cast<void*>(0x1008); }),
            "ValueError: tensor map: the address must be a multiple of 16, got 0x1008");
  EXPECT_EQ(refusal([](auto& s) { s.dims[1] = 0; }),
            "ValueError: tensor map: dimension 1 must be 1 to 2^32, got 0");
  EXPECT_EQ(refusal([](auto& s) { s.box[1] = 257; }),
            "ValueError: tensor map: box extent 1 must be 1 to 256, got 257");
  EXPECT_EQ(
      refusal([](auto& s) { s.strides[0] = 129; }),
      "ValueError: tensor map: the stride of dimension 1 must be a multiple of 16 bytes below "
      "2^40, got 258 bytes (129 x bfloat16)");
  EXPECT_EQ(refusal([](auto& s) { s.box[0] = 4; }),
            "ValueError: tensor map: the box's rows must be a multiple of 16 bytes, got 8");
  EXPECT_EQ(refusal([](auto& s) { s.box[0] = 128; }),
            "ValueError: tensor map: rows of 256 bytes do not fit the swizzle of 128");
}

TEST(TensorMap, DriversRefusalIsNotCached) {
  FakeDriver fake;
  TensorMapSpec spec = weights();
  spec.dims[2] = 9;
  fake.fail("tensor_map_encode_tiled", abi::Result::kInvalidValue);
  EXPECT_THAT(error_of([&] { cached_tensor_map(spec, kCuda0); }),
              ::testing::HasSubstr("CUDA_ERROR_INVALID_VALUE"));
  fake.succeed("tensor_map_encode_tiled");
  EXPECT_EQ(error_of([&] { cached_tensor_map(spec, kCuda0); }), "no error");
}

}  // namespace
}  // namespace tileops::cuda
