// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/trace.h"

#include <algorithm>
#include <cctype>

#include "tileops/core/check.h"
#include "tileops/op/explain.h"

namespace tileops {

void check_composition_serves(const Op& op, Device device) {
  std::string target = op.serving_target().value_or("");
  bool whole = !target.empty() && target != kBuiltinTarget;
  if (target.empty()) {
    ServingTarget serving = select_target(op.name(), op.options().target, device);
    whole = serving.builder != nullptr;
    target = std::move(serving.name);
  }
  TILEOPS_CHECK(ErrorKind::kOpNotAvailable, !whole,
                "{}: target {} serves this composite whole, so it has no leaves to trace; trace it "
                "with target builtin",
                op.name(), target);
}

/// Runs composites' forwards on meta tensors; each leaf call becomes a node.
class TraceMode final : public CallMode {
 public:
  TraceMode(const Op& op, const spec::CallTensors& tensors, std::optional<Device> device) {
    graph_.op_ = op.name();
    const auto inputs = op.entry().inputs();
    for (size_t i = 0; i < tensors.inputs.size(); ++i) {
      const std::string name = i < inputs.size() ? inputs[i].name : fmt::format("in{}", i);
      graph_.inputs_.push_back(add_root(name, tensors.inputs[i], inputs_));
      if (tensors.inputs[i].defined() && tensors.inputs[i].device().type != DeviceType::kMeta) {
        device_ = tensors.inputs[i].device();
      }
    }
    device_ = device.value_or(device_);
    for (size_t i = 0; i < tensors.outs.size(); ++i) {
      graph_.outs_.push_back(add_root(fmt::format("out{}", i), tensors.outs[i], outs_));
    }
  }

  Graph run(const Op& op) {
    const CallModeGuard guard(this);
    const Results results = op.call({inputs_, outs_});
    for (const Tensor& result : results) graph_.results_.push_back(value_of(op, result));
    return std::move(graph_);
  }

  Results call(const Op& op, const spec::CallTensors& tensors) override {
    const Restore restore(*this);
    if (!open_.empty()) {
      stage_path_ += (stage_path_.empty() ? "" : ".") + stage_name(*open_.back().op, op);
    }
    return op.op_class().is_composite() ? call_composite(op, tensors) : call_leaf(op, tensors);
  }

  void kernel_asked(const Op& op, std::string_view interface, const KernelQuestion&) override {
    raise(ErrorKind::kDelegate,
          "{}: its own kernel stage {} cannot be traced; make it a leaf op and hold it as a sub-op",
          op.name(), interface);
  }

  void depended_on(const Op& op, const spec::CallExpr& expr, int64_t value) override {
    open_.back().says = true;
    graph_.assumptions_.push_back({op.key(), open_.back().inputs, expr.text(), expr.json(), value});
  }

  void identity_asked() override {
    Open& open = open_.back();
    if (open.says) return;
    open.says = true;
    graph_.assumptions_.push_back({open.op->key(), open.inputs, "", "null", 0});
  }

 private:
  struct Open {
    const Op* op;
    std::vector<GraphValue> inputs;
    bool says = false;  // what its forward depends on
  };

  Results call_composite(const Op& op, const spec::CallTensors& tensors) {
    check_composition_serves(op, device_);
    Open open{.op = &op};
    open.inputs = values_of(op, tensors.inputs);
    open_.push_back(std::move(open));
    return run_forward(op, tensors, device_);
  }

  /// The path and the open composites as they were, also after a forward that threw.
  class Restore {
   public:
    explicit Restore(TraceMode& mode)
        : mode_(mode), path_length_(mode.stage_path_.size()), num_open_(mode.open_.size()) {}
    ~Restore() {
      mode_.stage_path_.resize(path_length_);
      mode_.open_.resize(num_open_);
    }
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;

   private:
    TraceMode& mode_;
    size_t path_length_;
    size_t num_open_;
  };

  Results call_leaf(const Op& op, const spec::CallTensors& tensors) {
    spec::CallFacts facts;
    Results results = infer(op, tensors, facts);
    GraphNode node{
        .name = node_name(op.entry(), facts.effect_branch), .key = op.key(), .stage = stage_path_};
    node.inputs = values_of(op, tensors.inputs);
    node.outs = values_of(op, tensors.outs);
    for (const Tensor& result : results) {
      const int known = find(result);
      node.outputs.push_back(
          known >= 0 ? known : add_value(fmt::format("%{}", graph_.values_.size()), result));
    }
    graph_.nodes_.push_back(std::move(node));
    return results;
  }

  GraphValue add_root(const std::string& name, const Tensor& tensor, std::vector<Tensor>& metas) {
    metas.push_back(meta_like(tensor));
    return tensor.defined() ? add_value(name, metas.back()) : -1;
  }

