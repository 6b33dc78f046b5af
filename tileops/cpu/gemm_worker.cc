// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/gemm_worker.h"

#include <algorithm>

namespace tileops::cpu {
namespace {

constexpr int64_t kCacheBytes = 1 << 20;  // of packed rows and a panel that stay in a core's L2
constexpr int64_t kSlices = kPanelColumns / 2;  // of K: two blocks fetch a panel's rows
constexpr int64_t kStreamAhead = 6 << 10;       // bytes between a panel's reader and its prefetch

}  // namespace

GemmWorker::GemmWorker(const GroupedGemm& problem, const GemmPlan& plan, std::byte* scratch)
    : p_(problem),
      plan_(plan),
      a_(scratch + plan.layout.a),
      c_(reinterpret_cast<float*>(scratch + plan.layout.c)),
      b_(scratch + plan.layout.b),
      bias_(reinterpret_cast<float*>(scratch + plan.layout.bias)),
      columns_(reinterpret_cast<const std::byte**>(scratch + plan.layout.columns)) {}

void GemmWorker::run(const GemmTask& task) {
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

int64_t GemmWorker::num_blocks(const GemmTask& task) const {
  return ceil_div(task.num_rows, plan_.micro->max_rows);
}

/// First row of a block; blocks are even, or full where the inner loop pads rows.
int64_t GemmWorker::block_begin(const GemmTask& task, int64_t block) const {
  if (plan_.micro->row_align > 1) {
    return std::min<int64_t>(block * plan_.micro->max_rows, task.num_rows);
  }
  return task.num_rows * block / num_blocks(task);
}

std::byte* GemmWorker::packed_block(int64_t row) const {
  return a_ + row * plan_.shape.k_padded() * plan_.micro->a_bytes_per_k;
}

const std::byte* GemmWorker::weight_row(const GemmTask& task, int64_t panel, int64_t column) const {
  const int64_t row = plan_.shape.source_row(panel, column);
  if (row < 0) return nullptr;
  return static_cast<const std::byte*>(p_.b.data) +
         (task.expert * p_.b.expert_stride + row * p_.b.n_stride) * dtype_bytes(p_.b.dtype);
}

/// Length of K whose packed rows and panel stay in the cache together; all of K for one block of
/// packed weights.
int64_t GemmWorker::k_chunk(const GemmTask& task) const {
  const int64_t k = plan_.shape.k_padded();
  if (num_blocks(task) == 1 && p_.packed_b != nullptr) return k;
  const int64_t bytes_per_k =
      task.num_rows * plan_.micro->a_bytes_per_k + plan_.shape.panel_bytes() / k;
  int64_t limit = std::max<int64_t>(kCacheBytes / bytes_per_k, 256);
  if (p_.packed_b == nullptr && p_.b.k_stride != 1) limit = kStridedChunk;
  return round_up(ceil_div(k, ceil_div(k, limit)), kKAlign);
}

void GemmWorker::pack_rows(const GemmTask& task) {
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

void GemmWorker::stream(const GemmTask& task) {
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

void GemmWorker::multiply(const GemmTask& task) {
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

/// Where the packed weights lie that this thread most often reads after these.
const std::byte* GemmWorker::panel_after(const GemmTask& task, int64_t panel, int64_t k,
                                         int64_t k_end) const {
  const int64_t bytes_per_k = plan_.shape.panel_bytes() / plan_.shape.k_padded();
  if (panel + 1 < task.panel_end)
    return p_.packed_b->panel(task.expert, panel + 1) + k * bytes_per_k;
  if (k_end < plan_.shape.k_padded())
    return p_.packed_b->panel(task.expert, task.panel_begin) + k_end * bytes_per_k;
  return task.next_panel;
}

/// The first two blocks fetch half each of the rows that the next panel is packed from.
void GemmWorker::prefetch_unpacked(TileArgs& tile, const GemmTask& task, int64_t panel,
                                   int64_t block) const {
  const bool is_dense = p_.b.k_stride == 1 && p_.b.n_stride == p_.b.k;
  if (block >= 2 || !is_dense || tile.k < p_.b.k) return;
  const bool stacked = plan_.shape.gate == GateLayout::kStacked;
  const std::byte* rows = weight_row(task, panel + 1, stacked ? 16 * block : 0);
  if (rows == nullptr) return;
  tile.prefetch = rows + (stacked ? 0 : block * plan_.shape.panel_bytes() / 2);
  tile.prefetch_step = kLineBytes;
}

/// Where K is cut, the rows' parts that the next panel is packed from lie apart. AMX has no use for
/// short slices, and a slice fetches a line for every 2 of k.
bool GemmWorker::fetches_row_parts(const TileArgs& tile, int64_t block) const {
  return p_.packed_b == nullptr && tile.k < p_.b.k && block < 2 && p_.b.k_stride == 1 &&
         dtype_bytes(p_.b.dtype) == 2 && plan_.micro->row_align == 1;
}

/// The parts of rows that this thread most often packs after these.
GemmWorker::RowParts GemmWorker::parts_after(const GemmTask& task, int64_t panel, int64_t k,
                                             int64_t k_end) const {
  if (panel + 1 < task.panel_end) return {panel + 1, k};
  if (k_end < p_.b.k) return {task.panel_begin, k_end};
  return {panel + 1, 0};
}

/// A block's product in slices of K, each of which fetches the part of one row: from `column` on.
void GemmWorker::multiply_in_slices(TileArgs tile, const GemmTask& task, int rows,
                                    const RowParts& parts, int64_t column) const {
  const int64_t bytes_per_k = plan_.shape.panel_bytes() / plan_.shape.k_padded();
  const int64_t k = tile.k, slice = round_up(ceil_div(k, kSlices), kKAlign);
  for (int64_t begin = 0; begin < k; begin += slice, ++column) {
    tile.k = std::min(slice, k - begin);
    const std::byte* row = weight_row(task, parts.panel, column);
    if (row != nullptr) {
      tile.prefetch = row + parts.k * dtype_bytes(p_.b.dtype);
      tile.prefetch_step = kLineBytes;
    }
    plan_.micro->tile(rows, tile);
    tile.a += tile.k * plan_.micro->a_bytes_per_k * rows;
    tile.b += tile.k * bytes_per_k;
    tile.accumulate = true;
  }
}

void GemmWorker::multiply_panel(const GemmTask& task, int64_t panel, int64_t k, int64_t k_end) {
  const int64_t bytes_per_k = plan_.shape.panel_bytes() / plan_.shape.k_padded();
  TileArgs t{.k = k_end - k,
             .c = c_ + (panel - task.panel_begin) * kPanelColumns,
             .ldc = ldc_,
             .accumulate = k > 0};
  const int64_t blocks = num_blocks(task);
  const std::byte* after = nullptr;
  if (p_.packed_b != nullptr) {
    after = panel_after(task, panel, k, k_end);
    t.b = p_.packed_b->panel(task.expert, panel) + k * bytes_per_k;
  } else {
    pack_panel(p_.b, plan_.shape, task.expert, panel, k, k_end, b_);
    t.b = b_;
  }
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = block_begin(task, i);
    const int64_t rows = block_begin(task, i + 1) - begin;
    TileArgs tile = t;
    tile.a = packed_block(begin) +
             k * plan_.micro->a_bytes_per_k * round_up(rows, plan_.micro->row_align);
    tile.prefetch = tile.a;  // a fetch of what is there costs least
    tile.c += begin * ldc_;
    if (fetches_row_parts(tile, i)) {
      multiply_in_slices(tile, task, static_cast<int>(rows), parts_after(task, panel, k, k_end),
                         i * kSlices);
      continue;
    }
    if (p_.packed_b == nullptr) {
      prefetch_unpacked(tile, task, panel, i);
    } else if (blocks == 1) {  // which reads its panel once
      if (rows >= plan_.fetch_rows) {
        tile.prefetch = tile.b + kStreamAhead;
        tile.prefetch_step = 2 * kLineBytes;
      }
      const bool continues = after == nullptr || after == t.b + tile.k * bytes_per_k;
      for (int64_t at = 0; !continues && at < kStreamAhead; at += kLineBytes)
        __builtin_prefetch(after + at, 0, 2);
    } else if (i < 2 && after != nullptr) {  // the others read this one from the cache
      tile.prefetch = after + i * kLineBytes * tile.k / 2;
      tile.prefetch_step = kLineBytes;
    }
    plan_.micro->tile(static_cast<int>(rows), tile);
  }
}

const float* GemmWorker::gather_bias(const GemmTask& task) {
  if (p_.bias.data == nullptr) return nullptr;
  for (int64_t i = 0; i < ldc_; ++i) {
    const int64_t row =
        plan_.shape.source_row(task.panel_begin + i / kPanelColumns, i % kPanelColumns);
    bias_[i] = 0.0f;
    if (row < 0) continue;
    const int64_t index = task.expert * p_.bias.expert_stride + row * p_.bias.n_stride;
    bias_[i] =
        static_cast<float>(load_element(p_.bias.dtype, static_cast<const std::byte*>(p_.bias.data) +
                                                           index * dtype_bytes(p_.bias.dtype)));
  }
  return bias_;
}

void GemmWorker::finish(const GemmTask& task) {
  const int64_t out_col = task.panel_begin * plan_.shape.outputs_per_panel();
  const int64_t out_end = task.panel_end * plan_.shape.outputs_per_panel();
  plan_.isa->finish({.c = c_,
                     .ldc = ldc_,
                     .num_rows = static_cast<int>(task.num_rows),
                     .bias = gather_bias(task),
                     .activation = p_.activation,
                     .num_outputs = std::min(out_end, plan_.output_end) - out_col,
                     .out = &p_.out,
                     .out_row = task.row_begin,
                     .out_col = out_col - p_.first_output});
}

}  // namespace tileops::cpu
