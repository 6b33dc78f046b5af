// SPDX-License-Identifier: Apache-2.0
// Generators of routing: top-k ids and weights, layout metadata, inverse indices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tileops/spec/generators.h"
#include "tileops/spec/random.h"

namespace tileops::spec {
namespace {

constexpr double kZipfExponent = 1.2;
constexpr int64_t kMaxDraws = int64_t{1} << 26;

int64_t int_arg(const GeneratorInput& input, size_t i) {
  if (input.args[i].kind != Val::Kind::kInt || input.args[i].integer < 0 ||
      input.args[i].integer > kMaxDraws) {
    throw EvalFailure(fmt::format("generator argument {} is no size up to {}", i + 1, kMaxDraws));
  }
  return input.args[i].integer;
}

std::string_view text_arg(const GeneratorInput& input, size_t i) {
  if (input.args[i].kind != Val::Kind::kString) {
    throw EvalFailure(fmt::format("generator argument {} is no word", i + 1));
  }
  return input.args[i].text();
}

/// Weights of the experts under a routing; who is popular is drawn, not always the first.
std::vector<double> expert_weights(int64_t num_experts, std::string_view routing, Random& random) {
  std::vector<int64_t> rank(static_cast<size_t>(num_experts));
  std::iota(rank.begin(), rank.end(), 0);
  for (int64_t i = num_experts - 1; i > 0; --i) {
    std::swap(rank[static_cast<size_t>(i)], rank[static_cast<size_t>(random.below(i + 1))]);
  }
  std::vector<double> weights(rank.size());
  for (size_t e = 0; e < rank.size(); ++e) {
    const auto r = static_cast<double>(rank[e]);
    if (routing == "uniform") {
      weights[e] = 1;
    } else if (routing == "skewed") {
      weights[e] = std::pow(r + 1, -kZipfExponent);
    } else if (routing == "one_expert") {
      weights[e] = rank[e] == 0 ? 1 : 0;
    } else if (routing == "some_empty") {
      weights[e] = 2 * rank[e] <= num_experts ? 1 : 0;
    } else {
      throw EvalFailure(fmt::format("there is no routing '{}'", routing));
    }
  }
  return weights;
}

/// The expert of each of `routes` routes.
std::vector<int32_t> draw_experts(const GeneratorInput& input, int64_t num_experts, int64_t routes,
                                  std::string_view routing) {
  if (num_experts == 0 && routes > 0) throw EvalFailure("routes without experts");
  Random random(input.seed);
  std::vector<double> bounds = expert_weights(num_experts, routing, random);
  std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
  std::vector<int32_t> experts(static_cast<size_t>(routes));
  for (int32_t& expert : experts) {
    const double at = random.unit() * bounds.back();
    const auto it = std::upper_bound(bounds.begin(), bounds.end(), at);
    expert = static_cast<int32_t>(std::min<int64_t>(it - bounds.begin(), num_experts - 1));
  }
  return experts;
}

struct Layout {
  bool masked = false;
  bool per_row = false;
  int64_t alignment = 1;
  int64_t max_m = 0;
};

Layout layout_arg(const GeneratorInput& input, size_t i) {
  const Val& val = input.args[i];
  if (val.kind != Val::Kind::kSum || val.sum->type != "MGroupedLayout") {
    throw EvalFailure(fmt::format("generator argument {} is no MGroupedLayout", i + 1));
  }
  Layout layout;
  layout.masked = val.sum->constructor == "masked";
  if (layout.masked) {
    layout.max_m = *val.sum->field("max_m")->as_int();
  } else {
    layout.alignment = *val.sum->field("alignment")->as_int();
    layout.per_row = *val.sum->field("metadata_kind")->as_string() == "per_row";
  }
  return layout;
}

int64_t align_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

/// Where the experts' rows stand: [begin, end) of expert e, as rows of the whole.
struct Segments {
  std::vector<int64_t> begin, end;
};

Segments segments_of(const Layout& layout, const std::vector<int64_t>& counts) {
  Segments segments;
  int64_t at = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    const int64_t begin =
        layout.masked ? static_cast<int64_t>(e) * layout.max_m : align_up(at, layout.alignment);
    const int64_t rows = layout.masked ? std::min(counts[e], layout.max_m) : counts[e];
    at = begin + rows;
    segments.begin.push_back(begin);
    segments.end.push_back(at);
  }
  return segments;
}

std::vector<int64_t> count_experts(const std::vector<int32_t>& experts, int64_t num_experts) {
  std::vector<int64_t> counts(static_cast<size_t>(num_experts));
  for (int32_t expert : experts) ++counts[static_cast<size_t>(expert)];
  return counts;
}

int32_t* int32_data(const Tensor& tensor) {
  if (tensor.dtype() != DType::kI32) throw EvalFailure("this generator makes int32");
  return tensor.data_as<int32_t>();
}

/// Distinct ids of each token, in [0, num_experts).
void draw_topk_ids(const GeneratorInput& input, int64_t num_experts, std::string_view routing) {
  const Tensor& ids = input.tensor;
  if (ids.rank() != 2 || ids.size(1) > num_experts) throw EvalFailure("ids are [T, K], K <= E");
  int32_t* out = int32_data(ids);
  Random random(input.seed);
  const std::vector<double> weights = expert_weights(num_experts, routing, random);
  const auto top_k = static_cast<size_t>(ids.size(1));
  std::vector<std::pair<double, int32_t>> scores(weights.size());
  for (int64_t t = 0; t < ids.size(0); ++t) {
    for (size_t e = 0; e < weights.size(); ++e) {  // the Gumbel trick: sampling without replacement
      const double gumbel = -std::log(-std::log(random.unit() + 1e-300) + 1e-300);
      scores[e] = {-(std::log(weights[e] + 1e-12) + gumbel), static_cast<int32_t>(e)};
    }
    std::partial_sort(scores.begin(), scores.begin() + static_cast<int64_t>(top_k), scores.end());
    for (size_t k = 0; k < top_k; ++k) *out++ = scores[k].second;
  }
}

}  // namespace

