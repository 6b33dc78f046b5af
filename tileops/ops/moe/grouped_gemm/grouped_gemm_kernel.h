// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM's kernel interface: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/layout.h"

namespace tileops::grouped_gemm {

/// What selection may depend on. Sizes in elements; alignments in bytes, 1 to 16.
struct Call {
  MGroupedLayout layout = MGroupedLayout::contiguous();
  GatedActivation activation;
  bool batch_invariant = false;  // a row's bits must not depend on the other rows
  DType dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
  bool has_bias = false;
  Device device;
  int64_t num_rows = 0;  // P, or E * max_m
  int64_t num_experts = 0;
  int64_t n = 0;  // rows of b per expert, gate and up together
  int64_t k = 0;
  bool k_major = true;       // a and b have unit stride along K
  bool out_n_major = true;   // out has unit stride along N
  int64_t a_alignment = 16;  // of a's data and row stride
  int64_t b_alignment = 16;
  int64_t out_alignment = 16;
  bool even_rows = true;  // of a and out: rows one stride apart, from slab to slab too
  bool expanded = false;  // a or b has a stride of 0 over several rows or experts
  auto fields() const {
    return call_fields(field("layout", layout), field("activation", activation),
                       field("batch_invariant", batch_invariant), field("dtype", dtype),
                       field("out_dtype", out_dtype), field("has_bias", has_bias),
                       field("device", device), field("num_rows", num_rows),
                       field("num_experts", num_experts), field("n", n), field("k", k),
                       field("k_major", k_major), field("out_n_major", out_n_major),
                       field("a_alignment", a_alignment), field("b_alignment", b_alignment),
                       field("out_alignment", out_alignment), field("even_rows", even_rows),
                       field("expanded", expanded));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them. `bias` may be absent.
struct Args {
  const Tensor& a;
  const Tensor& b;
  const Tensor& layout_metadata;
  const Tensor& bias;
  const Tensor& out;
  std::array<Tensor, 5> tensors() const { return {a, b, layout_metadata, bias, out}; }
};

/// out[rows of e] = activation(a[rows of e] @ b[e]ᵀ + bias[e]); rows that are no expert's keep what
/// they held.
class GroupedGemmKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct GroupedGemm {
  static constexpr std::string_view kName = "grouped_gemm";
  using Call = grouped_gemm::Call;
  using Args = grouped_gemm::Args;
  using Kernel = GroupedGemmKernel;
};

/// The facts of a call as selection sees them.
Call make_call(const MGroupedLayout& layout, const GatedActivation& activation,
               bool batch_invariant, const Args& args);

Implementation<GroupedGemm> reference();
Implementation<GroupedGemm> cpu_blocked();
/// TMA and wgmma on sm_90a: operands that TMA can read.
Implementation<GroupedGemm> sm90_weights_on_m();
/// wgmma on sm_90a, for any sizes, strides and alignment.
Implementation<GroupedGemm> sm90_strided();

}  // namespace tileops::grouped_gemm
