// SPDX-License-Identifier: Apache-2.0
// float32 sums -> bias, activation, cast, store.
#if defined(TILEOPS_CPU_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_EPILOGUE_INL_H_
#undef TILEOPS_CPU_EPILOGUE_INL_H_
#else
#define TILEOPS_CPU_EPILOGUE_INL_H_
#endif

#include <algorithm>

#include "hwy/contrib/math/math-inl.h"
#include "tileops/cpu/convert-inl.h"
#include "tileops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kUnit = 16;  // columns of a half panel

HWY_INLINE Vf sigmoid(Vf x) {
  const F32 d;
  const Vf one = hn::Set(d, 1.0f);
  const Vf bounded = hn::Min(hn::Neg(x), hn::Set(d, 88.0f));  // exp stays finite
  return hn::Div(one, hn::Add(one, hn::Exp(d, bounded)));
}

/// Rational approximation on [-4, 4], outside of which float32 erf is ±1; within 3e-7.
HWY_INLINE Vf erf(Vf x) {
  const F32 d;
  const Vf z = hn::Max(hn::Min(x, hn::Set(d, 4.0f)), hn::Set(d, -4.0f));
  const Vf z2 = hn::Mul(z, z);
  Vf p = hn::Set(d, -2.72614225801306e-10f);
  for (const float c : {2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                        -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f}) {
    p = hn::MulAdd(p, z2, hn::Set(d, c));
  }
  Vf q = hn::Set(d, -1.45660718464996e-05f);
  for (const float c : {-2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                        -1.42647390514189e-02f}) {
    q = hn::MulAdd(q, z2, hn::Set(d, c));
  }
  return hn::Div(hn::Mul(z, p), q);
}

template <Activation kKind>
HWY_INLINE Vf gated(Vf gate, Vf up, const ActivationParams& params) {
  const F32 d;
  if constexpr (kKind == Activation::kSiluAndMul) {
    return hn::Mul(hn::Mul(gate, sigmoid(gate)), up);
  } else if constexpr (kKind == Activation::kGeluAndMul) {
    const Vf cdf = hn::Add(hn::Set(d, 1.0f), erf(hn::Mul(gate, hn::Set(d, 0.70710678f))));
    return hn::Mul(hn::Mul(hn::Mul(hn::Set(d, 0.5f), gate), cdf), up);
  } else if constexpr (kKind == Activation::kGeluTanhAndMul) {
    // 0.5 (1 + tanh y) = sigmoid(2 y), y = sqrt(2 / pi) (x + 0.044715 x^3)
    const Vf cube = hn::Mul(hn::Mul(gate, gate), gate);
    const Vf y = hn::Mul(hn::Set(d, 1.59576912f), hn::MulAdd(hn::Set(d, 0.044715f), cube, gate));
    return hn::Mul(hn::Mul(gate, sigmoid(y)), up);
  } else {
    const Vf limit = hn::Set(d, params.limit);
    const Vf g = hn::IfThenElse(hn::Gt(gate, limit), limit, gate);
    Vf u = hn::IfThenElse(hn::Gt(up, limit), limit, up);
    u = hn::IfThenElse(hn::Lt(u, hn::Neg(limit)), hn::Neg(limit), u);
    const Vf swish = hn::Mul(g, sigmoid(hn::Mul(hn::Set(d, params.alpha), g)));
    return hn::Mul(swish, hn::Add(u, hn::Set(d, 1.0f)));
  }
}

HWY_INLINE Vf load_sum(const float* c, const float* bias, int64_t col) {
  const F32 d;
  const Vf sum = hn::LoadU(d, c + col);
  return bias == nullptr ? sum : hn::Add(sum, hn::LoadU(d, bias + col));
}

/// The 16 outputs of unit `unit` of a row.
template <Activation kKind>
HWY_INLINE void activate_unit(const FinishArgs& f, const float* c, int64_t unit, float* out) {
  for (int i = 0; i < kUnit; i += kLanes) {
    Vf value;
    if constexpr (kKind == Activation::kNone) {
      value = load_sum(c, f.bias, unit * kUnit + i);
    } else {
      const int64_t col = unit * 2 * kUnit + i;
      value =
          gated<kKind>(load_sum(c, f.bias, col), load_sum(c, f.bias, col + kUnit), f.activation);
    }
    hn::StoreU(value, F32(), out + i);
  }
}

template <DType kT>
HWY_INLINE void store_unit(const float* values, int64_t count, void* row, int64_t col,
                           int64_t col_stride) {
  constexpr int64_t kBytes = kT == DType::kF32 ? 4 : 2;
  if (count >= kUnit && col_stride == 1) {
    std::byte* dst = static_cast<std::byte*>(row) + col * kBytes;
    for (int i = 0; i < kUnit; i += kLanes) {
      store_f32_as<kT>(hn::LoadU(F32(), values + i), dst + i * kBytes);
    }
    return;
  }
  for (int64_t i = 0; i < std::min<int64_t>(count, kUnit); ++i) {
    store_scalar<kT>(values[i], row, (col + i) * col_stride);
  }
}

template <Activation kKind, DType kT>
HWY_NOINLINE void finish_rows(const FinishArgs& f) {
  constexpr int64_t kBytes = kT == DType::kF32 ? 4 : 2;
  for (int r = 0; r < f.num_rows; ++r) {
    std::byte* row =
        static_cast<std::byte*>(f.out->data) + (f.out_row + r) * f.out->row_stride * kBytes;
    for (int64_t done = 0; done < f.num_outputs; done += kUnit) {
      float values[kUnit];
      activate_unit<kKind>(f, f.c + r * f.ldc, done / kUnit, values);
      store_unit<kT>(values, f.num_outputs - done, row, f.out_col + done, f.out->col_stride);
    }
  }
}

void finish(const FinishArgs& f) {
  with_dtype(f.out->dtype, [&]<DType kT>() HWY_ATTR {
    switch (f.activation.kind) {
      case Activation::kNone:
        return finish_rows<Activation::kNone, kT>(f);
      case Activation::kSiluAndMul:
        return finish_rows<Activation::kSiluAndMul, kT>(f);
      case Activation::kGeluAndMul:
        return finish_rows<Activation::kGeluAndMul, kT>(f);
      case Activation::kGeluTanhAndMul:
        return finish_rows<Activation::kGeluTanhAndMul, kT>(f);
      case Activation::kSwigluOai:
        return finish_rows<Activation::kSwigluOai, kT>(f);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
