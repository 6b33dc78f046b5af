// SPDX-License-Identifier: Apache-2.0
// Tensors between Python's frameworks and the library, without copies.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core.h"
#include "tileops/core/allocator.h"
#include "tileops/core/dlpack.h"
#include "tileops/core/stream.h"

namespace tileops::python {

/// What a class of Python tensors offers.
struct Framework {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;  // null: tensors go by the capsule protocol
  std::shared_ptr<Allocator> allocator;      // of the framework; null: the library's
  bool is_tensor = false;
  PyObject* grad_enabled = nullptr;  // torch.is_grad_enabled; null: the framework is not torch
  const PyGetSetDef* requires_grad = nullptr;  // of torch's class; null: looked up a tensor
  bool is_numpy = false;
  bool is_own = false;  // tileops_cpp.Tensor
};
/// The framework of an object's class.
const Framework& framework_of(PyObject* object);
const Framework& framework_of_type(PyTypeObject* type);
/// That of calls which come from none: nodes of PyTorch's graphs. Null where there are none.
const Framework* node_framework();
void set_node_framework(PyTypeObject* type);

/// One call's tensors: those that came, and how results go back. Frames of a thread stand on each
/// other: a function in Python that a call runs finds there the objects that the caller gave.
/// Needs the GIL.
class CallFrame {
 public:
  static constexpr size_t kMaxTensors = spec::kMaxTensors;

  /// `who` calls: an op's name, for messages. It outlives the frame.
  explicit CallFrame(std::string_view who);
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  /// Takes a tensor of the call into `tensor`, which lives as long as the frame; None is an absent
  /// one. Errors: those of import_tensor.
  void take(PyObject* object, PyObject* name, bool written, Tensor& tensor);
  /// The object that stands for a tensor: the one that came, else a fresh one of the frame's
  /// framework. Absent: None.
  nb::object give(const Tensor& tensor) const;
  /// The same for a function in Python that may give the object back.
  nb::object lend(const Tensor& tensor);
  /// The same for one that writes it: a tileops_cpp.Tensor where the framework's tensors may not be
  /// written in place.
  nb::object lend_to_write(const Tensor& tensor);
  /// Takes a tensor that a Python function made for the enclosing call, which then gives the same
  /// object. Errors: those of import_tensor.
  Tensor take_result(PyObject* object, PyObject* name);

  /// What the calls of this frame's op run on: stream and allocator of the framework.
  struct Place {
    std::optional<StreamGuard> stream;
    std::optional<AllocatorGuard> allocator;
  };
  void enter(Place& place) const;

  /// The framework of the frame's tensors, or of an outer frame's; null where none came.
  const Framework* framework() const;
  /// What fresh tensors go to where no framework is known.
  void expect(const Framework* framework) { framework_ = framework; }

 private:
  struct Known {
    PyObject* object;
    const Tensor* tensor;
  };
  struct Made {
    nb::object object;
    Tensor tensor;
  };
  /// Errors: TypeError (no tensor), those of the import; ValueError for one that requires grad, or
  /// is read-only and `written`.
  Tensor import_tensor(PyObject* object, PyObject* name, bool written);
  void check_grad(const Framework& framework, PyObject* object, PyObject* name) const;
  void check_writable(bool read_only, PyObject* name, bool written) const;
  PyObject* find(const Tensor& tensor) const;
  const Tensor* find(PyObject* object) const;

  std::string_view who_;
  CallFrame* outer_;
  const Framework* framework_ = nullptr;
  std::array<Known, kMaxTensors> known_;
  size_t num_known_ = 0;
  std::vector<Made> made_;
  Device device_ = kCpuDevice;
};

/// set_tensor_protocol(take, give): what the package's Python half does for tensors that no C API gives.
void bind_tensor_protocol(nb::module_& m);

}  // namespace tileops::python
