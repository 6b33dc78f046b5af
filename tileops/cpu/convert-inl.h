// SPDX-License-Identifier: Apache-2.0
// Vectors of float32 from and to the storage types, for each Highway target.
#if defined(TILEOPS_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_CONVERT_INL_H_
#undef TILEOPS_CPU_CONVERT_INL_H_
#else
#define TILEOPS_CPU_CONVERT_INL_H_
#endif

#include "hwy/highway.h"
#include "tileops/core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::Rebind<uint32_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using Vf = hn::Vec<F32>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));

/// kLanes consecutive elements as float32.
template <DType kT>
HWY_INLINE Vf load_f32(const void* src) {
  const F32 d;
  if constexpr (kT == DType::kF32) {
    return hn::LoadU(d, static_cast<const float*>(src));
  } else if constexpr (kT == DType::kBF16) {
    const auto bits = hn::LoadU(U16(), static_cast<const uint16_t*>(src));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
  } else {
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, F32> d16;
    return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(U16(), static_cast<const uint16_t*>(src))));
#else
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) values[i] = f16_to_f32(static_cast<const uint16_t*>(src)[i]);
    return hn::LoadU(d, values);
#endif
  }
}

/// bfloat16 pairs in 32-bit lanes: the low halves, and the high halves, as float32.
HWY_INLINE Vf low_bf16(hn::Vec<U32> pairs) { return hn::BitCast(F32(), hn::ShiftLeft<16>(pairs)); }
HWY_INLINE Vf high_bf16(hn::Vec<U32> pairs) {
  return hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xffff0000u)));
}

/// Rounds to nearest even as f32_to_bf16 does.
HWY_INLINE hn::Vec<U16> round_bf16(Vf value) {
  const U32 du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  return hn::TruncateTo(U16(), hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded)));
}

template <DType kT>
HWY_INLINE void store_f32_as(Vf value, void* dst) {
  const F32 d;
  if constexpr (kT == DType::kF32) {
    hn::StoreU(value, d, static_cast<float*>(dst));
  } else if constexpr (kT == DType::kBF16) {
    hn::StoreU(round_bf16(value), U16(), static_cast<uint16_t*>(dst));
  } else {
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, F32> d16;
    hn::StoreU(hn::BitCast(U16(), hn::DemoteTo(d16, value)), U16(), static_cast<uint16_t*>(dst));
#else
    float values[kLanes];
    hn::StoreU(value, d, values);
    for (int i = 0; i < kLanes; ++i) static_cast<uint16_t*>(dst)[i] = f32_to_f16(values[i]);
#endif
  }
}

template <DType kT>
HWY_INLINE float load_scalar(const void* src, int64_t index) {
  if constexpr (kT == DType::kF32) return static_cast<const float*>(src)[index];
  const uint16_t bits = static_cast<const uint16_t*>(src)[index];
  return kT == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

template <DType kT>
HWY_INLINE void store_scalar(float value, void* dst, int64_t index) {
  if constexpr (kT == DType::kF32) {
    static_cast<float*>(dst)[index] = value;
  } else {
    static_cast<uint16_t*>(dst)[index] =
        kT == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
  }
}

/// Calls fn.operator()<kT>() for a dtype known at run time.
template <class Fn>
HWY_INLINE void with_dtype(DType dtype, Fn&& fn) {
  if (dtype == DType::kF32) return fn.template operator()<DType::kF32>();
  if (dtype == DType::kBF16) return fn.template operator()<DType::kBF16>();
  fn.template operator()<DType::kF16>();
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
