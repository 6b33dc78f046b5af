// SPDX-License-Identifier: Apache-2.0
// Workloads: the rows of an entry, instantiated to parameters and tensors by the spec's generators.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/spec/entry.h"

namespace tileops::spec {

/// One case: a row with one of its dtype cases. `id` is stable: "mixtral-decode-t1/bfloat16".
struct WorkloadCase {
  std::string id;
  std::string label;
  std::vector<std::string> tags;  // "decode", "prefill", "uniform", "skewed", "small", …
  Params params;                  // constructor parameters of the row
  Params indices;                 // values of the free indices, those that generators fix included
  Params args;                    // of the row's generators
  std::vector<std::string> present;  // optional inputs that come
};

std::vector<WorkloadCase> workload_cases(const Entry& entry);
/// The case of an id, or the first of a label. Errors: kValue listing what is there.
WorkloadCase workload_case(const Entry& entry, std::string_view id_or_label);

/// Fresh tensors for a case, in the order of Entry::inputs(): floating ones normal with a scale
/// that keeps results near 1, metadata by the spec's generators. Deterministic in (case, seed).
/// Every `requires` holds of what comes back. A defined tensor of `given`, by slot, is taken as it
/// is: weights that several seeds share. Errors: kSpec, kOutOfMemory.
std::vector<Tensor> make_inputs(const std::shared_ptr<const Entry>& entry,
                                const WorkloadCase& which, uint64_t seed,
                                const std::vector<Tensor>& given = {});

/// The same on the meta device: facts without contents, for a call that is only explained or
/// traced.
std::vector<Tensor> make_meta_inputs(const std::shared_ptr<const Entry>& entry,
                                     const WorkloadCase& which);

}  // namespace tileops::spec
