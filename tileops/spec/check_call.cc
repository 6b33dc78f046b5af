// SPDX-License-Identifier: Apache-2.0
// Signature::check: a call against the compiled plan.
#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

/// Whether two elements of the tensor can be one: its dims, by stride, do not step over each other.
bool overlaps_itself(const Shape& shape, const Strides& strides) {
  std::array<int, kMaxRank> order{};
  int count = 0;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return false;
    if (shape[d] > 1) order[static_cast<size_t>(count++)] = d;
  }
  std::sort(order.begin(), order.begin() + count,
            [&](int a, int b) { return strides[a] < strides[b]; });
  int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    const int d = order[static_cast<size_t>(i)];
    if (strides[d] <= reach) return true;
    reach += (shape[d] - 1) * strides[d];
  }
  return false;
}

constexpr TensorFacts kNoTensor;
constexpr IndexValue kUnknownIndex;

class CallCheck {
 public:
  CallCheck(const EntryImpl& entry, const Signature::Plan& mine, const CallTensors& call,
            CallFacts& facts)
      : entry_(entry), mine_(mine), call_(call), facts_(facts), env_(mine.env()) {
    env_.inputs = facts.inputs.data();
    env_.indices = facts.indices.data();
  }

  void run(const CallFacts* former) {
    counts();
    facts_.inputs.assign(entry_.inputs.size(), kNoTensor);
    inputs();
    if (former != nullptr && is_like(*former)) {
      adopt(*former);
    } else {
      infer();
    }
    effects();
  }

 private:
  /// Whether a check sees the same: all but effects() depends on nothing else.
  bool is_like(const CallFacts& former) const {
    return former.has_device == facts_.has_device && former.device == facts_.device &&
           std::ranges::equal(former.inputs, facts_.inputs);
  }

  void adopt(const CallFacts& former) {
    facts_.indices = former.indices;
    facts_.outputs = former.outputs;
    facts_.writes = facts_.writes_elements = false;
    for (TensorFacts& facts : facts_.outputs) {
      if (!facts.present) continue;
      const Contiguous contiguous(facts.shape);
      facts.strides = contiguous.strides;
      facts_.writes = true;
      facts_.writes_elements = facts_.writes_elements || contiguous.num_elements > 0;
    }
  }

  void infer() {
    groups();
    facts_.indices.assign(entry_.indices.size(), kUnknownIndex);
    facts_.outputs.assign(entry_.outputs.size(), kNoTensor);
    for (size_t i = 0; i < entry_.indices.size(); ++i) {
      if (mine_.base[i].kind != IndexValue::Kind::kUnknown) facts_.indices[i] = mine_.base[i];
    }
    const SpecialPlan& special = mine_.case_of(facts_);
    const Plan& plan = *special.plan;
    StepRunner runner(entry_, plan, entry_.inputs, plan.inputs, facts_.inputs.data(),
                      facts_.indices.data(), env_);
    runner.ranks();
    runner.run(special.steps);
    combos();
    runner.rules(plan.rules, special.rules.data());
    outputs(special);
  }

  void counts() const {
    TILEOPS_CHECK(ErrorKind::kType, call_.inputs.size() == entry_.inputs.size(),
                  "{}: takes {} input tensors, got {}", entry_.name, entry_.inputs.size(),
                  call_.inputs.size());
    TILEOPS_CHECK(ErrorKind::kType,
                  call_.outs.empty() || call_.outs.size() == mine_.buffer_outputs.size(),
                  "{}: takes {} output buffers, got {}", entry_.name, mine_.buffer_outputs.size(),
                  call_.outs.size());
  }

  void inputs() {
    facts_.has_device = false;
    for (size_t i = 0; i < entry_.inputs.size(); ++i) {
      const Tensor& tensor = call_.inputs[i];
      const TensorDecl& decl = entry_.inputs[i];
      TensorFacts& facts = facts_.inputs[i];
      facts.present = tensor.defined();
      if (!facts.present) {
        TILEOPS_CHECK(ErrorKind::kType, decl.optional, "{}: {} is absent; the spec requires it",
                      entry_.name, decl.name);
        continue;
      }
      facts.dtype = tensor.dtype();
      facts.device = tensor.device();
      facts.shape = tensor.shape();
      facts.strides = tensor.strides();
      device(decl, facts.device);
      TILEOPS_CHECK(ErrorKind::kShape, !decl.contiguous || tensor.is_contiguous(),
                    "{}: {} has strides {} for shape {}; the spec says contiguous", entry_.name,
                    decl.name, to_string(facts.strides), to_string(facts.shape));
    }
  }

  void device(const TensorDecl& decl, Device found) {
    if (decl.on_cpu) {
      TILEOPS_CHECK(ErrorKind::kDevice, found.type != DeviceType::kCUDA,
                    "{}: {} is on {}; the spec says cpu", entry_.name, decl.name, to_string(found));
      return;
    }
    if (!facts_.has_device) {
      facts_.device = found;
      facts_.has_device = true;
      first_ = &decl;
      return;
    }
    TILEOPS_CHECK(ErrorKind::kDevice, found == facts_.device,
                  "{}: {} is on {}; {} is on {}, and the spec says one device", entry_.name,
                  decl.name, to_string(found), first_->name, to_string(facts_.device));
  }

