// SPDX-License-Identifier: Apache-2.0
// The spec for what Python generates from it.
#include <nanobind/stl/vector.h>

#include "core.h"
#include "tileops/op/op_class.h"
#include "tileops/op/trace.h"
#include "tileops/spec/entry_json.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/validator.h"

namespace tileops::python {

namespace {

std::vector<std::string> param_names(const std::string& name) {
  std::vector<std::string> names;
  for (const spec::ParamDecl& param : spec::entry(name)->params()) names.push_back(param.name);
  return names;
}

std::vector<spec::Diagnostic> validate(const std::string& text, const std::string& source) {
  const spec::SpecText one{source, text};
  const nb::gil_scoped_release released;
  return spec::validate({&one, 1}, class_lookup());
}

}  // namespace

void bind_spec(nb::module_& m) {
  nb::class_<spec::Diagnostic>(m, "Diagnostic", "A fault of a spec file.")
      .def_ro("code", &spec::Diagnostic::code)
      .def_ro("source", &spec::Diagnostic::source)
      .def_ro("line", &spec::Diagnostic::line)
      .def_ro("entry", &spec::Diagnostic::entry)
      .def_ro("field", &spec::Diagnostic::field)
      .def_ro("message", &spec::Diagnostic::message)
      .def("__str__", [](const spec::Diagnostic& d) { return to_string(d); });
  m.def("validate_spec", &validate);
  m.def("entry_names", &spec::entry_names);
  m.def("entry_json", [](const std::string& name) { return spec::entry_json(*spec::entry(name)); });
  m.def("types_json", &spec::types_json);
  m.def("load_spec_file", &spec::load_spec_file);
  m.def("load_spec_text", [](const std::string& text, const std::string& source) {
    return spec::load_spec_text(text, source);
  });
  m.def("op_class_names", &op_class_names);
  m.def("injected_names", [](const std::string& name) { return op_class(name).injected(); });
  m.def("is_tunable", [](const std::string& name) { return op_class(name).tunable(); });
  m.def("param_names", &param_names);
  m.def("node_name", [](const std::string& name, const std::string& branch) {
    return node_name(*spec::entry(name), branch);
  });
}

}  // namespace tileops::python
