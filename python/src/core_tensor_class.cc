// SPDX-License-Identifier: Apache-2.0
// tileops_cpp.Tensor, and DLPack's capsules.
#include <nanobind/stl/vector.h>

#include <string_view>
#include <vector>

#include "core_tensors.h"
#include "tileops/cuda/event.h"

namespace tileops::python {
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

/// Makes a consumer's stream wait for what was put on ours; `stream` is DLPack's number of it.
void order_before(const Tensor& tensor, int64_t stream) {
  const Device device = tensor.device();
  if (device.type != DeviceType::kCUDA || stream == -1)
    return;  // -1: the consumer orders by itself
  if (stream == 0) {
    throw Error(
        ErrorKind::kValue,
        "tileops_cpp.Tensor: DLPack knows no stream 0; 1 is CUDA's legacy default stream, 2 "
        "the thread's default stream");
  }
  const Stream ours = current_stream(device);
  const Stream consumers{device, stream == 1 ? nullptr : reinterpret_cast<void*>(stream)};
  if (consumers == ours) return;
  cuda::Event done(device);
  done.record(ours);
  done.block(consumers);
}

nb::object to_dlpack(const Tensor& tensor, bool versioned, int64_t stream) {
  order_before(tensor, stream);
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
      .def("_to_dlpack", &to_dlpack, nb::arg("versioned"), nb::arg("stream"))
      .def("_dlpack_device",
           [](const Tensor& t) {
             const bool is_cuda = t.device().type == DeviceType::kCUDA;
             return nb::make_tuple(static_cast<int>(is_cuda ? dlpack::kCuda : dlpack::kCpu),
                                   t.device().index);
           })
      .def_static("_from_capsule", &from_capsule)
      .def_static("_meta", [](const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& strides, const std::string& dtype) {
        return Tensor::from_blob(nullptr, Dims(shape), Dims(strides), dtype_named(dtype),
                                 kMetaDevice, nullptr);
      });
  bind_tensor_protocol(m);
}

}  // namespace tileops::python
