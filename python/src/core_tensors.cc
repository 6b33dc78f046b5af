// SPDX-License-Identifier: Apache-2.0
#include "core_tensors.h"

#include <nanobind/stl/vector.h>

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace tileops::python {
namespace {

// What the package's Python half does for tensors that no C API gives (tileops_cpp/_tensors.py).
PyObject* take_by_capsule = nullptr;  // (object) -> (Tensor, read_only)
PyObject* give_by_capsule = nullptr;  // (Tensor, type of the call's tensors) -> object
PyObject* torch_grad_enabled = nullptr;

struct LeftReferences {
  std::mutex mutex;  // guards objects
  std::vector<PyObject*> objects;
  std::atomic<bool> any{false};
};
LeftReferences& left_references() {
  static auto& left = *new LeftReferences;
  return left;
}

int drop_pending(void*) {
  drop_left_references();
  return 0;
}

void drop(PyObject* object) noexcept {
  if (Py_IsInitialized() == 0) return;
  if (PyGILState_Check() != 0) {
    Py_DECREF(object);
    return;
  }
  LeftReferences& left = left_references();
  const std::lock_guard lock(left.mutex);
  left.objects.push_back(object);
  if (!left.any.exchange(true)) Py_AddPendingCall(&drop_pending, nullptr);
}

/// Allocates in a framework's memory, so that its statistics and its reuse hold for our tensors.
class ExchangeAllocator final : public Allocator {
 public:
  explicit ExchangeAllocator(const dlpack::ExchangeApi& api) : api_(api) {}

  void* allocate(size_t bytes, Stream stream) override {
    int64_t size = static_cast<int64_t>(bytes);
    const bool is_cuda = stream.device.type == DeviceType::kCUDA;
    dlpack::DLTensor prototype{
        .data = nullptr,
        .device = {is_cuda ? dlpack::kCuda : dlpack::kCpu, is_cuda ? stream.device.index : 0},
        .ndim = 1,
        .dtype = {dlpack::kUInt, 8, 1},
        .shape = &size,
        .strides = nullptr,
        .byte_offset = 0};
    std::string fault;
    dlpack::DLManagedTensorVersioned* managed = nullptr;
    const auto set_error = [](void* context, const char*, const char* message) {
      *static_cast<std::string*>(context) = message;
    };
    if (api_.managed_tensor_allocator(&prototype, &managed, &fault, set_error) != 0) {
      throw Error(ErrorKind::kOutOfMemory, fault);
    }
    void* data = managed->dl_tensor.data;
    const std::lock_guard lock(mutex_);
    managed_.emplace(data, managed);
    return data;
  }

  void deallocate(void* data, size_t, Stream) noexcept override {
    dlpack::DLManagedTensorVersioned* managed = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto it = managed_.find(data);
      managed = it->second;
      managed_.erase(it);
    }
    managed->deleter(managed);
  }

 private:
  const dlpack::ExchangeApi& api_;
  std::mutex mutex_;  // guards managed_
  std::unordered_map<void*, dlpack::DLManagedTensorVersioned*> managed_;
};

const dlpack::ExchangeApi* exchange_api_of(PyTypeObject* type) {
  const nb::object capsule = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)),
                                         "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  auto* api =
      static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) PyErr_Clear();
  while (api != nullptr && api->version.major > dlpack::kMajorVersion) api = api->prev_api;
  return api != nullptr && api->dltensor_from_py_object != nullptr ? api : nullptr;
}

bool is_torch_type(PyTypeObject* type) {
  const nb::object torch = nb::steal(PyImport_GetModule(nb::str("torch").ptr()));
  if (!torch.is_valid()) return false;
  const nb::object base = nb::getattr(torch, "Tensor", nb::none());
  if (!PyType_Check(base.ptr()) ||
      PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base.ptr())) == 0) {
    return false;
  }
  if (torch_grad_enabled == nullptr) {
    torch_grad_enabled = nb::object(torch.attr("is_grad_enabled")).release().ptr();
  }
  return true;
}

