// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/cpu_ceilings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "tileops/core/check.h"
#include "tileops/cpu/features.h"
#include "tileops/cpu/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tileops::perf {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int kReadUnroll = 8;  // vectors a step, independent of each other
constexpr int kChains = 12;     // enough for two ports of latency 4, few enough for 16 registers
constexpr int kSteps = 1'000'000;

std::atomic<uint64_t> sink;  // takes every loop's result, so that none can be dropped

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

using ReadLoop = uint64_t (*)(const std::byte* data, int64_t bytes);  // bytes % 512 == 0
using MathLoop = uint64_t (*)(float seed);

using Floats = float __attribute__((vector_size(16)));

template <int kBytes>
struct VectorOf {
  using Type [[gnu::vector_size(kBytes)]] = uint64_t;
};

/// One vector register of the target each: wider types are split, through the stack.
template <int kVectorBytes>
__attribute__((always_inline)) inline uint64_t sum_vectors(const std::byte* data, int64_t bytes) {
  using Vector = typename VectorOf<kVectorBytes>::Type;
  Vector sums[kReadUnroll] = {};
  const auto* vectors = reinterpret_cast<const Vector*>(data);
  for (int64_t i = 0; i < bytes / kVectorBytes; i += kReadUnroll) {
#pragma GCC unroll 8
    for (int j = 0; j < kReadUnroll; ++j) sums[j] += vectors[i + j];
  }
  uint64_t total = 0;
  for (const Vector& sum : sums) total += sum[0] + sum[kVectorBytes / 8 - 1];
  return total;
}

uint64_t read_baseline(const std::byte* data, int64_t bytes) {
  return sum_vectors<16>(data, bytes);
}

uint64_t math_baseline(float seed) {
  Floats sums[kChains] = {};
  const Floats x = Floats{} + 0.999f, y = Floats{} + seed;
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = sums[j] * x + y;
  }
  float total = 0;
  for (const Floats& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* data, int64_t bytes) {
  return sum_vectors<32>(data, bytes);
}
__attribute__((target("avx512f,avx512bw"))) uint64_t read_avx512(const std::byte* data,
                                                                 int64_t bytes) {
  return sum_vectors<64>(data, bytes);
}

