// SPDX-License-Identifier: Apache-2.0
// Private to tileops/cpu: the tasks of a grouped product, and what a thread does with one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tileops/cpu/kernels.h"

namespace tileops::cpu {

inline int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
inline int64_t round_up(int64_t x, int64_t step) { return ceil_div(x, step) * step; }

/// Some rows of a segment times some panels of its expert.
struct GemmTask {
  int64_t row_begin = 0, num_rows = 0;
  int64_t panel_begin = 0, panel_end = 0;
  int32_t expert = 0;
  bool streams = false;
  const std::byte* next_panel = nullptr;  // packed, of the task after this one
};

struct ScratchLayout {  // of one thread's scratch, in bytes
  int64_t a = 0, c = 0, b = 0, bias = 0, columns = 0, total = 0;
};

struct GemmPlan {
  const IsaKernels* isa = nullptr;
  const MicroKernel* micro = nullptr;
  PackedShape shape;
  int threads = 1;
  int64_t stream_rows = 0;  // segments of at most so many rows stream unpacked weights
  int64_t panel_begin = 0, panel_end = 0, output_end = 0;  // of what is computed
  int64_t rows_per_task = 0, panels_per_task = 1;
  int64_t fetch_rows = 1;  // from so many rows on, packed panels are fetched by software
  int64_t max_rows = 0;    // of any task, padded to the inner loop's blocks
  ScratchLayout layout;
};

/// One thread's scratch and the rows packed there last, which its next task often shares.
class GemmWorker {
 public:
  GemmWorker(const GroupedGemm& problem, const GemmPlan& plan, std::byte* scratch);

  void run(const GemmTask& task);

 private:
  int64_t num_blocks(const GemmTask& task) const;
  int64_t block_begin(const GemmTask& task, int64_t block) const;
  std::byte* packed_block(int64_t row) const;
  const std::byte* weight_row(const GemmTask& task, int64_t panel, int64_t column) const;
  int64_t k_chunk(const GemmTask& task) const;

  void pack_rows(const GemmTask& task);
  void stream(const GemmTask& task);
  void multiply(const GemmTask& task);
  void multiply_panel(const GemmTask& task, int64_t panel, int64_t k, int64_t k_end);
  const std::byte* panel_after(const GemmTask& task, int64_t panel, int64_t k, int64_t k_end) const;
  void prefetch_unpacked(TileArgs& tile, const GemmTask& task, int64_t panel, int64_t block) const;
  /// Of the rows of a panel, from element k on.
  struct RowParts {
    int64_t panel;
    int64_t k;
  };
  bool fetches_row_parts(const TileArgs& tile, int64_t block) const;
  RowParts parts_after(const GemmTask& task, int64_t panel, int64_t k, int64_t k_end) const;
  void multiply_in_slices(TileArgs tile, const GemmTask& task, int rows, const RowParts& parts,
                          int64_t column) const;
  const float* gather_bias(const GemmTask& task);
  void finish(const GemmTask& task);

  const GroupedGemm& p_;
  const GemmPlan& plan_;
  std::byte* a_;
  float* c_;
  std::byte* b_;
  float* bias_;
  const std::byte** columns_;
  int64_t ldc_ = 0;
  int64_t packed_row_ = -1, packed_rows_ = -1;
};

}  // namespace tileops::cpu
