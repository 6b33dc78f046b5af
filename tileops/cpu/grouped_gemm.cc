// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/grouped_gemm.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cpu/kernels.h"
#include "tileops/cpu/parallel.h"

namespace tileops::cpu {
namespace {

constexpr int64_t kMaxPanelsPerTask = 8;
constexpr int64_t kTasksPerThread = 16;    // so that the last tasks leave no thread idle for long
constexpr int64_t kCacheBytes = 1 << 20;   // of packed rows and a panel that stay in a core's L2
constexpr int64_t kStreamAhead = 6 << 10;  // bytes between a panel's reader and its prefetch

int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

/// Some rows of a segment times some panels of its expert.
struct Task {
  int64_t row_begin = 0, num_rows = 0;
  int64_t panel_begin = 0, panel_end = 0;
  int32_t expert = 0;
  bool streams = false;
};

struct Layout {  // of one thread's scratch, in bytes
  int64_t a = 0, c = 0, b = 0, bias = 0, columns = 0, total = 0;
};

struct Plan {
  const IsaKernels* isa = nullptr;
  const MicroKernel* micro = nullptr;
  PackedShape shape;
  int threads = 1;
  int64_t stream_rows = 0;  // segments of at most so many rows stream unpacked weights
  int64_t rows_per_task = 0, panels_per_task = 1;
  int64_t max_rows = 0;  // of any task, padded to the inner loop's blocks
  Layout layout;
};

const MicroKernel& choose_inner_loop(const GroupedGemm& p, InnerLoop asked, IsaLevel level,
                                     const IsaKernels& isa) {
  const bool both_bf16 = p.a.dtype == DType::kBF16 && p.b.dtype == DType::kBF16;
  if (asked == InnerLoop::kAuto) {
    asked = both_bf16 && level >= IsaLevel::kAmx ? InnerLoop::kAmx : InnerLoop::kFma;
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

int64_t padded_block_rows(const MicroKernel& micro, int64_t rows) {
  return round_up(rows, micro.row_align);
}

Layout lay_out(const Plan& plan) {
  const PackedShape& shape = plan.shape;
  const int64_t columns = plan.panels_per_task * kPanelColumns;
  const int64_t a_bytes =
      std::max(plan.max_rows * shape.k_padded() * plan.micro->a_bytes_per_k,
               std::min(plan.max_rows, plan.stream_rows) * shape.k_padded() * 4);
  Layout layout;
  layout.c = round_up(a_bytes, kLineBytes);
  layout.b = layout.c + plan.max_rows * columns * 4;
  layout.bias = layout.b + shape.panel_bytes();
  layout.columns = layout.bias + columns * 4;
  layout.total = layout.columns + columns * static_cast<int64_t>(sizeof(void*));
  layout.total = round_up(layout.total, kLineBytes);
  return layout;
}

Plan make_plan(const GroupedGemm& p, const GemmOptions& options) {
  Plan plan;
  const IsaLevel level = options.isa.value_or(active_isa());
  TILEOPS_CHECK(ErrorKind::kValue, level <= supported_isa(),
                "grouped_gemm: level {} is not supported here, at most {} is", name_of(level),
                name_of(supported_isa()));
  plan.shape = packed_shape(p.b, gate_layout(p.activation.kind));
  check(p, plan.shape);
  plan.isa = &isa_kernels(level);
  plan.micro = &choose_inner_loop(p, options.inner_loop, level, *plan.isa);
  plan.threads =
      options.num_threads > 0 ? std::min(options.num_threads, num_threads()) : num_threads();
  const bool can_stream = p.packed_b == nullptr && !options.batch_invariant && p.b.k_stride == 1;
  plan.stream_rows = can_stream ? plan.isa->max_stream_rows : 0;
  plan.rows_per_task = plan.micro->max_rows * 8;

  int64_t panel_tasks = 0, max_rows = 0;
  for (const RowSegment& s : p.segments) {
    panel_tasks += ceil_div(s.num_rows, plan.rows_per_task) * plan.shape.num_panels();
    max_rows = std::max(max_rows, std::min(s.num_rows, plan.rows_per_task));
  }
  plan.panels_per_task =
      std::clamp<int64_t>(panel_tasks / (plan.threads * kTasksPerThread), 1, kMaxPanelsPerTask);
  plan.max_rows = round_up(max_rows, plan.micro->row_align);
  plan.layout = lay_out(plan);
  return plan;
}

std::vector<Task> list_tasks(const GroupedGemm& p, const Plan& plan) {
  std::vector<Task> tasks;
  const int64_t num_panels = plan.shape.num_panels();
  for (const RowSegment& s : p.segments) {
    const int64_t row_parts = ceil_div(s.num_rows, plan.rows_per_task);
    for (int64_t part = 0; part < row_parts; ++part) {
      const int64_t begin = s.num_rows * part / row_parts;
      const int64_t end = s.num_rows * (part + 1) / row_parts;
      for (int64_t panel = 0; panel < num_panels; panel += plan.panels_per_task) {
        tasks.push_back({.row_begin = s.row_begin + begin,
                         .num_rows = end - begin,
                         .panel_begin = panel,
                         .panel_end = std::min(panel + plan.panels_per_task, num_panels),
                         .expert = s.expert,
                         .streams = s.num_rows <= plan.stream_rows});
      }
    }
  }
  return tasks;
}

/// What one thread needs for its tasks; remembers the rows that it packed last.
class Worker {
 public:
  Worker(const GroupedGemm& problem, const Plan& plan, std::byte* scratch)
      : p_(problem),
        plan_(plan),
        a_(scratch + plan.layout.a),
        c_(reinterpret_cast<float*>(scratch + plan.layout.c)),
        b_(scratch + plan.layout.b),
        bias_(reinterpret_cast<float*>(scratch + plan.layout.bias)),
        columns_(reinterpret_cast<const std::byte**>(scratch + plan.layout.columns)) {}

  void run(const Task& task) {
    pack_rows(task);
    ldc_ = (task.panel_end - task.panel_begin) * kPanelColumns;
    if (plan_.shape.k == 0) {
      std::fill_n(c_, plan_.max_rows * ldc_, 0.0f);
    } else if (task.streams) {
      stream(task);
    } else {
      multiply(task);
    }
    finish(task);
  }

 private:
  int64_t num_blocks(const Task& task) const {
    return ceil_div(task.num_rows, plan_.micro->max_rows);
  }

  /// First row of a block; blocks are even, or full where the inner loop pads rows.
  int64_t block_begin(const Task& task, int64_t block) const {
    if (plan_.micro->row_align > 1) {
      return std::min<int64_t>(block * plan_.micro->max_rows, task.num_rows);
    }
    return task.num_rows * block / num_blocks(task);
  }

  void pack_rows(const Task& task) {
    if (task.row_begin == packed_row_ && task.num_rows == packed_rows_) return;
    packed_row_ = task.row_begin;
    packed_rows_ = task.num_rows;
    RowBlock block{.rows = &p_.a,
                   .row_begin = task.row_begin,
                   .num_rows = static_cast<int>(task.num_rows),
                   .k = plan_.shape.k};
    if (task.streams) {
      plan_.isa->pack_stream_rows(block, plan_.shape.dtype, reinterpret_cast<float*>(a_));
      return;
    }
    for (int64_t i = 0; i < num_blocks(task); ++i) {
      const int64_t begin = block_begin(task, i);
      block.row_begin = task.row_begin + begin;
      block.num_rows = static_cast<int>(block_begin(task, i + 1) - begin);
      plan_.micro->pack_rows(block, packed_block(begin));
    }
  }

  std::byte* packed_block(int64_t row) const {
    return a_ + row * plan_.shape.k_padded() * plan_.micro->a_bytes_per_k;
  }

  const std::byte* weight_row(const Task& task, int64_t panel, int64_t column) const {
    const int64_t row = plan_.shape.source_row(panel, column);
    if (row < 0) return nullptr;
    return static_cast<const std::byte*>(p_.b.data) +
           (task.expert * p_.b.expert_stride + row * p_.b.n_stride) * dtype_bytes(p_.b.dtype);
  }

  void stream(const Task& task) {
    for (int64_t i = 0; i < ldc_; ++i) {
      columns_[i] = weight_row(task, task.panel_begin + i / kPanelColumns, i % kPanelColumns);
    }
    plan_.isa->stream({.a = reinterpret_cast<const float*>(a_),
                       .num_rows = static_cast<int>(task.num_rows),
                       .columns = columns_,
                       .num_columns = ldc_,
                       .dtype = plan_.shape.dtype,
                       .k = plan_.shape.k,
                       .c = c_,
                       .ldc = ldc_});
  }

  /// Length of K whose packed rows and panel stay in the cache together; all of K for one block of
  /// packed weights.
  int64_t k_chunk(const Task& task) const {
    const int64_t k = plan_.shape.k_padded();
    if (num_blocks(task) == 1 && p_.packed_b != nullptr) return k;
    const int64_t bytes_per_k =
        task.num_rows * plan_.micro->a_bytes_per_k + plan_.shape.panel_bytes() / k;
    const int64_t limit = std::max<int64_t>(kCacheBytes / bytes_per_k, 256);
    return round_up(ceil_div(k, ceil_div(k, limit)), kKAlign);
  }

  void multiply(const Task& task) {
    const int64_t chunk = k_chunk(task);
    if (plan_.micro->begin != nullptr) plan_.micro->begin();
    for (int64_t k = 0; k < plan_.shape.k_padded(); k += chunk) {
      const int64_t k_end = std::min(k + chunk, plan_.shape.k_padded());
      for (int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
        multiply_panel(task, panel, k, k_end);
      }
    }
    if (plan_.micro->end != nullptr) plan_.micro->end();
  }

  /// One block reads its panel once: fetch shortly ahead. Several read it from the cache, and fetch
  /// the next panel meanwhile, which at a task's end is most often the thread's next task.
  void prefetch_panel(TileArgs& t, int64_t blocks) const {
    t.prefetch = t.b + (blocks == 1 ? kStreamAhead : plan_.shape.panel_bytes());
    t.prefetch_step = blocks == 1 ? 2 * kLineBytes : kLineBytes;
  }

  void multiply_panel(const Task& task, int64_t panel, int64_t k, int64_t k_end) {
    const int64_t bytes_per_k = plan_.shape.panel_bytes() / plan_.shape.k_padded();
    TileArgs t{.k = k_end - k,
               .c = c_ + (panel - task.panel_begin) * kPanelColumns,
               .ldc = ldc_,
               .accumulate = k > 0};
    const int64_t blocks = num_blocks(task);
    if (p_.packed_b != nullptr) {
      t.b = p_.packed_b->panel(task.expert, panel) + k * bytes_per_k;
      prefetch_panel(t, blocks);
    } else {
      pack_panel(p_.b, plan_.shape, task.expert, panel, k, k_end, b_);
      t.b = b_;
    }
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t begin = block_begin(task, i);
      const int64_t rows = block_begin(task, i + 1) - begin;
      TileArgs tile = t;
      tile.a = packed_block(begin) +
               k * plan_.micro->a_bytes_per_k * padded_block_rows(*plan_.micro, rows);
      tile.c += begin * ldc_;
      tile.prefetch += i * t.prefetch_step * t.k / 2;
      if (i >= 2) tile.prefetch_step = 0;  // two blocks have fetched it all
      plan_.micro->tile(static_cast<int>(rows), tile);
    }
  }

  const float* gather_bias(const Task& task) {
    if (p_.bias.data == nullptr) return nullptr;
    for (int64_t i = 0; i < ldc_; ++i) {
      const int64_t row =
          plan_.shape.source_row(task.panel_begin + i / kPanelColumns, i % kPanelColumns);
      bias_[i] = 0.0f;
      if (row < 0) continue;
      const int64_t index = task.expert * p_.bias.expert_stride + row * p_.bias.n_stride;
      bias_[i] = static_cast<float>(load_element(
          p_.bias.dtype,
          static_cast<const std::byte*>(p_.bias.data) + index * dtype_bytes(p_.bias.dtype)));
    }
    return bias_;
  }

  void finish(const Task& task) {
    const int64_t out_col = task.panel_begin * plan_.shape.outputs_per_panel();
    const int64_t out_end = task.panel_end * plan_.shape.outputs_per_panel();
    plan_.isa->finish({.c = c_,
                       .ldc = ldc_,
                       .num_rows = static_cast<int>(task.num_rows),
                       .bias = gather_bias(task),
                       .activation = p_.activation,
                       .num_outputs = std::min(out_end, plan_.shape.num_outputs()) - out_col,
                       .out = &p_.out,
                       .out_row = task.row_begin,
                       .out_col = out_col});
  }

  const GroupedGemm& p_;
  const Plan& plan_;
  std::byte* a_;
  float* c_;
  std::byte* b_;
  float* bias_;
  const std::byte** columns_;
  int64_t ldc_ = 0;
  int64_t packed_row_ = -1, packed_rows_ = -1;
};

struct FreeLines {
  void operator()(std::byte* data) const {
    ::operator delete[](data, std::align_val_t{kLineBytes});
  }
};

}  // namespace

GateLayout gate_layout(Activation kind) {
  if (kind == Activation::kNone) return GateLayout::kNone;
  return kind == Activation::kSwigluOai ? GateLayout::kInterleaved : GateLayout::kStacked;
}

int64_t workspace_bytes(const GroupedGemm& problem, const GemmOptions& options) {
  const Plan plan = make_plan(problem, options);
  return plan.layout.total * plan.threads;
}

void grouped_gemm(const GroupedGemm& problem, const GemmOptions& options,
                  std::span<std::byte> workspace) {
  const Plan plan = make_plan(problem, options);
  const std::vector<Task> tasks = list_tasks(problem, plan);
  if (tasks.empty()) return;
  const int64_t bytes = plan.layout.total * plan.threads;
  std::unique_ptr<std::byte[], FreeLines> owned;
  if (workspace.empty()) {
    owned.reset(new (std::align_val_t{kLineBytes}) std::byte[static_cast<size_t>(bytes)]);
    workspace = {owned.get(), static_cast<size_t>(bytes)};
  }
  TILEOPS_CHECK(ErrorKind::kValue, static_cast<int64_t>(workspace.size()) >= bytes,
                "grouped_gemm: workspace must hold {} bytes, got {}", bytes, workspace.size());
  std::vector<Worker> workers;
  for (int i = 0; i < plan.threads; ++i) {
    workers.emplace_back(problem, plan, workspace.data() + i * plan.layout.total);
  }
  parallel_tasks(
      static_cast<int64_t>(tasks.size()), plan.threads, [&](int64_t task_idx, int thread_idx) {
        workers[static_cast<size_t>(thread_idx)].run(tasks[static_cast<size_t>(task_idx)]);
      });
}

std::string describe(const GroupedGemm& problem, const GemmOptions& options) {
  const Plan plan = make_plan(problem, options);
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
