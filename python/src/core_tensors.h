// SPDX-License-Identifier: Apache-2.0
// Tensors between Python's frameworks and the library, without copies.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "core.h"
#include "tileops/core/allocator.h"
#include "tileops/core/dlpack.h"
#include "tileops/core/stream.h"

namespace tileops::python {

/// A reference that any thread may drop: one that does not hold the GIL leaves it to the next that
/// does, and never waits.
std::shared_ptr<const void> own(PyObject* object);
/// Drops what was left.
void drop_left_references();

/// What a class of Python tensors offers.
struct Framework {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;  // null: tensors go by the capsule protocol
  std::shared_ptr<Allocator> allocator;      // of the framework; null: the library's
  bool is_torch = false;
  bool is_own = false;  // tileops_cpp.Tensor
};
/// The framework of an object. Errors: TypeError where it is no tensor.
const Framework& framework_of(PyObject* object);

/// One call's tensors: those that came, and how results go back. Frames of a thread stand on each
/// other: a forward in Python finds there the objects that its caller gave. Needs the GIL.
class CallFrame {
 public:
  static constexpr size_t kMaxTensors = spec::kMaxTensors;

  explicit CallFrame(const Op& op);
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  /// Takes a tensor of the call as the library's; None is an absent one.
  /// Errors: those of the import; ValueError for one that requires grad, or is read-only and
  /// `written`.
  Tensor take(PyObject* object, const char* name, bool written);
  /// The object that stands for a tensor: the one that came, else a fresh one of the frame's
  /// framework. Absent: None.
  nb::object give(const Tensor& tensor) const;

  /// What the calls of this frame's op run on: stream and allocator of the framework.
  struct Place {
    std::optional<StreamGuard> stream;
    std::optional<AllocatorGuard> allocator;
  };
  void enter(Place& place) const;

  static CallFrame* current();

 private:
  struct Known {
    PyObject* object;
    Tensor tensor;
  };
  void check_grad(PyObject* object, const char* name) const;
  PyObject* find(const Tensor& tensor) const;

  const Op& op_;
  CallFrame* outer_;
  const Framework* framework_ = nullptr;
  std::array<Known, kMaxTensors> known_;
  size_t num_known_ = 0;
  Device device_ = kCpuDevice;
};

}  // namespace tileops::python