  GraphValue add_value(const std::string& name, const Tensor& tensor) {
    if (!tensor.defined()) return -1;
    traced_.push_back(tensor);
    graph_.values_.push_back({name, tensor.dtype(), tensor.shape()});
    return static_cast<GraphValue>(traced_.size()) - 1;
  }

  GraphValue find(const Tensor& tensor) const {
    const auto it = std::find_if(traced_.begin(), traced_.end(),
                                 [&](const Tensor& t) { return t.storage() == tensor.storage(); });
    return !tensor.defined() || it == traced_.end() ? -1
                                                    : static_cast<GraphValue>(it - traced_.begin());
  }

  GraphValue value_of(const Op& op, const Tensor& tensor) const {
    if (!tensor.defined()) return -1;
    const GraphValue value = find(tensor);
    TILEOPS_CHECK(ErrorKind::kDelegate,
                  value >= 0 && traced_[static_cast<size_t>(value)].is_same_view(tensor),
                  "trace: {} gets {}, which is neither an input nor a leaf's output but made in a "
                  "forward; a traced forward computes through sub-ops alone",
                  op.name(), to_string(tensor));
    return value;
  }

  std::vector<GraphValue> values_of(const Op& op, TensorRefs tensors) const {
    std::vector<GraphValue> values;
    for (size_t i = 0; i < tensors.size(); ++i) values.push_back(value_of(op, tensors[i]));
    return values;
  }

  Graph graph_;
  Device device_ = kCpuDevice;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outs_;
  std::vector<Tensor> traced_;  // by value
  std::vector<Open> open_;      // composites whose forward is running
  std::string stage_path_;
};

Graph trace(const Op& op, const spec::CallTensors& tensors, std::optional<Device> device) {
  return TraceMode(op, tensors, device).run(op);
}

namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }

/// "ExpertMLPFwd" as "expert_mlp_fwd": a word starts at a capital after a small letter, and at the
/// last capital of a run.
std::string snake_case(std::string_view name) {
  std::string snake;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool ends_run = i + 1 < name.size() && !is_upper(name[i + 1]);
    if (i > 0 && is_upper(name[i]) && (!is_upper(name[i - 1]) || ends_run)) snake += '_';
    snake += lower(name[i]);
  }
  return snake;
}

}  // namespace

std::string node_name(const spec::Entry& entry, std::string_view effect_branch) {
  std::string_view name = entry.name();
  if (name.ends_with("Op")) name.remove_suffix(2);
  const std::string& family = entry.family();
  const bool repeats_family =
      name.size() > family.size() && std::equal(family.begin(), family.end(), name.begin(),
                                                [](char f, char n) { return f == lower(n); });
  if (repeats_family) name.remove_prefix(family.size());
  return fmt::format("{}::{}_{}{}{}", entry.operator_namespace(), family, snake_case(name),
                     effect_branch.empty() ? "" : "_", effect_branch);
}

Results Graph::run(const spec::CallTensors& tensors) const {
  TILEOPS_CHECK(ErrorKind::kType,
                tensors.inputs.size() == inputs_.size() && tensors.outs.size() == outs_.size(),
                "graph of {}: it takes {} inputs and {} outs, got {} and {}", op_, inputs_.size(),
                outs_.size(), tensors.inputs.size(), tensors.outs.size());
  std::vector<Tensor> values(values_.size());
  const auto bind = [&](TensorRefs given, const std::vector<GraphValue>& slots) {
    for (size_t i = 0; i < slots.size(); ++i) {
      TILEOPS_CHECK(ErrorKind::kType, given[i].defined() == (slots[i] >= 0),
                    "graph of {}: tensor {} was {} when the graph was traced; trace again", op_, i,
                    slots[i] >= 0 ? "present" : "absent");
      if (slots[i] >= 0) values[static_cast<size_t>(slots[i])] = given[i];
    }
  };
  bind(tensors.inputs, inputs_);
  bind(tensors.outs, outs_);
  const auto gather = [&](const std::vector<GraphValue>& slots) {
    std::vector<Tensor> result;
    result.reserve(slots.size());
    for (GraphValue slot : slots)
      result.push_back(slot < 0 ? Tensor() : values[static_cast<size_t>(slot)]);
    return result;
  };
  for (const GraphNode& node : nodes_) {
    const Results results = instance_of(node.key).call({gather(node.inputs), gather(node.outs)});
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] >= 0)
        values[static_cast<size_t>(node.outputs[i])] = results[static_cast<int>(i)];
    }
  }
  Results results;
  for (const Tensor& tensor : gather(results_)) results.push_back(tensor);
  return results;
}

}  // namespace tileops
