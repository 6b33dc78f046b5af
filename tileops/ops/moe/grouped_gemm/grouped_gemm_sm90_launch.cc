// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_launch.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tileops/cuda/copy.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/launch_batch.h"
#include "tileops/cuda/tensor_map.h"
#include "tileops/cuda/workspace.h"

namespace tileops::grouped_gemm {
namespace {

constexpr int64_t kTileK = 64;
constexpr int64_t kThreads = 384;
constexpr int64_t kWordBytes = 4;
constexpr int64_t kCountersBytes = 64;
constexpr int64_t kSegmentThreads = 256;
constexpr int64_t kSegmentBytes = 2 * sizeof(int32_t);  // of an expert
constexpr int64_t kFewExperts = 2048;  // segments of so many always have room in the workspace

static_assert(kWorkCounters * sizeof(uint32_t) <= kCountersBytes);

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }
int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

/// A stride as a tensor map wants it: any will do for a dimension of one element.
int64_t map_stride(int64_t extent, int64_t stride, int64_t row_length) {
  return extent > 1 ? stride : ceil_div(row_length, 8) * 8;
}

TensorMap encode(const cuda::TensorMapSpec& spec, Device device) {
  return std::bit_cast<TensorMap>(cuda::cached_tensor_map(spec, device));
}

/// Boxes of rows at even distances.
TensorMap map_of_rows(const Tensor& tensor, const RowMatrix& rows, int32_t box_columns,
                      int32_t box_rows, cuda::Swizzle swizzle) {
  return encode({.data = tensor.data(),
                 .dtype = tensor.dtype(),
                 .swizzle = swizzle,
                 .dims = {rows.num_columns, rows.num_rows},
                 .strides = {map_stride(rows.num_rows, rows.row_stride, rows.num_columns)},
                 .box = {box_columns, box_rows}},
                tensor.device());
}

/// Rows from a feature's gate to its up.
int64_t up_distance(const Sm90Launch& launch, const Tensor& b) {
  if (launch.activation.is_interleaved()) return 1;
  return launch.up_distance > 0 ? launch.up_distance : b.shape()[1] / 2;
}

TensorMap map_of_weights(const Tensor& b, const Sm90Launch& launch) {
  const GatedActivation& activation = launch.activation;
  const int64_t experts = b.shape()[0], n = b.shape()[1], k = b.shape()[2];
  const int64_t row = map_stride(n, b.strides()[1], k);
  const int64_t expert = map_stride(experts, b.strides()[0], k);
  cuda::TensorMapSpec spec{.data = b.data(), .dtype = b.dtype()};
  if (activation.is_none()) {
    spec.rank = 3;
    spec.dims = {k, n, experts};
    spec.strides = {row, expert};
    spec.box = {64, 128, 1};
  } else {
    const int64_t features = n / 2;
    const int64_t next = activation.is_interleaved() ? 2 * row : row;
    const int64_t up = up_distance(launch, b) * row;
    spec.rank = 5;
    spec.dims = {k, 8, 2, features / 8, experts};
    spec.strides = {next, up, 8 * next, expert};
    spec.box = {64, 8, 2, 8, 1};
  }
  return encode(spec, b.device());
}

void set_tensor_maps(GroupedGemmSm90Params& p, const Sm90Launch& launch, const Args& args) {
  if (launch.config.load == LoadKind::kStrided) return;
  const RowMatrix a = row_matrix(launch.layout, args.a);
  p.weights = map_of_weights(args.b, launch);
  p.tokens_large = map_of_rows(args.a, a, 64, 64, cuda::Swizzle::k128);
  p.tokens_small = map_of_rows(args.a, a, 64, 16, cuda::Swizzle::k128);
  if (args.out.dtype() == DType::kF32) return;
  const RowMatrix out = row_matrix(launch.layout, args.out);
  const bool gated = !launch.activation.is_none();
  const cuda::Swizzle swizzle = gated ? cuda::Swizzle::k64 : cuda::Swizzle::k128;
  p.out_large = map_of_rows(args.out, out, gated ? 32 : 64, 32, swizzle);
  p.out_small = map_of_rows(args.out, out, gated ? 32 : 64, 16, swizzle);
}

/// What has to be added per expert to rows that are counted through all slabs.
int64_t slab_gap(const MGroupedLayout& layout, const RowMatrix& rows) {
  return layout.is_masked() ? rows.slab_stride - layout.max_m() * rows.row_stride : 0;
}

void set_strides(GroupedGemmSm90Params& p, const Sm90Launch& launch, const Args& args) {
  const RowMatrix a = row_matrix(launch.layout, args.a);
  const RowMatrix out = row_matrix(launch.layout, args.out);
  p.a = args.a.data();
  p.a_row_stride = a.row_stride;
  p.a_expert_stride = slab_gap(launch.layout, a);
  p.a_k_stride = a.column_stride;
  p.b = args.b.data();
  p.b_expert_stride = args.b.strides()[0];
  p.b_row_stride = args.b.strides()[1];
  p.b_k_stride = args.b.strides()[2];
  p.up_distance = narrow(up_distance(launch, args.b));
  p.out = args.out.data();
  p.out_row_stride = out.row_stride;
  p.out_expert_stride = slab_gap(launch.layout, out);
  p.out_feature_stride = out.column_stride;
  if (!args.bias.defined()) return;
  p.bias = args.bias.data();
  p.bias_expert_stride = args.bias.strides()[0];
  p.bias_row_stride = args.bias.strides()[1];
}

void set_groups(GroupedGemmSm90Params& p, const MGroupedLayout& layout, const Tensor& metadata) {
  constexpr int32_t kEndRows = 0, kSegments = 1, kMasked = 2, kWhole = 3;  // device::GroupKind
  if (!metadata.defined()) {
    p.group_kind = kWhole;
    return;
  }
  p.group_kind = layout.is_masked() ? kMasked : layout.is_per_row() ? kSegments : kEndRows;
  p.alignment = narrow(layout.alignment());
  p.max_m = narrow(layout.max_m());
  p.metadata = metadata.data_as<int32_t>();
  p.metadata_stride = narrow(metadata.strides()[0]);
}

/// A stream's workspace: flags, counters and partial sums of two launches, since one that awaits
/// rows runs beside the one before it; a counter for each row tile that they share; segments. For
/// any configuration, so that it need not grow.
struct WorkspaceParts {
  explicit WorkspaceParts(int64_t num_sms) {
    for (const Sm90Config& config : kReachableConfigs) {
      flags = std::max<int64_t>(flags, config.workspace_flags(num_sms) * kWordBytes);
      sums = std::max<int64_t>(sums, config.workspace_floats(num_sms) * kWordBytes);
    }
  }
  int64_t row_counters() const { return 2 * (kCountersBytes + flags); }
  int64_t num_row_counters() const {  // and one more: see device::AwaitedRows
    return (cuda::kZeroedBytes - row_counters()) / kWordBytes - 1;
  }
  int64_t segments() const { return 2 * sums; }

