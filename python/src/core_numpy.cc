// SPDX-License-Identifier: Apache-2.0
#include "core_numpy.h"

#include <array>
#include <span>
#include <vector>

namespace tileops::python {
namespace {

constexpr std::array kOwn{DType::kF64, DType::kF32, DType::kF16, DType::kI64, DType::kI32,
                          DType::kI16, DType::kI8,  DType::kU8,  DType::kBool};
/// Element types that NumPy has by ml_dtypes, and their names there.
struct Extension {
  DType dtype;
  const char* name;
};
constexpr std::array kExtensions{Extension{DType::kBF16, "bfloat16"},
                                 Extension{DType::kE4M3, "float8_e4m3fn"},
                                 Extension{DType::kE5M2, "float8_e5m2"}};

/// What is used of NumPy: its dtype objects beside our types, its array class. Lives as long as the
/// process; under the GIL, which an import may hand over, so that each part is made before it is put in.
class NumPy {
 public:
  static NumPy& get() {
    static auto& numpy = *new NumPy;
    if (numpy.known_.empty()) numpy.load();
    return numpy;
  }

  PyObject* array_class() const { return array_class_; }

  /// Our type of an array's; none where there is none, or another byte order.
  std::optional<DType> find(PyObject* object) {
    for (const Known& known : known_) {
      if (known.object == object) return known.dtype;
    }
    PyObject* const modules = PyImport_GetModuleDict();
    if (!has_extensions_ && PyDict_GetItemString(modules, "ml_dtypes") != nullptr) add_extensions();
    for (const Known& known : known_) {
      const int equal = PyObject_RichCompareBool(known.object, object, Py_EQ);
      if (equal < 0) throw nb::python_error();
      if (equal == 1) return known.dtype;
    }
    return std::nullopt;
  }

  /// NumPy's of ours. Errors: ImportError.
  PyObject* object_of(DType dtype) {
    if (PyObject* object = known_object(dtype)) return object;
    if (!has_extensions_) add_extensions();
    return known_object(dtype);
  }

 private:
  struct Known {
    PyObject* object;
    DType dtype;
  };

  PyObject* known_object(DType dtype) const {
    for (const Known& known : known_) {
      if (known.dtype == dtype) return known.object;
    }
    return nullptr;
  }
  void load() {
    const nb::module_ module = nb::module_::import_("numpy");
    const nb::object make = module.attr("dtype");
    std::vector<Known> known;
    for (const DType dtype : kOwn) {
      const std::string_view name = dtype_name(dtype);
      known.push_back({make(nb::str(name.data(), name.size())).release().ptr(), dtype});
    }
    array_class_ = nb::object(module.attr("ndarray")).release().ptr();
    known_ = std::move(known);
  }
  void add_extensions() {
    const nb::object make = nb::module_::import_("numpy").attr("dtype");
    const nb::module_ module = nb::module_::import_("ml_dtypes");
    std::vector<Known> known;
    for (const Extension& each : kExtensions) {
      known.push_back({make(module.attr(each.name)).release().ptr(), each.dtype});
    }
    if (has_extensions_) return;  // another thread's
    known_.insert(known_.end(), known.begin(), known.end());
    has_extensions_ = true;
  }

  std::vector<Known> known_;
  PyObject* array_class_ = nullptr;
  bool has_extensions_ = false;
};

/// A tensor's memory for Python's buffer protocol: bytes from its first element to its last.
struct Memory {
  Tensor tensor;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Tensor& tensor = nb::inst_ptr<Memory>(self)->tensor;
  const int64_t extent = extent_elements(tensor.shape(), tensor.strides());
  return PyBuffer_FillInfo(view, self, tensor.data(), extent * dtype_bytes(tensor.dtype()), 0,
                           flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                              {0, nullptr}};

template <class Dim>
nb::object dims_tuple(int rank, const Dim& dim) {
  nb::object tuple = nb::steal(PyTuple_New(rank));
  if (!tuple.is_valid()) throw nb::python_error();
  for (int i = 0; i < rank; ++i) {
    PyObject* size = PyLong_FromLongLong(dim(i));
    if (size == nullptr) throw nb::python_error();
    PyTuple_SET_ITEM(tuple.ptr(), i, size);
  }
  return tuple;
}

}  // namespace

std::optional<Tensor> tensor_of_array(PyObject* array, bool& read_only) {
  static PyObject* const attribute = PyUnicode_InternFromString("dtype");
  const nb::object type = nb::steal(PyObject_GetAttr(array, attribute));
  if (!type.is_valid()) throw nb::python_error();
  const std::optional<DType> dtype = NumPy::get().find(type.ptr());
  if (!dtype) return std::nullopt;
  struct Held {
    Py_buffer buffer{};
    ~Held() { PyBuffer_Release(&buffer); }  // nothing where none is held
  } held;
  const Py_buffer& buffer = held.buffer;
  if (PyObject_GetBuffer(array, &held.buffer, PyBUF_STRIDED_RO) != 0) throw nb::python_error();
  if (buffer.ndim > kMaxRank) return std::nullopt;
  std::array<int64_t, kMaxRank> strides{};
  const auto rank = static_cast<size_t>(buffer.ndim);
  for (int i = 0; i < buffer.ndim; ++i) {
    if (buffer.strides[i] % buffer.itemsize != 0) return std::nullopt;
    strides[static_cast<size_t>(i)] = buffer.strides[i] / buffer.itemsize;
  }
  read_only = buffer.readonly != 0;
  return Tensor::from_blob(buffer.buf, Dims(std::span(buffer.shape, rank)),
                           Dims(std::span(strides.data(), rank)), *dtype, kCpuDevice, own(array));
}

nb::object array_of_tensor(const Tensor& tensor) {
  NumPy& numpy = NumPy::get();
  const int rank = tensor.rank();
  const nb::object shape = dims_tuple(rank, [&](int i) { return tensor.shape()[i]; });
  const nb::object memory = nb::cast(Memory{tensor});
  PyObject* const dtype = numpy.object_of(tensor.dtype());
  if (tensor.is_contiguous()) {
    PyObject* const arguments[] = {shape.ptr(), dtype, memory.ptr()};
    PyObject* const array = PyObject_Vectorcall(numpy.array_class(), arguments, 3, nullptr);
    if (array == nullptr) throw nb::python_error();
    return nb::steal(array);
  }
  const int64_t bytes = dtype_bytes(tensor.dtype());
  const nb::object strides = dims_tuple(rank, [&](int i) { return tensor.strides()[i] * bytes; });
  return nb::handle(numpy.array_class())(shape, nb::handle(dtype), memory, 0, strides);
}

void bind_numpy(nb::module_& m) {
  nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots));
  m.def("array_of_tensor", &array_of_tensor);
}

}  // namespace tileops::python
