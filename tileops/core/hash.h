// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tileops {

/// Mixes a value's hash into a running one (64-bit finaliser of MurmurHash3).
inline size_t hash_mix(size_t seed, size_t value) {
  uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  return static_cast<size_t>(x);
}

template <class... Values>
size_t hash_of(const Values&... values) {
  size_t seed = 0;
  ((seed = hash_mix(seed, std::hash<Values>{}(values))), ...);
  return seed;
}

}  // namespace tileops
