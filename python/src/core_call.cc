// SPDX-License-Identifier: Apache-2.0
// Calls from Python: arguments by the signature, the GIL released, results in their framework.
#include "core_arguments.h"
#include "tileops/op/trace.h"

namespace tileops::python {
namespace {

const BoundOp& bound_of(PyObject* capsule) {
  return *static_cast<const BoundOp*>(PyCapsule_GetPointer(capsule, nullptr));
}

PyObject* call_op(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* names) {
  try {
    const BoundOp& bound = bound_of(self);
    const Arguments arguments(bound, args, static_cast<size_t>(num_args), names);
    CallFrame frame(bound.op->name());
    const Taken taken(bound, arguments, frame);
    Results results;
    {
      CallFrame::Place place;
      frame.enter(place);
      const nb::gil_scoped_release released;
      results = bound.op->call(taken.tensors());
    }
    return results_to_python(*bound.slots, results, frame).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyMethodDef call_def{"__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_op)),
                     METH_FASTCALL | METH_KEYWORDS, nullptr};

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
  m.def("trace", &trace_call);
}

}  // namespace tileops::python
