// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/timer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/cpu/parallel.h"
#include "tileops/cuda/event.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"

namespace tileops::perf {
namespace {

double steady_us() {
  const std::chrono::duration<double, std::micro> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

std::function<double()>& cpu_clock() {
  static std::function<double()> clock = steady_us;
  return clock;
}

}  // namespace

void set_cpu_clock_for_testing(std::function<double()> now_us) {
  cpu_clock() = now_us ? std::move(now_us) : steady_us;
}

struct CallTimer::Clock {
  virtual ~Clock() = default;
  virtual void flush() = 0;
  virtual double time_us(const std::function<void()>& call) = 0;
};

struct CallTimer::CpuClock final : Clock {
  void flush() override {
    ++turn;
    cpu::parallel_for(static_cast<int64_t>(buffer.size()), kGrain, [&](int64_t begin, int64_t end) {
      std::memset(buffer.data() + begin, turn, static_cast<size_t>(end - begin));
    });
  }
  double time_us(const std::function<void()>& call) override {
    const double start = cpu_clock()();
    call();
    return cpu_clock()() - start;
  }

  static size_t buffer_bytes() {
    const long known = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    const auto each = static_cast<size_t>(known > 0 ? known : 2 << 20);
    return 2 * each * static_cast<size_t>(cpu::num_threads());
  }
  static constexpr int64_t kGrain = 1 << 20;
  std::vector<unsigned char> buffer = std::vector<unsigned char>(buffer_bytes());
  unsigned char turn = 0;
};

struct CallTimer::GpuClock final : Clock {
  explicit GpuClock(Device on) : device(on), flusher(on), begin(on), end(on) {}
  void flush() override { flusher.run(current_stream(device)); }
  double time_us(const std::function<void()>& call) override {
    const Stream stream = current_stream(device);
    begin.record(stream);
    call();
    end.record(stream);
    end.synchronize();
    return cuda::elapsed_us(begin, end);
  }

  const Device device;
  const cuda::L2Flush flusher;
  cuda::Event begin, end;
};

CallTimer::CallTimer(Device device) {
  if (device.type == DeviceType::kCUDA) {
    clock_ = std::make_unique<GpuClock>(device);
  } else {
    TILEOPS_CHECK(ErrorKind::kDevice, device.type == DeviceType::kCPU,
                  "calls on {} cannot be timed; the CPU's and a CUDA device's can",
                  to_string(device));
    clock_ = std::make_unique<CpuClock>();
  }
}

CallTimer::~CallTimer() = default;

double CallTimer::cold_us(const std::function<void()>& call) {
  clock_->flush();
  return clock_->time_us(call);
}

double CallTimer::warm_us(const std::function<void()>& call) { return clock_->time_us(call); }

namespace {

constexpr size_t kMinSamples = 3, kMaxSamples = 60;

void rest(double us) {
  if (us > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us));
}

/// `single[i]` is one call; `all` is all of them.
CallTimes sample(CallTimer& timer, const Calls& single, const std::function<void()>& all,
                 double budget_us, double rest_us) {
  const auto count_for = [&](double once_us, double share) {
    const auto fitting = static_cast<size_t>(share * budget_us / std::max(once_us, 1.0));
    return std::clamp(fitting, kMinSamples, kMaxSamples);
  };
  std::vector<double> singles, rounds;
  const size_t num_singles = count_for(timer.cold_us(single[0]), 0.5);
  for (size_t i = 0; i < num_singles; ++i) {
    rest(rest_us);
    singles.push_back(timer.cold_us(single[i % single.size()]));
  }
  const size_t num_rounds = count_for(timer.warm_us(all), 0.5);
  for (size_t i = 0; i < num_rounds; ++i) {
    rest(rest_us);
    rounds.push_back(timer.warm_us(all) / static_cast<double>(single.size()));
  }
  return {.single = median(singles),
          .single_spread = quantile(singles, 0.75) - quantile(singles, 0.25),
          .back_to_back = median(rounds),
          .count = static_cast<int>(singles.size())};
}

/// The clock of a GPU at its power limit follows the load of the last tenths of a second: what is
/// timed runs for that long before, so that it does not matter what ran earlier.
void settle_clock(CallTimer& timer, const std::function<void()>& all) {
  constexpr double kSettleUs = 3e5;
  for (double spent = 0; spent < kSettleUs;) spent += timer.warm_us(all);
}

CallTimes time_on_gpu(Device device, const Calls& calls, double budget_us, double rest_us) {
  cuda::synchronize(current_stream(device));
  const cuda::OwnedStream stream(device);
  const StreamGuard guard(stream);
  for (const auto& call : calls) call();
  const double host = host_us(device, calls);
  std::vector<cuda::Graph> graphs;
  Calls replays;
  for (const auto& call : calls) graphs.push_back(cuda::Graph::capture(stream, call));
  for (const cuda::Graph& graph : graphs) {
    replays.emplace_back([&graph, &stream] { graph.replay(stream); });
  }
  const cuda::Graph all = cuda::Graph::capture(stream, [&] {
    for (const auto& call : calls) call();
  });
  for (const auto& replay : replays) replay();
  const auto replay_all = [&] { all.replay(stream); };
  CallTimer timer(device);
  if (rest_us == 0) settle_clock(timer, replay_all);
  CallTimes times = sample(timer, replays, replay_all, budget_us, rest_us);
  times.host = host;
  return times;
}

}  // namespace

CallTimes time_calls(Device device, const Calls& calls, double budget_us, double rest_us) {
  if (device.type == DeviceType::kCUDA) return time_on_gpu(device, calls, budget_us, rest_us);
  for (const auto& call : calls) call();
  CallTimer timer(device);
  const auto all = [&] {
    for (const auto& call : calls) call();
  };
  return sample(timer, calls, all, budget_us, rest_us);
}

double host_us(Device device, const Calls& calls) {
  constexpr int kBatch = 20, kBatches = 25;
  constexpr double kEnoughUs = 3e5;
  const auto wait = [&] {
    if (device.type == DeviceType::kCUDA) cuda::synchronize(current_stream(device));
  };
  std::vector<double> each;
  const auto begin = std::chrono::steady_clock::now();
  for (int batch = 0; batch < kBatches; ++batch) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    if (batch > 0 && std::chrono::duration<double, std::micro>(start - begin).count() > kEnoughUs)
      break;
    for (int i = 0; i < kBatch; ++i) calls[static_cast<size_t>(i) % calls.size()]();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    each.push_back(took.count() / kBatch);
  }
  wait();
  return median(each);
}

double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tileops::perf
