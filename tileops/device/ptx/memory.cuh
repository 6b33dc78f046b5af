// SPDX-License-Identifier: Apache-2.0
// Loads and stores that plain C++ cannot say: vectors by address, stmatrix, cp.async, flags.
#pragma once

#include "tileops/device/ptx/mbarrier.cuh"

namespace tileops::device {

struct alignas(16) Vector16 {
  uint32_t word[4];
};

__device__ __forceinline__ Vector16 load_shared_16(uint32_t address) {
  Vector16 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

/// Stores four 8x8 tiles of 16-bit values, each transposed: the pair that lane l holds, row l / 4
/// and columns 2 (l % 4) and + 1, goes to rows 2 (l % 4) and + 1, column l / 4. Row r of tile i is
/// the 16 bytes at the address that lane 8 i + r passes.
__device__ __forceinline__ void store_matrix_transposed(uint32_t address, uint32_t tile0,
                                                        uint32_t tile1, uint32_t tile2,
                                                        uint32_t tile3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(tile0), "r"(tile1), "r"(tile2), "r"(tile3)
      : "memory");
}

/// Loads four 8x8 tiles of 16-bit values; row r of tile i is the 16 bytes at the address that lane
/// 8 i + r passes. Lane l gets row l / 4, columns 2 (l % 4) and + 1 of tile i as tiles[i].
__device__ __forceinline__ void load_matrices(uint32_t (&tiles)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(address)
               : "memory");
}

/// Stores 16 bytes to the place of `pointer` in the shared memory of CTA `cta_rank`.
__device__ __forceinline__ void store_shared_16_at(void* pointer, uint32_t cta_rank,
                                                   const Vector16& v) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.v4.b32 [remote], {%2, %3, %4, %5};\n"
      "}" ::"r"(smem_address(pointer)),
      "r"(cta_rank), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
      : "memory");
}

/// Reads past L1: for values that another CTA of the same launch wrote.
__device__ __forceinline__ Vector16 load_l2_16(const Vector16* pointer) {
  Vector16 v;
  asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(pointer)
               : "memory");
  return v;
}

/// The same pointer, of which the compiler knows nothing: one base register and constant offsets
/// instead of an address computed ahead for each access.
template <class T>
__device__ __forceinline__ T* opaque(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

__device__ __forceinline__ void store_release(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ void add_release(uint32_t* counter, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

}  // namespace tileops::device
