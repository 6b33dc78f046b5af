// SPDX-License-Identifier: Apache-2.0
// How a binary lies in a file. Private to the disk cache and its test.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tileops/cuda/program.h"

namespace tileops::cuda {

/// 128 bits of content hash (XXH3) as 32 hexadecimal digits.
std::string content_hash(std::string_view content);

/// The file of an entry: a mark, a checksum over all that follows, the key, the symbols, the code.
std::string encode_binary(const std::string& key, const Binary& binary);
/// The entry; none where the file is damaged, cut, of another format or another key.
std::optional<Binary> decode_binary(const std::string& key, std::string_view file);

}  // namespace tileops::cuda
