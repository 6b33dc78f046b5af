// SPDX-License-Identifier: Apache-2.0
// Element types, their names in spec and messages, and conversions of single elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tileops {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kE4M3,
  kE5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
};
inline constexpr int kNumDTypes = 12;

/// The spec's name of the dtype: "float32", "bfloat16", "float8_e4m3", "int32", ...
std::string_view dtype_name(DType dtype);
/// The short name of error messages and logs: "f32", "bf16", "e4m3", "i32", ...
std::string_view dtype_short_name(DType dtype);
/// The dtype of a spec name or short name; none if there is no such dtype.
std::optional<DType> parse_dtype(std::string_view name);
/// Bytes of one element.
int64_t dtype_bytes(DType dtype);
bool is_floating(DType dtype);

/// One element as double: exact for every dtype but int64 beyond 2^53.
double load_element(DType dtype, const void* element);
/// Stores a double, rounded once to nearest even (float dtypes: overflow gives infinity, in e4m3
/// its largest value) or truncated and clamped to the range (integers; NaN gives 0). A bool is
/// whether the value is not 0.
void store_element(DType dtype, void* element, double value);

/// float32 of a bfloat16's bits, exactly.
inline float bf16_to_f32(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}
/// bfloat16 bits of a float32, to nearest even; NaN stays NaN.
inline uint16_t f32_to_bf16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
/// float32 of a float16's bits, exactly.
float f16_to_f32(uint16_t bits);
/// float16 bits of a float32, to nearest even; overflow gives infinity.
uint16_t f32_to_f16(float value);

}  // namespace tileops