  void groups() const {
    for (const std::vector<int>& group : mine_.groups) {
      const auto first = static_cast<size_t>(group.front());
      for (int member : group) {
        const auto i = static_cast<size_t>(member);
        TILEOPS_CHECK(ErrorKind::kType, facts_.inputs[i].present == facts_.inputs[first].present,
                      "{}: {} is {} and {} is {}; the spec says that they come together",
                      entry_.name, entry_.inputs[first].name,
                      facts_.inputs[first].present ? "given" : "absent", entry_.inputs[i].name,
                      facts_.inputs[i].present ? "given" : "absent");
      }
    }
  }

  void combos() const {
    if (entry_.dtype_combos.empty()) return;
    for (const auto& combo : entry_.dtype_combos) {
      bool holds = true;
      for (const auto& [index, dtype] : combo) {
        const IndexValue& value = facts_.indices[static_cast<size_t>(index)];
        holds = holds && (value.kind == IndexValue::Kind::kUnknown || value.dtype == dtype);
      }
      if (holds) return;
    }
    std::string came;
    for (const auto& [index, unused] : entry_.dtype_combos.front()) {
      const auto i = static_cast<size_t>(index);
      came += fmt::format("{}{} = {}", came.empty() ? "" : ", ", entry_.indices[i].name,
                          dtype_name(facts_.indices[i].dtype));
    }
    raise(ErrorKind::kDType, "{}: {} is none of the spec's dtype_combos", entry_.name, came);
  }

  void outputs(const SpecialPlan& special) {
    facts_.writes = false;
    facts_.writes_elements = false;
    for (size_t j = 0; j < entry_.outputs.size(); ++j) {
      TensorFacts& facts = facts_.outputs[j];
      const auto& presence = special.presence[j];
      try {
        facts.present = !presence || evaluate_bool(*presence, env_);
      } catch (const EvalFailure& failure) {
        const Formula& when = *entry_.output_specs[j].when;
        raise_failure(entry_, when.field, when.expr.text, failure);
      }
      if (facts.present) infer(special.output_shapes[j], special.output_dtypes[j], j, facts);
    }
  }

  void infer(const ShapeDecl& shape, const DTypeDecl& dtype, size_t j, TensorFacts& facts) {
    const std::string& name = entry_.outputs[j].name;
    int64_t elements = 1;
    try {
      facts.shape = {};
      for (const ShapeTerm& term : shape.terms) term_sizes(term, facts.shape);
      for (int64_t size : facts.shape) {
        if (size < 0) throw EvalFailure(fmt::format("size {} is negative", size), true);
        if (__builtin_mul_overflow(elements, size, &elements)) {
          throw EvalFailure("integer overflow", true);
        }
      }
    } catch (const EvalFailure& failure) {
      raise_failure(entry_, "signature.outputs." + name + ".shape", shape.text, failure);
    }
    facts.dtype = dtype_of(dtype, name);
    facts.device = entry_.outputs[j].on_cpu && facts_.device.type == DeviceType::kCUDA
                       ? kCpuDevice
                       : facts_.device;
    facts.strides = contiguous_strides(facts.shape);
    facts_.writes = true;
    facts_.writes_elements = facts_.writes_elements || elements > 0;
  }

  void term_sizes(const ShapeTerm& term, Shape& shape) {
    if (!term.segment) {
      const bool plain = term.index >= 0 && facts_.indices[static_cast<size_t>(term.index)].kind ==
                                                IndexValue::Kind::kDim;
      push(shape, plain ? facts_.indices[static_cast<size_t>(term.index)].dim
                        : evaluate_int(term.node, env_));
      return;
    }
    const Val segment = evaluate(term.node, env_);
    for (int64_t size : *segment.seq) push(shape, size);
  }

  static void push(Shape& shape, int64_t size) {
    if (shape.size() == kMaxRank) {
      throw EvalFailure(fmt::format("more than {} dimensions", kMaxRank), true);
    }
    shape.push_back(size);
  }

  DType dtype_of(const DTypeDecl& decl, const std::string& name) {
    if (decl.dtypes != 0) return static_cast<DType>(__builtin_ctz(decl.dtypes));
    if (decl.index >= 0 &&
        facts_.indices[static_cast<size_t>(decl.index)].kind == IndexValue::Kind::kDType) {
      return facts_.indices[static_cast<size_t>(decl.index)].dtype;
    }
    try {
      const Val val = evaluate(decl.node, env_);
      if (val.kind != Val::Kind::kDType) throw EvalFailure("it gives no dtype");
      return val.dtype;
    } catch (const EvalFailure& failure) {
      raise_failure(entry_, "signature.outputs." + name + ".dtype", decl.text, failure);
    }
  }

