// SPDX-License-Identifier: Apache-2.0
// A backend: a target that serves the expert MLP whole, and a kernel type for the grouped GEMM.
// Its kernels are the plain loops of the definition; a real backend puts its own here.
#include <cstdlib>
#include <string_view>
#include <vector>

#include <tileops/core/dtype.h>
#include <tileops/dispatch/backend.h>
#include <tileops/ops/moe/expert_mlp/expert_mlp_op.h>
#include <tileops/ops/moe/grouped_gemm/grouped_gemm_op.h>

namespace {

using namespace tileops;

double element(const Tensor& tensor, int64_t offset) {
  return load_element(tensor.dtype(),
                      tensor.data_as<std::byte>() + offset * dtype_bytes(tensor.dtype()));
}

/// Row `n` of expert `e`'s matrix, times a row of x, plus the bias where there is one.
double product(const Tensor& weights, const Tensor& bias, int64_t e, int64_t n,
               const std::vector<double>& x) {
  const int64_t begin = e * weights.strides()[0] + n * weights.strides()[1];
  double sum = bias.defined() ? element(bias, e * bias.strides()[0] + n * bias.strides()[1]) : 0;
  for (size_t k = 0; k < x.size(); ++k) {
    sum += x[k] * element(weights, begin + static_cast<int64_t>(k) * weights.strides()[2]);
  }
  return sum;
}

std::vector<double> load_row(const RowMatrix& rows, const Tensor& tensor, int64_t row) {
  std::vector<double> values(static_cast<size_t>(rows.num_columns));
  for (size_t j = 0; j < values.size(); ++j) {
    values[j] = element(tensor, rows.offset(row) + static_cast<int64_t>(j) * rows.column_stride);
  }
  return values;
}

void store_row(const RowMatrix& rows, const Tensor& tensor, int64_t row,
               const std::vector<double>& values) {
  auto* const data = tensor.data_as<std::byte>();
  for (size_t j = 0; j < values.size(); ++j) {
    const int64_t offset = rows.offset(row) + static_cast<int64_t>(j) * rows.column_stride;
    store_element(tensor.dtype(), data + offset * dtype_bytes(tensor.dtype()), values[j]);
  }
}

/// All products of one row with an expert's weights, through the activation where there is one.
std::vector<double> expert_row(const Tensor& weights, const Tensor& bias,
                               const GatedActivation& activation, int64_t e,
                               const std::vector<double>& x) {
  std::vector<double> all(static_cast<size_t>(weights.shape()[1]));
  for (size_t n = 0; n < all.size(); ++n) {
    all[n] = product(weights, bias, e, static_cast<int64_t>(n), x);
  }
  if (activation.is_none()) return all;
  std::vector<double> gated(all.size() / 2);
  for (size_t j = 0; j < gated.size(); ++j) {
    const bool pairs = activation.is_interleaved();
    gated[j] =
        pairs ? activation(all[2 * j], all[2 * j + 1]) : activation(all[j], all[gated.size() + j]);
  }
  return gated;
}

template <class Body>
void for_each_row(const MGroupedLayout& layout, const Tensor& metadata, int64_t num_experts,
                  int64_t num_rows, const Body& body) {
  for (const ExpertRows& rows : expert_rows(layout, metadata, num_experts, num_rows)) {
    for (int64_t i = 0; i < rows.num_rows; ++i) body(rows.expert, rows.row_begin + i);
  }
}

// The target: serves MoEExpertMLPFwdOp whole --------------------------------------------------

class ExpertMLPKernel final : public TargetKernel {
 public:
  ExpertMLPKernel(MGroupedLayout layout, GatedActivation activation)
      : layout_(layout), activation_(activation) {}

  Results run(const spec::CallTensors& tensors) override {
    const Tensor& x = tensors.inputs[0];
    const Tensor &gate_up = tensors.inputs[1], &down = tensors.inputs[2];
    const Tensor &b_gate_up = tensors.inputs[4], &b_down = tensors.inputs[5];
    const bool given = !tensors.outs.empty() && tensors.outs[0].defined();
    const Tensor out = given ? tensors.outs[0] : Tensor::empty(x.shape(), x.dtype(), x.device());
    const RowMatrix from = row_matrix(layout_, x), to = row_matrix(layout_, out);
    for_each_row(layout_, tensors.inputs[3], gate_up.shape()[0], from.num_rows,
                 [&](int64_t e, int64_t row) {
                   const auto hidden =
                       expert_row(gate_up, b_gate_up, activation_, e, load_row(from, x, row));
                   store_row(to, out, row, expert_row(down, b_down, GatedActivation(), e, hidden));
                 });
    return {out};
  }

 private:
  MGroupedLayout layout_;
  GatedActivation activation_;
};

std::shared_ptr<TargetKernel> build_expert_mlp(const BuildRequest& request) {
  return std::make_shared<ExpertMLPKernel>(
      MGroupedLayout::from_value(request.params.at("layout")),
      GatedActivation::from_value(request.params.at("activation")));
}

/// Claims the CPU for ops that name no target, where the user asks for it.
bool claims(Device device) {
  const char* wanted = std::getenv("EXAMPLE_BACKEND_CLAIMS");
  return wanted != nullptr && std::string_view(wanted) == device_type_name(device.type);
}

// The kernel type: joins the grouped GEMM's table ---------------------------------------------

class FewRowsKernel final : public grouped_gemm::GroupedGemmKernel {
 public:
  FewRowsKernel(MGroupedLayout layout, GatedActivation activation)
      : layout_(layout), activation_(activation) {}

  void run(const grouped_gemm::Args& args) const override {
    const RowMatrix from = row_matrix(layout_, args.a), to = row_matrix(layout_, args.out);
    for_each_row(layout_, args.layout_metadata, args.b.shape()[0], from.num_rows,
                 [&](int64_t e, int64_t row) {
                   store_row(
                       to, args.out, row,
                       expert_row(args.b, args.bias, activation_, e, load_row(from, args.a, row)));
                 });
  }

 private:
  MGroupedLayout layout_;
  GatedActivation activation_;
};

Implementation<grouped_gemm::GroupedGemm> few_rows() {
  constexpr int64_t kMaxRows = 16;
  ImplementationInfo info{.key = "example_few_rows", .devices = {DeviceType::kCPU}};
  for (const auto& [key, interface] : MoEGroupedGemmFwdOp::op_class().kernel_types()) {
    info.preferred_over.push_back(key);
  }
  return {.info = std::move(info),
          .refusal = [](const grouped_gemm::Call& call) -> Refusal {
            if (call.num_rows <= kMaxRows) return std::nullopt;
            return "serves at most 16 rows";
          },
          .entry_for = [](const grouped_gemm::Call& call) -> EntryFor<grouped_gemm::GroupedGemm> {
            return {Value::List{call.layout.to_value(), call.activation.to_value()},
                    [layout = call.layout, activation = call.activation](const BuildOptions&) {
                      return std::make_shared<FewRowsKernel>(layout, activation);
                    }};
          }};
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void TILEOPS_BACKEND_ENTRY_POINT(
    tileops::BackendRegistrar& registrar) {
  registrar.target_builder("example", "MoEExpertMLPFwdOp", build_expert_mlp);
  registrar.target_detector("example", claims);
  registrar.kernel_type("MoEGroupedGemmFwdOp", tileops::erase(few_rows()));
}
