// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "tileops/core/error.h"
#include "tileops/spec/generators.h"
#include "tileops/spec/random.h"
#include "tileops/spec/registry.h"

namespace tileops::spec {
namespace {

bool has_tag(const WorkloadCase& which, std::string_view tag) {
  return std::find(which.tags.begin(), which.tags.end(), tag) != which.tags.end();
}

std::vector<int64_t> ints_of(const Tensor& tensor) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    values.push_back(tensor.data_as<int32_t>()[i]);
  return values;
}

TEST(Workload, SmallCasesOfEveryEntryInstantiate) {
  for (const char* name : {"MoEGroupedGemmFwdOp", "MoEExpertMLPFwdOp"}) {
    const auto entry = spec::entry(name);
    int small = 0;
    for (const WorkloadCase& which : workload_cases(*entry)) {
      if (!has_tag(which, "small")) continue;
      ++small;
      const std::vector<Tensor> inputs = make_inputs(entry, which, 7);
      EXPECT_EQ(inputs.size(), entry->inputs().size()) << which.id;
    }
    EXPECT_GE(small, 10) << name;
  }
}

TEST(Workload, IdsAreStableAndDistinct) {
  for (const std::string& name : entry_names()) {
    std::set<std::string> ids;
    for (const WorkloadCase& which : workload_cases(*spec::entry(name))) {
      EXPECT_TRUE(ids.insert(which.id).second) << which.id;
      EXPECT_TRUE(which.id.starts_with(which.label));
    }
  }
}

TEST(Workload, IsFoundByIdAndByLabel) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  EXPECT_EQ(workload_case(*entry, "small-tight-psum").id, "small-tight-psum/bfloat16");
  EXPECT_EQ(workload_case(*entry, "small-tight-psum/float16").id, "small-tight-psum/float16");
  try {
    workload_case(*entry, "nothing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kValue);
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("MoEGroupedGemmFwdOp: there is no workload nothing; "
                                      "there are: small-tight-psum, "));
  }
}

TEST(Workload, IsDeterministicInTheSeed) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  const WorkloadCase which = workload_case(*entry, "small-tight-psum");
  const auto first = make_inputs(entry, which, 7);
  const auto same = make_inputs(entry, which, 7);
  const auto other = make_inputs(entry, which, 8);
  const auto bytes = static_cast<size_t>(first[0].num_elements() * 2);
  EXPECT_EQ(std::memcmp(first[0].data(), same[0].data(), bytes), 0);
  EXPECT_NE(std::memcmp(first[0].data(), other[0].data(), bytes), 0);
  EXPECT_EQ(ints_of(first[2]), ints_of(same[2]));
}

TEST(Generator, NormalHasItsScale) {
  const Tensor x = Tensor::empty({1000, 100}, DType::kF32);
  Val scale;
  scale.kind = Val::Kind::kFloat;
  scale.real = 0.5;
  fill_normal({x, {&scale, 1}, 3, 1});
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    sum += x.data_as<float>()[i];
    squares += x.data_as<float>()[i] * x.data_as<float>()[i];
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.5, 0.01);
}

TEST(Generator, ManyThreadsDrawTheSequenceOfOne) {
  const Tensor tensor = Tensor::empty({(1 << 21) + 17}, DType::kF32);
  fill_normal({tensor, {}, 5, 3});
  Random random(5, 3);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    ASSERT_EQ(tensor.data_as<float>()[i], random.normal()) << i;
  }
}

TEST(Generator, TopKIdsAreDistinctAndSkewedWhereAsked) {
  const auto make = [](const char* routing) {
    const Value experts(int64_t{16});
    const Value name(routing);
    const Val args[] = {view_of(experts), view_of(name)};
    const Tensor ids = Tensor::empty({500, 4}, DType::kI32);
    fill_topk_ids({ids, args, 5, 1});
    std::vector<int64_t> counts(16);
    for (int64_t t = 0; t < 500; ++t) {
      std::set<int32_t> seen;
      for (int64_t k = 0; k < 4; ++k) seen.insert(ids.data_as<int32_t>()[4 * t + k]);
      EXPECT_EQ(seen.size(), 4u);
      for (int32_t id : seen) ++counts[static_cast<size_t>(id)];
    }
    return *std::max_element(counts.begin(), counts.end());
  };
  EXPECT_LT(make("uniform"), 200);
  EXPECT_GT(make("skewed"), 300);
}

}  // namespace
}  // namespace tileops::spec
