// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/binary_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

namespace tileops::cuda {
namespace {

constexpr std::string_view kMark = "tileops kernel 1\n";
constexpr size_t kHashBytes = 32;

void append(std::string& file, std::string_view field) {
  const uint64_t bytes = field.size();
  file.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  file.append(field);
}

/// Takes fields off the front of a file; none where it ends too early.
std::optional<std::string_view> take(std::string_view& file) {
  uint64_t bytes = 0;
  if (file.size() < sizeof(bytes)) return std::nullopt;
  std::memcpy(&bytes, file.data(), sizeof(bytes));
  file.remove_prefix(sizeof(bytes));
  if (bytes > file.size()) return std::nullopt;
  const std::string_view field = file.substr(0, bytes);
  file.remove_prefix(bytes);
  return field;
}

}  // namespace

std::string content_hash(std::string_view content) {
  const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string encode_binary(const std::string& key, const Binary& binary) {
  std::string payload;
  append(payload, key);
  append(payload, {reinterpret_cast<const char*>(binary.cubin.data()), binary.cubin.size()});
  for (const std::string& symbol : binary.symbols) append(payload, symbol);
  return std::string(kMark) + content_hash(payload) + payload;
}

std::optional<Binary> decode_binary(const std::string& key, std::string_view file) {
  if (!file.starts_with(kMark) || file.size() < kMark.size() + kHashBytes) return std::nullopt;
  file.remove_prefix(kMark.size());
  const std::string_view checksum = file.substr(0, kHashBytes);
  file.remove_prefix(kHashBytes);
  if (content_hash(file) != checksum || take(file) != key) return std::nullopt;

  Binary binary;
  const auto cubin = take(file);
  if (!cubin) return std::nullopt;
  const auto* first = reinterpret_cast<const std::byte*>(cubin->data());
  binary.cubin.assign(first, first + cubin->size());
  while (!file.empty()) {
    const auto symbol = take(file);
    if (!symbol) return std::nullopt;
    binary.symbols.emplace_back(*symbol);
  }
  return binary;
}

}  // namespace tileops::cuda
