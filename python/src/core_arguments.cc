// SPDX-License-Identifier: Apache-2.0
#include "core_arguments.h"

#include <algorithm>
#include <unordered_map>

#include "tileops/spec/entry_impl.h"

namespace tileops::python {
namespace {

PyObject* interned(const std::string& name) { return PyUnicode_InternFromString(name.c_str()); }

std::string text(PyObject* name) { return nb::cast<std::string>(nb::handle(name)); }

bool same_name(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

bool reads_parameters_alone(const spec::EntryImpl& entry, const spec::Formula& formula) {
  const std::vector<std::string> names = spec::names_of(formula.expr.root);
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::any_of(entry.params.begin(), entry.params.end(),
                       [&](const spec::ParamDecl& param) { return param.name == name; });
  });
}

Slots make_slots(const spec::Entry& entry) {
  Slots slots;
  for (size_t i = 0; i < entry.inputs().size(); ++i) {
    const spec::TensorDecl& decl = entry.inputs()[i];
    slots.inputs.push_back(interned(decl.name));
    slots.written.push_back(decl.mutated);
    slots.keyword_only.push_back(decl.keyword_only);
    if (decl.keyword_only) continue;
    slots.positional.push_back(i);
    slots.takes += (slots.takes.empty() ? "" : ", ") + decl.name;
  }
  const spec::EntryImpl& impl = entry.impl();
  for (size_t i = 0; i < entry.outputs().size(); ++i) {
    const auto& when = impl.output_specs[i].when;
    slots.outputs.push_back(interned(entry.outputs()[i].name));
    slots.dropped.push_back(when.has_value() && reads_parameters_alone(impl, *when));
    if (!entry.outputs()[i].buffer_out) continue;
    slots.outs.push_back(interned(entry.outputs()[i].name));
    slots.out_outputs.push_back(static_cast<int>(i));
  }
  slots.takes_out = slots.outs.size() == 1 && entry.input_slot("out") < 0;
  return slots;
}

[[noreturn]] void wrong_arguments(const spec::Entry& entry, const std::string& fault) {
  throw Error(ErrorKind::kType, entry.name() + ": " + fault);
}

std::string known_names(const Slots& slots) {
  std::string names;
  for (const auto* list : {&slots.inputs, &slots.outs}) {
    for (PyObject* name : *list) names += (names.empty() ? "" : ", ") + text(name);
  }
  return names;
}

}  // namespace

const Slots& slots_of(const spec::Entry& entry) {
  static auto& known = *new std::unordered_map<const spec::Entry*, Slots>;  // under the GIL
  const auto it = known.find(&entry);
  return it != known.end() ? it->second : known.emplace(&entry, make_slots(entry)).first->second;
}

void Arguments::set_positional(const BoundOp& bound, PyObject* const* args, size_t num_args) {
  const Slots& slots = *bound.slots;
  if (num_args > slots.positional.size()) {
    wrong_arguments(bound.op->entry(), "takes " + std::to_string(slots.positional.size()) +
                                           " tensors by position (" + slots.takes + "), got " +
                                           std::to_string(num_args));
  }
  for (size_t i = 0; i < num_args; ++i) inputs[slots.positional[i]] = args[i];
}

Arguments::Arguments(const BoundOp& bound, PyObject* const* args, size_t num_args,
                     PyObject* names) {
  set_positional(bound, args, num_args);
  const Py_ssize_t num_names = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < num_names; ++i) {
    set(bound, PyTuple_GET_ITEM(names, i), args[num_args + static_cast<size_t>(i)]);
  }
}

Arguments::Arguments(const BoundOp& bound, PyObject* args, PyObject* named) {
  set_positional(bound, &PyTuple_GET_ITEM(args, 0), static_cast<size_t>(PyTuple_GET_SIZE(args)));
  if (named == nullptr) return;
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(named, &at, &name, &value) != 0;) set(bound, name, value);
}

