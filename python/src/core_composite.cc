// SPDX-License-Identifier: Apache-2.0
// Ops whose forward is Python's: the library's Op does the rest.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <mutex>

#include "core_arguments.h"
#include "tileops/op/op_class.h"

namespace tileops::python {
namespace {

/// The parent class of each class that Python declared; a stage takes what derives from its class.
struct Parents {
  std::mutex mutex;  // guards of
  std::map<const OpClass*, const OpClass*> of;
};
Parents& parents() {
  static auto& all = *new Parents;
  return all;
}

bool derives_from(const OpClass* op_class, const OpClass* base) {
  Parents& known = parents();
  const std::lock_guard lock(known.mutex);
  while (op_class != nullptr && op_class != base) {
    const auto it = known.of.find(op_class);
    op_class = it == known.of.end() ? nullptr : it->second;
  }
  return op_class != nullptr;
}

class PythonOp final : public Op {
 public:
  PythonOp(nb::handle self, const OpClass& op_class, const Params& params, const OpOptions& options)
      : Op(op_class, params, options), slots_(slots_of(entry())), self_(weak(self)) {}

  std::shared_ptr<Op> hold(const std::string& stage, const Value& identity,
                           std::shared_ptr<Op> given,
                           const std::function<std::shared_ptr<Op>()>& make) const {
    return delegate_for(stage, identity, std::move(given), make);
  }
  OpOptions inherited() const { return inherited_options(); }

 protected:
  Results forward(Call& call) const override {
    return in_python([&] {
      const nb::object self = nb::steal(referent(self_.get().ptr()));
      if (!self.is_valid()) {
        throw Error(ErrorKind::kState,
                    name() + ": its Python object is gone; keep it alive while it is called");
      }
      return call_python(self.attr("forward"), entry(), slots_, call.tensors(), framework_);
    });
  }

 private:
  /// A new reference; null where the object is gone.
  static PyObject* referent(PyObject* reference) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* object = nullptr;
    PyWeakref_GetRef(reference, &object);
    return object;
#else
    PyObject* object = PyWeakref_GetObject(reference);
    return object == Py_None ? nullptr : Py_NewRef(object);
#endif
  }

  static SharedObject weak(nb::handle self) {
    const nb::object reference = nb::steal(PyWeakref_NewRef(self.ptr(), nullptr));
    if (!reference.is_valid()) throw nb::python_error();
    return SharedObject(reference);
  }

  const Slots& slots_;
  SharedObject self_;
  mutable const Framework* framework_ = nullptr;  // of the last call, under the GIL
};

using Stages = std::vector<std::pair<std::string, std::string>>;

struct PythonClass {
  std::string origin;
  Stages stages;
  nb::object make;
};
/// By entry name; under the GIL.
std::map<std::string, PythonClass>& python_classes() {
  static auto& all = *new std::map<std::string, PythonClass>;
  return all;
}

bool take_own_place(const std::string& name, const Stages& stages, const std::string& origin,
                    nb::object make) {
  const auto it = python_classes().find(name);
  if (it == python_classes().end() || it->second.origin != origin) return false;
  if (it->second.stages != stages) {
    throw Error(ErrorKind::kValue,
                name + ": the class is declared again with other stages; start a new process");
  }
  it->second.make = std::move(make);
  return true;
}

/// Declares a class as Python describes it: stages with the entry name of the class that each holds;
/// the parent's name or ""; where it is written, so that a class which is run again, as in a notebook,
/// takes its own place; make(params, options). Errors: kValue (the name is taken).
void declare_class(const std::string& name, const Stages& stages,
                   const std::vector<std::string>& injected, bool tunable,
                   const std::string& parent, const std::string& origin, nb::callable make) {
  if (take_own_place(name, stages, origin, make)) return;
  OpClassFacts facts{.name = name, .injected = injected, .tunable = tunable};
  for (const auto& [stage, of] : stages) {
    const OpClass* held = &op_class(of);
    facts.delegate_types.push_back(
        {stage, held, [held](const Op& op) { return derives_from(&op.op_class(), held); }});
  }
  facts.make = [name](const Params& params, const OpOptions& options, const Injected& injected) {
    return in_python([&] {
      nb::dict given = params_to_python(params);
      for (const auto& [instance, unused] : injected.instances()) {
        given[instance.c_str()] = op_object(injected.get<std::shared_ptr<Op>>(instance));
      }
      return shared_op(python_classes().at(name).make(given, nb::cast(options)));
    });
  };
  const OpClass& declared = OpClass::declare(std::move(facts));
  python_classes().insert_or_assign(name, PythonClass{origin, stages, make});
  Parents& known = parents();
  const std::lock_guard lock(known.mutex);
  known.of[&declared] = parent.empty() ? nullptr : find_op_class(parent);
}

OpHandle make_python_op(nb::handle self, const std::string& name, nb::dict params,
                        const OpOptions& options) {
  return {std::make_shared<PythonOp>(self, op_class(name), params_from_python(params), options)};
}

const PythonOp& python_op(const OpHandle& handle) {
  const auto* op = dynamic_cast<const PythonOp*>(handle.op.get());
  if (op == nullptr) {
    throw Error(ErrorKind::kDelegate,
                handle.op->name() + ": sub-ops are held by an op whose forward is Python's own");
  }
  return *op;
}

nb::object delegate_for(const OpHandle& handle, const std::string& stage, nb::handle identity,
                        nb::handle given, nb::handle make) {
  const PythonOp& op = python_op(handle);
  const Value value = value_from_python(identity);
  const std::shared_ptr<Op> injected = given.is_none() ? nullptr : shared_op(given);
  const std::function<std::shared_ptr<Op>()> build = [&] {
    return in_python([&] { return shared_op(nb::object(make())); });
  };
  std::shared_ptr<Op> held;
  {
    const nb::gil_scoped_release released;
    held = op.hold(stage, value, injected, build);
  }
  return op_object(held);
}

}  // namespace

void bind_composites(nb::module_& m) {
  m.def("declare_class", &declare_class);
  m.def("make_python_op", &make_python_op);
  m.def("delegate_for", &delegate_for, nb::arg("handle"), nb::arg("stage"),
        nb::arg("identity").none(), nb::arg("given").none(), nb::arg("make"));
  m.def("inherited_options", [](const OpHandle& handle) { return python_op(handle).inherited(); });
}

}  // namespace tileops::python
