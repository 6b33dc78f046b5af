// SPDX-License-Identifier: Apache-2.0
// The indexed experts on a GPU: one launch that streams the weights of few routes, and a general
// pair of launches.
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/tensor_map.h"
#include "tileops/cuda/workspace.h"
#include "tileops/ops/moe/activation_sm90_params.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_kernel.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_params.h"

namespace tileops::indexed_expert_mlp {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kCopyAlignment = 16;
constexpr int64_t kGroup = 64;         // elements of 128 bytes
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
    return std::vector{stream_program(DType::kBF16), stream_program(DType::kF16),
                       rows_program(DType::kBF16), rows_program(DType::kF16)};
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

/// Boxes of 8 rows and 12 groups of 64 values; `next` and `second` are the strides from row to row
/// and to the second part of the rows, where there are two.
TensorMap map_of(const Tensor& w, int64_t num_rows, int64_t parts, int64_t next, int64_t second) {
  const Shape& shape = w.shape();
  const int64_t expert = shape[0] > 1 ? w.strides()[0] : kGroup;
  return std::bit_cast<TensorMap>(
      cuda::cached_tensor_map({.data = w.data(),
                               .dtype = w.dtype(),
                               .rank = 5,
                               .dims = {kGroup, num_rows, parts, shape[2] / kGroup, shape[0]},
                               .strides = {next, second, kGroup, expert},
                               .box = {kGroup, 8, 1, 12, 1}},
                              w.device()));
}

void set_maps(IndexedSm90Params& p, const Settings& settings, const Args& args) {
  const int64_t row = args.w_gate_up.strides()[1], inter = p.inter;
  const bool interleaved = settings.activation.is_interleaved();
  p.gate_up_map = map_of(args.w_gate_up, inter, 2, interleaved ? 2 * row : row,
                         interleaved ? row : inter * row);
  p.down_map = map_of(args.w_down, p.hidden_size, 1, args.w_down.strides()[1], kGroup);
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
  StreamKernel(const Settings& settings, DType dtype)
      : settings_(settings), program_(stream_program(dtype)) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    if (args.out.num_elements() == 0) return;
    const Device device = args.out.device();
    const Stream stream = current_stream(device);
    IndexedSm90Params params = params_of(settings_, args);
    set_maps(params, settings_, args);
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
  RowsKernel(const Settings& settings, DType dtype)
      : settings_(settings), program_(rows_program(dtype)) {}

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
    if (length == 0 || length % kGroup != 0) {
      return fmt::format("needs {} in multiples of {}, found {}", name, kGroup, length);
    }
  }
  if (call.expanded) return "needs weights with strides above 0, found expanded ones";
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
          [settings = settings_of(call), dtype = call.dtype](const BuildOptions&) {
            return std::make_shared<Kernel>(settings, dtype);
          }};
}

}  // namespace

Implementation<IndexedExpertMLP> sm90_stream() {
  return {.info = {.key = "sm90_stream", .devices = {DeviceType::kCUDA}, .archs = {"sm_90"}},
          .refusal = stream_refusal,
          .entry_for = entry_for<StreamKernel>};
}

Implementation<IndexedExpertMLP> sm90_rows() {
  return {.info = {.key = "sm90_rows",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true},
          .refusal = rows_refusal,
          .entry_for = entry_for<RowsKernel>};
}

}  // namespace tileops::indexed_expert_mlp
