// SPDX-License-Identifier: Apache-2.0
// Calls from Python: arguments by the signature, the GIL released, results in their framework.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <unordered_map>

#include "core_tensors.h"
#include "tileops/op/op_class.h"
#include "tileops/op/trace.h"
#include "tileops/spec/entry_impl.h"

namespace tileops::python {
namespace {

/// Where the arguments of an entry's calls go. Lives as long as the process.
struct Slots {
  std::vector<PyObject*> inputs;  // names, interned
  std::vector<bool> written;      // inputs that a call may write
  std::vector<size_t> positional;
  std::vector<PyObject*> outs;  // names of the outputs that take a buffer
  std::vector<bool> dropped;    // outputs whose presence the parameters decide
  bool takes_out = false;       // `out` stands for the one buffer
  std::string takes;            // for messages
};

PyObject* interned(const std::string& name) { return PyUnicode_InternFromString(name.c_str()); }

bool reads_parameters_alone(const spec::EntryImpl& entry, const spec::Formula& formula) {
  const std::vector<std::string> names = spec::names_of(formula.expr.root);
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::any_of(entry.params.begin(), entry.params.end(),
                       [&](const spec::ParamDecl& param) { return param.name == name; });
  });
}

Slots slots_for(const spec::Entry& entry) {
  Slots slots;
  for (size_t i = 0; i < entry.inputs().size(); ++i) {
    const spec::TensorDecl& decl = entry.inputs()[i];
    slots.inputs.push_back(interned(decl.name));
    slots.written.push_back(decl.mutated);
    if (decl.keyword_only) continue;
    slots.positional.push_back(i);
    slots.takes += (slots.takes.empty() ? "" : ", ") + decl.name;
  }
  const spec::EntryImpl& impl = entry.impl();
  for (size_t i = 0; i < entry.outputs().size(); ++i) {
    if (entry.outputs()[i].buffer_out) slots.outs.push_back(interned(entry.outputs()[i].name));
    const auto& when = impl.output_specs[i].when;
    slots.dropped.push_back(when.has_value() && reads_parameters_alone(impl, *when));
  }
  slots.takes_out = slots.outs.size() == 1 && entry.input_slot("out") < 0;
  return slots;
}

const Slots& slots_of(const spec::Entry& entry) {
  static auto& known = *new std::unordered_map<const spec::Entry*, Slots>;  // under the GIL
  const auto it = known.find(&entry);
  return it != known.end() ? it->second : known.emplace(&entry, slots_for(entry)).first->second;
}

/// An op with what a call needs of its entry; the `self` of the function that calls it.
struct BoundOp {
  std::shared_ptr<Op> op;
  const Slots* slots;
};

[[noreturn]] void wrong_arguments(const Op& op, const std::string& fault) {
  throw Error(ErrorKind::kType, op.name() + ": " + fault);
}

bool same_name(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

/// The arguments of one call, as the signature orders them.
struct Arguments {
  std::array<PyObject*, CallFrame::kMaxTensors> inputs{};
  std::array<PyObject*, Results::kMaxResults> outs{};
  bool any_out = false;

  Arguments(const BoundOp& bound, PyObject* const* args, size_t num_args, PyObject* names)
      : bound_(bound) {
    const Slots& slots = *bound.slots;
    if (num_args > slots.positional.size()) {
      wrong_arguments(*bound.op, "takes " + std::to_string(slots.positional.size()) +
                                     " tensors by position (" + slots.takes + "), got " +
                                     std::to_string(num_args));
    }
    for (size_t i = 0; i < num_args; ++i) inputs[slots.positional[i]] = args[i];
    const Py_ssize_t num_names = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < num_names; ++i) {
      set(PyTuple_GET_ITEM(names, i), args[num_args + static_cast<size_t>(i)]);
    }
  }

 private:
  void set(PyObject* name, PyObject* value) {
    static PyObject* const out = PyUnicode_InternFromString("out");
    const Slots& slots = *bound_.slots;
    for (size_t i = 0; i < slots.inputs.size(); ++i) {
      if (!same_name(slots.inputs[i], name)) continue;
      if (inputs[i] != nullptr) {
        wrong_arguments(*bound_.op, "got " + text(name) + " by position and by name");
      }
      inputs[i] = value;
      return;
    }
    for (size_t i = 0; i < slots.outs.size(); ++i) {
      const bool named = same_name(slots.outs[i], name);
      if (!named && !(slots.takes_out && same_name(out, name))) continue;
      outs[i] = value;
      any_out = any_out || value != Py_None;
      return;
    }
    wrong_arguments(*bound_.op,
                    "there is no tensor " + text(name) + " to give; there are: " + known());
  }

  static std::string text(PyObject* name) { return nb::cast<std::string>(nb::handle(name)); }

  std::string known() const {
    std::string names;
    for (const auto* list : {&bound_.slots->inputs, &bound_.slots->outs}) {
      for (PyObject* name : *list) names += (names.empty() ? "" : ", ") + text(name);
    }
    return names;
  }

  const BoundOp& bound_;
};

