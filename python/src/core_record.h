// SPDX-License-Identifier: Apache-2.0
// What calls leave behind, as Python objects.
#pragma once

#include "core.h"
#include "tileops/dispatch/kernel_cache.h"
#include "tileops/op/record.h"
#include "tileops/spec/roofline.h"

namespace tileops::python {

nb::object record_to_python(RecordPtr record);
nb::object kernel_to_python(std::shared_ptr<Kernel> kernel);
nb::object entry_to_python(const BuiltEntry& entry);
nb::object cost_to_python(const spec::Cost& cost);
/// None for an absent tensor.
nb::object facts_to_python(const spec::TensorFacts& facts);

}  // namespace tileops::python
