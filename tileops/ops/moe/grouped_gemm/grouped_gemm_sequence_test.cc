// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sequence.h"

#include <gtest/gtest.h>

#include <thread>

namespace tileops::grouped_gemm {
namespace {

Tensor some_tensor() { return Tensor::empty({4}, DType::kI32, kCpuDevice); }

struct GroupedGemmSequence : ::testing::Test {
  const Tensor metadata = some_tensor(), w_gate_up = some_tensor(), w_down = some_tensor();
  const Stream stream{{DeviceType::kCUDA, 0}, nullptr};
};

TEST_F(GroupedGemmSequence, TheLastOfAComposite) {
  const Sequence sequence(metadata, w_down);
  EXPECT_FALSE(Sequence::follows(stream, metadata, w_gate_up));
  EXPECT_TRUE(Sequence::follows(stream, metadata, w_down));
}

TEST_F(GroupedGemmSequence, NothingOutsideOfOne) {
  { const Sequence sequence(metadata, w_down); }
  EXPECT_FALSE(Sequence::follows(stream, metadata, w_gate_up));
  EXPECT_FALSE(Sequence::follows(stream, metadata, w_down));
}

TEST_F(GroupedGemmSequence, NotTheFirst) {
  const Sequence sequence(metadata, w_down);
  EXPECT_FALSE(Sequence::follows(stream, metadata, w_down));
}

TEST_F(GroupedGemmSequence, NotOnOtherWeightsMetadataOrStreams) {
  const Sequence sequence(metadata, w_down);
  EXPECT_FALSE(Sequence::follows(stream, metadata, w_gate_up));
  EXPECT_FALSE(Sequence::follows(stream, metadata, some_tensor()));
  EXPECT_FALSE(Sequence::follows(stream, some_tensor(), w_down));
  EXPECT_FALSE(Sequence::follows({{DeviceType::kCUDA, 1}, nullptr}, metadata, w_down));
}

TEST_F(GroupedGemmSequence, TheInnermostOneCountsAndIsOfItsThread) {
  const Sequence outer(metadata, w_down);
  EXPECT_FALSE(Sequence::follows(stream, metadata, w_gate_up));
  {
    const Sequence inner(metadata, w_down);
    EXPECT_FALSE(Sequence::follows(stream, metadata, w_down));
  }
  std::thread([&] { EXPECT_FALSE(Sequence::follows(stream, metadata, w_down)); }).join();
  EXPECT_TRUE(Sequence::follows(stream, metadata, w_down));
}

TEST_F(GroupedGemmSequence, WithoutMetadata) {
  const Tensor none;
  const Sequence sequence(none, w_down);
  EXPECT_FALSE(Sequence::follows(stream, none, w_gate_up));
  EXPECT_TRUE(Sequence::follows(stream, none, w_down));
}

}  // namespace
}  // namespace tileops::grouped_gemm
