// SPDX-License-Identifier: Apache-2.0
// How an expert's token rows are cut into tiles.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::device {

constexpr int kRowStep = 16;  // token rows are cut, loaded and multiplied in steps of so many

/// As few tiles of at most `kTileRows` rows as will do, as even as steps allow: where they are not,
/// the first ones are a step longer. For up to 2^31 - 1 rows.
template <int kTileRows>
struct RowTiling {
  static_assert(kTileRows % kRowStep == 0);

  uint32_t num_rows;

  TILEOPS_DEVICE constexpr uint32_t num_tiles() const {
    return (num_rows + kTileRows - 1) / kTileRows;
  }
  /// Of tile `tile`; of num_tiles(), the end.
  TILEOPS_DEVICE constexpr uint32_t first_row(uint32_t tile) const {
    const uint32_t num_steps = (num_rows + kRowStep - 1) / kRowStep;
    const uint32_t longer = num_steps % num_tiles();
    const uint32_t steps = num_steps / num_tiles() * tile + (tile < longer ? tile : longer);
    return steps * kRowStep < num_rows ? steps * kRowStep : num_rows;
  }
};

}  // namespace tileops::device
