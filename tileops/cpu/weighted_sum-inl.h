// SPDX-License-Identifier: Apache-2.0
// Weighted sums of rows, for each Highway target.
#if defined(TILEOPS_CPU_WEIGHTED_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_WEIGHTED_SUM_INL_H_
#undef TILEOPS_CPU_WEIGHTED_SUM_INL_H_
#else
#define TILEOPS_CPU_WEIGHTED_SUM_INL_H_
#endif

#include "hwy/highway.h"
#include "tileops/cpu/convert-inl.h"
#include "tileops/cpu/weighted_sum.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {

template <DType kRow, DType kOut>
HWY_INLINE void weighted_sum_of(const WeightedSum& sum) {
  const F32 d;
  const int64_t row_bytes = kRow == DType::kF32 ? 4 : 2, out_bytes = kOut == DType::kF32 ? 4 : 2;
  auto* out = static_cast<std::byte*>(sum.out);
  int64_t i = 0;
  for (; i + kLanes <= sum.size; i += kLanes) {
    Vf total = hn::Zero(d);
    for (size_t row = 0; row < sum.rows.size(); ++row) {
      const Vf value = load_f32<kRow>(sum.rows[row] + i * row_bytes);
      total = hn::MulAdd(hn::Set(d, sum.weights[row]), value, total);
    }
    store_f32_as<kOut>(hn::Mul(hn::Set(d, sum.scale), total), out + i * out_bytes);
  }
  for (; i < sum.size; ++i) {
    float total = 0;
    for (size_t row = 0; row < sum.rows.size(); ++row) {
      total += sum.weights[row] * load_scalar<kRow>(sum.rows[row], i);
    }
    store_scalar<kOut>(sum.scale * total, out, i);
  }
}

inline void weighted_sum_rows(const WeightedSum& sum) {
  with_dtype(sum.dtype, [&]<DType kRow>() {
    with_dtype(sum.out_dtype, [&]<DType kOut>() { weighted_sum_of<kRow, kOut>(sum); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif
