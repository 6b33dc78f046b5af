// SPDX-License-Identifier: Apache-2.0
#include "tileops/checkpoint/copies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tileops/cpu/parallel.h"

namespace tileops::checkpoint {
namespace {

constexpr int64_t kBytesOfATask = 1 << 20;
constexpr int64_t kTile = 32;  // rows and columns of a transposed tile: it stays in the L1 cache

int64_t num_bytes(const Tensor& tensor) {
  return tensor.num_elements() * dtype_bytes(tensor.dtype());
}

void copy_contiguous(const Copy& copy) {
  const auto* from = copy.source.data_as<std::byte>();
  auto* to = copy.destination.data_as<std::byte>();
  cpu::parallel_for(num_bytes(copy.source), kBytesOfATask, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void copy_transposed(const Copy& copy) {
  const int64_t rows = copy.destination.size(0), columns = copy.destination.size(1);
  const auto* from = copy.source.data_as<uint16_t>();  // column c of the destination at c * rows
  auto* to = copy.destination.data_as<uint16_t>();
  cpu::parallel_for(rows, kTile, [&](int64_t begin, int64_t end) {
    for (int64_t column = 0; column < columns; column += kTile) {
      const int64_t last = std::min(column + kTile, columns);
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = column; c < last; ++c) to[r * columns + c] = from[c * rows + r];
      }
    }
  });
}

}  // namespace

void run_copies(const std::vector<Copy>& copies,
                const std::function<void(const LoadProgress&)>& progress) {
  LoadProgress state;
  for (const Copy& copy : copies) state.total_bytes += num_bytes(copy.source);
  for (const Copy& copy : copies) {
    copy.source.is_contiguous() ? copy_contiguous(copy) : copy_transposed(copy);
    state.done_bytes += num_bytes(copy.source);
    if (progress) progress(state);
  }
}

}  // namespace tileops::checkpoint
