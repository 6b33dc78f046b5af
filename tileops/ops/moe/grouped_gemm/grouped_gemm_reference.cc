// SPDX-License-Identifier: Apache-2.0
// The oracle: plain loops, float64 accumulation, one rounding at the store.
#include <vector>

#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"

namespace tileops::grouped_gemm {
namespace {

const std::byte* element(const Tensor& tensor, int64_t offset) {
  return tensor.data_as<std::byte>() + offset * dtype_bytes(tensor.dtype());
}

class ReferenceKernel final : public GroupedGemmKernel {
 public:
  ReferenceKernel(MGroupedLayout layout, GatedActivation activation)
      : layout_(layout), activation_(activation) {}

  void run(const Args& args) const override {
    const RowMatrix a = row_matrix(layout_, args.a);
    for (const ExpertRows& rows :
         expert_rows(layout_, args.layout_metadata, args.b.shape()[0], a.num_rows)) {
      for (int64_t row = rows.row_begin; row < rows.row_begin + rows.num_rows; ++row) {
        store_row(args, row, product(args, a.offset(row), rows.expert));
      }
    }
  }

 private:
  /// All N values a[row] · b[e]ᵀ + bias[e].
  std::vector<double> product(const Args& args, int64_t a_offset, int64_t expert) const {
    const Tensor& b = args.b;
    const int64_t n_size = b.shape()[1], k_size = b.shape()[2];
    std::vector<double> a_row(static_cast<size_t>(k_size)), values(static_cast<size_t>(n_size));
    const int64_t a_stride = args.a.strides()[args.a.rank() - 1];
    for (int64_t k = 0; k < k_size; ++k) {
      a_row[static_cast<size_t>(k)] =
          load_element(args.a.dtype(), element(args.a, a_offset + k * a_stride));
    }
    for (int64_t n = 0; n < n_size; ++n) {
      double sum = 0;
      const int64_t b_offset = expert * b.strides()[0] + n * b.strides()[1];
      for (int64_t k = 0; k < k_size; ++k) {
        sum += a_row[static_cast<size_t>(k)] *
               load_element(b.dtype(), element(b, b_offset + k * b.strides()[2]));
      }
      if (args.bias.defined()) {
        const int64_t offset = expert * args.bias.strides()[0] + n * args.bias.strides()[1];
        sum += load_element(args.bias.dtype(), element(args.bias, offset));
      }
      values[static_cast<size_t>(n)] = sum;
    }
    return values;
  }

  void store_row(const Args& args, int64_t row, const std::vector<double>& values) const {
    const RowMatrix out = row_matrix(layout_, args.out);
    auto* base = args.out.data_as<std::byte>();
    for (int64_t j = 0; j < out.num_columns; ++j) {
      const auto at = [&](int64_t n) { return values[static_cast<size_t>(n)]; };
      const double value = activation_.is_none() ? at(j)
                           : activation_.is_interleaved()
                               ? activation_(at(2 * j), at(2 * j + 1))
                               : activation_(at(j), at(out.num_columns + j));
      const int64_t offset = out.offset(row) + j * out.column_stride;
      store_element(args.out.dtype(), base + offset * dtype_bytes(args.out.dtype()), value);
    }
  }

  MGroupedLayout layout_;
  GatedActivation activation_;
};

}  // namespace

Implementation<GroupedGemm> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<GroupedGemm> {
            return {Value::List{call.layout.to_value(), call.activation.to_value()},
                    [layout = call.layout, activation = call.activation](const BuildOptions&) {
                      return std::make_shared<ReferenceKernel>(layout, activation);
                    }};
          }};
}

}  // namespace tileops::grouped_gemm