void Arguments::set(const BoundOp& bound, PyObject* name, PyObject* value) {
  static PyObject* const out = PyUnicode_InternFromString("out");
  const Slots& slots = *bound.slots;
  for (size_t i = 0; i < slots.inputs.size(); ++i) {
    if (!same_name(slots.inputs[i], name)) continue;
    if (inputs[i] != nullptr) {
      wrong_arguments(bound.op->entry(), "got " + text(name) + " by position and by name");
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
  wrong_arguments(bound.op->entry(),
                  "it takes no tensor " + text(name) + "; it takes: " + known_names(slots));
}

Taken::Taken(const BoundOp& bound, const Arguments& arguments, CallFrame& frame)
    : inputs_(bound.slots->inputs.size()), outs_(arguments.any_out ? bound.slots->outs.size() : 0) {
  const Slots& slots = *bound.slots;
  for (size_t i = 0; i < slots.inputs.size(); ++i) {
    if (arguments.inputs[i] == nullptr) continue;
    frame.take(arguments.inputs[i], slots.inputs[i], slots.written[i], inputs_[i]);
  }
  for (size_t i = 0; i < outs_.span().size(); ++i) {
    if (arguments.outs[i] == nullptr) continue;
    frame.take(arguments.outs[i], slots.outs[i], true, outs_[i]);
  }
}

nb::object results_to_python(const Slots& slots, const Results& results, const CallFrame& frame) {
  std::array<int, Results::kMaxResults> kept{};
  size_t count = 0;
  for (int i = 0; i < results.size(); ++i) {
    if (results[i].defined() || !slots.dropped[static_cast<size_t>(i)]) kept[count++] = i;
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

namespace {

/// The outputs that a function which returned so many stands for: all, or those that are not the
/// parameters' to leave out.
std::vector<size_t> returned_outputs(const Slots& slots, size_t count) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < slots.outputs.size(); ++i) {
    if (count == slots.outputs.size() || !slots.dropped[i]) kept.push_back(i);
  }
  return kept;
}

Results take_results(nb::handle returned, const spec::Entry& entry, const Slots& slots,
                     CallFrame& frame) {
  std::vector<PyObject*> objects{returned.ptr()};
  if (PyTuple_Check(returned.ptr()) || PyList_Check(returned.ptr())) {
    objects.clear();
    for (nb::handle each : nb::borrow<nb::sequence>(returned)) objects.push_back(each.ptr());
  }
  const std::vector<size_t> kept = returned_outputs(slots, objects.size());
  if (objects.size() != kept.size()) {
    wrong_arguments(entry, std::to_string(kept.size()) + " outputs must be returned, got " +
                               std::to_string(objects.size()));
  }
  std::array<Tensor, Results::kMaxResults> tensors;
  for (size_t i = 0; i < kept.size(); ++i) {
    tensors[kept[i]] = frame.take_result(objects[i], slots.outputs[kept[i]]);
  }
  Results results;
  for (size_t i = 0; i < slots.outputs.size(); ++i) results.push_back(std::move(tensors[i]));
  return results;
}

/// The arguments of a Python function on a call's tensors.
struct LentArguments {
  nb::list positional;
  nb::dict named;
};

void lend_inputs(const Slots& slots, TensorRefs inputs, CallFrame& frame, LentArguments& lent) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    nb::object object = frame.lend(inputs[i]);
    if (!slots.keyword_only[i])
      lent.positional.append(std::move(object));
    else if (!object.is_none())
      lent.named[nb::handle(slots.inputs[i])] = std::move(object);
  }
}

}  // namespace

Results call_python(nb::handle function, const spec::Entry& entry, const Slots& slots,
                    const spec::CallTensors& tensors, const Framework*& framework) {
  CallFrame frame(entry.name());
  if (frame.framework() == nullptr)
    frame.expect(framework != nullptr ? framework : node_framework());
  else
    framework = frame.framework();
  LentArguments lent;
  lend_inputs(slots, tensors.inputs, frame, lent);
  for (size_t i = 0; i < tensors.outs.size(); ++i) {
    if (tensors.outs[i].defined()) {
      lent.named[nb::handle(slots.outs[i])] = frame.lend(tensors.outs[i]);
    }
  }
  const nb::object returned = function(*lent.positional, **lent.named);
  return take_results(returned, entry, slots, frame);
}

void fill_by_python(nb::handle function, const spec::Entry& entry, const Slots& slots,
                    const std::string& who, std::span<const Tensor> tensors) {
  CallFrame frame(entry.name());
  if (frame.framework() == nullptr) frame.expect(node_framework());
  LentArguments lent;
  lend_inputs(slots, tensors.first(slots.inputs.size()), frame, lent);
  const auto outputs = tensors.subspan(slots.inputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) {
      lent.named[nb::handle(slots.outputs[i])] = frame.lend_to_write(outputs[i]);
    }
  }
  const nb::object returned = function(*lent.positional, **lent.named);
  if (returned.is_none()) return;
  wrong_arguments(entry, "the kernel of " + who +
                             " fills the outputs that it is given and returns " + "None, got " +
                             Py_TYPE(returned.ptr())->tp_name);
}

}  // namespace tileops::python
