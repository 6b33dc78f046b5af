// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/dtype.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace tileops {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::string_view short_name;
  int64_t bytes;
  bool floating;
};

constexpr std::array<DTypeFacts, kNumDTypes> kFacts = {{
    {"float64", "f64", 8, true},
    {"float32", "f32", 4, true},
    {"float16", "f16", 2, true},
    {"bfloat16", "bf16", 2, true},
    {"float8_e4m3", "e4m3", 1, true},
    {"float8_e5m2", "e5m2", 1, true},
    {"int64", "i64", 8, false},
    {"int32", "i32", 4, false},
    {"int16", "i16", 2, false},
    {"int8", "i8", 1, false},
    {"uint8", "u8", 1, false},
    {"bool", "bool", 1, false},
}};

constexpr const DTypeFacts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

/// A small float format by the widths of its fields. With infinity, the highest exponent holds
/// infinity and NaN (IEEE); without, only the code of all ones is NaN (OCP e4m3).
template <int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kExponentMask = (1U << kExponentBits) - 1;
  static constexpr uint32_t kMantissaMask = (1U << kMantissaBits) - 1;
  static constexpr int kSignShift = kExponentBits + kMantissaBits;
  static constexpr uint32_t kMagnitudeMask = (1U << kSignShift) - 1;
  static constexpr uint32_t kNaN =
      kHasInfinity ? (kExponentMask << kMantissaBits) | (1U << (kMantissaBits - 1))
                   : kMagnitudeMask;
  static constexpr uint32_t kOverflow =
      kHasInfinity ? kExponentMask << kMantissaBits : kMagnitudeMask - 1;

  static double decode(uint32_t code) {
    const uint32_t exponent = (code & kMagnitudeMask) >> kMantissaBits;
    const uint32_t mantissa = code & kMantissaMask;
    const double sign = (code >> kSignShift & 1) != 0 ? -1.0 : 1.0;
    if constexpr (kHasInfinity) {
      if (exponent == kExponentMask) {
        return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                             : std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
      }
    } else if ((code & kMagnitudeMask) == kNaN) {
      return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
    }
    constexpr double kMantissaUnit = 1.0 / (1U << kMantissaBits);
    if (exponent == 0) return sign * mantissa * kMantissaUnit * power_of_two(1 - kBias);
    return sign * (1.0 + mantissa * kMantissaUnit) *
           power_of_two(static_cast<int>(exponent) - kBias);
  }

  static uint32_t encode(double value) {
    const auto bits = __builtin_bit_cast(uint64_t, value);
    const uint32_t sign = static_cast<uint32_t>(bits >> 63) << kSignShift;
    if (std::isnan(value)) return sign | kNaN;
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    if (exponent > kBias + 1) return sign | kOverflow;
    constexpr int kMinExponent = 1 - kBias;
    const int below = exponent < kMinExponent ? kMinExponent - exponent : 0;
    const int dropped = 52 - kMantissaBits + below;
    if (dropped > 53) return sign;
    const uint64_t significand = (bits & ((1ULL << 52) - 1)) | (1ULL << 52);
    const uint64_t half = 1ULL << (dropped - 1);
    const uint64_t rest = significand & (2 * half - 1);
    uint64_t code = significand >> dropped;
    code += static_cast<uint64_t>(rest > half || (rest == half && (code & 1) != 0));
    // A carry out of the mantissa lands in the exponent, as it should.
    if (below == 0) code += static_cast<uint64_t>(exponent - kMinExponent) << kMantissaBits;
    return sign | (code > kOverflow ? kOverflow : static_cast<uint32_t>(code));
  }

 private:
  static double power_of_two(int exponent) {
    return __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1023) << 52);
  }
};

using F16 = SmallFloat<5, 10, true>;
using BF16 = SmallFloat<8, 7, true>;
using E4M3 = SmallFloat<4, 3, false>;
using E5M2 = SmallFloat<5, 2, true>;

template <class T>
T load(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return value;
}

template <class T>
void store(void* element, T value) {
  std::memcpy(element, &value, sizeof(T));
}

template <class T>
void store_integer(void* element, double value) {
  using Limits = std::numeric_limits<T>;
  // The limits as doubles: max() of int64 rounds up to 2^63, which no int64 reaches.
  if (std::isnan(value)) {
    store<T>(element, 0);
  } else if (value <= static_cast<double>(Limits::min())) {
    store<T>(element, Limits::min());
  } else if (value >= static_cast<double>(Limits::max())) {
    store<T>(element, Limits::max());
  } else {
    store<T>(element, static_cast<T>(value));
  }
}

}  // namespace

std::string_view dtype_name(DType dtype) { return facts(dtype).name; }
std::string_view dtype_short_name(DType dtype) { return facts(dtype).short_name; }
int64_t dtype_bytes(DType dtype) { return facts(dtype).bytes; }
bool is_floating(DType dtype) { return facts(dtype).floating; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].name == name || kFacts[i].short_name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

double load_element(DType dtype, const void* element) {
  switch (dtype) {
    case DType::kF64:
      return load<double>(element);
    case DType::kF32:
      return load<float>(element);
    case DType::kF16:
      return F16::decode(load<uint16_t>(element));
    case DType::kBF16:
      return bf16_to_f32(load<uint16_t>(element));
    case DType::kE4M3:
      return E4M3::decode(load<uint8_t>(element));
    case DType::kE5M2:
      return E5M2::decode(load<uint8_t>(element));
    case DType::kI64:
      return static_cast<double>(load<int64_t>(element));
    case DType::kI32:
      return load<int32_t>(element);
    case DType::kI16:
      return load<int16_t>(element);
    case DType::kI8:
      return load<int8_t>(element);
    case DType::kU8:
      return load<uint8_t>(element);
    case DType::kBool:
      return load<uint8_t>(element) != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

void store_element(DType dtype, void* element, double value) {
  switch (dtype) {
    case DType::kF64:
      return store(element, value);
    case DType::kF32:
      return store(element, static_cast<float>(value));
    case DType::kF16:
      return store(element, static_cast<uint16_t>(F16::encode(value)));
    case DType::kBF16:
      return store(element, static_cast<uint16_t>(BF16::encode(value)));
    case DType::kE4M3:
      return store(element, static_cast<uint8_t>(E4M3::encode(value)));
    case DType::kE5M2:
      return store(element, static_cast<uint8_t>(E5M2::encode(value)));
    case DType::kI64:
      return store_integer<int64_t>(element, value);
    case DType::kI32:
      return store_integer<int32_t>(element, value);
    case DType::kI16:
      return store_integer<int16_t>(element, value);
    case DType::kI8:
      return store_integer<int8_t>(element, value);
    case DType::kU8:
      return store_integer<uint8_t>(element, value);
    case DType::kBool:
      return store<uint8_t>(element, value != 0 ? 1 : 0);
  }
}

#ifdef __F16C__
float f16_to_f32(uint16_t bits) { return _cvtsh_ss(bits); }
uint16_t f32_to_f16(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
#else
float f16_to_f32(uint16_t bits) { return static_cast<float>(F16::decode(bits)); }
uint16_t f32_to_f16(float value) { return static_cast<uint16_t>(F16::encode(value)); }
#endif

}  // namespace tileops
