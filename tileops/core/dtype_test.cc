// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tileops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

uint32_t encode(DType dtype, double value) {
  uint32_t code = 0;
  store_element(dtype, &code, value);
  return code;
}

double decode(DType dtype, uint32_t code) { return load_element(dtype, &code); }

struct Format {
  DType dtype;
  uint32_t largest;  // code of the largest finite value
  uint32_t sign;
  double largest_value, smallest_value;  // finite; positive, subnormal
};

class SmallFloats : public ::testing::TestWithParam<Format> {};

TEST_P(SmallFloats, EveryCodeSurvivesTheRoundTrip) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < 2 * f.sign; ++code) {
    const double value = decode(f.dtype, code);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(decode(f.dtype, encode(f.dtype, value))));
    } else if (std::isfinite(value)) {
      ASSERT_EQ(encode(f.dtype, value), code) << value;
    }
  }
}

TEST_P(SmallFloats, RoundsToNearestAndTiesToEven) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < f.largest; ++code) {
    const double low = decode(f.dtype, code);
    const double high = decode(f.dtype, code + 1);
    ASSERT_LT(low, high);
    const double middle = (low + high) / 2;
    const uint32_t even = code + (code & 1);
    ASSERT_EQ(encode(f.dtype, middle), even) << middle;
    ASSERT_EQ(encode(f.dtype, -middle), f.sign | even) << middle;
    ASSERT_EQ(encode(f.dtype, std::nextafter(middle, low)), code) << middle;
    ASSERT_EQ(encode(f.dtype, std::nextafter(middle, high)), code + 1) << middle;
  }
}

TEST_P(SmallFloats, EndsOfTheRange) {
  const Format& f = GetParam();
  EXPECT_EQ(decode(f.dtype, f.largest), f.largest_value);
  EXPECT_EQ(decode(f.dtype, 1), f.smallest_value);
  EXPECT_EQ(encode(f.dtype, f.smallest_value / 2), 0u);
  EXPECT_EQ(encode(f.dtype, std::numeric_limits<double>::denorm_min()), 0u);
  EXPECT_EQ(encode(f.dtype, -0.0), f.sign);
  const uint32_t beyond = f.dtype == DType::kE4M3 ? f.largest : f.largest + 1;
  for (const double value : {f.largest_value * 1.25, 1e300, kInfinity}) {
    EXPECT_EQ(encode(f.dtype, value), beyond);
    EXPECT_EQ(encode(f.dtype, -value), f.sign | beyond);
  }
}

INSTANTIATE_TEST_SUITE_P(
    DType, SmallFloats,
    ::testing::Values(Format{DType::kF16, 0x7bff, 0x8000, 65504.0, 0x1p-24},
                      Format{DType::kBF16, 0x7f7f, 0x8000, 0x1.fep127, 0x1p-133},
                      Format{DType::kE4M3, 0x7e, 0x80, 448.0, 0x1p-9},
                      Format{DType::kE5M2, 0x7b, 0x80, 57344.0, 0x1p-16}),
    [](const auto& info) { return std::string(dtype_short_name(info.param.dtype)); });

TEST(DType, RoundsOnceFromDouble) {
  // Through float32 the 2^-40 would be lost, and the tie would go down.
  EXPECT_EQ(encode(DType::kF16, 1 + 0x1p-11 + 0x1p-40), 0x3c01u);
  EXPECT_EQ(encode(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 0x3f81u);
}

TEST(DType, FloatConversionsAgreeWithTheGeneralOnes) {
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
    const auto value = __builtin_bit_cast(float, static_cast<uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_bf16(value), encode(DType::kBF16, value)) << value;
      ASSERT_EQ(f32_to_f16(value), encode(DType::kF16, value)) << value;
    }
  }
  for (uint32_t code = 0; code <= UINT16_MAX; ++code) {
    const double value = decode(DType::kF16, code);
    const float narrow = f16_to_f32(static_cast<uint16_t>(code));
    ASSERT_TRUE(std::isnan(value) ? std::isnan(narrow) : narrow == value) << code;
  }
}

TEST(DType, IntegersTruncateAndClamp) {
  EXPECT_EQ(decode(DType::kI8, encode(DType::kI8, -3.9)), -3);
  EXPECT_EQ(decode(DType::kI8, encode(DType::kI8, 1000)), 127);
  EXPECT_EQ(decode(DType::kU8, encode(DType::kU8, -1)), 0);
  EXPECT_EQ(decode(DType::kI16, encode(DType::kI16, -1e9)), -32768);
  EXPECT_EQ(decode(DType::kI32, encode(DType::kI32, kNaN)), 0);
  EXPECT_EQ(decode(DType::kI32, encode(DType::kI32, 2147483647.5)), 2147483647);
  int64_t wide = 0;
  store_element(DType::kI64, &wide, kInfinity);
  EXPECT_EQ(wide, INT64_MAX);
  store_element(DType::kI64, &wide, -0x1p63);
  EXPECT_EQ(wide, INT64_MIN);
}

TEST(DType, BoolIsZeroOrOne) {
  EXPECT_EQ(encode(DType::kBool, 0.0), 0u);
  EXPECT_EQ(encode(DType::kBool, -0.5), 1u);
  EXPECT_EQ(encode(DType::kBool, kNaN), 1u);
  EXPECT_EQ(decode(DType::kBool, 7), 1.0);
}

TEST(DType, WideFloatsAreStoredAsTheyAre) {
  double wide = 0;
  store_element(DType::kF64, &wide, 0.1);
  EXPECT_EQ(wide, 0.1);
  float narrow = 0;
  store_element(DType::kF32, &narrow, 0.1);
  EXPECT_EQ(load_element(DType::kF32, &narrow), 0.1f);
}

TEST(DType, ElementsNeedNoAlignment) {
  unsigned char bytes[9] = {};
  store_element(DType::kF64, bytes + 1, 2.5);
  EXPECT_EQ(load_element(DType::kF64, bytes + 1), 2.5);
}

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_dtype(dtype_short_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_name(DType::kE4M3), "float8_e4m3");
  EXPECT_EQ(dtype_short_name(DType::kBF16), "bf16");
  EXPECT_EQ(dtype_bytes(DType::kF64), 8);
  EXPECT_TRUE(is_floating(DType::kE5M2));
  EXPECT_FALSE(is_floating(DType::kBool));
  for (const char* name : {"", "float", "BF16", "float8_e4m3 "}) EXPECT_FALSE(parse_dtype(name));
}

}  // namespace
}  // namespace tileops
