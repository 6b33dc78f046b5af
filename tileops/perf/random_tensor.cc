// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/random_tensor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cpu/parallel.h"
#include "tileops/cuda/copy.h"
#include "tileops/spec/random.h"

namespace tileops::perf {
namespace {

/// Prime, so that the rows of a matrix do not begin alike.
constexpr int64_t kMaxDrawn = 1'048'573;
constexpr int64_t kCopyBytes = int64_t{64} << 20;  // of one copy to a device

std::vector<std::byte> draw(int64_t count, DType dtype, uint64_t seed, float scale) {
  spec::Random random(seed);
  const int64_t step = dtype_bytes(dtype);
  std::vector<std::byte> block(static_cast<size_t>(count * step));
  for (int64_t i = 0; i < count; ++i) {
    const double value = (2 * random.unit() - 1) * static_cast<double>(scale);
    store_element(dtype, block.data() + i * step, value);
  }
  return block;
}

/// Bytes [begin, end) of the block's endless repetition.
void copy_repeated(std::byte* out, const std::vector<std::byte>& block, int64_t begin,
                   int64_t end) {
  const auto period = static_cast<int64_t>(block.size());
  for (int64_t at = begin; at < end;) {
    const int64_t from = at % period;
    const int64_t count = std::min(end - at, period - from);
    std::memcpy(out + (at - begin), block.data() + from, static_cast<size_t>(count));
    at += count;
  }
}

}  // namespace

Tensor random_tensor(const Shape& shape, DType dtype, Device device, uint64_t seed, float scale) {
  TILEOPS_CHECK(
      ErrorKind::kDType, is_floating(dtype) && (dtype_bytes(dtype) == 2 || dtype_bytes(dtype) == 4),
      "random_tensor: a floating-point type of 2 or 4 bytes is needed, got {}", dtype_name(dtype));
  const Tensor tensor = Tensor::empty(shape, dtype, device);
  const int64_t count = tensor.num_elements(), bytes = count * dtype_bytes(dtype);
  if (count == 0) return tensor;
  const auto block = draw(std::min(count, kMaxDrawn), dtype, seed, scale);
  auto* data = tensor.data_as<std::byte>();
  if (device.type == DeviceType::kCPU) {
    cpu::parallel_for(bytes, 1 << 22, [&](int64_t begin, int64_t end) {
      copy_repeated(data + begin, block, begin, end);
    });
    return tensor;
  }
  std::vector<std::byte> staged(static_cast<size_t>(std::min(bytes, kCopyBytes)));
  for (int64_t at = 0; at < bytes; at += kCopyBytes) {
    const int64_t end = std::min(at + kCopyBytes, bytes);
    copy_repeated(staged.data(), block, at, end);
    cuda::copy_to_device(data + at, staged.data(), static_cast<size_t>(end - at), device);
  }
  return tensor;
}

}  // namespace tileops::perf
