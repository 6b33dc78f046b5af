// SPDX-License-Identifier: Apache-2.0
// The price of a call by the entry's formula: operations and compulsory bytes of the algorithm.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/spec/entry.h"
#include "tileops/spec/signature.h"

namespace tileops::spec {

struct Cost {
  double flops = 0;
  double bytes = 0;
  bool operator==(const Cost&) const = default;
};

struct RooflineCall {
  const Signature& signature;
  const CallFacts& facts;
  /// The metadata input of that name, on the CPU (undefined where absent); read only where a formula
  /// needs it.
  std::function<Tensor(std::string_view input)> metadata;
  /// Sum over the staged records of `stage` of the named quantity ("flops", "bytes", an index);
  /// none where the stage ran nothing.
  std::function<std::optional<double>(std::string_view stage, std::string_view quantity)> staged;
};

/// Bytes of a call's tensors: each present input read once (unless it is only written), each output
/// and each input that the call writes written once; an output that is an input is not counted
/// again.
struct Traffic {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
};
Traffic tensor_traffic(const Entry& entry, const CallFacts& facts);

/// Bytes default to: each distinct input read once, each output written once.
/// Errors: kSpec (evaluation failed: entry, field, expression), kState (metadata of a meta call).
Cost evaluate_roofline(const RooflineCall& call);

}  // namespace tileops::spec
