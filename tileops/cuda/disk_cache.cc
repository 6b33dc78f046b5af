// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tileops/core/file_descriptor.h"
#include "tileops/core/log.h"
#include "tileops/cuda/binary_format.h"

namespace tileops::cuda {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLockWait = 120s;  // then build without the lock: its holder may be stopped
constexpr auto kLockPoll = 5ms;
constexpr auto kStaleAfter = std::chrono::hours(24);
constexpr std::string_view kTemporary = ".tmp";

fs::path file_of(const std::string& folder, const std::string& key) {
  return fs::path(folder) / (key + ".kernel");
}

/// One process's right to build a key: a lock of one byte of the folder's lock file, which the
/// system takes back when the holder dies. Where the file system has no locks, all may build.
class BuildLock {
 public:
  BuildLock(const std::string& folder, const std::string& key)
      : file_(::open((fs::path(folder) / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(std::hash<std::string>()(key) >> 2);
    range.l_len = 1;
    const auto give_up = std::chrono::steady_clock::now() + kLockWait;
    while (file_.is_open() && ::fcntl(file_.get(), F_OFD_SETLK, &range) != 0) {
      const bool held = errno == EAGAIN || errno == EACCES;
      if (!held || std::chrono::steady_clock::now() > give_up) return;
      std::this_thread::sleep_for(kLockPoll);
    }
  }

 private:
  FileDescriptor file_;  // closing it frees the lock
};

/// Removes what killed writers left behind.
void remove_stale_files(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != kTemporary) continue;
    std::error_code ignored;
    const auto written = fs::last_write_time(it->path(), ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > kStaleAfter) {
      fs::remove(it->path(), ignored);
    }
  }
}

/// Writes a whole file under a temporary name, then renames it. Returns errno, 0 where it worked.
int write_file(const fs::path& path, const std::string& content) {
  std::string temporary = path.string() + "." + "XXXXXX" + std::string(kTemporary);
  const FileDescriptor file(::mkstemps(temporary.data(), static_cast<int>(kTemporary.size())));
  if (!file.is_open()) return errno;
  size_t written = 0;
  int failure = 0;
  while (failure == 0 && written < content.size()) {
    const ssize_t n = ::write(file.get(), content.data() + written, content.size() - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      failure = errno;
    }
  }
  if (failure == 0 && ::fchmod(file.get(), 0644) != 0) failure = errno;
  if (failure == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) failure = errno;
  if (failure != 0) ::unlink(temporary.c_str());
  return failure;
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
  const BuildLock lock(folder_, key);
  if (std::optional<Binary> found = load(key)) return std::move(*found);
  built = true;
  Binary binary = build();
  store(key, binary);
  return binary;
}

void DiskCache::store(const std::string& key, const Binary& binary) {
  const int failure = write_file(file_of(folder_, key), encode_binary(key, binary));
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

std::string default_cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (std::string folder = variable("TILEOPS_CACHE_DIR"); !folder.empty()) return folder;
  if (std::string base = variable("XDG_CACHE_HOME"); !base.empty()) return base + "/tileops";
  if (std::string home = variable("HOME"); !home.empty()) return home + "/.cache/tileops";
  return {};
}

}  // namespace tileops::cuda
