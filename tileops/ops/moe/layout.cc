// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/layout.h"

#include <algorithm>

#include "tileops/core/check.h"

namespace tileops {
namespace {

constexpr const char* kTypeName = "MGroupedLayout";

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Element i of a [n] int32 tensor on the CPU.
int64_t metadata_at(const Tensor& metadata, int64_t i) {
  return metadata.data_as<int32_t>()[i * metadata.strides()[0]];
}

std::vector<ExpertRows> rows_of_psum(const MGroupedLayout& layout, const Tensor& metadata,
                                     int64_t num_experts, int64_t num_rows) {
  std::vector<ExpertRows> rows;
  int64_t begin = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t end = std::clamp<int64_t>(metadata_at(metadata, e), 0, num_rows);
    if (end > begin) rows.push_back({static_cast<int32_t>(e), begin, end - begin});
    begin = round_up(std::max(begin, end), layout.alignment());
  }
  return rows;
}

std::vector<ExpertRows> rows_of_ids(const Tensor& metadata, int64_t num_experts, int64_t num_rows) {
  std::vector<ExpertRows> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t expert = metadata_at(metadata, row);
    if (expert < 0 || expert >= num_experts) continue;
    const bool continues = !rows.empty() && rows.back().expert == expert &&
                           rows.back().row_begin + rows.back().num_rows == row;
    if (continues)
      ++rows.back().num_rows;
    else
      rows.push_back({static_cast<int32_t>(expert), row, 1});
  }
  return rows;
}

std::vector<ExpertRows> rows_of_counts(int64_t max_m, const Tensor& metadata, int64_t num_experts) {
  std::vector<ExpertRows> rows;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t count = std::clamp<int64_t>(metadata_at(metadata, e), 0, max_m);
    if (count > 0) rows.push_back({static_cast<int32_t>(e), e * max_m, count});
  }
  return rows;
}

const Value& field(const SumValue& sum, std::string_view name) {
  const Value* value = sum.field(name);
  TILEOPS_CHECK(ErrorKind::kType, value != nullptr, "{}: {} has no field {}", kTypeName,
                sum.constructor, name);
  return *value;
}

int64_t int_field(const SumValue& sum, std::string_view name) {
  const Value& value = field(sum, name);
  TILEOPS_CHECK(ErrorKind::kType, value.as_int() != nullptr,
                "{}: field {} must be an integer, got {}", kTypeName, name, to_string(value));
  return *value.as_int();
}

}  // namespace

Value MGroupedLayout::to_value() const {
  if (is_masked()) return SumValue{kTypeName, "masked", {{"max_m", max_m_}}};
  return SumValue{kTypeName,
                  "contiguous",
                  {{"packing", alignment_ == 1 ? "tight" : "aligned"},
                   {"metadata_kind", is_per_row() ? "per_row" : "physical_psum"},
                   {"alignment", alignment_}}};
}

MGroupedLayout MGroupedLayout::from_value(const Value& value) {
  const SumValue* sum = value.as_sum();
  TILEOPS_CHECK(ErrorKind::kType, sum != nullptr && sum->type == kTypeName, "expected a {}, got {}",
                kTypeName, to_string(value));
  if (sum->constructor == "masked") return masked(int_field(*sum, "max_m"));
  const bool per_row = field(*sum, "metadata_kind") == Value("per_row");
  return {Kind::kContiguous, per_row ? MetadataKind::kPerRow : MetadataKind::kPhysicalPsum,
          int_field(*sum, "alignment"), 0};
}

std::vector<ExpertRows> expert_rows(const MGroupedLayout& layout, const Tensor& layout_metadata,
                                    int64_t num_experts, int64_t num_rows) {
  if (num_rows == 0) return {};
  if (layout.is_masked()) return rows_of_counts(layout.max_m(), layout_metadata, num_experts);
  if (layout.is_per_row()) return rows_of_ids(layout_metadata, num_experts, num_rows);
  return rows_of_psum(layout, layout_metadata, num_experts, num_rows);
}

RowMatrix row_matrix(const MGroupedLayout& layout, const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  const Strides& strides = tensor.strides();
  if (!layout.is_masked()) {
    return {shape[0], shape[1], std::max<int64_t>(shape[0], 1), 0, strides[0], strides[1]};
  }
  return {shape[0] * shape[1], shape[2],   std::max<int64_t>(shape[1], 1),
          strides[0],          strides[1], strides[2]};
}

}  // namespace tileops
