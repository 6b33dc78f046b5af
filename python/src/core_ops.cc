// SPDX-License-Identifier: Apache-2.0
// Op instances: construction by name, enumeration, tuning.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "core_moe.h"
#include "core_record.h"
#include "tileops/op/op_class.h"

namespace tileops::python {
namespace {

// Set by the package: the Op object of a handle, made where there is none.
PyObject* object_of_handle = nullptr;

OpHandle make_op(const std::string& name, nb::dict params, const OpOptions& options,
                 nb::dict instances) {
  Injected injected;
  for (auto [key, instance] : instances) {
    injected.set(nb::cast<std::string>(key), injected_from_python(instance));
  }
  const OpClass& declared = op_class(name);
  const Params values = params_from_python(params);
  const nb::gil_scoped_release released;
  return {declared.make(values, options, injected)};
}

nb::list held_delegates(const OpHandle& handle) {
  nb::list held;
  for (const HeldDelegate& each : handle.op->held_delegates()) {
    held.append(nb::make_tuple(each.stage, value_to_python(each.identity), op_object(each.op)));
  }
  return held;
}

nb::list iter_kernels(const OpHandle& handle) {
  nb::list kernels;
  for (const auto& kernel : handle.op->iter_kernels()) kernels.append(kernel_to_python(kernel));
  return kernels;
}

nb::list built_entries(const OpHandle& handle, const std::string& interface) {
  nb::list entries;
  for (const BuiltEntry& entry : handle.op->built_entries(interface)) {
    entries.append(entry_to_python(entry));
  }
  return entries;
}

nb::list kernel_config(const OpHandle& handle) {
  nb::list configs;
  for (const KernelConfig& config : handle.op->kernel_config()) {
    configs.append(nb::make_tuple(config.implementation, params_to_python(config.values),
                                  std::string(config_origin_name(config.origin))));
  }
  return configs;
}

std::vector<std::string> interface_names(const OpHandle& handle) {
  std::vector<std::string> names;
  for (const InterfaceType& each : handle.op->op_class().interfaces()) names.push_back(each.name);
  return names;
}

void bind_handle(nb::module_& m) {
  nb::class_<OpHandle>(m, "OpHandle")
      .def_prop_ro("key", [](const OpHandle& h) { return h.op->key(); })
      .def_prop_ro("name", [](const OpHandle& h) { return h.op->name(); })
      .def_prop_ro("params", [](const OpHandle& h) { return params_to_python(h.op->params()); })
      .def_prop_ro("options", [](const OpHandle& h) { return h.op->options(); })
      .def_prop_ro("tuned", [](const OpHandle& h) { return h.op->tuned(); })
      .def_prop_ro("interfaces", &interface_names)
      .def("last_call", [](const OpHandle& h) { return record_to_python(h.op->last_call()); })
      .def("eval_roofline", [](const OpHandle& h) { return cost_to_python(h.op->eval_roofline()); })
      .def(
          "explain", [](const OpHandle& h) { return h.op->explain(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "request_tune", [](const OpHandle& h) { h.op->request_tune(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("serving_target", [](const OpHandle& h) { return h.op->serving_target(); })
      .def("held_delegates", &held_delegates)
      .def("iter_kernels", &iter_kernels)
      .def("built_entries", &built_entries)
      .def("kernel_config", &kernel_config);
}

}  // namespace

std::shared_ptr<Op> shared_op(nb::handle object) {
  const auto& handle = nb::cast<const OpHandle&>(object.attr("_handle"));
  return {own(object.ptr()), handle.op.get()};
}

nb::object op_object(const std::shared_ptr<Op>& op) {
  return nb::handle(object_of_handle)(OpHandle{op});
}

void bind_ops(nb::module_& m) {
  nb::class_<OpOptions>(m, "OpOptions")
      .def(nb::init<>())
      .def_rw("target", &OpOptions::target)
      .def_rw("implementation", &OpOptions::implementation)
      .def_rw("validate_inputs", &OpOptions::validate_inputs)
      .def_rw("device", &OpOptions::device)
      .def_prop_rw(
          "kernel_config", [](const OpOptions& o) { return params_to_python(o.kernel_config); },
          [](OpOptions& o, nb::dict config) { o.kernel_config = params_from_python(config); });
  bind_handle(m);
  m.def("make_op", &make_op);
  m.def("set_op_objects", [](nb::object make) { object_of_handle = make.release().ptr(); });
}

}  // namespace tileops::python
