// SPDX-License-Identifier: Apache-2.0
// What classes of Python tensors offer; references that any thread may drop.
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core_tensors.h"

namespace tileops::python {
namespace {

const Framework* framework_of_nodes = nullptr;  // under the GIL

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
    const bool is_cuda = stream.device.type == DeviceType::kCUDA;
    int64_t size = static_cast<int64_t>(bytes + (is_cuda ? 0 : kCpuHead));
    dlpack::DLTensor prototype{
        .data = nullptr,
        .device = {is_cuda ? dlpack::kCuda : dlpack::kCpu, is_cuda ? stream.device.index : 0},
        .ndim = 1,
        .dtype = {dlpack::kUInt, 8, 1},
        .shape = &size,
        .strides = nullptr,
        .byte_offset = 0};
    std::string fault;
    Managed* managed = nullptr;
    const auto set_error = [](void* context, const char*, const char* message) {
      *static_cast<std::string*>(context) = message;
    };
    if (api_.managed_tensor_allocator(&prototype, &managed, &fault, set_error) != 0) {
      throw Error(ErrorKind::kOutOfMemory, fault);
    }
    void* data = managed->dl_tensor.data;
    if (!is_cuda) {
      data = static_cast<std::byte*>(data) + kCpuHead;
      static_cast<Managed**>(data)[-1] = managed;
      return data;
    }
    const std::lock_guard lock(mutex_);
    managed_.emplace(data, managed);
    return data;
  }

  void deallocate(void* data, size_t, Stream stream) noexcept override {
    Managed* managed = nullptr;
    if (stream.device.type != DeviceType::kCUDA) {
      managed = static_cast<Managed**>(data)[-1];
    } else {
      const std::lock_guard lock(mutex_);
      const auto it = managed_.find(data);
      managed = it->second;
      managed_.erase(it);
    }
    managed->deleter(managed);
  }

 private:
  using Managed = dlpack::DLManagedTensorVersioned;
  static constexpr size_t kCpuHead = 64;  // before the data, in its alignment; ends with Managed*

  const dlpack::ExchangeApi& api_;
  std::mutex mutex_;                             // guards managed_
  std::unordered_map<void*, Managed*> managed_;  // of CUDA, whose memory the host cannot read
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

/// Whether the type is, or derives from, that class of a module; false where the module is not loaded.
bool derives_from(PyTypeObject* type, const char* module, const char* name) {
  const nb::object loaded = nb::steal(PyImport_GetModule(nb::str(module).ptr()));
  if (!loaded.is_valid()) return false;
  const nb::object base = nb::getattr(loaded, name, nb::none());
  return PyType_Check(base.ptr()) &&
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base.ptr())) != 0;
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

/// The getter behind a class's attribute, where it is one in C that instances cannot hide.
const PyGetSetDef* getter_of(PyTypeObject* type, const char* name) {
  if (type->tp_getattro != &PyObject_GenericGetAttr) return nullptr;
  const nb::object found = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)), name);
  if (!Py_IS_TYPE(found.ptr(), &PyGetSetDescr_Type)) return nullptr;
  Py_INCREF(found.ptr());  // as long as the process
  return reinterpret_cast<PyGetSetDescrObject*>(found.ptr())->d_getset;
}

Framework inspect(PyTypeObject* type) {
  Framework framework{.type = type};
  const nb::handle object(reinterpret_cast<PyObject*>(type));
  if (object.is(nb::type<Tensor>())) {
    framework.is_own = framework.is_tensor = true;
    return framework;
  }
  if (derives_from(type, "torch", "Tensor")) {
    framework.grad_enabled = nb::module_::import_("torch").attr("is_grad_enabled").ptr();
    Py_INCREF(framework.grad_enabled);  // as long as the process
    framework.requires_grad = getter_of(type, "requires_grad");
  }
  framework.is_numpy = derives_from(type, "numpy", "ndarray");
  framework.api = exchange_api_of(type);
  framework.allocator = allocator_of(framework.api);
  framework.is_tensor = framework.api != nullptr || nb::hasattr(object, "__dlpack__");
  return framework;
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

const Framework& framework_of(PyObject* object) { return framework_of_type(Py_TYPE(object)); }

const Framework& framework_of_type(PyTypeObject* type) {
  static auto& known = *new std::unordered_map<PyTypeObject*, Framework>;  // types are kept alive
  if (const auto it = known.find(type); it != known.end()) return it->second;
  Framework framework = inspect(type);
  Py_INCREF(type);
  return known.emplace(type, std::move(framework)).first->second;
}

const Framework* node_framework() { return framework_of_nodes; }

void set_node_framework(PyTypeObject* type) { framework_of_nodes = &framework_of_type(type); }

}  // namespace tileops::python
