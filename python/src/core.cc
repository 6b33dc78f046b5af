// SPDX-License-Identifier: Apache-2.0
// tileops_cpp._core: the library as the Python package sees it. Private to the package.
#include "core.h"

#include "tileops/ops/register.h"

NB_MODULE(_core, m) {
  using namespace tileops::python;
  nanobind::set_leak_warnings(false);  // classes and targets that Python declared live to the end
  tileops::register_ops();
  m.attr("__version__") = TILEOPS_VERSION;
  bind_errors(m);
  bind_values(m);
  bind_tensors(m);
  bind_numpy(m);
  bind_spec(m);
  bind_records(m);
  bind_ops(m);
  bind_calls(m);
  bind_composites(m);
  bind_targets(m);
  bind_kernel_types(m);
  bind_moe(m);
  bind_compile(m);
  bind_workloads(m);
}
