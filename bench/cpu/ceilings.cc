// SPDX-License-Identifier: Apache-2.0
#include "ceilings.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tileops/cpu/features.h"
#include "tileops/cpu/parallel.h"

namespace tileops::bench {
namespace {

std::atomic<uint64_t> sink;  // takes every loop's result, so that no loop can be dropped

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__attribute__((target("avx2"))) uint64_t sum_bytes_avx2(const std::byte* data, int64_t size) {
  constexpr int64_t kAhead = 6 << 10;
  __m256i sums[4] = {};
  for (int64_t i = 0; i < size; i += 128) {
    __builtin_prefetch(data + i + kAhead, 0, 2);
    __builtin_prefetch(data + i + kAhead + 64, 0, 2);
    for (int j = 0; j < 4; ++j) {
      const auto* p = reinterpret_cast<const __m256i*>(data + i + j * 32);
      sums[j] = _mm256_add_epi64(sums[j], _mm256_loadu_si256(p));
    }
  }
  const __m256i sum = sums[0] + sums[1] + sums[2] + sums[3];
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0));
}

double read_gbps() {
  constexpr int64_t kBytes = 1 << 30, kChunk = 4 << 20;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(2 << 20, kBytes));
  madvise(data, kBytes, MADV_HUGEPAGE);
  cpu::parallel_for(kBytes, kChunk, [&](int64_t begin, int64_t end) {
    std::memset(data + begin, 1, static_cast<size_t>(end - begin));
  });
  double best = 0;
  for (int run = 0; run < 9; ++run) {
    const double start = now_s();
    cpu::parallel_for(kBytes, kChunk, [&](int64_t begin, int64_t end) {
      sink += sum_bytes_avx2(data + begin, end - begin);
    });
    best = std::max(best, kBytes / (now_s() - start) * 1e-9);
  }
  std::free(data);
  return best;
}

constexpr int kChains = 16, kSteps = 1'000'000;

__attribute__((target("avx512f"))) uint64_t fma_loop_avx512(float seed) {
  __m512 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(seed + static_cast<float>(j));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(seed);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_fmadd_ps(sums[j], x, y);
  }
  float total = 0;
  for (const __m512& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

__attribute__((target("avx2,fma"))) uint64_t fma_loop_avx2(float seed) {
  constexpr int kHalf = 12;
  __m256 sums[kHalf];
  for (int j = 0; j < kHalf; ++j) sums[j] = _mm256_set1_ps(seed + static_cast<float>(j));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(seed);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kHalf; ++j) sums[j] = _mm256_fmadd_ps(sums[j], x, y);
  }
  float total = 0;
  for (const __m256& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

__attribute__((target("avx512f,avx512bf16"))) uint64_t dot_loop(float seed) {
  __m512 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(seed + static_cast<float>(j));
  const auto x = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  const auto y = (__m512bh)_mm512_set1_ps(seed);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], x, y);
  }
  float total = 0;
  for (const __m512& sum : sums) total += sum[0];
  return static_cast<uint64_t>(total);
}

__attribute__((target("amx-tile,amx-bf16"))) uint64_t amx_loop(float seed) {
  alignas(64) uint8_t config[64] = {1};
  for (int i = 0; i < 8; ++i) {
    config[16 + 2 * i] = 64;
    config[48 + i] = 16;
  }
  _tile_loadconfig(config);
  alignas(64) float tile[256];
  std::fill_n(tile, 256, seed);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, tile, 64);
  _tile_loadd(5, tile, 64);
  _tile_loadd(6, tile, 64);
  _tile_loadd(7, tile, 64);
  for (int i = 0; i < kSteps / 4; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  uint64_t total = 0;
  _tile_stored(0, tile, 64);
  total += static_cast<uint64_t>(tile[3]);
  _tile_stored(3, tile, 64);
  total += static_cast<uint64_t>(tile[5]);
  _tile_release();
  return total;
}

double best_gflops(uint64_t (*loop)(float), double flops) {
  const int threads = cpu::num_threads();
  double best = 0;
  for (int run = 0; run < 7; ++run) {
    const double start = now_s();
    cpu::parallel_tasks(threads, threads,
                        [&](int64_t i, int) { sink += loop(1e-3f * static_cast<float>(i + 1)); });
    best = std::max(best, flops * threads / (now_s() - start) * 1e-9);
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings() {
  const cpu::IsaLevel level = cpu::supported_isa();
  Ceilings c;
  c.read_gbps = read_gbps();
  if (level >= cpu::IsaLevel::kAvx512) {
    c.fma_gflops = best_gflops(fma_loop_avx512, 2.0 * 16 * kChains * kSteps);
  } else if (level >= cpu::IsaLevel::kAvx2) {
    c.fma_gflops = best_gflops(fma_loop_avx2, 2.0 * 8 * 12 * kSteps);
  }
  if (level >= cpu::IsaLevel::kAvx512Bf16) {
    c.bf16_dot_gflops = best_gflops(dot_loop, 4.0 * 16 * kChains * kSteps);
  }
  if (level >= cpu::IsaLevel::kAmx) {
    c.amx_gflops = best_gflops(amx_loop, 2.0 * 16 * 16 * 32 * kSteps);
  }
  return c;
}

}  // namespace tileops::bench
