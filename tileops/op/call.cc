// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/call.h"

#include "tileops/core/call_path.h"
#include "tileops/core/check.h"
#include "tileops/core/launch_batch.h"
#include "tileops/core/recycled.h"
#include "tileops/op/op.h"

namespace tileops {
namespace {

thread_local Call* innermost_call = nullptr;
thread_local CallMode* thread_mode = nullptr;
std::atomic<bool> timing_on{false};

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

[[maybe_unused]] const bool kAnswersForPaths = [] {
  set_call_path_source(Call::open_path);
  return true;
}();

}  // namespace

void set_call_timing(bool on) { timing_on.store(on, std::memory_order_relaxed); }

Call::Call(const Op& op, const spec::CallTensors& tensors)
    : op_(op),
      tensors_(tensors),
      parent_(innermost_call),
      record_(std::allocate_shared<CallRecord>(RecyclingAllocator<CallRecord>(), op.op_class(),
                                               op.signature_)) {
  const auto inputs = op.entry().inputs();
  for (size_t i = 0; i < inputs.size() && i < tensors.inputs.size(); ++i) {
    if (!inputs[i].metadata) continue;
    // A stage's metadata on a GPU is of a stream or a graph that may be gone before the record.
    const Tensor& given = tensors.inputs[i];
    const bool keeps =
        parent_ == nullptr || !given.defined() || given.device().type != DeviceType::kCUDA;
    record_->metadata_.emplace_back(keeps ? given : Tensor());
    record_->keeps_metadata_ = record_->keeps_metadata_ && keeps;
  }
  if (timing_on.load(std::memory_order_relaxed)) start_ = std::chrono::steady_clock::now();
  marker_ = call_marker();
  if (marker_ != nullptr) marker_->begin(role().c_str());
  innermost_call = this;
}

Call::~Call() {
  innermost_call = parent_;
  if (marker_ != nullptr) marker_->end();
  if (join_point_ == nullptr) return;
  std::unique_lock lock(join_point_->mutex);
  join_point_->call = nullptr;
  join_point_->left.wait(lock, [&] { return join_point_->num_joined == 0; });
}

const std::string& Call::role() const {
  std::optional<size_t> stage;
  if (parent_ != nullptr) stage = parent_->op_.stage_of(op_);
  return stage.has_value() ? parent_->op_.op_class().delegate_types()[*stage].stage : op_.name();
}

std::string Call::open_path() {
  std::string path;
  for (const Call* call = innermost_call; call != nullptr; call = call->parent_) {
    if (!path.empty()) path.insert(0, " > ");
    path.insert(0, call->role());
  }
  return path;
}

Tensor Call::out(int output) const {
  const size_t slot = static_cast<size_t>(output);
  return slot < tensors_.outs.size() ? tensors_.outs[slot] : Tensor();
}

Tensor Call::output(int output) const {
  return op_.signature().allocate_output(tensors_, facts(), output);
}

int64_t Call::depends_on(const spec::CallExpr& expr) {
  const int64_t value = expr.evaluate(facts());
  if (mode_ != nullptr) mode_->depended_on(op_, expr, value);
  return value;
}

CallToken Call::token() {
  submit_launches();
  std::lock_guard lock(filing_);
  if (join_point_ == nullptr) {
    join_point_ = std::make_shared<JoinPoint>();
    join_point_->call = this;
  }
  return CallToken(join_point_);
}

void Call::file(const Op& sub_op, RecordPtr record) {
  const std::optional<size_t> stage = op_.stage_of(sub_op);
  std::unique_lock lock(filing_, std::defer_lock);
  if (join_point_ != nullptr) lock.lock();  // threads other than the call's own come through it
  if (stage.has_value()) {
    if (record_->filed_.empty()) record_->filed_.reserve(op_.op_class().delegate_types().size());
    record_->filed_.push_back({*stage, std::move(record)});
  } else if (unheld_.empty()) {
    unheld_ = sub_op.name();
  }
}

void Call::note_kernel(std::string_view interface, std::shared_ptr<const BuiltEntry> entry) {
  if (record_->num_kernels_ == CallRecord::kMaxKernels) return;
  record_->kernels_[record_->num_kernels_++] = {interface, std::move(entry)};
}

void Call::close() {
  if (join_point_ != nullptr) {
    std::lock_guard lock(join_point_->mutex);
    join_point_->call = nullptr;
    TILEOPS_CHECK(
        ErrorKind::kDelegate, join_point_->num_joined == 0,
        "{}: forward returned while {} threads are still joined to the call; wait for them",
        op_.name(), join_point_->num_joined);
  }
  TILEOPS_CHECK(
      ErrorKind::kDelegate, unheld_.empty(),
      "{}: it called {}, which it does not hold; hold sub-ops through delegate_for, so that "
      "their calls are filed under a stage",
      op_.name(), unheld_);
  if (start_ != std::chrono::steady_clock::time_point())
    record_->elapsed_us_ = microseconds_since(start_);
}

JoinCall::JoinCall(const CallToken& token) : point_(token.point_), outer_(innermost_call) {
  TILEOPS_CHECK(ErrorKind::kState, point_ != nullptr, "JoinCall: the token names no call");
  std::lock_guard lock(point_->mutex);
  TILEOPS_CHECK(ErrorKind::kState, point_->call != nullptr, "JoinCall: the token's call is over");
  ++point_->num_joined;
  innermost_call = point_->call;
}

JoinCall::~JoinCall() {
  innermost_call = outer_;
  std::lock_guard lock(point_->mutex);
  --point_->num_joined;
  point_->left.notify_all();
}

CallMode* CallMode::current() { return thread_mode; }

Results CallMode::run_forward(const Op& op, const spec::CallTensors& tensors, Device device) {
  Call call(op, tensors);
  call.record_->facts_.device = kMetaDevice;
  op.signature().check(tensors, call.record_->facts_);
  call.mode_ = this;
  call.device_ = device;
  Results results = op.forward(call);
  op.signature().check_result(tensors, call.facts(), results.span(), {}, op.name());
  return results;
}

Results CallMode::infer(const Op& op, const spec::CallTensors& tensors, spec::CallFacts& facts) {
  facts.device = kMetaDevice;
  op.signature().check(tensors, facts);
  Results results;
  for (size_t i = 0; i < op.entry().outputs().size(); ++i) {
    results.push_back(op.signature().allocate_output(tensors, facts, static_cast<int>(i)));
  }
  return results;
}

const std::string& CallMode::stage_name(const Op& parent, const Op& sub_op) {
  const std::optional<size_t> stage = parent.stage_of(sub_op);
  TILEOPS_CHECK(ErrorKind::kDelegate, stage.has_value(),
                "{}: it called {}, which it does not hold; hold sub-ops through delegate_for",
                parent.name(), sub_op.name());
  return parent.op_class().delegate_types()[*stage].stage;
}

CallModeGuard::CallModeGuard(CallMode* mode) : outer_(thread_mode) { thread_mode = mode; }

CallModeGuard::~CallModeGuard() { thread_mode = outer_; }

}  // namespace tileops
