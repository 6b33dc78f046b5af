// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/explain.h"

#include "tileops/core/check.h"

namespace tileops {
namespace {

/// Runs forwards on meta tensors and asks every selection for its candidates; where `kernels` is
/// given, also builds what was chosen.
class ExplainMode final : public CallMode {
 public:
  explicit ExplainMode(const DeviceFacts& device,
                       std::vector<std::shared_ptr<Kernel>>* kernels = nullptr)
      : device_(device), kernels_(kernels) {}

  Results call(const Op& op, const spec::CallTensors& tensors) override {
    Explanation node{.op = op.name()};
    if (parent_op_ != nullptr) node.stage = stage_name(*parent_op_, op);
    Results results = run(op, tensors, node);
    if (parent_ == nullptr)
      root_ = std::move(node);
    else
      parent_->stages.push_back(std::move(node));
    return results;
  }

  void kernel_asked(const Op&, std::string_view interface,
                    const KernelQuestion& question) override {
    parent_->choices.push_back({std::string(interface), question.explain(device_)});
    if (kernels_ != nullptr) kernels_->push_back(question.build(device_));
  }

  Explanation take_root() { return std::move(root_); }

 private:
  Results run(const Op& op, const spec::CallTensors& tensors, Explanation& node) {
    bool served_whole = false;
    if (const auto settled_target = op.serving_target()) {
      node.target = *settled_target;
      served_whole = node.target != kBuiltinTarget;
    } else {
      const ServingTarget serving = select_target(op.name(), op.options().target, device_.device);
      served_whole = serving.builder != nullptr;
      node.target = serving.name;
    }
    if (served_whole) {
      spec::CallFacts facts;
      return infer(op, tensors, facts);
    }
    Explanation* const outer = std::exchange(parent_, &node);
    const Op* const outer_op = std::exchange(parent_op_, &op);
    Results results;
    try {
      results = run_forward(op, tensors, device_.device);
    } catch (...) {
      parent_ = outer;
      parent_op_ = outer_op;
      throw;
    }
    parent_ = outer;
    parent_op_ = outer_op;
    return results;
  }

  const DeviceFacts& device_;
  std::vector<std::shared_ptr<Kernel>>* kernels_;
  Explanation root_;
  Explanation* parent_ = nullptr;
  const Op* parent_op_ = nullptr;
};

std::vector<Tensor> meta_of(TensorRefs tensors) {
  std::vector<Tensor> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back(meta_like(tensors[i]));
  return result;
}

std::vector<Tensor> meta_of(std::span<const spec::TensorFacts> facts) {
  std::vector<Tensor> result;
  for (const spec::TensorFacts& f : facts) {
    result.push_back(
        f.present ? Tensor::from_blob(nullptr, f.shape, f.strides, f.dtype, kMetaDevice, nullptr)
                  : Tensor());
  }
  return result;
}

void write(const Explanation& node, int depth, std::string& text) {
  const std::string indent(static_cast<size_t>(2 * depth), ' ');
  text += fmt::format("{}{}{}: target {}\n", indent, node.stage.empty() ? "" : node.stage + " = ",
                      node.op, node.target);
  for (const InterfaceChoice& choice : node.choices) {
    for (const Candidate& candidate : choice.candidates) {
      text += fmt::format("{}  {} {} {}: {}{}\n", indent, candidate.chosen ? "->" : "  ",
                          choice.interface, candidate.key, candidate.reason,
                          candidate.config.empty() ? "" : "; " + candidate.config);
    }
  }
  for (const Explanation& stage : node.stages) write(stage, depth + 1, text);
}

}  // namespace

Tensor meta_like(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return Tensor::from_blob(nullptr, tensor.shape(), tensor.strides(), tensor.dtype(), kMetaDevice,
                           nullptr);
}

Explanation explain_call(const Op& op, const spec::CallTensors& tensors,
                         const DeviceFacts& device) {
  const std::vector<Tensor> inputs = meta_of(tensors.inputs);
  const std::vector<Tensor> outs = meta_of(tensors.outs);
  ExplainMode mode(device);
  {
    const CallModeGuard guard(&mode);
    op.call({inputs, outs});
  }
  return mode.take_root();
}

std::vector<std::shared_ptr<Kernel>> kernels_for_call(const Op& op,
                                                      const spec::CallTensors& tensors,
                                                      const DeviceFacts& device) {
  const std::vector<Tensor> inputs = meta_of(tensors.inputs);
  const std::vector<Tensor> outs = meta_of(tensors.outs);
  std::vector<std::shared_ptr<Kernel>> kernels;
  ExplainMode mode(device, &kernels);
  const CallModeGuard guard(&mode);
  op.call({inputs, outs});
  return kernels;
}

Explanation Op::explain() const {
  const RecordPtr record = last_call();
  const spec::CallFacts& facts = record->facts();
  const std::vector<Tensor> inputs = meta_of({facts.inputs.data(), entry().inputs().size()});
  ExplainMode mode(device_facts(record->device()));
  {
    const CallModeGuard guard(&mode);
    call({inputs, {}});
  }
  return mode.take_root();
}

std::string Explanation::text() const {
  std::string text;
  write(*this, 0, text);
  return text;
}

}  // namespace tileops
