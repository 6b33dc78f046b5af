// SPDX-License-Identifier: Apache-2.0
// What calls leave behind: records, explanations, kernels.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "core_record.h"

#include "core_tensors.h"
#include "tileops/op/explanation.h"
#include "tileops/op/record.h"

namespace tileops::python {
namespace {

/// The record that it holds; immutable.
struct Record {
  RecordPtr record;
};
struct KernelHandle {
  std::shared_ptr<Kernel> kernel;
};

nb::tuple dims_to_python(const Dims& dims) {
  nb::list list;
  for (int64_t value : dims) list.append(value);
  return nb::tuple(list);
}

nb::str text(std::string_view value) { return nb::str(value.data(), value.size()); }

nb::dict values_of(const CallRecord& record) {
  nb::dict values;
  for (const spec::IndexDecl& index : record.signature().entry().indices()) {
    values[index.name.c_str()] = value_to_python(record.value(index.name));
  }
  return values;
}

nb::dict tensors_of(const CallRecord& record) {
  nb::dict tensors;
  const spec::Entry& entry = record.signature().entry();
  const auto add = [&](std::span<const spec::TensorDecl> decls) {
    for (const spec::TensorDecl& decl : decls) {
      tensors[decl.name.c_str()] = facts_to_python(record.tensor(decl.name));
    }
  };
  add(entry.inputs());
  add(entry.outputs());
  return tensors;
}

nb::dict stages_of(const CallRecord& record) {
  nb::dict stages;
  for (const std::string& stage : record.stage_names()) {
    nb::list records;
    for (const RecordPtr& each : record.stages(stage)) records.append(Record{each});
    stages[stage.c_str()] = records;
  }
  return stages;
}

nb::list kernels_of(const CallRecord& record) {
  nb::list kernels;
  for (const KernelUse& use : record.kernels()) {
    kernels.append(nb::make_tuple(text(use.interface), use.entry->implementation,
                                  value_to_python(use.entry->identity)));
  }
  return kernels;
}

void bind_record_class(nb::module_& m) {
  nb::class_<Record>(m, "CallRecord", "What remains of one completed call. Immutable.")
      .def_prop_ro("op", [](const Record& r) { return r.record->op(); })
      .def_prop_ro("device", [](const Record& r) { return to_string(r.record->device()); })
      .def_prop_ro("effect_branch", [](const Record& r) { return text(r.record->effect_branch()); })
      .def_prop_ro(
          "indices", [](const Record& r) { return values_of(*r.record); },
          "Values of the signature's indices by name.")
      .def(
          "index", [](const Record& r, const std::string& name) { return r.record->index(name); },
          nb::arg("name"), "A size of the signature. Errors: ValueError.")
      .def(
          "value",
          [](const Record& r, const std::string& name) {
            return value_to_python(r.record->value(name));
          },
          nb::arg("name"), "Any index or parameter. Errors: ValueError.")
      .def_prop_ro(
          "tensors", [](const Record& r) { return tensors_of(*r.record); },
          "Facts of each input and output by name; None for an absent one.")
      .def_prop_ro(
          "traffic",
          [](const Record& r) {
            const spec::Traffic traffic = r.record->traffic();
            return nb::make_tuple(traffic.read_bytes, traffic.written_bytes);
          },
          "Bytes of the call's tensors: (read, written).")
      .def_prop_ro(
          "written", [](const Record& r) { return r.record->written(); },
          "Names of the tensors that the call wrote.")
      .def(
          "metadata",
          [](const Record& r, const std::string& input) { return r.record->metadata(input); },
          nb::arg("input"), "A metadata input, to be read later. Errors: ValueError, RuntimeError.")
      .def_prop_ro(
          "stages", [](const Record& r) { return stages_of(*r.record); },
          "Records of the sub-op calls by declared stage, in completion order.")
      .def_prop_ro("served_by", [](const Record& r) { return r.record->served_by(); })
      .def_prop_ro(
          "kernels", [](const Record& r) { return kernels_of(*r.record); },
          "The op's own kernels that ran: (interface, implementation, identity).")
      .def_prop_ro("elapsed_us", [](const Record& r) { return r.record->elapsed_us(); })
      .def(
          "eval_roofline", [](const Record& r) { return cost_to_python(price(*r.record)); },
          "(flops, bytes) of the call by its spec's formula.")
      .def("__repr__", [](const Record& r) {
        return "CallRecord of " + r.record->op() + " on " + to_string(r.record->device());
      });
}

void bind_explanation(nb::module_& m) {
  nb::class_<Candidate>(m, "Candidate")
      .def_ro("key", &Candidate::key)
      .def_ro("chosen", &Candidate::chosen)
      .def_ro("reason", &Candidate::reason)
      .def_ro("config", &Candidate::config);
  nb::class_<InterfaceChoice>(m, "InterfaceChoice")
      .def_ro("interface", &InterfaceChoice::interface)
      .def_ro("candidates", &InterfaceChoice::candidates);
  nb::class_<Explanation>(m, "Explanation", "Which kernel serves each stage, and why no other.")
      .def_ro("op", &Explanation::op)
      .def_ro("stage", &Explanation::stage)
      .def_ro("target", &Explanation::target)
      .def_ro("choices", &Explanation::choices)
      .def_ro("stages", &Explanation::stages)
      .def("text", &Explanation::text)
      .def("__str__", &Explanation::text);
}

}  // namespace

nb::object facts_to_python(const spec::TensorFacts& facts) {
  return facts.present ? nb::cast(facts) : nb::none();
}

nb::object cost_to_python(const spec::Cost& cost) {
  static PyObject* const type =
      nb::object(nb::module_::import_("tileops_cpp._op").attr("Cost")).release().ptr();
  return nb::handle(type)(cost.flops, cost.bytes);
}

nb::object record_to_python(RecordPtr record) { return nb::cast(Record{std::move(record)}); }

nb::object kernel_to_python(std::shared_ptr<Kernel> kernel) {
  return nb::cast(KernelHandle{std::move(kernel)});
}

nb::object entry_to_python(const BuiltEntry& entry) { return nb::cast(entry); }

void bind_records(nb::module_& m) {
  nb::class_<spec::TensorFacts>(m, "TensorFacts", "What a call's signature says of a tensor.")
      .def_prop_ro("dtype", [](const spec::TensorFacts& f) { return text(dtype_name(f.dtype)); })
      .def_prop_ro("shape", [](const spec::TensorFacts& f) { return dims_to_python(f.shape); })
      .def_prop_ro("strides", [](const spec::TensorFacts& f) { return dims_to_python(f.strides); })
      .def_prop_ro("device", [](const spec::TensorFacts& f) { return to_string(f.device); })
      .def("__repr__", [](const spec::TensorFacts& f) {
        return std::string(dtype_name(f.dtype)) + to_string(f.shape) + " on " + to_string(f.device);
      });
  bind_record_class(m);
  bind_explanation(m);
  nb::class_<KernelHandle>(m, "Kernel", "What computes on a device.")
      .def_prop_ro("tunable", [](const KernelHandle& k) { return k.kernel->tunable(); })
      .def_prop_ro("config",
                   [](const KernelHandle& k) { return params_to_python(k.kernel->config()); })
      .def("__eq__",
           [](const KernelHandle& a, const KernelHandle& b) { return a.kernel == b.kernel; })
      .def("__hash__",
           [](const KernelHandle& k) { return std::hash<std::shared_ptr<Kernel>>()(k.kernel); });
  nb::class_<BuiltEntry>(m, "BuiltEntry", "An implementation's kernel for one identity.")
      .def_ro("implementation", &BuiltEntry::implementation)
      .def_prop_ro("identity", [](const BuiltEntry& e) { return value_to_python(e.identity); })
      .def_prop_ro("kernel", [](const BuiltEntry& e) { return kernel_to_python(e.kernel); });
  m.def("set_call_timing", &set_call_timing, nb::arg("on"),
        "Switches the timing of calls on the host (CallRecord.elapsed_us) on or off.");
}

}  // namespace tileops::python