/// Frameworks with one API share its allocator.
std::shared_ptr<Allocator> allocator_of(const dlpack::ExchangeApi* api) {
  if (api == nullptr) return nullptr;
  static auto& allocators =
      *new std::unordered_map<const dlpack::ExchangeApi*, std::shared_ptr<Allocator>>;
  std::shared_ptr<Allocator>& allocator = allocators[api];
  if (allocator == nullptr) allocator = std::make_shared<ExchangeAllocator>(*api);
  return allocator;
}

Framework inspect(PyTypeObject* type) {
  Framework framework{.type = type};
  const nb::handle object(reinterpret_cast<PyObject*>(type));
  if (object.is(nb::type<Tensor>())) {
    framework.is_own = framework.is_tensor = true;
    return framework;
  }
  framework.is_torch = is_torch_type(type);
  framework.api = exchange_api_of(type);
  framework.allocator = allocator_of(framework.api);
  framework.is_tensor = framework.api != nullptr || nb::hasattr(object, "__dlpack__");
  return framework;
}

thread_local CallFrame* innermost_frame = nullptr;

/// DLPack has no meta device: that fault is forgotten, any other is raised.
void keep_unless_meta(PyObject* object) {
  nb::python_error fault;
  if (!nb::getattr(nb::handle(object), "is_meta", nb::bool_(false)).is(nb::bool_(true)))
    throw fault;
}

}  // namespace

std::shared_ptr<const void> own(PyObject* object) {
  Py_INCREF(object);
  return {object, [](const void* held) { drop(static_cast<PyObject*>(const_cast<void*>(held))); }};
}

