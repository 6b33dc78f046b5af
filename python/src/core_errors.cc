// SPDX-License-Identifier: Apache-2.0
// Errors: each kind as its Python class, with the same text.
#include <array>

#include "core.h"

namespace tileops::python {
namespace {

PyObject* new_error(nb::module_& m, const char* name, PyObject* base, const char* doc) {
  const std::string path = std::string("tileops_cpp.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(path.c_str(), doc, base, nullptr);
  if (type == nullptr) throw nb::python_error();
  m.attr(name) = nb::handle(type);
  return type;  // lives as long as the process
}

struct ErrorTypes {
  PyObject* error = nullptr;  // base of the classes of our own
  PyObject* op_not_available = nullptr;
  PyObject* ambiguous_selection = nullptr;
  PyObject* ambiguous_target = nullptr;
  PyObject* backend = nullptr;
  PyObject* spec = nullptr;
  PyObject* build = nullptr;
};
ErrorTypes types;

PyObject* type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kValue:
    case ErrorKind::kShape:
    case ErrorKind::kDevice:
      return PyExc_ValueError;
    case ErrorKind::kType:
    case ErrorKind::kDType:
      return PyExc_TypeError;
    case ErrorKind::kState:
    case ErrorKind::kDelegate:
    case ErrorKind::kInternal:
      return PyExc_RuntimeError;
    case ErrorKind::kOpNotAvailable:
      return types.op_not_available;
    case ErrorKind::kAmbiguousSelection:
      return types.ambiguous_selection;
    case ErrorKind::kAmbiguousTarget:
      return types.ambiguous_target;
    case ErrorKind::kBackend:
      return types.backend;
    case ErrorKind::kSpec:
      return types.spec;
    case ErrorKind::kBuild:
      return types.build;
    case ErrorKind::kIo:
      return PyExc_OSError;
    case ErrorKind::kOutOfMemory:
      return PyExc_MemoryError;
  }
  return PyExc_RuntimeError;
}

}  // namespace

void set_python_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const Error& e) {
    PyErr_SetString(type_of(e.kind()), e.what());
  } catch (const nb::builtin_exception& e) {
    PyErr_SetString(e.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_ValueError,
                    e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "tileops_cpp: an exception of an unknown class");
  }
}

void bind_errors(nb::module_& m) {
  types.error = new_error(m, "Error", PyExc_RuntimeError,
                          "Base of the error classes that are the library's own.");
  types.op_not_available =
      new_error(m, "OpNotAvailableError", types.error, "Nothing can serve this call.");
  types.ambiguous_selection = new_error(m, "AmbiguousSelectionError", types.error,
                                        "Several implementations claim one call.");
  types.ambiguous_target =
      new_error(m, "AmbiguousTargetError", types.error, "Several targets claim one device.");
  types.backend = new_error(m, "BackendError", types.error, "A backend broke its contract.");
  types.spec =
      new_error(m, "SpecError", types.error, "An entry or expression of a spec is malformed.");
  types.build = new_error(m, "BuildError", types.error, "A kernel could not be built.");
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      PyErr_SetString(type_of(e.kind()), e.what());
    }
  });
}

}  // namespace tileops::python
