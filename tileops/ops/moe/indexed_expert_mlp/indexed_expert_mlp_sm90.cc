// SPDX-License-Identifier: Apache-2.0
// The indexed experts on a GPU: one launch that streams the weights of few routes, and a general
// pair of launches.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/workspace.h"
#include "tileops/ops/moe/activation_sm90_params.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_kernel.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_params.h"

namespace tileops::indexed_expert_mlp {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kCopyAlignment = 16;
constexpr int64_t kStep = 8;           // elements of 16 bytes
constexpr int64_t kMaxCtas = 1 << 16;  // of the general kernels, whose warps take several elements

const char* type_name(DType dtype) {
  return dtype == DType::kBF16 ? "tileops::device::bf16" : "tileops::device::f16";
}

cuda::ProgramSpec stream_program(DType dtype) {
  const std::string file = "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90.cuh";
  return {
      .name = fmt::format("indexed_expert_mlp sm90 stream {}", dtype_short_name(dtype)),
      .source = "#include \"" + file + "\"\n",
      .kernels = {fmt::format("tileops::indexed_expert_mlp::stream_experts<{}>", type_name(dtype))},
      .dynamic_smem_bytes = kStreamSmemBytes};
}

cuda::ProgramSpec rows_program(DType dtype) {
  const std::string file = "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_rows.cuh";
  const std::string space = "tileops::indexed_expert_mlp::", type = type_name(dtype);
  return {.name = fmt::format("indexed_expert_mlp sm90 rows {}", dtype_short_name(dtype)),
          .source = "#include \"" + file + "\"\n",
          .kernels = {space + "gate_up_rows<" + type + ">", space + "combine_rows<" + type + ">"}};
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("indexed_expert_mlp sm90", [] {
    std::vector<cuda::ProgramSpec> specs;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      specs.push_back(stream_program(dtype));
      specs.push_back(rows_program(dtype));
    }
    return specs;
  });
  return true;
}();

RowsView matrix_view(const Tensor& tensor) {
  return {tensor.data(), 0, tensor.strides()[0], tensor.strides()[1]};
}
RowsView weights_view(const Tensor& w) {
  return {w.data(), w.strides()[0], w.strides()[1], w.strides()[2]};
}
RowsView bias_view(const Tensor& bias) {
  if (!bias.defined()) return {};
  return {bias.data(), bias.strides()[0], bias.strides()[1], 0};
}

IndexedSm90Params params_of(const Settings& settings, const Args& args) {
  const Shape& down = args.w_down.shape();
  return {.x = matrix_view(args.hidden_states),
          .weights = matrix_view(args.topk_weights),
          .ids = matrix_view(args.topk_ids),
          .w_gate_up = weights_view(args.w_gate_up),
          .w_down = weights_view(args.w_down),
          .b_gate_up = bias_view(args.b_gate_up),
          .b_down = bias_view(args.b_down),
          .out = args.out.data(),
          .out_row_stride = args.out.strides()[0],
          .out_column_stride = args.out.strides()[1],
          .num_tokens = args.topk_ids.shape()[0],
          .top_k = static_cast<int32_t>(args.topk_ids.shape()[1]),
          .num_experts = static_cast<int32_t>(down[0]),
          .hidden_size = static_cast<int32_t>(down[1]),
          .inter = static_cast<int32_t>(down[2]),
          .activation = activation_params(settings.activation),
          .scaling = static_cast<float>(settings.routed_scaling_factor)};
}

class StreamKernel final : public IndexedExpertMLPKernel {
 public:
  explicit StreamKernel(const Call& call)
      : settings_(settings_of(call)), program_(stream_program(call.dtype)) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    if (args.out.num_elements() == 0) return;
    const Device device = args.out.device();
    const Stream stream = current_stream(device);
    IndexedSm90Params params = params_of(settings_, args);
    const int64_t num_bytes = args.topk_ids.num_elements() * params.inter * 2;
    const cuda::Workspace space = cuda::workspace(stream, num_bytes);
    params.activated = space.scratch;
    params.counters = reinterpret_cast<uint32_t*>(space.zeroed);
    cuda::launch(program_.function(stream),
                 {.grid = {static_cast<uint32_t>(device_facts(device).num_processors)},
                  .cta = {kStreamThreads},
                  .smem_bytes = kStreamSmemBytes,
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, params);
  }

