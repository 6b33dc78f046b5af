// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/route_order.h"

#include <numeric>

#include "tileops/ops/moe/elements.h"

namespace tileops {

RouteOrder order_routes(const Tensor& topk_ids, int64_t num_experts) {
  const int64_t num_tokens = topk_ids.shape()[0], top_k = topk_ids.shape()[1];
  RouteOrder order;
  order.offsets.resize(static_cast<size_t>(num_experts) + 1);
  const auto for_each_kept = [&](auto&& visit) {
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t k = 0; k < top_k; ++k) {
        const int32_t id = int32_at(topk_ids, t, k);
        if (id >= 0 && id < num_experts) visit(static_cast<size_t>(id), t * top_k + k);
      }
    }
  };
  for_each_kept([&](size_t expert, int64_t) { ++order.offsets[expert + 1]; });
  std::partial_sum(order.offsets.begin(), order.offsets.end(), order.offsets.begin());
  order.routes.resize(static_cast<size_t>(order.offsets.back()));
  std::vector<int64_t> next(order.offsets.begin(), order.offsets.end() - 1);
  for_each_kept([&](size_t expert, int64_t route) {
    order.routes[static_cast<size_t>(next[expert]++)] = static_cast<int32_t>(route);
  });
  return order;
}

}  // namespace tileops
