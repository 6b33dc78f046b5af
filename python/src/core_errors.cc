// SPDX-License-Identifier: Apache-2.0
// Errors: each kind as its Python class, with the same text.
#include <cstdio>

#include "core.h"
#include "tileops/core/log.h"

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

/// A warning of the library's as one of Python's, which a filter may make an error.
void warn_in_python(std::string_view text) {
  if (Py_IsInitialized() == 0) {
    std::fprintf(stderr, "tileops warning: %.*s\n", static_cast<int>(text.size()), text.data());
    return;
  }
  in_python([&] {
    if (PyErr_WarnEx(PyExc_RuntimeWarning, std::string(text).c_str(), 1) != 0) {
      throw nb::python_error();
    }
  });
}

std::string one_line(const nb::python_error& error) {
  const std::string type = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
  try {
    const std::string text = nb::cast<std::string>(nb::str(error.value()));
    return type + ": " + text.substr(0, text.find('\n'));
  } catch (const nb::python_error&) {
    return type;  // its __str__ raises
  }
}

}  // namespace

PythonFault::PythonFault(nb::python_error error)
    : error_(std::move(error)), text_(one_line(error_)) {}

void set_python_error() noexcept {
  try {
    throw;
  } catch (const nb::python_error& e) {
    nb::python_error(e).restore();
  } catch (const PythonFault& e) {
    nb::python_error(e.error()).restore();
  } catch (const Cancelled& e) {
    nb::python_error(e.error).restore();
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
  set_warning_handler(&warn_in_python);
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      PyErr_SetString(type_of(e.kind()), e.what());
    } catch (const Cancelled& e) {
      nb::python_error(e.error).restore();
    } catch (const PythonFault& e) {
      nb::python_error(e.error()).restore();
    }
  });
}

}  // namespace tileops::python
