// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/features.h"

#include <gtest/gtest.h>

namespace tileops::cpu {
namespace {

TEST(Features, NamesAreReadBack) {
  for (int i = 0; i <= static_cast<int>(IsaLevel::kAmx); ++i) {
    const auto level = static_cast<IsaLevel>(i);
    EXPECT_EQ(parse_isa_level(name_of(level)), level);
  }
  EXPECT_EQ(parse_isa_level("avx1024"), std::nullopt);
}

TEST(Features, LevelsAreOrderedAndEndAtTheActiveOne) {
  const auto levels = available_isa_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), IsaLevel::kBaseline);
  EXPECT_EQ(levels.back(), active_isa());
  EXPECT_LE(active_isa(), supported_isa());
}

#if defined(__x86_64__)
TEST(Features, AgreesWithTheCompilersDetection) {
  if (supported_isa() >= IsaLevel::kAvx2) {
    EXPECT_TRUE(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(supported_isa() >= IsaLevel::kAvx512, avx512);
}
#endif

}  // namespace
}  // namespace tileops::cpu