void drop_left_references() {
  LeftReferences& left = left_references();
  if (!left.any.load(std::memory_order_relaxed)) return;
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(left.mutex);
    objects.swap(left.objects);
    left.any.store(false);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

const Framework& framework_of(PyObject* object) {
  static auto& known = *new std::unordered_map<PyTypeObject*, Framework>;  // types are kept alive
  PyTypeObject* type = Py_TYPE(object);
  if (const auto it = known.find(type); it != known.end()) return it->second;
  Framework framework = inspect(type);
  Py_INCREF(type);
  return known.emplace(type, std::move(framework)).first->second;
}

CallFrame::CallFrame(std::string_view who) : who_(who), outer_(innermost_frame) {
  innermost_frame = this;
}

CallFrame::~CallFrame() {
  innermost_frame = outer_;
  drop_left_references();
}

void CallFrame::check_grad(PyObject* object, PyObject* name) const {
  static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
  const nb::object requires_grad = nb::steal(PyObject_GetAttr(object, attribute));
  if (!requires_grad.is_valid()) throw nb::python_error();
  if (requires_grad.ptr() != Py_True) return;
  const nb::object enabled = nb::steal(PyObject_CallNoArgs(torch_grad_enabled));
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
  const Framework& framework = framework_of(object);
  if (!framework.is_tensor) {
    throw Error(ErrorKind::kType, std::string(who_) + ": " + PyUnicode_AsUTF8(name) +
                                      " must be a tensor of torch or one with __dlpack__, got " +
                                      Py_TYPE(object)->tp_name);
  }
  if (framework_ == nullptr) framework_ = &framework;
  if (framework.is_own) return *nb::inst_ptr<Tensor>(object);
  if (framework.is_torch) check_grad(object, name);
  if (framework.api != nullptr) {
    dlpack::DLTensor view{};
    if (framework.api->dltensor_from_py_object(object, &view) == 0) {
      return dlpack::import_view(view, own(object));
    }
    keep_unless_meta(object);
  }
  const auto taken = nb::borrow<nb::tuple>(nb::handle(take_by_capsule)(nb::handle(object)));
  if (written && nb::cast<bool>(taken[1])) {
    throw Error(ErrorKind::kValue, std::string(who_) + ": " + PyUnicode_AsUTF8(name) +
                                       " is read-only, and the call writes it");
  }
  return nb::cast<Tensor>(taken[0]);
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

namespace {

nb::tuple dims_to_python(const Dims& dims) {
  nb::list list;
  for (int64_t value : dims) list.append(value);
  return nb::tuple(list);
}

template <class Managed>
nb::object capsule_of(Managed* managed, const char* name) {
  const auto destroy = [](PyObject* capsule) {
    const char* current = PyCapsule_GetName(capsule);
    if (current == nullptr || std::string_view(current).starts_with("used_")) return;
    auto* held = static_cast<Managed*>(PyCapsule_GetPointer(capsule, current));
    if (held != nullptr) held->deleter(held);
  };
  PyObject* capsule = PyCapsule_New(managed, name, destroy);
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

nb::object to_dlpack(const Tensor& tensor, bool versioned) {
  if (versioned) return capsule_of(dlpack::export_managed_versioned(tensor), "dltensor_versioned");
  return capsule_of(dlpack::export_managed(tensor), "dltensor");
}

/// The tensor of a capsule, which is used up, and whether it is read-only.
nb::tuple from_capsule(nb::object capsule) {
  PyObject* ptr = capsule.ptr();
  if (PyCapsule_IsValid(ptr, "dltensor_versioned") != 0) {
    auto* managed = static_cast<dlpack::DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(ptr, "dltensor_versioned"));
    const bool read_only = (managed->flags & dlpack::kFlagReadOnly) != 0;
    Tensor tensor = dlpack::import_managed(managed);
    PyCapsule_SetName(ptr, "used_dltensor_versioned");
    return nb::make_tuple(std::move(tensor), read_only);
  }
  if (PyCapsule_IsValid(ptr, "dltensor") == 0) throw nb::type_error("a DLPack capsule is needed");
  Tensor tensor = dlpack::import_managed(
      static_cast<dlpack::DLManagedTensor*>(PyCapsule_GetPointer(ptr, "dltensor")));
  PyCapsule_SetName(ptr, "used_dltensor");
  return nb::make_tuple(std::move(tensor), false);
}

DType dtype_named(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) throw Error(ErrorKind::kType, "there is no dtype " + name);
  return *dtype;
}

}  // namespace

void bind_tensors(nb::module_& m) {
  nb::class_<Tensor>(m, "Tensor")
      .def_prop_ro("shape", [](const Tensor& t) { return dims_to_python(t.shape()); })
      .def_prop_ro("strides", [](const Tensor& t) { return dims_to_python(t.strides()); })
      .def_prop_ro("dtype", [](const Tensor& t) { return std::string(dtype_name(t.dtype())); })
      .def_prop_ro("device", [](const Tensor& t) { return to_string(t.device()); })
      .def_prop_ro("data_ptr",
                   [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()); })
      .def("__repr__", [](const Tensor& t) { return "tileops_cpp.Tensor " + to_string(t); })
      .def("_to_dlpack", &to_dlpack, nb::arg("versioned"))
      .def("_dlpack_device",
           [](const Tensor& t) {
             const bool is_cuda = t.device().type == DeviceType::kCUDA;
             return nb::make_tuple(static_cast<int>(is_cuda ? dlpack::kCuda : dlpack::kCpu),
                                   t.device().index);
           })
      .def("_view_as",
           [](const Tensor& t, const std::string& dtype) {
             return Tensor::from_blob(t.data(), t.shape(), t.strides(), dtype_named(dtype),
                                      t.device(), std::make_shared<const Tensor>(t));
           })
      .def_static("_from_capsule", &from_capsule)
      .def_static("_meta", [](const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& strides, const std::string& dtype) {
        return Tensor::from_blob(nullptr, Dims(shape), Dims(strides), dtype_named(dtype),
                                 kMetaDevice, nullptr);
      });
  m.def("set_tensor_protocol", [](nb::object take, nb::object give) {
    take_by_capsule = take.release().ptr();
    give_by_capsule = give.release().ptr();
  });
}

}  // namespace tileops::python
