// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/text_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tileops/core/check.h"

namespace tileops {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  std::error_code unknown;
  const bool read = file.is_open() && !file.bad() && !std::filesystem::is_directory(path, unknown);
  TILEOPS_CHECK(ErrorKind::kIo, read, "{}: cannot be read", path);
  return text.str();
}

}  // namespace tileops
