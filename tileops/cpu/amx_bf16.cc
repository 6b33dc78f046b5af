// SPDX-License-Identifier: Apache-2.0
// Block of at most 32 rows times a panel with AMX tiles: 2 x 2 accumulators of 16 x 16.
#include "tileops/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tileops::cpu {
namespace {

#define TILEOPS_AMX_TARGET __attribute__((target("amx-tile,amx-bf16")))

constexpr int kTileRows = 16;
constexpr int64_t kTileBytes = kTileRows * kLineBytes;

int padded_rows(int rows) { return rows <= kTileRows ? kTileRows : 2 * kTileRows; }

TILEOPS_AMX_TARGET void configure_tiles() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static_assert(sizeof(Config) == 64);
  static const Config config;
  _tile_loadconfig(&config);
}

TILEOPS_AMX_TARGET void release_tiles() { _tile_release(); }

/// Fetches what belongs to 32 of k; returns the end of it.
const std::byte* prefetch_to_l2(const std::byte* data, int64_t step) {
  const std::byte* end = data + kKAlign / 2 * step;
  for (; data < end; data += kLineBytes) __builtin_prefetch(data, 0, 2);
  return end;
}

// Tiles 0, 1: sums of rows 0-15; 2, 3: of rows 16-31; 4, 5: a; 6, 7: b.
TILEOPS_AMX_TARGET void tile_16_rows(const TileArgs& t) {
  const int64_t c_bytes = t.ldc * 4;
  if (t.accumulate) {
    _tile_loadd(0, t.c, c_bytes);
    _tile_loadd(1, t.c + 16, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  const std::byte* a = t.a;
  const std::byte* b = t.b;
  const std::byte* prefetch = t.prefetch;
  for (int64_t k = 0; k < t.k; k += kKAlign) {
    prefetch = prefetch_to_l2(prefetch, t.prefetch_step);
    _tile_loadd(4, a, kLineBytes);
    _tile_loadd(6, b, 2 * kLineBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kLineBytes, 2 * kLineBytes);
    _tile_dpbf16ps(1, 4, 7);
    a += kTileBytes;
    b += 2 * kTileBytes;
  }
  _tile_stored(0, t.c, c_bytes);
  _tile_stored(1, t.c + 16, c_bytes);
}

TILEOPS_AMX_TARGET void tile_32_rows(const TileArgs& t) {
  const int64_t c_bytes = t.ldc * 4;
  float* lower = t.c + kTileRows * t.ldc;
  if (t.accumulate) {
    _tile_loadd(0, t.c, c_bytes);
    _tile_loadd(1, t.c + 16, c_bytes);
    _tile_loadd(2, lower, c_bytes);
    _tile_loadd(3, lower + 16, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const std::byte* a = t.a;
  const std::byte* b = t.b;
  const std::byte* prefetch = t.prefetch;
  for (int64_t k = 0; k < t.k; k += kKAlign) {
    prefetch = prefetch_to_l2(prefetch, t.prefetch_step);
    _tile_loadd(6, b, 2 * kLineBytes);
    _tile_loadd(4, a, kLineBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + kTileBytes, kLineBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, b + kLineBytes, 2 * kLineBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    a += 2 * kTileBytes;
    b += 2 * kTileBytes;
  }
  _tile_stored(0, t.c, c_bytes);
  _tile_stored(1, t.c + 16, c_bytes);
  _tile_stored(2, lower, c_bytes);
  _tile_stored(3, lower + 16, c_bytes);
}

}  // namespace

const MicroKernel& amx_bf16_kernel() {
  static const MicroKernel kernel = {
      .name = "amx_bf16",
      .max_rows = 2 * kTileRows,
      .row_align = kTileRows,
      .a_bytes_per_k = 2,
      .pack_rows = [](const RowBlock& block,
                      std::byte* out) { pack_rows_bf16(block, padded_rows(block.num_rows), out); },
      .tile =
          [](int rows, const TileArgs& args) {
            rows <= kTileRows ? tile_16_rows(args) : tile_32_rows(args);
          },
      .begin = configure_tiles,
      .end = release_tiles};
  return kernel;
}

}  // namespace tileops::cpu

#else

namespace tileops::cpu {
const MicroKernel& amx_bf16_kernel() {
  static const MicroKernel none;
  return none;
}
}  // namespace tileops::cpu

#endif