  void effects() {
    facts_.mutated = 0;
    size_t bits = 0;
    size_t bit = 0;
    for (size_t k = 0; k < mine_.buffer_outputs.size(); ++k, ++bit) {
      if (k >= call_.outs.size() || !call_.outs[k].defined()) continue;
      buffer(k, static_cast<size_t>(mine_.buffer_outputs[k]));
      bits |= size_t{1} << bit;
    }
    for (int i : mine_.mutated_inputs) {
      if (mutation(static_cast<size_t>(i))) bits |= size_t{1} << bit;
      ++bit;
    }
    for (int j : mine_.optional_outputs) {
      if (!facts_.outputs[static_cast<size_t>(j)].present) bits |= size_t{1} << bit;
      ++bit;
    }
    facts_.effect_branch = mine_.branches[bits];
  }

  std::string buffer_name(size_t j) const {
    return mine_.buffer_outputs.size() == 1 ? "out" : "out " + entry_.outputs[j].name;
  }

  void buffer(size_t k, size_t j) {
    const Tensor& out = call_.outs[k];
    TensorFacts& wanted = facts_.outputs[j];
    TILEOPS_CHECK(ErrorKind::kValue, wanted.present, "{}: {} is given, but this call has no {}",
                  entry_.name, buffer_name(j), entry_.outputs[j].name);
    TILEOPS_CHECK(ErrorKind::kShape, out.shape() == wanted.shape, "{}: {}; the spec says {} = {}",
                  entry_.name, shape_text(buffer_name(j), out.shape()),
                  mine_.plan_of(facts_).outputs[j].shape->text, to_string(wanted.shape));
    TILEOPS_CHECK(ErrorKind::kDType, out.dtype() == wanted.dtype,
                  "{}: {} has dtype {}; the spec says {} = {}", entry_.name, buffer_name(j),
                  dtype_name(out.dtype()), mine_.plan_of(facts_).outputs[j].dtype->text,
                  dtype_name(wanted.dtype));
    TILEOPS_CHECK(ErrorKind::kDevice, out.device() == wanted.device,
                  "{}: {} is on {}; the call is on {}", entry_.name, buffer_name(j),
                  to_string(out.device()), to_string(wanted.device));
    TILEOPS_CHECK(ErrorKind::kShape, !overlaps_itself(out.shape(), out.strides()),
                  "{}: {} has strides {} for shape {}: its elements overlap each other",
                  entry_.name, buffer_name(j), to_string(out.strides()), to_string(out.shape()));
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      TILEOPS_CHECK(ErrorKind::kValue, !call_.inputs[i].defined() || !out.overlaps(call_.inputs[i]),
                    "{}: {} overlaps {}; the spec says that one is written while the other is read",
                    entry_.name, buffer_name(j), entry_.inputs[i].name);
    }
    for (size_t other = 0; other < k; ++other) {
      TILEOPS_CHECK(ErrorKind::kValue,
                    !call_.outs[other].defined() || !out.overlaps(call_.outs[other]),
                    "{}: {} overlaps {}", entry_.name, buffer_name(j),
                    buffer_name(static_cast<size_t>(mine_.buffer_outputs[other])));
    }
    wanted.strides = out.strides();
  }

  /// Whether this call writes the input.
  bool mutation(size_t i) {
    if (!facts_.inputs[i].present) return false;
    const auto& condition = entry_.input_specs[i].mutated;
    try {
      if (condition && !evaluate_bool(condition->expr.root, env_)) return false;
    } catch (const EvalFailure& failure) {
      raise_failure(entry_, condition->field, condition->expr.text, failure);
    }
    const Tensor& written = call_.inputs[i];
    TILEOPS_CHECK(ErrorKind::kShape, !overlaps_itself(written.shape(), written.strides()),
                  "{}: {} is written, and has strides {} for shape {}: its elements overlap each "
                  "other",
                  entry_.name, entry_.inputs[i].name, to_string(written.strides()),
                  to_string(written.shape()));
    for (size_t other = 0; other < call_.inputs.size(); ++other) {
      TILEOPS_CHECK(
          ErrorKind::kValue,
          other == i || !call_.inputs[other].defined() || !written.overlaps(call_.inputs[other]),
          "{}: {} is written, and overlaps {}", entry_.name, entry_.inputs[i].name,
          entry_.inputs[other].name);
    }
    facts_.mutated |= 1u << i;
    facts_.writes = true;
    facts_.writes_elements = facts_.writes_elements || written.num_elements() > 0;
    return true;
  }

  const EntryImpl& entry_;
  const Signature::Plan& mine_;
  const CallTensors& call_;
  CallFacts& facts_;
  Env env_;
  const TensorDecl* first_ = nullptr;  // the tensor that decided the device
};

}  // namespace

void Signature::check(const CallTensors& call, CallFacts& facts, const CallFacts* former) const {
  CallCheck(entry_->impl(), *plan_, call, facts).run(former);
}

}  // namespace tileops::spec
