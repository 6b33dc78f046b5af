// SPDX-License-Identifier: Apache-2.0
// What the subcommands print: results on standard output, progress on a terminal's standard error.
#pragma once

#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/core/value.h"

namespace tileops::tools {

/// Prints text as it is.
void print(std::string_view text);

/// Says what is being done, until the next one; nothing where standard error is no terminal.
void progress(std::string_view text);
void clear_progress();

/// "bfloat16[8, 4096]".
std::string facts_text(const Tensor& tensor);

}  // namespace tileops::tools
