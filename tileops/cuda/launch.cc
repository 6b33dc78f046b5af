// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/launch.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tileops/core/call_path.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/launch_batch.h"

namespace tileops::cuda {
namespace {

/// The driver's form of a shape; it points into itself.
struct DriverLaunch {
  std::array<abi::LaunchAttribute, 2> attributes{};
  abi::LaunchConfig config{};

  DriverLaunch(const LaunchShape& shape, void* stream) {
    unsigned count = 0;
    if (shape.cluster != Dim3{}) {
      attributes[count].id = abi::LaunchAttributeId::kClusterDimension;
      attributes[count].value.cluster_dim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
      ++count;
    }
    if (shape.order == LaunchOrder::kOverlapPrevious) {
      attributes[count].id = abi::LaunchAttributeId::kProgrammaticStreamSerialization;
      attributes[count].value.programmatic_serialization = 1;
      ++count;
    }
    config = {shape.grid.x,
              shape.grid.y,
              shape.grid.z,
              shape.cta.x,
              shape.cta.y,
              shape.cta.z,
              static_cast<unsigned>(shape.smem_bytes),
              static_cast<abi::Stream>(stream),
              attributes.data(),
              count};
  }
  DriverLaunch(const DriverLaunch&) = delete;
  DriverLaunch& operator=(const DriverLaunch&) = delete;
};

std::string to_string(const Dim3& dim) { return fmt::format("{}x{}x{}", dim.x, dim.y, dim.z); }

void check_shape(const Function& function, const LaunchShape& shape, Stream stream) {
  TILEOPS_CHECK(ErrorKind::kDevice, stream.device == function.device,
                "{}: the kernel was loaded on {}, and the stream is on {}", function.name,
                tileops::to_string(function.device), tileops::to_string(stream.device));
  TILEOPS_CHECK(ErrorKind::kInternal, shape.smem_bytes <= function.max_dynamic_smem_bytes,
                "launching {}: at most {} bytes of dynamic shared memory can be had",
                describe(function, shape), function.max_dynamic_smem_bytes);
  const uint64_t threads = uint64_t{shape.cta.x} * shape.cta.y * shape.cta.z;
  TILEOPS_CHECK(ErrorKind::kInternal,
                std::cmp_less_equal(threads, function.max_threads) && threads > 0,
                "launching {}: the kernel was built for at most {} threads a CTA",
                describe(function, shape), function.max_threads);
  const auto divides = [](uint32_t part, uint32_t whole) {
    return part != 0 && whole != 0 && whole % part == 0;
  };
  TILEOPS_CHECK(ErrorKind::kInternal,
                divides(shape.cluster.x, shape.grid.x) && divides(shape.cluster.y, shape.grid.y) &&
                    divides(shape.cluster.z, shape.grid.z),
                "launching {}: the grid must be a positive multiple of the cluster",
                describe(function, shape));
}

void wait_and_name(const Function& function, const LaunchShape& shape, Stream stream) {
  if (is_capturing(stream)) return;
  TILEOPS_DRIVER_CHECK(driver().stream_synchronize(static_cast<abi::Stream>(stream.handle)),
                       "running {}", describe(function, shape));
}

bool synchronous_from_environment() {
  const char* text = std::getenv("TILEOPS_SYNC");
  return text != nullptr && std::string_view(text) == "1";
}

std::atomic<bool>& synchronous() {
  static std::atomic<bool> on = synchronous_from_environment();
  return on;
}

}  // namespace

std::string describe(const Function& function, const LaunchShape& shape) {
  const std::string path = call_path();
  return fmt::format(
      "{}{}{} on {} (grid {}, cluster {}, CTA {}, {} + {} bytes of shared memory)", function.name,
      path.empty() ? "" : " in ", path, tileops::to_string(function.device), to_string(shape.grid),
      to_string(shape.cluster), to_string(shape.cta), function.static_smem_bytes, shape.smem_bytes);
}

void launch(const Function& function, const LaunchShape& shape, Stream stream,
            std::span<const LaunchArgument> arguments) {
  check_shape(function, shape, stream);
  if (put_off(function, shape, stream, arguments)) return;
  std::array<void*, kMaxLaunchArguments> addresses{};
  for (size_t i = 0; i < arguments.size(); ++i) {
    addresses[i] = const_cast<void*>(arguments[i].data);
  }
  launch_now(function, shape, stream, addresses.data());
}

void launch_now(const Function& function, const LaunchShape& shape, Stream stream,
                void** arguments) {
  const ContextGuard context(stream.device);
  const DriverLaunch launch(shape, stream.handle);
  TILEOPS_DRIVER_CHECK(
      driver().launch_kernel_ex(&launch.config, function.handle, arguments, nullptr),
      "launching {}", describe(function, shape));
  if (synchronous_launches()) wait_and_name(function, shape, stream);
}

int max_resident_clusters(const Function& function, const LaunchShape& shape) {
  const ContextGuard context(function.device);
  const DriverLaunch launch(shape, nullptr);
  int count = 0;
  TILEOPS_DRIVER_CHECK(
      driver().occupancy_max_active_clusters(&count, function.handle, &launch.config),
      "asking how many clusters fit of {}", describe(function, shape));
  return count;
}

bool synchronous_launches() { return synchronous().load(std::memory_order_relaxed); }
void set_synchronous_launches(bool on) { synchronous().store(on, std::memory_order_relaxed); }

bool is_capturing(Stream stream) {
  const ContextGuard context(stream.device);
  abi::CaptureStatus status = abi::CaptureStatus::kNone;
  const abi::Result result =
      driver().stream_is_capturing(static_cast<abi::Stream>(stream.handle), &status);
  // The default stream, while another stream that waits for it is being captured.
  if (result == abi::Result::kStreamCaptureImplicit) return true;
  TILEOPS_DRIVER_CHECK(result, "asking whether a stream of {} is being captured",
                       tileops::to_string(stream.device));
  return status != abi::CaptureStatus::kNone;
}

void synchronize(Stream stream) {
  submit_launches();
  const ContextGuard context(stream.device);
  TILEOPS_DRIVER_CHECK(driver().stream_synchronize(static_cast<abi::Stream>(stream.handle)),
                       "waiting for a stream of {}", tileops::to_string(stream.device));
}

}  // namespace tileops::cuda
