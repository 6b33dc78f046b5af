// SPDX-License-Identifier: Apache-2.0
// Kernel types from Python: foreign implementations of an op's kernel interface.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "core_arguments.h"
#include "tileops/core/device.h"
#include "tileops/op/op_class.h"
#include "tileops/spec/registry.h"

namespace tileops::python {
namespace {

PyObject* call_spec = nullptr;  // (interface, fields) -> the call as Python sees it; the package's

nb::object call_to_python(const std::string& interface, const Params& call) {
  return nb::handle(call_spec)(interface, params_to_python(call));
}

/// What a `build` in Python returned: a function that fills a call's outputs, perhaps with
/// request_tune.
class PythonKernelType final : public ForeignKernel {
 public:
  PythonKernelType(const std::string& op, std::string key, nb::handle function)
      : entry_(spec::entry(op)),
        slots_(slots_of(*entry_)),
        key_(std::move(key)),
        function_(function),
        tunable_(nb::hasattr(function, "request_tune")) {}

  void run(std::span<const Tensor> tensors) const override {
    in_python([&] { fill_by_python(function_.get(), *entry_, slots_, key_, tensors); });
  }
  bool tunable() const override { return tunable_; }
  void request_tune() override {
    in_python([&] { function_.get().attr("request_tune")(); });
  }

 private:
  std::shared_ptr<const spec::Entry> entry_;
  const Slots& slots_;
  std::string key_;
  SharedObject function_;
  bool tunable_;
};

/// The functions of a kernel type; each may be None but build.
struct Functions {
  std::string op;
  std::string interface;
  std::string key;
  SharedObject build, refusal, identity;

  Refusal refuse(const Params& call) const {
    if (refusal.get().is_none()) return std::nullopt;
    return in_python([&]() -> Refusal {
      const nb::object reason = refusal.get()(call_to_python(interface, call));
      if (reason.is_none()) return std::nullopt;
      if (PyUnicode_Check(reason.ptr()) != 0) return nb::cast<std::string>(reason);
      throw Error(ErrorKind::kType, op + ": the refusal of " + key +
                                        " returns None or the reason as a str, got " +
                                        Py_TYPE(reason.ptr())->tp_name);
    });
  }

  Value identify(const Params& call) const {
    if (identity.get().is_none()) {
      Value::List whole;
      for (const auto& [name, value] : call) whole.push_back(value);
      return whole;
    }
    return in_python([&] {
      return value_from_python(nb::object(identity.get()(call_to_python(interface, call))));
    });
  }

  std::shared_ptr<ForeignKernel> make(const Params& call) const {
    return in_python([&]() -> std::shared_ptr<ForeignKernel> {
      const nb::object kernel = build.get()(call_to_python(interface, call));
      if (PyCallable_Check(kernel.ptr()) == 0) return nullptr;
      return std::make_shared<PythonKernelType>(op, key, kernel);
    });
  }
};

DeviceType device_type_named(const std::string& name) {
  for (const DeviceType type : {DeviceType::kCPU, DeviceType::kCUDA}) {
    if (device_type_name(type) == name) return type;
  }
  throw Error(ErrorKind::kValue, "devices: a kernel type runs on cpu or cuda, not on " + name);
}

/// The interface of that name, or the op's only one where it is "".
std::string interface_of(const std::string& op, const std::string& interface) {
  const auto& declared = op_class(op).interfaces();
  return interface.empty() && declared.size() == 1 ? declared.front().name : interface;
}

void register_kernel_type(const std::string& op, const std::string& key, nb::callable build,
                          nb::object refusal, nb::object identity,
                          const std::vector<std::string>& devices,
                          const std::vector<std::string>& archs, bool general,
                          const std::vector<std::string>& preferred_over,
                          const std::string& interface) {
  const auto functions = std::make_shared<const Functions>(
      Functions{op, interface_of(op, interface), key, SharedObject(build), SharedObject(refusal),
                SharedObject(identity)});
  ForeignImplementation implementation{
      .info = {.key = key, .archs = archs, .general = general, .preferred_over = preferred_over},
      .refusal = [functions](const Params& call) { return functions->refuse(call); },
      .identity = [functions](const Params& call) { return functions->identify(call); },
      .build = [functions](const Params& call,
                           const BuildOptions&) { return functions->make(call); }};
  for (const std::string& name : devices) {
    implementation.info.devices.push_back(device_type_named(name));
  }
  const nb::gil_scoped_release released;
  register_foreign_kernel_type(op, interface, std::move(implementation));
}

}  // namespace

void bind_kernel_types(nb::module_& m) {
  m.def("set_call_spec", [](nb::object make) { call_spec = make.release().ptr(); });
  m.def("register_kernel_type", &register_kernel_type, nb::arg("op"), nb::arg("key"),
        nb::arg("build"), nb::arg("refusal").none(), nb::arg("identity").none(), nb::arg("devices"),
        nb::arg("archs"), nb::arg("general"), nb::arg("preferred_over"), nb::arg("interface"));
  m.def(
      "unregister_kernel_type",
      [](const std::string& op, const std::string& key) { unregister_kernel_type(op, key); },
      nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tileops::python
