// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tileops/spec/random.h"

namespace tileops::spec {
namespace {

constexpr std::array kGenerators = {
    Generator{"normal", "normal(scale = 1)", 0, 1, fill_normal},
    Generator{"uniform", "uniform(low, high)", 2, 2, fill_uniform},
    Generator{"topk_ids", "topk_ids(num_experts, routing)", 2, 2, fill_topk_ids},
    Generator{"local_topk_ids", "local_topk_ids(num_local_experts, num_experts, routing)", 3, 3,
              fill_local_topk_ids},
    Generator{"topk_weights", "topk_weights()", 0, 0, fill_topk_weights},
    Generator{"grouped_metadata", "grouped_metadata(layout, num_experts, routes, routing)", 4, 4,
              fill_grouped_metadata},
    Generator{"inverse_indices", "inverse_indices(layout, num_experts, routes, routing)", 4, 4,
              fill_inverse_indices},
};

constexpr int64_t kChunk = 1 << 20;  // elements that a thread makes at a time

template <class Draw, class Store>
void fill_range(const Random& first, int64_t begin, int64_t end, const Draw& draw,
                const Store& store) {
  Random random = first;
  random.skip(begin);
  for (int64_t i = begin; i < end; ++i) store(i, draw(random));
}

/// Calls store(i, draw(random)) for every i, with one draw of `first`'s sequence each; on all cores.
template <class Draw, class Store>
void fill_all(const Random& first, int64_t count, const Draw& draw, const Store& store) {
  const int64_t num_chunks = (count + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (num_chunks > 1)
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    fill_range(first, chunk * kChunk, std::min(count, (chunk + 1) * kChunk), draw, store);
  }
}

template <class Draw>
void fill_floats(const Tensor& tensor, const Random& first, const Draw& draw) {
  const int64_t count = tensor.num_elements();
  auto* halves = tensor.data_as<uint16_t>();
  switch (tensor.dtype()) {
    case DType::kF32:
      return fill_all(first, count, draw,
                      [out = tensor.data_as<float>()](int64_t i, float x) { out[i] = x; });
    case DType::kBF16:
      return fill_all(first, count, draw,
                      [halves](int64_t i, float x) { halves[i] = f32_to_bf16(x); });
    case DType::kF16:
      return fill_all(first, count, draw,
                      [halves](int64_t i, float x) { halves[i] = f32_to_f16(x); });
    default:
      return fill_all(first, count, draw,
                      [dtype = tensor.dtype(), step = dtype_bytes(tensor.dtype()),
                       out = tensor.data_as<std::byte>()](int64_t i, float x) {
                        store_element(dtype, out + i * step, x);
                      });
  }
}

float real_arg(const Val& val) {
  if (!val.is_number()) throw EvalFailure("a generator needs a number here");
  return static_cast<float>(val.as_real());
}

}  // namespace

std::span<const Generator> generators() { return kGenerators; }

const Generator* find_generator(std::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return &generator;
  }
  return nullptr;
}

std::string generator_names() {
  std::string names;
  for (const Generator& generator : kGenerators) {
    names += (names.empty() ? "" : ", ") + std::string(generator.signature);
  }
  return names;
}

void fill_normal(const GeneratorInput& input) {
  const float scale = input.args.empty() ? 1.0f : real_arg(input.args[0]);
  fill_floats(input.tensor, Random(input.seed, input.salt),
              [scale](Random& random) { return scale * random.normal(); });
}

void fill_uniform(const GeneratorInput& input) {
  const float low = real_arg(input.args[0]);
  const float high = real_arg(input.args[1]);
  fill_floats(input.tensor, Random(input.seed, input.salt), [low, high](Random& random) {
    return low + (high - low) * static_cast<float>(random.unit());
  });
}

}  // namespace tileops::spec
