// SPDX-License-Identifier: Apache-2.0
// The module tileops_cpp._core: what its files share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "tileops/core/error.h"
#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/op/op.h"

namespace tileops::python {

namespace nb = nanobind;

/// A reference that any thread may drop: one that does not hold the GIL leaves it to the next that
/// does, and never waits.
std::shared_ptr<const void> own(PyObject* object);
/// Drops what was left. Needs the GIL.
void drop_left_references();

/// A Python object for a C++ callable that may be copied and dropped on any thread.
class SharedObject {
 public:
  explicit SharedObject(nb::handle object) : owner_(own(object.ptr())) {}
  nb::handle get() const { return static_cast<PyObject*>(const_cast<void*>(owner_.get())); }

 private:
  std::shared_ptr<const void> owner_;
};

// Errors (core_errors.cc).

/// Sets the Python error that stands for the exception in flight; call it inside a catch block.
void set_python_error() noexcept;

/// A Python exception on its way through the library, which may hand it to several threads: whoever
/// raises it in Python again raises a copy. what() is one line: "LookupError: no such window".
class PythonFault : public std::exception {
 public:
  explicit PythonFault(nb::python_error error);
  const char* what() const noexcept override { return text_.c_str(); }
  const nb::python_error& error() const { return error_; }

 private:
  nb::python_error error_;
  std::string text_;
};

/// A Python exception that is no Exception (KeyboardInterrupt, SystemExit): it ends a call, and is
/// no failure of it. Not a std::exception, so that the library lets it pass.
struct Cancelled {
  nb::python_error error;
};

/// Runs what Python does for the library: with the GIL, cancellation told from failure.
template <class Function>
auto in_python(Function&& function) {
  const nb::gil_scoped_acquire gil;
  try {
    return function();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw Cancelled{std::move(error)};
    throw PythonFault(std::move(error));
  }
}

// Values (core_values.cc).

/// A parameter or identity: None, bool, int, float, str, a dtype (of torch, NumPy, ml_dtypes), a
/// list or tuple, a value of a sum type. Errors: TypeError for anything else.
Value value_from_python(nb::handle object);
nb::object value_to_python(const Value& value);
Params params_from_python(nb::dict params);
nb::dict params_to_python(const Params& params);

// Ops.

/// A shared op; Python's Op objects own one each.
struct OpHandle {
  std::shared_ptr<Op> op;
};
/// The op of a Python Op object, which lives as long as the op is shared.
std::shared_ptr<Op> shared_op(nb::handle op_object);
/// The Python Op object of an op.
nb::object op_object(const std::shared_ptr<Op>& op);

void bind_errors(nb::module_& m);
void bind_values(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_numpy(nb::module_& m);
void bind_records(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_calls(nb::module_& m);
void bind_composites(nb::module_& m);
void bind_targets(nb::module_& m);
void bind_kernel_types(nb::module_& m);
void bind_moe(nb::module_& m);
void bind_spec(nb::module_& m);
void bind_compile(nb::module_& m);
void bind_workloads(nb::module_& m);

}  // namespace tileops::python
