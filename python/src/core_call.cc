// SPDX-License-Identifier: Apache-2.0
// Calls from Python: arguments by the signature, the GIL released, results in their framework.
#include "core_arguments.h"
#include "tileops/op/trace.h"

namespace tileops::python {
namespace {

const BoundOp& bound_of(PyObject* capsule) {
  return *static_cast<const BoundOp*>(PyCapsule_GetPointer(capsule, nullptr));
}

PyObject* run(const BoundOp& bound, const Arguments& arguments) {
  CallFrame frame(bound.op->name());
  const Taken taken(bound, arguments, frame);
  const Results results = [&] {
    CallFrame::Place place;
    frame.enter(place);
    const nb::gil_scoped_release released;
    return bound.op->call(taken.tensors());
  }();
  return results_to_python(*bound.slots, results, frame).release().ptr();
}

PyObject* call_op(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* names) {
  try {
    const BoundOp& bound = bound_of(self);
    return run(bound, Arguments(bound, args, static_cast<size_t>(num_args), names));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyMethodDef call_def{"__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_op)),
                     METH_FASTCALL | METH_KEYWORDS, nullptr};

// Whether torch.compile or an export looks on; null while torch is not in the process.
PyObject* is_compiling = nullptr;

bool looked_on() {
  if (is_compiling == nullptr) return false;
  const nb::object answer = nb::steal(PyObject_CallNoArgs(is_compiling));
  if (!answer.is_valid()) throw nb::python_error();
  return answer.ptr() == Py_True;
}

/// op(*args, **named) without a frame of Python's: what Op.__call__ does.
PyObject* call_object(PyObject* self, PyObject* args, PyObject* named) {
  static PyObject* const in_python = PyUnicode_InternFromString("__call__");
  static PyObject* const caller = PyUnicode_InternFromString("_call");
  try {
    const bool traced = looked_on();
    const nb::object function = nb::steal(PyObject_GetAttr(self, traced ? in_python : caller));
    if (!function.is_valid()) throw nb::python_error();
    if (!PyCFunction_CheckExact(function.ptr()) ||
        PyCFunction_GET_FUNCTION(function.ptr()) != call_def.ml_meth) {
      return PyObject_Call(function.ptr(), args, named);
    }
    nb::object kept;  // a partial's dict can change while the call runs
    if (named != nullptr) {
      kept = nb::steal(PyDict_Copy(named));
      if (!kept.is_valid()) throw nb::python_error();
    }
    const BoundOp& bound = bound_of(PyCFunction_GET_SELF(function.ptr()));
    return run(bound, Arguments(bound, args, kept.ptr()));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

/// The function that calls the op; it keeps the op alive.
nb::object caller_of(const OpHandle& handle) {
  auto bound = std::make_unique<BoundOp>(handle.op);
  const auto destroy = [](PyObject* capsule) {
    delete static_cast<BoundOp*>(PyCapsule_GetPointer(capsule, nullptr));
  };
  const nb::object capsule = nb::steal(PyCapsule_New(bound.get(), nullptr, destroy));
  if (!capsule.is_valid()) throw nb::python_error();
  bound.release();
  PyObject* function = PyCFunction_NewEx(&call_def, capsule.ptr(), nullptr);
  if (function == nullptr) throw nb::python_error();
  return nb::steal(function);
}

Graph trace_call(const OpHandle& handle, nb::args args, nb::kwargs kwargs) {
  const BoundOp bound(handle.op);
  std::vector<PyObject*> values;
  for (nb::handle value : args) values.push_back(value.ptr());
  nb::list names;
  for (auto [name, value] : kwargs) {
    names.append(name);
    values.push_back(value.ptr());
  }
  const nb::tuple name_tuple(names);
  const Arguments arguments(bound, values.data(), nb::len(args), name_tuple.ptr());
  CallFrame frame(bound.op->name());
  const Taken taken(bound, arguments, frame);
  const nb::gil_scoped_release released;
  return trace(*bound.op, taken.tensors());
}

}  // namespace

void bind_calls(nb::module_& m) {
  nb::class_<Graph>(m, "Graph", "The leaf calls that a call makes, as nodes.")
      .def("text", &Graph::text)
      .def("dot", &Graph::dot)
      .def("json", &Graph::json)
      .def("__str__", &Graph::text);
  m.def("caller", &caller_of);
  m.def("serve_calls",
        [](nb::handle cls) { reinterpret_cast<PyTypeObject*>(cls.ptr())->tp_call = &call_object; });
  m.def("set_is_compiling", [](nb::object function) { is_compiling = function.release().ptr(); });
  m.def("trace", &trace_call);
}

}  // namespace tileops::python
