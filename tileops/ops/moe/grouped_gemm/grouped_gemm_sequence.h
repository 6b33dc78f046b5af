// SPDX-License-Identifier: Apache-2.0
// Grouped GEMMs that follow one another: what the second may read before the first has ended.
#pragma once

#include "tileops/core/stream.h"
#include "tileops/core/tensor.h"

namespace tileops::grouped_gemm {

/// While one lives, grouped GEMMs of this thread that share `metadata` follow one another, and
/// nothing writes `metadata` or `weights`, which the last of them multiplies. An implementation on
/// a GPU may then load those while the GEMM before still runs. A composite opens one around the
/// calls that it makes on its own inputs. Thread safety: per thread; the innermost one counts.
class Sequence {
 public:
  Sequence(const Tensor& metadata, const Tensor& weights);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Asked once for each launch, in order: true if the sequence has had one on `stream` before and
  /// this one multiplies the sequence's weights.
  static bool follows(const Stream& stream, const Tensor& metadata, const Tensor& weights);

 private:
  const void* const metadata_;
  const void* const weights_;
  Stream stream_;
  bool begun_ = false;
  Sequence* const outer_;
};

}  // namespace tileops::grouped_gemm