void fill_topk_ids(const GeneratorInput& input) {
  draw_topk_ids(input, int_arg(input, 0), text_arg(input, 1));
}

void fill_local_topk_ids(const GeneratorInput& input) {
  const int64_t num_local_experts = int_arg(input, 0);
  draw_topk_ids(input, int_arg(input, 1), text_arg(input, 2));
  int32_t* ids = int32_data(input.tensor);
  for (int64_t i = 0; i < input.tensor.num_elements(); ++i) {
    if (ids[i] >= num_local_experts) ids[i] = -1;
  }
}

void fill_topk_weights(const GeneratorInput& input) {
  const Tensor& weights = input.tensor;
  if (weights.rank() != 2) throw EvalFailure("weights are [T, K]");
  Random random(input.seed, input.salt);
  const int64_t step = dtype_bytes(weights.dtype());
  std::vector<double> row(static_cast<size_t>(weights.size(1)));
  for (int64_t t = 0; t < weights.size(0); ++t) {
    for (double& weight : row) weight = 0.05 + random.unit();
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < row.size(); ++k) {
      const int64_t at = t * weights.size(1) + static_cast<int64_t>(k);
      store_element(weights.dtype(), weights.data_as<std::byte>() + at * step, row[k] / total);
    }
  }
}

void fill_grouped_metadata(const GeneratorInput& input) {
  const Layout layout = layout_arg(input, 0);
  const int64_t num_experts = int_arg(input, 1);
  const auto experts = draw_experts(input, num_experts, int_arg(input, 2), text_arg(input, 3));
  const Segments segments = segments_of(layout, count_experts(experts, num_experts));
  int32_t* out = int32_data(input.tensor);
  const int64_t rows = input.tensor.num_elements();
  if (!layout.per_row) {
    if (rows != num_experts) throw EvalFailure("this metadata is [E]");
    for (size_t e = 0; e < segments.end.size(); ++e) {
      const int64_t value = layout.masked ? segments.end[e] - segments.begin[e] : segments.end[e];
      out[e] = static_cast<int32_t>(value);
    }
    return;
  }
  std::fill(out, out + rows, static_cast<int32_t>(num_experts));
  for (size_t e = 0; e < segments.end.size(); ++e) {
    if (segments.end[e] == segments.begin[e]) continue;
    const int64_t end = align_up(segments.end[e], layout.alignment);
    if (end > rows) throw EvalFailure(fmt::format("{} rows hold no segment end {}", rows, end));
    std::fill(out + segments.begin[e], out + end, static_cast<int32_t>(e));
  }
}

void fill_inverse_indices(const GeneratorInput& input) {
  const Layout layout = layout_arg(input, 0);
  const int64_t num_experts = int_arg(input, 1);
  const auto experts = draw_experts(input, num_experts, int_arg(input, 2), text_arg(input, 3));
  if (static_cast<int64_t>(experts.size()) != input.tensor.num_elements()) {
    throw EvalFailure("inverse indices are one a route");
  }
  Segments next = segments_of(layout, count_experts(experts, num_experts));
  int32_t* out = int32_data(input.tensor);
  for (int32_t expert : experts) {
    const auto e = static_cast<size_t>(expert);
    *out++ = next.begin[e] < next.end[e] ? static_cast<int32_t>(next.begin[e]++) : -1;
  }
}

}  // namespace tileops::spec
