// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors image, checked whole. Private to the reader.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/dtype.h"
#include "tileops/core/shape.h"

namespace tileops::safetensors {

struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;  // byte offsets into the data
  uint64_t end = 0;
};

struct Header {
  size_t data_offset = 0;      // where the data begins in the image
  std::vector<Entry> entries;  // in the header's order
  std::map<std::string, std::string> metadata;
};

/// The format's name of a dtype, such as "BF16" or "F8_E4M3".
std::string_view format_dtype_name(DType dtype);

/// A name from a file, fit for a line of text: control characters escaped, a long one cut
/// between characters.
std::string printable(std::string_view name);

/// Errors: kIo, "SOURCE: tensor NAME: fault".
Header parse_header(std::string_view image, const std::string& source);

}  // namespace tileops::safetensors
