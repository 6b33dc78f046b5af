// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/copy.h"

#include "tileops/core/launch_batch.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/launch.h"

namespace tileops::cuda {
namespace {

/// The device's current stream, which copies that wait may use.
Stream waiting_stream(Device device) {
  submit_launches();
  const Stream stream = current_stream(device);
  TILEOPS_CHECK(ErrorKind::kState, !is_capturing(stream),
                "copying between host and {} waits, which a stream capture does not allow",
                to_string(device));
  return stream;
}

/// Bytes from the first element to the end of the last.
int64_t extent_bytes(const Tensor& tensor) {
  if (tensor.num_elements() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < tensor.rank(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return (last + 1) * dtype_bytes(tensor.dtype());
}

/// A fresh tensor with the strides of another, and as large.
Tensor empty_like(const Tensor& tensor, Device device) {
  const Tensor bytes = Tensor::empty({extent_bytes(tensor)}, DType::kU8, device);
  return Tensor::from_blob(bytes.data(), tensor.shape(), tensor.strides(), tensor.dtype(), device,
                           bytes.storage());
}

}  // namespace

void copy_to_device(void* destination, const void* source, size_t bytes, Device device) {
  const ContextGuard context(device);
  const Stream stream = waiting_stream(device);
  TILEOPS_DRIVER_CHECK(
      driver().memcpy_htod_async(reinterpret_cast<abi::DevicePtr>(destination), source, bytes,
                                 static_cast<abi::Stream>(stream.handle)),
      "copying {} bytes to {}", bytes, to_string(device));
  synchronize(stream);
}

void copy_to_host(void* destination, const void* source, size_t bytes, Device device) {
  const ContextGuard context(device);
  const Stream stream = waiting_stream(device);
  TILEOPS_DRIVER_CHECK(
      driver().memcpy_dtoh_async(destination, reinterpret_cast<abi::DevicePtr>(source), bytes,
                                 static_cast<abi::Stream>(stream.handle)),
      "copying {} bytes from {}", bytes, to_string(device));
  synchronize(stream);
}

Tensor to_device(const Tensor& tensor, Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  const Tensor host = to_host(tensor);
  Tensor copy = empty_like(host, device);
  const int64_t bytes = extent_bytes(host);
  if (bytes != 0) copy_to_device(copy.data(), host.data(), static_cast<size_t>(bytes), device);
  return copy;
}

Tensor to_host(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type == DeviceType::kCPU) return tensor;
  TILEOPS_CHECK(ErrorKind::kDevice, tensor.device().type == DeviceType::kCUDA,
                "{} has no contents to copy", to_string(tensor));
  Tensor copy = empty_like(tensor, kCpuDevice);
  const int64_t bytes = extent_bytes(tensor);
  if (bytes != 0) {
    copy_to_host(copy.data(), tensor.data(), static_cast<size_t>(bytes), tensor.device());
  }
  return copy;
}

void fill_bytes(void* destination, unsigned char value, size_t bytes, Stream stream) {
  submit_launches();
  const ContextGuard context(stream.device);
  TILEOPS_DRIVER_CHECK(
      driver().memset_d8_async(reinterpret_cast<abi::DevicePtr>(destination), value, bytes,
                               static_cast<abi::Stream>(stream.handle)),
      "setting {} bytes on {}", bytes, to_string(stream.device));
}

}  // namespace tileops::cuda
