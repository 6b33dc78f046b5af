// SPDX-License-Identifier: Apache-2.0
// Tensors between host and device: for tests, tools and the reading of metadata.
#pragma once

#include <cstddef>

#include "tileops/core/stream.h"
#include "tileops/core/tensor.h"

namespace tileops::cuda {

/// Copies bytes on the device's current stream and waits for them.
/// Errors: kInternal (the driver's), kState during a capture, kDevice.
void copy_to_device(void* destination, const void* source, size_t bytes, Device device);
void copy_to_host(void* destination, const void* source, size_t bytes, Device device);

/// The tensor on a device, strides kept; a tensor that is there already is returned as it is.
/// Errors: as above, kOutOfMemory.
Tensor to_device(const Tensor& tensor, Device device);
/// The tensor on the CPU, strides kept: how metadata that lives on a GPU is read and checked.
Tensor to_host(const Tensor& tensor);

/// Sets bytes on a stream, asynchronously.
void fill_bytes(void* destination, unsigned char value, size_t bytes, Stream stream);

}  // namespace tileops::cuda
