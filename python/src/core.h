// SPDX-License-Identifier: Apache-2.0
// The module tileops_cpp._core: what its files share.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "tileops/core/error.h"
#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/op/op.h"

namespace tileops::python {

namespace nb = nanobind;

// Errors (core_errors.cc).

/// Sets the Python error that stands for the exception in flight; call it inside a catch block.
void set_python_error() noexcept;

// Values (core_values.cc).

/// A parameter or identity: None, bool, int, float, str, a dtype (of torch, NumPy, ml_dtypes), a
/// list or tuple, a value of a sum type. Errors: TypeError for anything else.
Value value_from_python(nb::handle object);
nb::object value_to_python(const Value& value);
Params params_from_python(nb::dict params);
nb::dict params_to_python(const Params& params);

// Op instances as the module holds them.

/// A shared op; Python's Op objects own one each.
struct OpHandle {
  std::shared_ptr<Op> op;
};

void bind_errors(nb::module_& m);
void bind_values(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_calls(nb::module_& m);
void bind_spec(nb::module_& m);

}  // namespace tileops::python
