// SPDX-License-Identifier: Apache-2.0
// MGroupedLayout: how the rows of all experts are arranged, and what the metadata says of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tileops/core/tensor.h"
#include "tileops/core/value.h"

namespace tileops {

/// The arrangement of P rows by expert (the spec's sum type of the same name).
///   contiguous, physical_psum: rows [P, C]; metadata [E]: end row of each expert's valid rows;
///     segment e starts at psum[e-1] rounded up to `alignment`.
///   contiguous, per_row: rows [P, C]; metadata [P]: expert of each row; outside [0, E) is padding.
///   masked: rows [E, max_m, C]; metadata [E]: valid rows of each expert.
class MGroupedLayout {
 public:
  enum class Kind : uint8_t { kContiguous, kMasked };
  enum class MetadataKind : uint8_t { kPhysicalPsum, kPerRow };

  static MGroupedLayout contiguous() { return tight_physical_psum(); }
  static MGroupedLayout tight_physical_psum() {
    return {Kind::kContiguous, MetadataKind::kPhysicalPsum, 1, 0};
  }
  static MGroupedLayout tight_per_row() { return {Kind::kContiguous, MetadataKind::kPerRow, 1, 0}; }
  static MGroupedLayout aligned_physical_psum(int64_t alignment) {
    return {Kind::kContiguous, MetadataKind::kPhysicalPsum, alignment, 0};
  }
  static MGroupedLayout aligned_per_row(int64_t alignment) {
    return {Kind::kContiguous, MetadataKind::kPerRow, alignment, 0};
  }
  static MGroupedLayout masked(int64_t max_m) {
    return {Kind::kMasked, MetadataKind::kPhysicalPsum, 1, max_m};
  }

  Kind kind() const { return kind_; }
  bool is_masked() const { return kind_ == Kind::kMasked; }
  bool is_per_row() const {
    return kind_ == Kind::kContiguous && metadata_kind_ == MetadataKind::kPerRow;
  }
  MetadataKind metadata_kind() const { return metadata_kind_; }
  int64_t alignment() const { return alignment_; }
  int64_t max_m() const { return max_m_; }
  bool operator==(const MGroupedLayout&) const = default;
  size_t hash() const {
    return hash_of(static_cast<int>(kind_), static_cast<int>(metadata_kind_), alignment_, max_m_);
  }

  /// The spec's value and back. Errors: kType for a value of another type.
  Value to_value() const;
  static MGroupedLayout from_value(const Value& value);

 private:
  MGroupedLayout(Kind kind, MetadataKind metadata_kind, int64_t alignment, int64_t max_m)
      : kind_(kind), metadata_kind_(metadata_kind), alignment_(alignment), max_m_(max_m) {}

  Kind kind_;
  MetadataKind metadata_kind_;
  int64_t alignment_;
  int64_t max_m_;
};

/// Valid rows [row_begin, row_begin + num_rows) of one expert, in the flat [P] or [E * max_m] rows.
struct ExpertRows {
  int32_t expert = 0;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
};

/// The non-empty runs of valid rows that CPU metadata describes, in row order. Metadata that breaks
/// the layout's rules never leads outside [0, num_rows): what lies outside is left out.
std::vector<ExpertRows> expert_rows(const MGroupedLayout& layout, const Tensor& layout_metadata,
                                    int64_t num_experts, int64_t num_rows);

/// A tensor's rows as a matrix [rows, columns]: [P, C] as it is, [E, max_m, C] flattened.
/// Elements in strides; `expert_stride` differs from max_m * row_stride where E is strided.
struct RowMatrix {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  int64_t rows_per_slab = 0;  // max_m, or all rows
  int64_t slab_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
  /// Offset of a row in elements.
  int64_t offset(int64_t row) const {
    return rows_per_slab == 0
               ? 0
               : row / rows_per_slab * slab_stride + row % rows_per_slab * row_stride;
  }
  /// Whether every row lies one row stride after the one before it, slabs too.
  bool is_flat() const {
    return num_rows <= rows_per_slab || slab_stride == rows_per_slab * row_stride;
  }
};
RowMatrix row_matrix(const MGroupedLayout& layout, const Tensor& tensor);

}  // namespace tileops
