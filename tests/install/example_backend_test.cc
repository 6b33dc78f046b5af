// SPDX-License-Identifier: Apache-2.0
// The example backend, as it was built against the installed library and found on the search path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/testing.h"
#include "tileops/dispatch/backend.h"
#include "tileops/dispatch/target.h"
#include "tileops/moe.h"
#include "tileops/ops/register.h"

namespace tileops {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Inputs {
  Tensor x = testing::random_tensor({5, 8}, DType::kBF16, 1);
  Tensor w_gate_up = testing::random_tensor({2, 12, 8}, DType::kBF16, 2, 0.3);
  Tensor w_down = testing::random_tensor({2, 8, 6}, DType::kBF16, 3, 0.3);
  Tensor ends = testing::int_tensor({2}, {3, 5});
};

/// The largest difference, as a share of the largest element.
double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = testing::elements(a), right = testing::elements(b);
  double largest = 0, scale = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    largest = std::max(largest, std::abs(left[i] - right[i]));
    scale = std::max(scale, std::abs(right[i]));
  }
  return largest / scale;
}

Tensor run(const MoEExpertMLPFwdOp& op, const Inputs& in, const Tensor& out = {}) {
  return op(in.x, in.w_gate_up, in.w_down, in.ends, {.out = out});
}

TEST(ExampleBackend,
     Contract_G6_a_backend_on_the_search_path_is_loaded_before_the_first_selection) {
  register_ops();
  EXPECT_THAT(loaded_backends(), IsEmpty());
  const Inputs in;
  const MoEExpertMLPFwdOp op(MGroupedLayout::contiguous());
  run(op, in);
  EXPECT_THAT(load_failures(), IsEmpty());
  EXPECT_THAT(loaded_backends(), ElementsAre(EndsWith("example_backend.so")));
  EXPECT_THAT(target_names(), ElementsAre("example"));
  EXPECT_EQ(op.serving_target(), "builtin") << "its detector claims nothing unless it is asked to";
}

TEST(ExampleBackend, Contract_G2_its_target_serves_the_composite_whole) {
  const Inputs in;
  const MoEExpertMLPFwdOp ours(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul,
                               {.target = "builtin", .implementation = "reference"});
  const MoEExpertMLPFwdOp theirs(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul,
                                 {.target = "example"});
  const Tensor out = Tensor::empty({5, 8}, DType::kBF16);
  EXPECT_TRUE(run(theirs, in, out).is_same_view(out));
  EXPECT_LT(difference(out, run(ours, in)), 0.02);
  EXPECT_EQ(theirs.serving_target(), "example");
  EXPECT_TRUE(theirs.last_call()->stages("gate_up").empty());
}

TEST(ExampleBackend, Contract_G5_its_kernel_type_serves_what_it_declares) {
  load_backends();
  const Inputs in;
  const MoEExpertMLPFwdOp op(MGroupedLayout::contiguous());
  const MoEExpertMLPFwdOp reference(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul,
                                    {.implementation = "reference"});
  EXPECT_LT(difference(run(op, in), run(reference, in)), 0.02);
  EXPECT_EQ(op.last_call()->stages("down")[0]->kernels()[0].entry->implementation,
            "example_few_rows");
  EXPECT_THAT(op.explain().text(), HasSubstr("-> grouped_gemm example_few_rows: serves"));
  Inputs many;
  many.x = testing::random_tensor({17, 8}, DType::kBF16, 1);
  many.ends = testing::int_tensor({2}, {3, 17});
  run(op, many);
  EXPECT_NE(op.last_call()->stages("down")[0]->kernels()[0].entry->implementation,
            "example_few_rows");
  EXPECT_THAT(op.explain().text(), HasSubstr("example_few_rows: serves at most 16 rows"));
}

TEST(ExampleBackendClaims, Contract_G1_its_detector_claims_the_device_where_it_is_asked_to) {
  const Inputs in;
  const MoEExpertMLPFwdOp op(MGroupedLayout::contiguous());
  run(op, in);
  EXPECT_EQ(op.serving_target(), "example");
  const MoEExpertMLPFwdOp builtin(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul,
                                  {.target = "builtin"});
  run(builtin, in);
  EXPECT_EQ(builtin.serving_target(), "builtin");
}

}  // namespace
}  // namespace tileops
