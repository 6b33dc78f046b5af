// SPDX-License-Identifier: Apache-2.0
// Generators: named, seeded, deterministic makers of input tensors. A new one is a function and a
// line of the table in generators.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/spec/expr.h"

namespace tileops::spec {

struct GeneratorInput {
  const Tensor& tensor;  // to fill: contiguous, on the CPU, of the inferred shape and dtype
  std::span<const Val> args;
  uint64_t seed;  // of the call: generators of one routing share it
  uint64_t salt;  // of the tensor
};

struct Generator {
  std::string_view name;
  std::string_view signature;  // "topk_ids(num_experts, distribution)"
  int min_args, max_args;
  /// Errors: EvalFailure for arguments that do not fit.
  void (*fill)(const GeneratorInput& input);
};

/// The generator of that name, or null.
const Generator* find_generator(std::string_view name);
std::string generator_names();
std::span<const Generator> generators();

void fill_normal(const GeneratorInput& input);
void fill_uniform(const GeneratorInput& input);
void fill_topk_ids(const GeneratorInput& input);
void fill_local_topk_ids(const GeneratorInput& input);
void fill_topk_weights(const GeneratorInput& input);
void fill_grouped_metadata(const GeneratorInput& input);
void fill_inverse_indices(const GeneratorInput& input);

}  // namespace tileops::spec
