// SPDX-License-Identifier: Apache-2.0
// The spec for what Python generates from it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core.h"
#include "tileops/op/op_class.h"
#include "tileops/op/trace.h"
#include "tileops/spec/entry_json.h"
#include "tileops/spec/registry.h"

namespace tileops::python {

void bind_spec(nb::module_& m) {
  m.def("entry_names", &spec::entry_names);
  m.def("entry_json", [](const std::string& name) { return spec::entry_json(*spec::entry(name)); });
  m.def("types_json", &spec::types_json);
  m.def("load_spec_file", &spec::load_spec_file);
  m.def("load_spec_text", [](const std::string& text, const std::string& source) {
    return spec::load_spec_text(text, source);
  });
  m.def("op_class_names", &op_class_names);
  m.def("injected_names", [](const std::string& name) { return op_class(name).injected(); });
  m.def("node_name", [](const std::string& name, const std::string& branch) {
    return node_name(*spec::entry(name), branch);
  });
}

}  // namespace tileops::python
