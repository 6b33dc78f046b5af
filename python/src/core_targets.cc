// SPDX-License-Identifier: Apache-2.0
// Targets and backends from Python.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "core_arguments.h"
#include "core_record.h"
#include "tileops/dispatch/backend.h"
#include "tileops/dispatch/target.h"
#include "tileops/spec/registry.h"

namespace tileops::python {
namespace {

/// What a Python builder returned: a function on a call's tensors, perhaps with request_tune.
class PythonKernel final : public TargetKernel {
 public:
  PythonKernel(std::string_view op, nb::handle function)
      : entry_(spec::entry(op)),
        slots_(slots_of(*entry_)),
        function_(function),
        tunable_(nb::hasattr(function, "request_tune")) {}

  Results run(const spec::CallTensors& tensors) override {
    return in_python(
        [&] { return call_python(function_.get(), *entry_, slots_, tensors, framework_); });
  }
  bool tunable() const override { return tunable_; }
  void request_tune() override {
    in_python([&] { function_.get().attr("request_tune")(); });
  }

 private:
  std::shared_ptr<const spec::Entry> entry_;
  const Slots& slots_;
  SharedObject function_;
  bool tunable_;
  const Framework* framework_ = nullptr;  // of the last call, under the GIL
};

// (op, device, inputs, params) -> BuildRequest, set by the package.
PyObject* build_request_class = nullptr;

nb::object request_to_python(const BuildRequest& request) {
  nb::list inputs;
  for (const spec::TensorFacts& facts : request.inputs) inputs.append(facts_to_python(facts));
  return nb::handle(build_request_class)(std::string(request.op), to_string(request.device),
                                         nb::tuple(inputs), params_to_python(request.params));
}

void register_builder(const std::string& target, const std::string& op, nb::callable builder) {
  TargetBuilder build = [shared = SharedObject(builder)](const BuildRequest& request) {
    return in_python([&]() -> std::shared_ptr<TargetKernel> {
      const nb::object kernel = shared.get()(request_to_python(request));
      if (PyCallable_Check(kernel.ptr()) == 0) return nullptr;
      return std::make_shared<PythonKernel>(request.op, kernel);
    });
  };
  const nb::gil_scoped_release released;
  register_target_builder(target, op, std::move(build));
}

void register_detector(const std::string& target, nb::callable detector) {
  TargetDetector detect = [shared = SharedObject(detector)](Device device) {
    return in_python([&] { return nb::cast<bool>(nb::bool_(shared.get()(to_string(device)))); });
  };
  const nb::gil_scoped_release released;
  register_target_detector(target, std::move(detect));
}

std::vector<std::pair<std::string, std::string>> failures() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const LoadFailure& failure : load_failures()) {
    result.emplace_back(failure.path, failure.error);
  }
  return result;
}

}  // namespace

void bind_targets(nb::module_& m) {
  using release = nb::call_guard<nb::gil_scoped_release>;
  m.def("set_build_request",
        [](nb::object request) { build_request_class = request.release().ptr(); });
  m.def("register_target_builder", &register_builder);
  m.def("register_target_detector", &register_detector);
  m.def(
      "unregister_target_builder",
      [](const std::string& target, const std::string& op) {
        unregister_target_builder(target, op);
      },
      release());
  m.def(
      "unregister_target_detector",
      [](const std::string& target) { unregister_target_detector(target); }, release());
  m.def(
      "unregister_target", [](const std::string& target) { unregister_target(target); }, release());
  m.def("target_names", &target_names, release());
  m.def("default_target", &default_target, release());
  m.def(
      "set_default_target", [](const std::string& target) { set_default_target(target); },
      release());
  m.def(
      "load_backend", [](const std::string& path) { load_backend(path); }, release());
  m.def("load_backends", &load_backends, release());
  m.def("loaded_backends", &loaded_backends, release());
  m.def("load_failures", &failures);
}

}  // namespace tileops::python
