// SPDX-License-Identifier: Apache-2.0
// A small generator of random numbers, the same on every machine.
#pragma once

#include <cstdint>

namespace tileops::spec {

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t salt = 0) : state_(seed * 0x9e3779b97f4a7c15ULL + salt) {
    next();
  }
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// As after so many draws more.
  void skip(int64_t draws) { state_ += static_cast<uint64_t>(draws) * 0x9e3779b97f4a7c15ULL; }
  /// In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  /// In [0, bound), bound > 0.
  int64_t below(int64_t bound) {
    const auto wide = static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(bound);
    return static_cast<int64_t>(static_cast<uint64_t>(wide >> 64));
  }
  /// Mean 0, variance 1, within 3.47: the sum of four uniform numbers of 16 bits.
  float normal() {
    const uint64_t bits = next();
    const auto sum = static_cast<float>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                        (bits >> 32 & 0xffff) + (bits >> 48));
    return (sum - 131070.0f) * (1.7320508f / 65536.0f);
  }

 private:
  uint64_t state_;
};

}  // namespace tileops::spec