__attribute__((target("avx2,fma"))) uint64_t fma_avx2(float seed) {
  __m256 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm256_set1_ps(seed + static_cast<float>(j));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(seed);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = _mm256_fmadd_ps(sums[j], x, y);
  }
  float total = 0;
  for (const __m256& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

__attribute__((target("avx512f"))) uint64_t fma_avx512(float seed) {
  __m512 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(seed + static_cast<float>(j));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(seed);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_fmadd_ps(sums[j], x, y);
  }
  float total = 0;
  for (const __m512& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

__attribute__((target("avx512f,avx512bf16"))) uint64_t bf16_dot(float seed) {
  __m512 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(seed + static_cast<float>(j));
  const auto x = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  const auto y = (__m512bh)_mm512_set1_ps(seed);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], x, y);
  }
  float total = 0;
  for (const __m512& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

constexpr int kAmxSteps = kSteps / 4;

__attribute__((target("amx-tile,amx-bf16"))) uint64_t amx(float seed) {
  alignas(64) uint8_t config[64] = {1};
  for (int i = 0; i < 8; ++i) {
    config[16 + 2 * i] = 64;
    config[48 + i] = 16;
  }
  alignas(64) float tile[256];
  std::fill_n(tile, 256, seed);
  _tile_loadconfig(config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, tile, 64);
  _tile_loadd(5, tile, 64);
  _tile_loadd(6, tile, 64);
  _tile_loadd(7, tile, 64);
  for (int i = 0; i < kAmxSteps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, tile, 64);
  auto total = static_cast<uint64_t>(tile[3]);
  _tile_stored(3, tile, 64);
  total += static_cast<uint64_t>(tile[5]);
  _tile_release();
  return total;
}

ReadLoop read_loop(cpu::IsaLevel level) {
  if (level >= cpu::IsaLevel::kAvx512) return read_avx512;
  return level >= cpu::IsaLevel::kAvx2 ? read_avx2 : read_baseline;
}

#else

ReadLoop read_loop(cpu::IsaLevel) { return read_baseline; }

#endif

/// Pages of the size that a real tensor has, touched, and unmapped at the end.
class Pages {
 public:
  explicit Pages(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TILEOPS_CHECK(ErrorKind::kOutOfMemory, data_ != MAP_FAILED,
                  "measuring the CPU: no {} bytes of memory", bytes);
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

int64_t memory_set_bytes() {
  constexpr int64_t kMost = 512 << 20;
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return std::clamp<int64_t>(memory / 4, 64 << 20, kMost);
}

struct MemoryRate {
  double gbps = 0;
  bool quiet = false;
};

/// By the threads' CPU time. The threads share the memory, so that the rate is the machine's only
/// where they ran side by side: `quiet` tells. Windows are short, to fall between others' turns.
MemoryRate memory_rate(ReadLoop loop) {
  constexpr int64_t kChunk = 4 << 20, kWindow = 16 * kChunk;
  constexpr double kQuietShare = 0.9;
  const int64_t bytes = memory_set_bytes() / kWindow * kWindow;
  const int threads = cpu::num_threads();
  const Pages pages(bytes);
  cpu::parallel_for(bytes, kChunk, [&](int64_t begin, int64_t end) {
    std::memset(pages.data() + begin, 1, static_cast<size_t>(end - begin));
  });
  MemoryRate best;
  for (int64_t window = 0; window < 2 * bytes; window += kWindow) {
    const std::byte* const data = pages.data() + window % bytes;
    std::atomic<double> cpu_s = 0;
    const double start = now_s();
    cpu::parallel_for(kWindow, kChunk, [&](int64_t begin, int64_t end) {
      const double cpu_start = thread_cpu_s();
      sink += loop(data + begin, end - begin);
      cpu_s += thread_cpu_s() - cpu_start;
    });
    const double wall_s = now_s() - start;
    const double gbps = static_cast<double>(kWindow) / (cpu_s / threads) * 1e-9;
    const bool quiet = cpu_s > kQuietShare * wall_s * threads;
    if (quiet > best.quiet || (quiet == best.quiet && gbps > best.gbps)) best = {gbps, quiet};
  }
  return best;
}

/// Work per second of all threads, by each thread's own CPU time: what other processes take of the
/// cores does not count.
template <class Fn>
double rate_of_threads(double work_per_thread, Fn&& fn) {
  const int threads = cpu::num_threads();
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    std::atomic<double> rate = 0;
    cpu::parallel_tasks(threads, threads, [&](int64_t i, int) {
      const double start = thread_cpu_s();
      sink += fn(i);
      rate += work_per_thread / (thread_cpu_s() - start);
    });
    best = std::max(best, rate.load());
  }
  return best;
}

/// Reads of a set of `bytes` a thread, again and again.
double resident_gbps(ReadLoop loop, int64_t bytes) {
  constexpr int64_t kBytesPerRun = 256 << 20;
  const int64_t repeats = kBytesPerRun / bytes;
  const Pages pages(bytes * cpu::num_threads());
  return 1e-9 * rate_of_threads(static_cast<double>(bytes * repeats), [&](int64_t i) {
           uint64_t sum = 0;
           for (int64_t r = 0; r < repeats; ++r) sum += loop(pages.data() + i * bytes, bytes);
           return sum;
         });
}

double best_gflops(MathLoop loop, double flops) {
  return 1e-9 *
         rate_of_threads(flops, [&](int64_t i) { return loop(1e-3f * static_cast<float>(i + 1)); });
}

int64_t second_level_bytes() {
  constexpr int64_t kUsual = 1 << 20;
  const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : kUsual;
}

}  // namespace

void read_memory(std::span<const std::byte> data) {
  static const ReadLoop read = read_loop(cpu::supported_isa());
  sink += read(data.data(), static_cast<int64_t>(data.size()));
}

CpuCeilings measure_cpu_ceilings() {
  constexpr int64_t kFirstLevelSet = 16 << 10, kStep = kReadUnroll * kLineBytes;
  const cpu::IsaLevel level = cpu::supported_isa();
  const ReadLoop read = read_loop(level);
  CpuCeilings c;
  c.fma_gflops = best_gflops(math_baseline, 2.0 * 4 * kChains * kSteps);
#if defined(__x86_64__)
  if (level >= cpu::IsaLevel::kAvx512) {
    c.fma_gflops = best_gflops(fma_avx512, 2.0 * 16 * kChains * kSteps);
  } else if (level >= cpu::IsaLevel::kAvx2) {
    c.fma_gflops = best_gflops(fma_avx2, 2.0 * 8 * kChains * kSteps);
  }
  if (level >= cpu::IsaLevel::kAvx512Bf16) {
    c.bf16_dot_gflops = best_gflops(bf16_dot, 4.0 * 16 * kChains * kSteps);
  }
  if (level >= cpu::IsaLevel::kAmx) {
    c.amx_gflops = best_gflops(amx, 2.0 * 16 * 16 * 32 * 4 * kAmxSteps);
  }
#endif
  c.cache_bytes = second_level_bytes() * cpu::num_threads();
  c.first_level_gbps = resident_gbps(read, kFirstLevelSet);
  c.cache_gbps = resident_gbps(read, second_level_bytes() / 2 / kStep * kStep);
  const MemoryRate memory = memory_rate(read);
  c.read_gbps = memory.gbps;
  c.quiet = memory.quiet;
  return c;
}

}  // namespace tileops::perf
