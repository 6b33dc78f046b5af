// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/generators.h"

#include <fmt/format.h>

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

/// Calls store(i, value) with floats of one draw each.
template <class Draw>
void fill_floats(const Tensor& tensor, Draw&& draw) {
  const int64_t count = tensor.num_elements();
  switch (tensor.dtype()) {
    case DType::kF32:
      for (int64_t i = 0; i < count; ++i) tensor.data_as<float>()[i] = draw();
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) tensor.data_as<uint16_t>()[i] = f32_to_bf16(draw());
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) tensor.data_as<uint16_t>()[i] = f32_to_f16(draw());
      return;
    default: {
      const int64_t step = dtype_bytes(tensor.dtype());
      for (int64_t i = 0; i < count; ++i) {
        store_element(tensor.dtype(), tensor.data_as<std::byte>() + i * step, draw());
      }
    }
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
  Random random(input.seed, input.salt);
  fill_floats(input.tensor, [&] { return scale * random.normal(); });
}

void fill_uniform(const GeneratorInput& input) {
  const float low = real_arg(input.args[0]);
  const float high = real_arg(input.args[1]);
  Random random(input.seed, input.salt);
  fill_floats(input.tensor, [&] { return low + (high - low) * static_cast<float>(random.unit()); });
}

}  // namespace tileops::spec
