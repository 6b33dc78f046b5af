// SPDX-License-Identifier: Apache-2.0
// PrepareFinalize: what stands around the routed experts of a layer, such as an exchange of tokens
// between ranks. Users derive their own and inject it into FusedMoEFwdOp.
#pragma once

#include <cstdint>
#include <memory>

#include "tileops/core/tensor.h"

namespace tileops {

/// Tokens with their routes: hidden_states [T, H], topk_weights float32 [T, K], topk_ids int32 [T,
/// K].
struct RoutedTokens {
  Tensor hidden_states;
  Tensor topk_weights;
  Tensor topk_ids;
};

/// Thread safety: one instance serves several calls at once; what a call must remember from prepare
/// to finalize goes into `state`.
class PrepareFinalize {
 public:
  struct Prepared {
    RoutedTokens tokens;          // those that this rank's experts take, with local expert ids
    std::shared_ptr<void> state;  // handed to finalize
  };

  virtual ~PrepareFinalize() = default;
  /// From this rank's tokens with ids in [0, num_experts) to the tokens that its experts compute,
  /// any number of them; ids outside the local experts are dropped.
  virtual Prepared prepare(const RoutedTokens& tokens, int64_t num_experts) const = 0;
  /// From the experts' output on the prepared tokens to this rank's own: [T, H], a fresh tensor, or
  /// `expert_output` itself.
  virtual Tensor finalize(const Tensor& expert_output, const Prepared& prepared,
                          const RoutedTokens& tokens) const = 0;
};

/// One rank has all experts: nothing is exchanged.
class LocalPrepareFinalize final : public PrepareFinalize {
 public:
  Prepared prepare(const RoutedTokens& tokens, int64_t) const override { return {tokens, nullptr}; }
  Tensor finalize(const Tensor& expert_output, const Prepared&,
                  const RoutedTokens&) const override {
    return expert_output;
  }
};

}  // namespace tileops
