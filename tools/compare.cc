// SPDX-License-Identifier: Apache-2.0
#include "tools/compare.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <xxhash.h>

#include "tileops/core/allocator.h"

namespace tileops::tools {
namespace {

constexpr unsigned char kPoison[2] = {0xA5,
                                      0xFF};  // a NaN with an odd payload in bf16, f16 and f32

/// Passes on to another allocator, and fills what it gives. Never destroyed: tensors outlive
/// guards.
class PoisonAllocator final : public Allocator {
 public:
  static PoisonAllocator& instance() {
    static auto& allocator = *new PoisonAllocator;
    return allocator;
  }
  Allocator* inner() const { return inner_; }
  void set_inner(Allocator* inner) { inner_ = inner; }

  void* allocate(size_t bytes, Stream stream) override {
    void* const data = inner_->allocate(bytes, stream);
    auto* const pattern = static_cast<unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) pattern[i] = kPoison[i % 2];
    return data;
  }
  void deallocate(void* data, size_t bytes, Stream stream) noexcept override {
    inner_->deallocate(data, bytes, stream);
  }

 private:
  Allocator* inner_ = nullptr;
};

unsigned char* bytes_of(const Tensor& tensor) { return tensor.data_as<unsigned char>(); }

size_t num_bytes(const Tensor& tensor) {
  return static_cast<size_t>(tensor.num_elements() * dtype_bytes(tensor.dtype()));
}

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-10;
    case DType::kF32:
      return 1e-4;
    case DType::kF16:
      return 2e-3;
    case DType::kBF16:
      return 1e-2;
    case DType::kE4M3:
      return 6e-2;
    case DType::kE5M2:
      return 1.2e-1;
    default:
      return 0;
  }
}

bool is_specified(const Specified& specified, size_t i) {
  return specified.empty() || specified[i];
}

/// Equal where either is not finite.
bool same_special(double got, double want) {
  return (std::isnan(got) && std::isnan(want)) || got == want;
}

}  // namespace

PoisonedAllocations::PoisonedAllocations() {
  PoisonAllocator& allocator = PoisonAllocator::instance();
  allocator.set_inner(&allocator_for(DeviceType::kCPU));
  set_allocator(DeviceType::kCPU, &allocator);
}

PoisonedAllocations::~PoisonedAllocations() {
  set_allocator(DeviceType::kCPU, PoisonAllocator::instance().inner());
}

Specified written(const Tensor& tensor) {
  const auto size = static_cast<size_t>(dtype_bytes(tensor.dtype()));
  Specified specified(static_cast<size_t>(tensor.num_elements()));
  for (size_t i = 0; i < specified.size(); ++i) {
    for (size_t j = i * size; j < (i + 1) * size; ++j) {
      if (bytes_of(tensor)[j] != kPoison[j % 2]) specified[i] = true;
    }
  }
  return specified;
}

Comparison compare(const Tensor& got, const Tensor& want, const Specified& specified,
                   std::optional<double> tolerance) {
  Comparison result;
  result.tolerance = tolerance.value_or(default_tolerance(got.dtype()));
  if (got.shape() != want.shape()) {
    result.fault = fmt::format("shape {}, and {} is expected", to_string(got.shape()),
                               to_string(want.shape()));
    return result;
  }
  const Tensor a = got.contiguous(), b = want.contiguous();
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (!is_specified(specified, static_cast<size_t>(i))) continue;
    const double x = load_element(a.dtype(), bytes_of(a) + i * dtype_bytes(a.dtype()));
    const double y = load_element(b.dtype(), bytes_of(b) + i * dtype_bytes(b.dtype()));
    ++result.num_compared;
    if (std::isfinite(x) && std::isfinite(y)) {
      difference += (x - y) * (x - y);
      norm += y * y;
    } else if (!same_special(x, y)) {
      result.fault = fmt::format("element {} is {}, and {} is expected", i, x, y);
      result.error = INFINITY;
      return result;
    }
  }
  result.error = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  if (result.error > result.tolerance) {
    result.fault = fmt::format("error {:.2e} is above {:.2e}", result.error, result.tolerance);
  }
  return result;
}

std::string checksum(const Tensor& tensor, const Specified& specified) {
  const Tensor flat = tensor.contiguous();
  if (flat.num_elements() == 0) return fmt::format("xxh3:{:016x}", XXH3_64bits(nullptr, 0));
  std::vector<unsigned char> bytes(bytes_of(flat), bytes_of(flat) + num_bytes(flat));
  const auto size = static_cast<size_t>(dtype_bytes(flat.dtype()));
  for (size_t i = 0; i < specified.size(); ++i) {
    if (!specified[i]) std::memset(bytes.data() + i * size, 0, size);
  }
  return fmt::format("xxh3:{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace tileops::tools
