// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/record.h"

#include "tileops/core/check.h"
#include "tileops/op/op_class.h"

namespace tileops {
CallRecord::CallRecord(const OpClass& op_class, std::shared_ptr<const spec::Signature> signature)
    : op_class_(&op_class), signature_(std::move(signature)) {}

const std::string& CallRecord::op() const { return op_class_->name(); }

int64_t CallRecord::index(std::string_view name) const {
  const int slot = signature_->entry().index_slot(name);
  TILEOPS_CHECK(ErrorKind::kValue, slot >= 0, "{}: the signature has no index {}", op(), name);
  const spec::IndexValue& value = facts_.indices[static_cast<size_t>(slot)];
  TILEOPS_CHECK(ErrorKind::kValue, value.kind == spec::IndexValue::Kind::kDim,
                "{}: index {} is not a size; read it with value()", op(), name);
  return value.dim;
}

Value CallRecord::value(std::string_view name) const { return signature_->value_of(facts_, name); }

const spec::TensorFacts& CallRecord::tensor(std::string_view name) const {
  const spec::Entry& entry = signature_->entry();
  if (const int slot = entry.input_slot(name); slot >= 0) {
    return facts_.inputs[static_cast<size_t>(slot)];
  }
  const int slot = entry.output_slot(name);
  TILEOPS_CHECK(ErrorKind::kValue, slot >= 0, "{}: the signature has no tensor {}", op(), name);
  return facts_.outputs[static_cast<size_t>(slot)];
}

spec::Traffic CallRecord::traffic() const {
  return spec::tensor_traffic(signature_->entry(), facts_);
}

std::vector<std::string> CallRecord::written() const {
  std::vector<std::string> names;
  const spec::Entry& entry = signature_->entry();
  for (size_t i = 0; i < entry.inputs().size(); ++i) {
    if ((facts_.mutated >> i & 1u) != 0) names.push_back(entry.inputs()[i].name);
  }
  for (size_t i = 0; i < entry.outputs().size(); ++i) {
    if (facts_.outputs[i].present) names.push_back(entry.outputs()[i].name);
  }
  return names;
}

Tensor CallRecord::metadata(std::string_view input) const {
  size_t slot = 0;
  for (const spec::TensorDecl& decl : signature_->entry().inputs()) {
    if (!decl.metadata) continue;
    if (decl.name == input) {
      TILEOPS_CHECK(ErrorKind::kState, facts_.device.type != DeviceType::kMeta,
                    "{}: {} of a meta call has no contents to read", op(), input);
      TILEOPS_CHECK(ErrorKind::kState, keeps_metadata_,
                    "{}: {} of a stage's call on a GPU is not kept; call the op by itself", op(),
                    input);
      return metadata_[slot];
    }
    ++slot;
  }
  raise(ErrorKind::kValue, "{}: {} is no metadata input of the signature", op(), input);
}

std::vector<std::string> CallRecord::stage_names() const {
  std::vector<std::string> names;
  for (const StageType& stage : op_class_->delegate_types()) names.push_back(stage.stage);
  return names;
}

std::vector<RecordPtr> CallRecord::stages(std::string_view stage) const {
  const size_t index = op_class_->stage_index(stage);
  std::vector<RecordPtr> records;
  for (const Filed& filed : filed_) {
    if (filed.stage == index) records.push_back(filed.record);
  }
  return records;
}

namespace {

std::optional<double> staged_sum(const CallRecord& record, std::string_view stage,
                                 std::string_view quantity) {
  const std::vector<RecordPtr> staged = record.stages(stage);
  if (staged.empty()) return std::nullopt;
  double sum = 0;
  for (const RecordPtr& sub : staged) {
    if (quantity == "flops")
      sum += price(*sub).flops;
    else if (quantity == "bytes")
      sum += price(*sub).bytes;
    else
      sum += static_cast<double>(sub->index(quantity));
  }
  return sum;
}

}  // namespace

spec::Cost price(const CallRecord& record) {
  return spec::evaluate_roofline(
      {.signature = record.signature(),
       .facts = record.facts(),
       .metadata = [&](std::string_view input) { return record.metadata(input); },
       .staged = [&](std::string_view stage,
                     std::string_view quantity) { return staged_sum(record, stage, quantity); }});
}

}  // namespace tileops
