// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/grouped_gemm.h"

#include <algorithm>
#include <vector>

#include "tileops/core/allocator.h"
#include "tileops/core/check.h"
#include "tileops/cpu/gemm_worker.h"
#include "tileops/cpu/parallel.h"

namespace tileops::cpu {
namespace {

constexpr int64_t kMaxPanelsPerTask = 8;
constexpr int64_t kTasksPerThread = 16;  // so that the last tasks leave no thread idle for long

const MicroKernel& choose_inner_loop(const GroupedGemm& p, InnerLoop asked, IsaLevel level,
                                     const IsaKernels& isa) {
  const bool both_bf16 = p.a.dtype == DType::kBF16 && p.b.dtype == DType::kBF16;
  if (asked == InnerLoop::kAuto) {
    const bool has_dot = level >= IsaLevel::kAvx512Bf16 && bf16_dot_outruns_fma();
    asked = !both_bf16                ? InnerLoop::kFma
            : level >= IsaLevel::kAmx ? InnerLoop::kAmx
            : has_dot                 ? InnerLoop::kBf16Dot
                                      : InnerLoop::kFma;
  }
  if (asked == InnerLoop::kFma) return isa.fma[weight_slot(p.b.dtype)];
  const bool amx = asked == InnerLoop::kAmx;
  const IsaLevel needed = amx ? IsaLevel::kAmx : IsaLevel::kAvx512Bf16;
  TILEOPS_CHECK(ErrorKind::kValue, level >= needed,
                "grouped_gemm: inner loop {} needs level {}, this one is {}",
                amx ? "amx" : "bf16_dot", name_of(needed), name_of(level));
  TILEOPS_CHECK(ErrorKind::kValue, both_bf16,
                "grouped_gemm: inner loop {} needs bf16 a and b, got {} and {}",
                amx ? "amx" : "bf16_dot", dtype_short_name(p.a.dtype), dtype_short_name(p.b.dtype));
  return amx ? amx_bf16_kernel() : bf16_dot_kernel();
}

bool is_served(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

void check(const GroupedGemm& p, const PackedShape& shape) {
  for (const DType dtype : {p.a.dtype, p.out.dtype, p.bias.dtype}) {
    TILEOPS_CHECK(ErrorKind::kDType, is_served(dtype),
                  "grouped_gemm: a, bias and out must be bf16, f16 or f32, got {}",
                  dtype_short_name(dtype));
  }
  if (p.packed_b != nullptr) {
    const PackedShape& packed = p.packed_b->shape();
    TILEOPS_CHECK(ErrorKind::kShape, packed == shape,
                  "grouped_gemm: packed b must be [{}, {}, {}] {} with gate layout {}, got "
                  "[{}, {}, {}] {} with {}",
                  shape.num_experts, shape.n, shape.k, dtype_short_name(shape.dtype),
                  static_cast<int>(shape.gate), packed.num_experts, packed.n, packed.k,
                  dtype_short_name(packed.dtype), static_cast<int>(packed.gate));
  }
  for (const RowSegment& s : p.segments) {
    TILEOPS_CHECK(ErrorKind::kValue, s.expert >= 0 && s.expert < shape.num_experts,
                  "grouped_gemm: expert of a segment must be in [0, {}), got {}", shape.num_experts,
                  s.expert);
  }
}

void choose_outputs(const GroupedGemm& p, GemmPlan& plan) {
  const int64_t all = plan.shape.num_outputs(), per_panel = plan.shape.outputs_per_panel();
  plan.output_end = p.num_outputs < 0 ? all : p.first_output + p.num_outputs;
  TILEOPS_CHECK(
      ErrorKind::kShape,
      p.first_output >= 0 && p.first_output % kPanelColumns == 0 && plan.output_end <= all,
      "grouped_gemm: outputs [{}, {}) must lie in [0, {}) and begin at a multiple of {}",
      p.first_output, plan.output_end, all, kPanelColumns);
  plan.panel_begin = p.first_output / per_panel;
  plan.panel_end = ceil_div(std::max(plan.output_end, p.first_output), per_panel);
}

ScratchLayout lay_out(const GemmPlan& plan) {
  const PackedShape& shape = plan.shape;
  const int64_t columns = plan.panels_per_task * kPanelColumns;
  const int64_t a_bytes =
      std::max(plan.max_rows * shape.k_padded() * plan.micro->a_bytes_per_k,
               std::min(plan.max_rows, plan.stream_rows) * shape.k_padded() * 4);
  ScratchLayout layout;
  layout.c = round_up(a_bytes, kLineBytes);
  layout.b = layout.c + plan.max_rows * columns * 4;
  layout.bias = layout.b + shape.panel_bytes();
  layout.columns = layout.bias + columns * 4;
  layout.total = layout.columns + columns * static_cast<int64_t>(sizeof(void*));
  layout.total = round_up(layout.total, kLineBytes);
  return layout;
}

GemmPlan make_plan(const GroupedGemm& p, const GemmOptions& options) {
  GemmPlan plan;
  const IsaLevel level = options.isa.value_or(active_isa());
  TILEOPS_CHECK(ErrorKind::kValue, level <= supported_isa(),
                "grouped_gemm: level {} is not supported here, at most {} is", name_of(level),
                name_of(supported_isa()));
  plan.shape = packed_shape(p.b, gate_layout(p.activation.kind));
  check(p, plan.shape);
  choose_outputs(p, plan);
  plan.isa = &isa_kernels(level);
  plan.micro = &choose_inner_loop(p, options.inner_loop, level, *plan.isa);
  plan.threads =
      options.num_threads > 0 ? std::min(options.num_threads, num_threads()) : num_threads();
  const bool can_stream = p.packed_b == nullptr && !options.batch_invariant && p.b.k_stride == 1;
  plan.stream_rows = can_stream ? plan.isa->max_stream_rows : 0;
  plan.rows_per_task = plan.micro->max_rows * (p.packed_b != nullptr ? 8 : 16);
  plan.fetch_rows = least_rows_to_fetch_for(level);

  int64_t panel_tasks = 0, max_rows = 0;
  for (const RowSegment& s : p.segments) {
    panel_tasks += ceil_div(s.num_rows, plan.rows_per_task) * (plan.panel_end - plan.panel_begin);
    max_rows = std::max(max_rows, std::min(s.num_rows, plan.rows_per_task));
  }
  plan.panels_per_task =
      std::clamp<int64_t>(panel_tasks / (plan.threads * kTasksPerThread), 1, kMaxPanelsPerTask);
  plan.max_rows = round_up(max_rows, plan.micro->row_align);
  plan.layout = lay_out(plan);
  return plan;
}

std::vector<GemmTask> list_tasks(const GroupedGemm& p, const GemmPlan& plan) {
  std::vector<GemmTask> tasks;
  for (const RowSegment& s : p.segments) {
    const int64_t row_parts = ceil_div(s.num_rows, plan.rows_per_task);
    for (int64_t part = 0; part < row_parts; ++part) {
      const int64_t begin = s.num_rows * part / row_parts;
      const int64_t end = s.num_rows * (part + 1) / row_parts;
      for (int64_t panel = plan.panel_begin; panel < plan.panel_end;
           panel += plan.panels_per_task) {
        tasks.push_back({.row_begin = s.row_begin + begin,
                         .num_rows = end - begin,
                         .panel_begin = panel,
                         .panel_end = std::min(panel + plan.panels_per_task, plan.panel_end),
                         .expert = s.expert,
                         .streams = s.num_rows <= plan.stream_rows});
      }
    }
  }
  for (size_t i = 0; p.packed_b != nullptr && i + 1 < tasks.size(); ++i) {
    tasks[i].next_panel = p.packed_b->panel(tasks[i + 1].expert, tasks[i + 1].panel_begin);
  }
  return tasks;
}

/// Scratch of a call, from the process's allocator.
class Scratch {
 public:
  explicit Scratch(int64_t bytes)
      : allocator_(allocator_for(DeviceType::kCPU)), bytes_(static_cast<size_t>(bytes)) {
    data_ = static_cast<std::byte*>(allocator_.allocate(bytes_, {}));
  }
  ~Scratch() { allocator_.deallocate(data_, bytes_, {}); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  Allocator& allocator_;
  size_t bytes_;
  std::byte* data_;
};

}  // namespace

GateLayout gate_layout(Activation kind) {
  if (kind == Activation::kNone) return GateLayout::kNone;
  return kind == Activation::kSwigluOai ? GateLayout::kInterleaved : GateLayout::kStacked;
}

int64_t workspace_bytes(const GroupedGemm& problem, const GemmOptions& options) {
  const GemmPlan plan = make_plan(problem, options);
  return plan.layout.total * plan.threads;
}

void grouped_gemm(const GroupedGemm& problem, const GemmOptions& options,
                  std::span<std::byte> workspace) {
  const GemmPlan plan = make_plan(problem, options);
  const std::vector<GemmTask> tasks = list_tasks(problem, plan);
  if (tasks.empty()) return;
  const int64_t bytes = plan.layout.total * plan.threads;
  std::optional<Scratch> scratch;
  if (workspace.empty()) workspace = scratch.emplace(bytes).span();
  TILEOPS_CHECK(ErrorKind::kValue, static_cast<int64_t>(workspace.size()) >= bytes,
                "grouped_gemm: workspace must hold {} bytes, got {}", bytes, workspace.size());
  std::vector<GemmWorker> workers;
  for (int i = 0; i < plan.threads; ++i) {
    workers.emplace_back(problem, plan, workspace.data() + i * plan.layout.total);
  }
  parallel_tasks(
      static_cast<int64_t>(tasks.size()), plan.threads, [&](int64_t task_idx, int thread_idx) {
        workers[static_cast<size_t>(thread_idx)].run(tasks[static_cast<size_t>(task_idx)]);
      });
}

std::string describe(const GroupedGemm& problem, const GemmOptions& options) {
  const GemmPlan plan = make_plan(problem, options);
  bool streams = false, multiplies = false;
  for (const RowSegment& s : problem.segments) {
    if (s.num_rows == 0) continue;
    (s.num_rows <= plan.stream_rows ? streams : multiplies) = true;
  }
  std::string text = streams ? plan.isa->name : "";
  if (multiplies) {
    text += fmt::format("{}{} {}", streams ? ", " : "", plan.micro->name,
                        problem.packed_b != nullptr ? "packed" : "pack_on_the_fly");
  }
  return text;
}

}  // namespace tileops::cpu
