// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sequence.h"

namespace tileops::grouped_gemm {
namespace {

thread_local Sequence* innermost = nullptr;

const void* data_of(const Tensor& tensor) { return tensor.defined() ? tensor.data() : nullptr; }

}  // namespace

Sequence::Sequence(const Tensor& metadata, const Tensor& weights)
    : metadata_(data_of(metadata)), weights_(data_of(weights)), outer_(innermost) {
  innermost = this;
}

Sequence::~Sequence() { innermost = outer_; }

bool Sequence::follows(const Stream& stream, const Tensor& metadata, const Tensor& weights) {
  Sequence* const sequence = innermost;
  if (sequence == nullptr || data_of(metadata) != sequence->metadata_) return false;
  const bool follows =
      sequence->begun_ && stream == sequence->stream_ && data_of(weights) == sequence->weights_;
  sequence->begun_ = true;
  sequence->stream_ = stream;
  return follows;
}

}  // namespace tileops::grouped_gemm
