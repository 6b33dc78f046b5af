// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/disk_cache.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tileops/core/log.h"
#include "tileops/core/shared_folder.h"
#include "tileops/cuda/binary_format.h"

namespace tileops::cuda {
namespace {

namespace fs = std::filesystem;

constexpr auto kStaleAfter = std::chrono::hours(24);

fs::path file_of(const std::string& folder, const std::string& key) {
  return fs::path(folder) / (key + ".kernel");
}

/// Removes what killed writers left behind.
void remove_stale_files(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != kTemporaryExtension) continue;
    std::error_code ignored;
    const auto written = fs::last_write_time(it->path(), ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > kStaleAfter) {
      fs::remove(it->path(), ignored);
    }
  }
}

}  // namespace

DiskCache::DiskCache(std::string folder) : folder_(std::move(folder)) {}

std::optional<Binary> DiskCache::load(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path path = file_of(folder_, key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  std::optional<Binary> binary = decode_binary(key, content);
  if (!binary && log_on(Log::kBuild)) {
    log_line(Log::kBuild, fmt::format("{} is damaged: it is built anew", path.string()));
  }
  return binary;
}

Binary DiskCache::load_or_build(const std::string& key, const std::function<Binary()>& build,
                                bool& built) {
  built = false;
  if (std::optional<Binary> found = load(key)) return std::move(*found);
  if (folder_.empty() || !make_folder()) {
    built = true;
    return build();
  }
  const NameLock lock(folder_, key);
  if (std::optional<Binary> found = load(key)) return std::move(*found);
  built = true;
  Binary binary = build();
  store(key, binary);
  return binary;
}

void DiskCache::store(const std::string& key, const Binary& binary) {
  const int failure = write_file(file_of(folder_, key).string(), encode_binary(key, binary));
  if (failure != 0) {
    warn_once(std::strerror(failure));
  } else if (!swept_.exchange(true)) {
    remove_stale_files(folder_);
  }
}

bool DiskCache::make_folder() {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) warn_once(error.message());
  return !error;
}

void DiskCache::warn_once(const std::string& reason) {
  if (warned_.exchange(true)) return;
  warn(
      fmt::format("kernels cannot be kept in {} ({}), so that each process builds its own, about "
                  "1 s each; name a folder that can be written with TILEOPS_CACHE_DIR",
                  folder_, reason));
}

}  // namespace tileops::cuda
