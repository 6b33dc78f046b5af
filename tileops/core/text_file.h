// SPDX-License-Identifier: Apache-2.0
// Whole files as text.
#pragma once

#include <string>

namespace tileops {

/// The bytes of a file. Errors: kIo, naming the path.
std::string read_text(const std::string& path);

}  // namespace tileops