 private:
  const Settings settings_;
  mutable cuda::LazyProgram program_;
};

class RowsKernel final : public IndexedExpertMLPKernel {
 public:
  explicit RowsKernel(const Call& call)
      : settings_(settings_of(call)), program_(rows_program(call.dtype)) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    if (args.out.num_elements() == 0) return;
    const Stream stream = current_stream(args.out.device());
    IndexedSm90Params params = params_of(settings_, args);
    const Tensor activated = Tensor::empty({args.topk_ids.num_elements(), int64_t{params.inter}},
                                           args.out.dtype(), args.out.device());
    params.activated = activated.data();
    if (activated.num_elements() > 0) launch(0, activated.num_elements(), stream, params);
    launch(1, args.out.num_elements(), stream, params);
  }

 private:
  void launch(size_t kernel, int64_t num_elements, Stream stream,
              const IndexedSm90Params& params) const {
    const int64_t num_ctas = (num_elements + kWarpsPerCta - 1) / kWarpsPerCta;
    cuda::launch(program_.function(stream, kernel),
                 {.grid = {static_cast<uint32_t>(std::min(num_ctas, kMaxCtas))},
                  .cta = {kWarpsPerCta * 32},
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, params);
  }

  const Settings settings_;
  mutable cuda::LazyProgram program_;
};

Refusal rows_refusal(const Call& call) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"E", call.num_experts}, {"H", call.hidden}, {"F", call.inter}, {"K", call.top_k}};
  for (const auto& [name, size] : sizes) {
    if (size > kMaxSize) return fmt::format("needs {} <= {}, found {}", name, kMaxSize, size);
  }
  return std::nullopt;
}

Refusal stream_refusal(const Call& call) {
  if (Refusal refusal = rows_refusal(call)) return refusal;
  if (call.batch_invariant) {
    return "is one of several kernels, by the number of routes: bits would depend on it";
  }
  const int64_t num_routes = call.num_tokens * call.top_k;
  if (num_routes > kMaxRoutes) {
    return fmt::format("needs T * K <= {}, found {}", kMaxRoutes, num_routes);
  }
  const std::pair<const char*, int64_t> lengths[] = {{"H", call.hidden}, {"F", call.inter}};
  for (const auto& [name, length] : lengths) {
    if (length == 0 || length % kStep != 0) {
      return fmt::format("needs {} in multiples of {}, found {}", name, kStep, length);
    }
  }
  if (!call.k_major) return "needs hidden_states and weights with unit inner stride, found another";
  const std::pair<const char*, int64_t> operands[] = {{"hidden_states", call.hidden_alignment},
                                                      {"the weights", call.weights_alignment}};
  for (const auto& [name, alignment] : operands) {
    if (alignment < kCopyAlignment) {
      return fmt::format("needs the address and strides of {} aligned to {} bytes, found {}", name,
                         kCopyAlignment, alignment);
    }
  }
  return std::nullopt;
}

template <class Kernel>
EntryFor<IndexedExpertMLP> entry_for(const Call& call) {
  return {Value::List{identity_of(settings_of(call)), call.dtype},
          [call](const BuildOptions&) { return std::make_shared<Kernel>(call); }};
}

}  // namespace

Implementation<IndexedExpertMLP> sm90_stream() {
  return {.info = {.key = "sm90_stream",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .batches_launches = true},
          .refusal = stream_refusal,
          .entry_for = entry_for<StreamKernel>};
}

Implementation<IndexedExpertMLP> sm90_rows() {
  return {.info = {.key = "sm90_rows",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true,
                   .batches_launches = true},
          .refusal = rows_refusal,
          .entry_for = entry_for<RowsKernel>};
}

}  // namespace tileops::indexed_expert_mlp
