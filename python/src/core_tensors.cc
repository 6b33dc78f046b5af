// SPDX-License-Identifier: Apache-2.0
#include "core_tensors.h"

#include <string>

#include "core_numpy.h"

namespace tileops::python {
namespace {

// What the package's Python half does for tensors that no C API gives (tileops_cpp/_tensors.py).
PyObject* take_by_capsule = nullptr;  // (object) -> (Tensor, read_only)
PyObject* give_by_capsule = nullptr;  // (Tensor, type of the call's tensors) -> object

thread_local CallFrame* innermost_frame = nullptr;

/// DLPack has no meta device: that fault is forgotten, any other is raised.
void keep_unless_meta(PyObject* object) {
  nb::python_error fault;
  if (!nb::getattr(nb::handle(object), "is_meta", nb::bool_(false)).is(nb::bool_(true)))
    throw fault;
}

}  // namespace

CallFrame::CallFrame(std::string_view who) : who_(who), outer_(innermost_frame) {
  innermost_frame = this;
}

CallFrame::~CallFrame() {
  innermost_frame = outer_;
  drop_left_references();
}

void CallFrame::check_grad(const Framework& framework, PyObject* object, PyObject* name) const {
  static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
  const PyGetSetDef* getter = framework.requires_grad;
  const nb::object requires_grad =
      nb::steal(getter != nullptr ? getter->get(object, getter->closure)
                                  : PyObject_GetAttr(object, attribute));
  if (!requires_grad.is_valid()) throw nb::python_error();
  if (requires_grad.ptr() != Py_True) return;
  const nb::object enabled = nb::steal(PyObject_CallNoArgs(framework.grad_enabled));
  if (!enabled.is_valid()) throw nb::python_error();
  if (enabled.ptr() != Py_True) return;
  const std::string tensor = PyUnicode_AsUTF8(name);
  throw Error(ErrorKind::kValue,
              std::string(who_) + ": " + tensor +
                  " requires grad, and the op has no backward; call it under torch.no_grad(), or "
                  "pass " +
                  tensor + ".detach()");
}

Tensor CallFrame::import_tensor(PyObject* object, PyObject* name, bool written) {
  const bool same = framework_ != nullptr && framework_->type == Py_TYPE(object);
  const Framework& framework = same ? *framework_ : framework_of(object);
  if (!framework.is_tensor) {
    throw Error(ErrorKind::kType, std::string(who_) + ": " + PyUnicode_AsUTF8(name) +
                                      " must be a tensor of torch or one with __dlpack__, got " +
                                      Py_TYPE(object)->tp_name);
  }
  if (framework_ == nullptr) framework_ = &framework;
  if (framework.is_own) return *nb::inst_ptr<Tensor>(object);
  if (framework.grad_enabled != nullptr) check_grad(framework, object, name);
  if (framework.api != nullptr) {
    dlpack::DLTensor view{};
    if (framework.api->dltensor_from_py_object(object, &view) == 0) {
      return dlpack::import_view(view, own(object));
    }
    keep_unless_meta(object);
  }
  bool read_only = false;
  if (framework.is_numpy) {
    if (std::optional<Tensor> tensor = tensor_of_array(object, read_only)) {
      check_writable(read_only, name, written);
      return std::move(*tensor);
    }
  }
  const auto taken = nb::borrow<nb::tuple>(nb::handle(take_by_capsule)(nb::handle(object)));
  check_writable(nb::cast<bool>(taken[1]), name, written);
  return nb::cast<Tensor>(taken[0]);
}

void CallFrame::check_writable(bool read_only, PyObject* name, bool written) const {
  if (!written || !read_only) return;
  throw Error(ErrorKind::kValue, std::string(who_) + ": " + PyUnicode_AsUTF8(name) +
                                     " is read-only, and the call writes it");
}

void CallFrame::take(PyObject* object, PyObject* name, bool written, Tensor& tensor) {
  if (object == Py_None) return;
  tensor = import_tensor(object, name, written);
  if (tensor.device().type != DeviceType::kCPU) device_ = tensor.device();
  if (num_known_ < known_.size()) known_[num_known_++] = {object, &tensor};
}

Tensor CallFrame::take_result(PyObject* object, PyObject* name) {
  if (object == Py_None) return {};
  if (const Tensor* known = find(object)) return *known;
  Tensor tensor = import_tensor(object, name, false);
  if (outer_ != nullptr) outer_->made_.push_back({nb::borrow(object), tensor});
  return tensor;
}

PyObject* CallFrame::find(const Tensor& tensor) const {
  for (const CallFrame* frame = this; frame != nullptr; frame = frame->outer_) {
    for (size_t i = 0; i < frame->num_known_; ++i) {
      if (frame->known_[i].tensor->is_same_view(tensor)) return frame->known_[i].object;
    }
    for (const Made& made : frame->made_) {
      if (made.tensor.is_same_view(tensor)) return made.object.ptr();
    }
  }
  return nullptr;
}

const Tensor* CallFrame::find(PyObject* object) const {
  for (const CallFrame* frame = this; frame != nullptr; frame = frame->outer_) {
    for (size_t i = 0; i < frame->num_known_; ++i) {
      if (frame->known_[i].object == object) return frame->known_[i].tensor;
    }
    for (const Made& made : frame->made_) {
      if (made.object.ptr() == object) return &made.tensor;
    }
  }
  return nullptr;
}

const Framework* CallFrame::framework() const {
  for (const CallFrame* frame = this; frame != nullptr; frame = frame->outer_) {
    if (frame->framework_ != nullptr) return frame->framework_;
  }
  return nullptr;
}

nb::object CallFrame::give(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  if (PyObject* object = find(tensor)) return nb::borrow(object);
  const Framework* target = framework();
  if (target != nullptr && target->api != nullptr && tensor.device().type != DeviceType::kMeta) {
    dlpack::DLManagedTensorVersioned* managed = dlpack::export_managed_versioned(tensor);
    void* object = nullptr;
    if (target->api->managed_tensor_to_py_object(managed, &object) != 0) {
      managed->deleter(managed);
      throw nb::python_error();
    }
    return nb::steal(static_cast<PyObject*>(object));
  }
  const bool on_cpu = tensor.device().type == DeviceType::kCPU;
  if (target != nullptr && target->is_numpy && on_cpu) return array_of_tensor(tensor);
  nb::object own_tensor = nb::cast(tensor);
  if (target == nullptr || target->is_own) return own_tensor;
  return nb::handle(give_by_capsule)(own_tensor,
                                     nb::handle(reinterpret_cast<PyObject*>(target->type)));
}

nb::object CallFrame::lend(const Tensor& tensor) {
  nb::object object = give(tensor);
  if (tensor.defined()) made_.push_back({object, tensor});
  return object;
}

nb::object CallFrame::lend_to_write(const Tensor& tensor) {
  const Framework* target = framework();
  const bool in_place = target != nullptr && (target->api != nullptr || target->is_numpy);
  if (in_place || find(tensor) != nullptr) return lend(tensor);
  nb::object object = nb::cast(tensor);
  made_.push_back({object, tensor});
  return object;
}

void CallFrame::enter(Place& place) const {
  if (framework_ == nullptr || framework_->api == nullptr) return;
  place.allocator.emplace(device_.type == DeviceType::kCUDA ? DeviceType::kCUDA : DeviceType::kCPU,
                          framework_->allocator);
  if (device_.type != DeviceType::kCUDA) return;
  void* stream = nullptr;
  if (framework_->api->current_work_stream(dlpack::kCuda, device_.index, &stream) != 0) {
    throw nb::python_error();
  }
  place.stream.emplace(Stream{device_, stream});
}

void bind_tensor_protocol(nb::module_& m) {
  m.def("set_tensor_protocol", [](nb::object take, nb::object give) {
    take_by_capsule = take.release().ptr();
    give_by_capsule = give.release().ptr();
  });
  m.def("set_node_framework",
        [](nb::handle type) { set_node_framework(reinterpret_cast<PyTypeObject*>(type.ptr())); });
}

}  // namespace tileops::python
