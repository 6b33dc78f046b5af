// SPDX-License-Identifier: Apache-2.0
// Parameters and identities between Python and the library.
#include <nanobind/stl/string.h>

#include <utility>
#include <vector>

#include "core.h"

namespace tileops::python {
namespace {

/// The class of sum-type values, set by the package; values have `type`, `constructor`, `fields`.
PyObject* sum_value_class = nullptr;
PyObject* make_sum_value = nullptr;

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

/// Whether a class is a framework's of dtypes, by its name or that of one it derives from: ml_dtypes'
/// classes are named after their elements.
bool is_of_dtypes(nb::handle type) {
  for (const nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__"))) {
    const std::string name = text_of(base.attr("__name__"));
    if (name.find("dtype") != std::string::npos || name.find("DType") != std::string::npos) {
      return true;
    }
  }
  return false;
}

/// The dtype that an object of another framework names: torch.bfloat16, numpy.dtype("int32"),
/// numpy.float32, ml_dtypes.bfloat16.
std::optional<DType> dtype_of(nb::handle object) {
  std::string name;
  if (nb::hasattr(object, "__name__") && PyType_Check(object.ptr())) {
    name = text_of(object.attr("__name__"));
  } else if (is_of_dtypes(object.type())) {
    name = text_of(object);
  } else {
    return std::nullopt;
  }
  const size_t dot = name.rfind('.');
  if (dot != std::string::npos) name = name.substr(dot + 1);
  if (name == "float8_e4m3fn") name = "float8_e4m3";
  if (name == "bool_") name = "bool";
  return parse_dtype(name);
}

Value sum_from_python(nb::handle object) {
  SumValue value{text_of(object.attr("type")), text_of(object.attr("constructor")), {}};
  for (auto [name, field] : nb::borrow<nb::dict>(object.attr("fields"))) {
    value.fields.emplace_back(text_of(name), value_from_python(field));
  }
  return value;
}

[[noreturn]] void no_value(nb::handle object) {
  throw Error(ErrorKind::kType,
              "a parameter or identity is None, a bool, int, float, str, dtype, list, tuple or a "
              "value of a sum type, got " +
                  text_of(nb::repr(object)));
}

}  // namespace

Value value_from_python(nb::handle object) {
  PyObject* ptr = object.ptr();
  if (ptr == Py_None) return {};
  if (PyBool_Check(ptr)) return ptr == Py_True;
  if (PyLong_Check(ptr)) {
    const int64_t value = PyLong_AsLongLong(ptr);
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
  }
  if (PyFloat_Check(ptr)) return PyFloat_AS_DOUBLE(ptr);
  if (PyUnicode_Check(ptr)) return text_of(object);
  if (PyList_Check(ptr) || PyTuple_Check(ptr)) {
    Value::List list;
    for (nb::handle each : nb::borrow<nb::sequence>(object))
      list.push_back(value_from_python(each));
    return list;
  }
  if (sum_value_class != nullptr && PyObject_IsInstance(ptr, sum_value_class) == 1) {
    return sum_from_python(object);
  }
  if (const auto dtype = dtype_of(object)) return *dtype;
  if (PyIndex_Check(ptr)) return value_from_python(nb::steal(PyNumber_Index(ptr)));
  no_value(object);
}

nb::object value_to_python(const Value& value) {
  if (const auto* v = value.as_bool()) return nb::bool_(*v);
  if (const auto* v = value.as_int()) return nb::int_(*v);
  if (const auto* v = value.as_double()) return nb::float_(*v);
  if (const auto* v = value.as_string()) return nb::str(v->c_str(), v->size());
  if (const auto* v = value.as_dtype()) {
    const std::string_view name = dtype_name(*v);
    return nb::str(name.data(), name.size());
  }
  if (const auto* v = value.as_list()) {
    nb::list list;
    for (const Value& each : *v) list.append(value_to_python(each));
    return list;
  }
  if (const auto* v = value.as_sum()) {
    nb::dict fields;
    for (const auto& [name, field] : v->fields) fields[name.c_str()] = value_to_python(field);
    return nb::handle(make_sum_value)(v->type.c_str(), v->constructor.c_str(), fields);
  }
  return nb::none();
}

Params params_from_python(nb::dict params) {
  Params result;
  for (auto [name, value] : params) result.set(text_of(name), value_from_python(value));
  return result;
}

nb::dict params_to_python(const Params& params) {
  nb::dict result;
  for (const auto& [name, value] : params) result[name.c_str()] = value_to_python(value);
  return result;
}

void bind_values(nb::module_& m) {
  m.def("set_sum_values", [](nb::object base, nb::object make) {
    sum_value_class = base.release().ptr();
    make_sum_value = make.release().ptr();
  });
  m.def("value_text", [](nb::object value) { return to_string(value_from_python(value)); });
}

}  // namespace tileops::python
