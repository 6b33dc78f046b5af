// SPDX-License-Identifier: Apache-2.0
// The spec's workload rows as parameters and tensors.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "core.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops::python {
namespace {

std::vector<std::string> workload_ids(const std::string& name, const std::string& tag) {
  std::vector<std::string> ids;
  for (const spec::WorkloadCase& each : spec::workload_cases(*spec::entry(name))) {
    const bool has_tag = std::find(each.tags.begin(), each.tags.end(), tag) != each.tags.end();
    if (tag.empty() || has_tag) ids.push_back(each.id);
  }
  return ids;
}

/// (parameters, inputs in the spec's order, None where one is absent).
nb::tuple workload(const std::string& name, const std::string& id, uint64_t seed) {
  const auto entry = spec::entry(name);
  const spec::WorkloadCase which = spec::workload_case(*entry, id);
  nb::list inputs;
  for (const Tensor& tensor : spec::make_inputs(entry, which, seed)) {
    inputs.append(tensor.defined() ? nb::cast(tensor) : nb::none());
  }
  return nb::make_tuple(params_to_python(which.params), inputs);
}

}  // namespace

void bind_workloads(nb::module_& m) {
  m.def("workload_ids", &workload_ids);
  m.def("workload", &workload);
}

}  // namespace tileops::python
