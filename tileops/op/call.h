// SPDX-License-Identifier: Apache-2.0
// Call: one open call, from the push on the thread's call stack to the pop. `forward` gets it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/results.h"
#include "tileops/op/record.h"
#include "tileops/spec/facts.h"
#include "tileops/spec/inference.h"

namespace tileops {

class CallMode;
struct CallMarker;
class CallToken;
class Op;

/// Thread safety: `forward` uses it from the thread that it runs on; other threads join by token().
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  /// What the caller gave, in the signature's order; valid as long as the call.
  const spec::CallTensors& tensors() const { return tensors_; }
  /// An input by its slot in the signature; absent where it was not given.
  const Tensor& input(int slot) const { return tensors_.inputs[static_cast<size_t>(slot)]; }
  /// The buffer that the caller gave for an output (`buffer: out`); absent where none was.
  Tensor out(int output = 0) const;
  /// What to write an output into: the caller's buffer, else a fresh tensor of the inferred facts,
  /// else absent where the call leaves the output out. Errors: kOutOfMemory.
  Tensor output(int output = 0) const;
  /// The value of what `forward` lets decide which sub-ops it calls, such as the identity of one
  /// ("E") or a branch ("T * K <= 512"). A trace notes it: its graph is for the calls that find the
  /// same. Errors: kSpec, kShape (overflow).
  int64_t depends_on(const spec::CallExpr& expr);
  /// A Dim index of the signature. Errors: kValue.
  int64_t index(std::string_view name) const { return record_->index(name); }
  Device device() const { return device_; }
  const spec::CallFacts& facts() const { return record_->facts(); }
  /// The calls that are open on this thread, as call_path() has them.
  static std::string open_path();
  /// What another thread needs to make its sub-op calls part of this one (D7).
  CallToken token();

 private:
  friend class CallToken;
  friend class JoinCall;
  friend class Op;
  friend class CallMode;

  Call(const Op& op, const spec::CallTensors& tensors);

  /// What the call is to the one around it: its stage; by itself, its op.
  const std::string& role() const;
  /// Files a completed sub-op call under its stage; an op that is not held becomes the call's
  /// fault.
  void file(const Op& sub_op, RecordPtr record);
  void note_kernel(std::string_view interface, std::shared_ptr<const BuiltEntry> entry);
  /// Closes the call for joined threads. Errors: kDelegate, where one is still joined or an unheld
  /// sub-op ran.
  void close();

  /// Where joined threads find the call, or that it is over.
  struct JoinPoint {
    std::mutex mutex;  // guards the two below
    std::condition_variable left;
    Call* call = nullptr;
    int num_joined = 0;
  };

  const Op& op_;
  spec::CallTensors tensors_;
  Call* parent_;
  Device device_;
  CallMode* mode_ = nullptr;
  std::shared_ptr<CallRecord> record_;
  std::mutex filing_;  // guards the record's filed_ and unheld_
  std::string unheld_;
  std::shared_ptr<JoinPoint> join_point_;
  const CallMarker* marker_;
  bool selected_here_ = false;
  bool keeps_record_ = true;
  std::chrono::steady_clock::time_point start_;
};

/// Names an open call to other threads. Copyable; may outlive the call.
class CallToken {
 public:
  CallToken() = default;

 private:
  friend class Call;
  friend class JoinCall;
  explicit CallToken(std::shared_ptr<Call::JoinPoint> point) : point_(std::move(point)) {}
  std::shared_ptr<Call::JoinPoint> point_;
};

/// Makes this thread's sub-op calls part of the token's call until it is destroyed; `forward` must
/// wait for it; a call that ends earlier fails, once every thread has left. Without the token, a
/// held sub-op called on another thread is a call of its own, filed nowhere. Errors: kState where
/// the call is over.
class JoinCall {
 public:
  explicit JoinCall(const CallToken& token);
  ~JoinCall();
  JoinCall(const JoinCall&) = delete;
  JoinCall& operator=(const JoinCall&) = delete;

 private:
  std::shared_ptr<Call::JoinPoint> point_;
  Call* outer_;
};

/// A way to run calls other than eagerly (a trace, an explanation): while one is set on a thread,
/// every op call of the thread goes to it.
class CallMode {
 public:
  virtual ~CallMode() = default;
  virtual Results call(const Op& op, const spec::CallTensors& tensors) = 0;
  /// What can be learnt of a kernel that a forward asks for, on a device that need not be there.
  struct KernelQuestion {
    std::function<std::vector<Candidate>(const DeviceFacts&)> explain;
    std::function<std::shared_ptr<Kernel>(const DeviceFacts&)> build;  // it is not kept
  };
  /// `kernel_for` asks it instead of finding a kernel, while a forward runs under this mode.
  virtual void kernel_asked(const Op& op, std::string_view interface,
                            const KernelQuestion& question) = 0;

  /// That `forward` lets `expr`, of this value, decide which sub-ops it calls.
  virtual void depended_on(const Op& /*op*/, const spec::CallExpr& /*expr*/, int64_t /*value*/) {}
  /// That `forward` asks for a sub-op by an identity of this call.
  virtual void identity_asked() {}

  /// The mode of this thread; null where calls are eager.
  static CallMode* current();

 protected:
  /// Runs an op's forward under this mode on meta tensors that it checks; nothing is recorded.
  Results run_forward(const Op& op, const spec::CallTensors& tensors, Device device);
  /// What a call on meta tensors would return, by its signature alone.
  static Results infer(const Op& op, const spec::CallTensors& tensors, spec::CallFacts& facts);
  /// The stage that `parent` holds `sub_op` in. Errors: kDelegate where it does not hold it.
  static const std::string& stage_name(const Op& parent, const Op& sub_op);
};

/// Sets the thread's mode (null: eager) until it is destroyed.
class CallModeGuard {
 public:
  explicit CallModeGuard(CallMode* mode);
  ~CallModeGuard();
  CallModeGuard(const CallModeGuard&) = delete;
  CallModeGuard& operator=(const CallModeGuard&) = delete;

 private:
  CallMode* outer_;
};

}  // namespace tileops
