// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/workload.h"

#include <algorithm>
#include <set>

#include "tileops/core/check.h"
#include "tileops/spec/generators.h"
#include "tileops/spec/signature.h"
#include "tileops/spec/workload_instance.h"

namespace tileops::spec {
namespace {

std::string case_id(const WorkloadRow& row, const std::vector<std::pair<int, DType>>& dtypes) {
  if (dtypes.empty()) return row.label;
  std::vector<std::string_view> names;
  names.reserve(dtypes.size());
  for (const auto& [slot, dtype] : dtypes) names.push_back(dtype_name(dtype));
  return fmt::format("{}/{}", row.label, fmt::join(names, "-"));
}

WorkloadCase make_case(const Entry& entry, const WorkloadRow& row,
                       const std::vector<std::pair<int, DType>>& dtypes) {
  WorkloadCase which{case_id(row, dtypes), row.label, row.tags,   row.params,
                     row.indices,          row.args,  row.present};
  for (const auto& [slot, dtype] : dtypes) {
    which.indices.set(entry.indices()[static_cast<size_t>(slot)].name, dtype);
  }
  return which;
}

void set_index(IndexValue& index, IndexValue::Kind kind, const Value& value) {
  index.kind = kind;
  if (const auto* size = value.as_int()) {
    index.dim = *size;
  } else if (const auto* dtype = value.as_dtype()) {
    index.dtype = *dtype;
  } else if (const auto* list = value.as_list()) {
    for (const Value& each : *list) index.seq.push_back(*each.as_int());
  }
}

}  // namespace

WorkloadInstance::WorkloadInstance(std::shared_ptr<const Entry> entry, const WorkloadCase& which)
    : entry_(std::move(entry)), which_(which), signature_(entry_, which.params) {
  const EntryImpl& impl = entry_->impl();
  values_ = signature_.plan().params;
  for (const ArgDecl& arg : impl.workloads.args) {
    const Value* value = which_.args.find(arg.name);
    values_.push_back(value != nullptr ? view_of(*value) : Val{});
  }
  for (const auto& [name, value] : which_.indices) {
    const auto slot = static_cast<size_t>(entry_->index_slot(name));
    set_index(indices_[slot], impl.indices[slot].kind, value);
  }
  facts_.inputs.assign(impl.inputs.size(), TensorFacts());
  for (size_t i = 0; i < impl.inputs.size(); ++i) {
    facts_.inputs[i].present =
        !impl.inputs[i].optional || std::find(which.present.begin(), which.present.end(),
                                              impl.inputs[i].name) != which.present.end();
  }
  key_ = signature_.plan().plan_of(facts_).key;
  determine();
}

Env WorkloadInstance::env() const {
  Env env;
  env.params = values_;
  env.indices = indices_.data();
  env.inputs = facts_.inputs.data();
  return env;
}

void WorkloadInstance::determine() {
  const EntryImpl& impl = entry_->impl();
  Env here = env();
  const auto lets = [&] {
    for (int slot : impl.let_order) {
      IndexValue& index = indices_[static_cast<size_t>(slot)];
      try {
        const Val val = evaluate(impl.index_specs[static_cast<size_t>(slot)].let->expr.root, here);
        set_index(index, impl.indices[static_cast<size_t>(slot)].kind, to_value(val));
      } catch (const EvalFailure&) {
        index.kind = IndexValue::Kind::kUnknown;  // it reads what this case does not have
      }
    }
  };
  lets();
  for (const auto& [slot, cases] : impl.workloads.determined) {
    const Formula* formula = select(cases, key_);
    if (formula == nullptr) continue;
    const std::string& name = impl.indices[static_cast<size_t>(slot)].name;
    try {
      const Value value = to_value(evaluate(formula->expr.root, here));
      set_index(indices_[static_cast<size_t>(slot)], IndexValue::Kind::kDim, value);
      which_.indices.set(name, value);
    } catch (const EvalFailure& failure) {
      raise(ErrorKind::kSpec, "{}: workload {}: {}: '{}' failed: {}", impl.name, which_.id, name,
            formula->expr.text, failure.what());
    }
  }
  lets();
}

TensorFacts WorkloadInstance::input_facts(size_t i) const {
  const EntryImpl& impl = entry_->impl();
  TensorFacts facts;
  if (!facts_.inputs[i].present) return facts;
  const ShapeDecl* shape = select(impl.input_specs[i].shapes, key_);
  const DTypeDecl* dtype = select(impl.input_specs[i].dtypes, key_);
  Env here = env();
  try {
    for (const ShapeTerm& term : shape->terms) {
      if (term.segment) {
        for (int64_t size : *evaluate(term.node, here).seq) facts.shape.push_back(size);
      } else {
        facts.shape.push_back(evaluate_int(term.node, here));
      }
    }
    facts.dtype = dtype->dtypes != 0 ? static_cast<DType>(__builtin_ctz(dtype->dtypes))
                                     : evaluate(dtype->node, here).dtype;
  } catch (const EvalFailure& failure) {
    raise(ErrorKind::kSpec, "{}: workload {}: {} as {}: {}", impl.name, which_.id,
          impl.inputs[i].name, shape->text, failure.what());
  }
  facts.present = true;
  return facts;
}

void WorkloadInstance::fill(size_t i, const Tensor& tensor, uint64_t seed) const {
  const EntryImpl& impl = entry_->impl();
  const GeneratorCall* call = select(impl.workloads.generators[i], key_);
  const GeneratorInput plain{tensor, {}, seed, i + 1};
  if (call == nullptr) {
    TILEOPS_CHECK(ErrorKind::kSpec, is_floating(tensor.dtype()),
                  "{}: generators.tensors.{}: {} needs a generator", impl.name, impl.inputs[i].name,
                  dtype_name(tensor.dtype()));
    return fill_normal(plain);
  }
  Env here = env();
  std::vector<Val> args;
  try {
    for (const ExprNode& arg : call->args) args.push_back(evaluate(arg, here));
    find_generator(call->name)->fill({tensor, args, seed, i + 1});
  } catch (const EvalFailure& failure) {
    raise(ErrorKind::kSpec, "{}: workload {}: generators.tensors.{}: '{}' failed: {}", impl.name,
          which_.id, impl.inputs[i].name, call->text, failure.what());
  }
}

std::vector<WorkloadCase> workload_cases(const Entry& entry) {
  std::vector<WorkloadCase> cases;
  const auto shared = std::make_shared<const Entry>(
      std::shared_ptr<const EntryImpl>(std::shared_ptr<void>(), &entry.impl()));
  for (const WorkloadRow& row : entry.impl().workloads.rows) {
    auto dtype_cases = row.dtype_cases;
    if (dtype_cases.empty()) dtype_cases.emplace_back();
    for (const auto& dtypes : dtype_cases) {
      cases.push_back(WorkloadInstance(shared, make_case(entry, row, dtypes)).which());
    }
  }
  return cases;
}

WorkloadCase workload_case(const Entry& entry, std::string_view id_or_label) {
  std::vector<WorkloadCase> cases = workload_cases(entry);
  for (const bool by_label : {false, true}) {
    for (WorkloadCase& each : cases) {
      if ((by_label ? each.label : each.id) == id_or_label) return std::move(each);
    }
  }
  raise(ErrorKind::kValue, "{}: there is no workload {}; there are: {}", entry.name(),
        id_or_label.substr(0, 100), fmt::join(entry.workload_labels(), ", "));
}

std::vector<Tensor> make_inputs(const std::shared_ptr<const Entry>& entry,
                                const WorkloadCase& which, uint64_t seed,
                                const std::vector<Tensor>& given) {
  const WorkloadInstance instance(entry, which);
  std::vector<Tensor> inputs(entry->inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorFacts facts = instance.input_facts(i);
    if (!facts.present) continue;
    if (i < given.size() && given[i].defined()) {
      inputs[i] = given[i];
      continue;
    }
    inputs[i] = Tensor::empty(facts.shape, facts.dtype);
    instance.fill(i, inputs[i], seed);
  }
  auto facts = std::make_unique<CallFacts>();
  const CallTensors call{inputs, {}};
  try {
    instance.signature().check(call, *facts);
    instance.signature().check_contents(call, *facts);
  } catch (const Error& error) {
    raise(ErrorKind::kSpec, "workload {} of {} breaks its own spec: {}", which.id, entry->name(),
          error.what());
  }
  return inputs;
}

std::vector<Tensor> make_meta_inputs(const std::shared_ptr<const Entry>& entry,
                                     const WorkloadCase& which) {
  const WorkloadInstance instance(entry, which);
  std::vector<Tensor> inputs(entry->inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorFacts facts = instance.input_facts(i);
    if (facts.present) inputs[i] = Tensor::empty(facts.shape, facts.dtype, kMetaDevice);
  }
  return inputs;
}

}  // namespace tileops::spec
