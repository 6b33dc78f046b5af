// SPDX-License-Identifier: Apache-2.0
// NumPy arrays by the buffer protocol and NumPy's own constructor, without NumPy's headers.
#pragma once

#include <optional>

#include "core.h"

namespace tileops::python {

/// The library's view of an array, which the view keeps alive, and whether it is read-only; none where
/// the library has no type of its elements or strides in whole elements. Errors: those of
/// Tensor::from_blob. Needs the GIL.
std::optional<Tensor> tensor_of_array(PyObject* array, bool& read_only);

/// An array on a CPU tensor's memory, which it keeps. Errors: ImportError where NumPy (or, for bfloat16
/// and float8, ml_dtypes) is not there. Needs the GIL.
nb::object array_of_tensor(const Tensor& tensor);

}  // namespace tileops::python
