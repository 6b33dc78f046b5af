// SPDX-License-Identifier: Apache-2.0
// What the package needs of a spec and of a trace to compile: as JSON, over meta tensors.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core_arguments.h"
#include "tileops/op/op.h"
#include "tileops/op/op_class.h"
#include "tileops/op/trace.h"
#include "tileops/spec/effects.h"
#include "tileops/spec/inference.h"

namespace tileops::python {
namespace {

/// None is an absent tensor.
std::vector<Tensor> tensors_of(nb::list list) {
  std::vector<Tensor> tensors;
  for (nb::handle each : list)
    tensors.push_back(each.is_none() ? Tensor() : nb::cast<Tensor>(each));
  return tensors;
}

std::string trace_json(const std::string& key, nb::list inputs, nb::list outs,
                       const std::string& device) {
  const std::vector<Tensor> input_tensors = tensors_of(inputs), out_tensors = tensors_of(outs);
  return trace(instance_of(key), {input_tensors, out_tensors}, parse_device(device)).json();
}

std::vector<std::string> names_of(std::span<const spec::TensorDecl> decls) {
  std::vector<std::string> names;
  for (const spec::TensorDecl& decl : decls) names.push_back(decl.name);
  return names;
}

std::vector<std::string> names_of(std::span<const spec::TensorDecl> decls,
                                  const std::vector<int>& slots) {
  std::vector<std::string> names;
  names.reserve(slots.size());
  for (int slot : slots) names.push_back(decls[static_cast<size_t>(slot)].name);
  return names;
}

nb::list effect_branches(const std::string& name) {
  const std::shared_ptr<const spec::Entry> entry = op_class(name).entry();
  nb::list list;
  if (!entry->has_compile_boundary()) return list;
  for (const spec::EffectBranch& branch : spec::effect_branches(*entry)) {
    if (!spec::is_possible(branch)) continue;
    nb::dict each;
    each["operator"] = node_name(*entry, branch.name);
    each["inputs"] = names_of(entry->inputs());
    each["outs"] = names_of(entry->outputs(), branch.outs);
    each["fresh"] = spec::fresh_outputs(*entry, branch);
    list.append(each);
  }
  return list;
}

/// Where the arguments of a class's calls go, for callers in Python.
nb::dict call_slots(const std::string& name) {
  const Slots& slots = slots_of(*op_class(name).entry());
  const auto names = [](const std::vector<PyObject*>& list) {
    nb::list result;
    for (PyObject* each : list) result.append(nb::handle(each));
    return nb::tuple(result);
  };
  nb::dict dict;
  dict["inputs"] = names(slots.inputs);
  dict["keyword_only"] = slots.keyword_only;
  dict["positional"] = slots.positional;
  dict["outs"] = names(slots.outs);
  dict["takes_out"] = slots.takes_out;
  dict["dropped"] = slots.dropped;
  return dict;
}

}  // namespace

void bind_compile(nb::module_& m) {
  m.def("call_slots", &call_slots);
  m.def("effect_branches", &effect_branches);
  m.def("inference_json",
        [](const std::string& key) { return spec::inference_json(instance_of(key).signature()); });
  m.def("trace_json", &trace_json);
  m.def("check_composition_serves", [](const std::string& key, const std::string& device) {
    check_composition_serves(instance_of(key), parse_device(device));
  });
}

}  // namespace tileops::python