/// The arguments as the library's tensors.
struct Taken {
  std::array<Tensor, CallFrame::kMaxTensors> inputs;
  std::array<Tensor, Results::kMaxResults> outs;
  size_t num_inputs;
  size_t num_outs;

  Taken(const BoundOp& bound, const Arguments& arguments, CallFrame& frame)
      : num_inputs(bound.slots->inputs.size()),
        num_outs(arguments.any_out ? bound.slots->outs.size() : 0) {
    for (size_t i = 0; i < num_inputs; ++i) {
      if (arguments.inputs[i] == nullptr) continue;
      inputs[i] = frame.take(arguments.inputs[i], PyUnicode_AsUTF8(bound.slots->inputs[i]),
                             bound.slots->written[i]);
    }
    for (size_t i = 0; i < num_outs; ++i) {
      if (arguments.outs[i] == nullptr) continue;
      outs[i] = frame.take(arguments.outs[i], PyUnicode_AsUTF8(bound.slots->outs[i]), true);
    }
  }
  spec::CallTensors tensors() const {
    return {{inputs.data(), num_inputs}, {outs.data(), num_outs}};
  }
};

/// One output alone, several as a tuple; those that the parameters leave out are not counted.
nb::object results_to_python(const BoundOp& bound, const Results& results, const CallFrame& frame) {
  std::array<int, Results::kMaxResults> kept{};
  size_t count = 0;
  for (int i = 0; i < results.size(); ++i) {
    if (results[i].defined() || !bound.slots->dropped[static_cast<size_t>(i)]) kept[count++] = i;
  }
  if (count == 1) return frame.give(results[kept[0]]);
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!tuple.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i),
                     frame.give(results[kept[i]]).release().ptr());
  }
  return tuple;
}

const BoundOp& bound_of(PyObject* self) {
  return *static_cast<const BoundOp*>(PyCapsule_GetPointer(self, nullptr));
}

PyObject* call_op(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* names) {
  try {
    const BoundOp& bound = bound_of(self);
    const Arguments arguments(bound, args, static_cast<size_t>(num_args), names);
    CallFrame frame(*bound.op);
    const Taken taken(bound, arguments, frame);
    Results results;
    {
      CallFrame::Place place;
      frame.enter(place);
      const nb::gil_scoped_release released;
      results = bound.op->call(taken.tensors());
    }
    return results_to_python(bound, results, frame).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyMethodDef call_def{"__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_op)),
                     METH_FASTCALL | METH_KEYWORDS, nullptr};

/// The function that calls the op; it keeps the op alive.
nb::object caller_of(const OpHandle& handle) {
  auto bound = std::make_unique<BoundOp>(BoundOp{handle.op, &slots_of(handle.op->entry())});
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

OpHandle make_op(const std::string& name, nb::dict params, const OpOptions& options) {
  return {op_class(name).make(params_from_python(params), options)};
}

Graph trace_call(const OpHandle& handle, nb::args args, nb::kwargs kwargs) {
  const BoundOp bound{handle.op, &slots_of(handle.op->entry())};
  std::vector<PyObject*> values(nb::len(args));
  for (size_t i = 0; i < values.size(); ++i) values[i] = PyTuple_GET_ITEM(args.ptr(), i);
  nb::list names;
  for (auto [name, value] : kwargs) {
    names.append(name);
    values.push_back(value.ptr());
  }
  const nb::tuple name_tuple(names);
  const Arguments arguments(bound, values.data(), nb::len(args), name_tuple.ptr());
  CallFrame frame(*bound.op);
  const Taken taken(bound, arguments, frame);
  return trace(*bound.op, taken.tensors());
}

}  // namespace

void bind_calls(nb::module_& m) {
  nb::class_<OpOptions>(m, "OpOptions")
      .def(nb::init<>())
      .def_rw("target", &OpOptions::target)
      .def_rw("implementation", &OpOptions::implementation)
      .def_rw("validate_inputs", &OpOptions::validate_inputs)
      .def_rw("device", &OpOptions::device)
      .def_prop_rw(
          "kernel_config", [](const OpOptions& o) { return params_to_python(o.kernel_config); },
          [](OpOptions& o, nb::dict config) { o.kernel_config = params_from_python(config); });
  nb::class_<Graph>(m, "Graph")
      .def("text", &Graph::text)
      .def("dot", &Graph::dot)
      .def("json", &Graph::json)
      .def("__str__", &Graph::text);
  nb::class_<OpHandle>(m, "OpHandle")
      .def_prop_ro("key", [](const OpHandle& h) { return h.op->key(); })
      .def_prop_ro("name", [](const OpHandle& h) { return h.op->name(); })
      .def_prop_ro("params", [](const OpHandle& h) { return params_to_python(h.op->params()); })
      .def("caller", &caller_of)
      .def("trace", &trace_call);
  m.def("make_op", &make_op);
}

}  // namespace tileops::python