  int64_t flags = 0, sums = 0;  // bytes of one launch's
};

cuda::Workspace set_workspace(GroupedGemmSm90Params& p, const WorkspaceParts& parts, bool is_second,
                              Stream stream) {
  const int64_t segments_bytes = std::max<int64_t>(p.num_experts, kFewExperts) * kSegmentBytes;
  const cuda::Workspace space = cuda::workspace(stream, parts.segments() + segments_bytes);
  std::byte* const zeroed = space.zeroed + (is_second ? kCountersBytes + parts.flags : 0);
  p.work_counters = reinterpret_cast<uint32_t*>(zeroed);
  p.partial_flags = reinterpret_cast<uint32_t*>(zeroed + kCountersBytes);
  p.partial_sums = reinterpret_cast<float*>(space.scratch + (is_second ? parts.sums : 0));
  return space;
}

/// This thread's last launch: the next one may await its rows.
struct LastLaunch {
  const cuda::Function* kernel = nullptr;
  Sm90Config config;
};
thread_local LastLaunch last_launch;

/// Whether `p`, of `args`, may begin while the launch right before it, `before`, still runs: it
/// multiplies that one's output, cut into the same row tiles, and does not write the rows that it
/// reads.
bool can_await(const GroupedGemmSm90Params& p, const Args& args, const Sm90Config& config,
               const GroupedGemmSm90Params& before, const Sm90Config& config_before,
               const WorkspaceParts& parts) {
  const auto same = [&](auto member) { return p.*member == before.*member; };
  using P = GroupedGemmSm90Params;
  const bool same_rows = p.a == before.out && p.a_row_stride == before.out_row_stride &&
                         same(&P::num_rows) && same(&P::group_kind) && same(&P::num_experts) &&
                         same(&P::alignment) && same(&P::max_m) && same(&P::metadata) &&
                         same(&P::metadata_stride);
  const bool same_tiles = config.load == LoadKind::kTma && config_before.load == LoadKind::kTma &&
                          config.tile_rows == config_before.tile_rows;
  if (!same_rows || !same_tiles || before.rows_awaited != nullptr) return false;
  const Tensor rows_before =
      Tensor::from_blob(const_cast<void*>(before.a), {before.num_rows, before.k},
                        {before.a_row_stride, 1}, args.a.dtype(), args.a.device(), nullptr);
  return !args.out.overlaps(rows_before) &&
         p.num_rows / config.tile_rows + p.num_experts <= parts.num_row_counters() &&
         config_before.row_tile_writers(before.num_features) +
                 config.row_tile_reads(p.num_features, p.num_k_tiles) <=
             std::numeric_limits<int32_t>::max();
}

void await_rows(GroupedGemmSm90Params& p, const Sm90Config& config, GroupedGemmSm90Params& before,
                const Sm90Config& config_before, uint32_t* counters, int64_t num_counters) {
  const int64_t num_writers = config_before.row_tile_writers(before.num_features);
  before.rows_written = counters;
  before.num_row_counters = narrow(num_counters);
  p.rows_awaited = counters;
  p.num_row_counters = narrow(num_counters);
  p.num_writers = narrow(num_writers);
  p.num_writers_and_reads =
      narrow(num_writers + config.row_tile_reads(p.num_features, p.num_k_tiles));
}

void await_nothing(void* params) {
  auto& p = *static_cast<GroupedGemmSm90Params*>(params);
  p.rows_written = p.rows_awaited = nullptr;
}

/// Turns the ids of a per_row layout into segments, before the kernel that reads them.
void find_segments(GroupedGemmSm90Params& p, const Tensor& ids, std::byte* segments,
                   const cuda::Function& function, Stream stream) {
  cuda::fill_bytes(segments, 0xff, static_cast<size_t>(p.num_experts * kSegmentBytes), stream);
  const PerRowSegmentsParams params{.ids = ids.data_as<int32_t>(),
                                    .ids_stride = ids.strides()[0],
                                    .segments = reinterpret_cast<int32_t*>(segments),
                                    .num_rows = p.num_rows,
                                    .num_experts = p.num_experts};
  const auto grid = static_cast<uint32_t>(ceil_div(p.num_rows, kSegmentThreads));
  cuda::launch(function, {.grid = {grid}, .cta = {kSegmentThreads}}, stream, params);
  p.metadata = params.segments;
}

}  // namespace

GroupedGemmSm90Params sm90_params(const Sm90Launch& launch, const Args& args) {
  GroupedGemmSm90Params p{};
  const RowMatrix out = row_matrix(launch.layout, args.out);
  const int64_t k = args.b.shape()[2];
  const int64_t num_k_tiles = std::max<int64_t>(ceil_div(k, kTileK), 1);
  p.num_experts = narrow(args.b.shape()[0]);
  p.num_rows = narrow(out.num_rows);
  p.num_features = narrow(out.num_columns);
  p.k = narrow(k);
  p.num_k_tiles = narrow(num_k_tiles);
  p.lone_tile_k_tiles = narrow(launch.config.lone_tile_k_tiles(num_k_tiles));
  p.split_cost_k_tiles =
      narrow(launch.batch_invariant ? num_k_tiles : launch.config.split_cost_k_tiles());
  p.swiglu_alpha = static_cast<float>(launch.activation.alpha());
  p.swiglu_limit = static_cast<float>(launch.activation.limit());
  set_groups(p, launch.layout, args.layout_metadata);
  set_strides(p, launch, args);
  set_tensor_maps(p, launch, args);
  return p;
}

cuda::ProgramSpec program_of(const Sm90Config& config) {
  return {
      .name = "grouped_gemm " + config.name(),
      .source = "#include \"tileops/ops/moe/grouped_gemm/grouped_gemm_sm90.cuh\"\n",
      .kernels = {config.kernel_name(), "tileops::grouped_gemm::per_row_segments"},
      .uses_wgmma = true,
      .dynamic_smem_bytes = config.smem_bytes(),
  };
}

void Sm90Launch::run(const Args& args, cuda::LazyProgram& program) const {
  const Device device = args.out.device();
  const Stream stream = current_stream(device);
  const int64_t num_sms = device_facts(device).num_processors;
  const WorkspaceParts parts(num_sms);
  const cuda::Function& kernel = program.function(stream, 0);
  GroupedGemmSm90Params params = sm90_params(*this, args);
  const cuda::PutOff last = cuda::put_off_before(stream, sizeof(params));
  auto* const before = last.function != nullptr && last.function == last_launch.kernel
                           ? static_cast<GroupedGemmSm90Params*>(last.argument)
                           : nullptr;
  const bool awaits = before != nullptr && !layout.is_per_row() &&
                      can_await(params, args, config, *before, last_launch.config, parts);
  const cuda::Workspace space = set_workspace(params, parts, awaits, stream);
  if (awaits) {
    await_rows(params, config, *before, last_launch.config,
               reinterpret_cast<uint32_t*>(space.zeroed + parts.row_counters()),
               parts.num_row_counters());
  }
  if (layout.is_per_row() && args.layout_metadata.defined()) {
    find_segments(params, args.layout_metadata, space.scratch + parts.segments(),
                  program.function(stream, 1), stream);
  }
  cuda::launch(kernel,
               {.grid = {static_cast<uint32_t>(config.grid(num_sms))},
                .cluster = {static_cast<uint32_t>(config.ctas)},
                .cta = {kThreads},
                .smem_bytes = config.smem_bytes(),
                .order = cuda::LaunchOrder::kOverlapPrevious},
               stream, params);
  if (awaits) cuda::undo_overlap_if_apart(await_nothing);
  last_launch = {&kernel, config};
}

}  // namespace tileops::grouped_gemm
