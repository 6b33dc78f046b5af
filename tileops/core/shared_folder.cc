// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/shared_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

namespace tileops {
namespace {

using namespace std::chrono_literals;

constexpr auto kLockWait = 120s;
constexpr auto kLockPoll = 5ms;

}  // namespace

int write_file(const std::string& path, std::string_view content) {
  std::string temporary = path + ".XXXXXX" + std::string(kTemporaryExtension);
  const FileDescriptor file(
      ::mkstemps(temporary.data(), static_cast<int>(kTemporaryExtension.size())));
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

NameLock::NameLock(const std::string& folder, const std::string& name)
    : file_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(std::hash<std::string>()(name) >> 2);
  range.l_len = 1;
  const auto give_up = std::chrono::steady_clock::now() + kLockWait;
  while (file_.is_open() && ::fcntl(file_.get(), F_OFD_SETLK, &range) != 0) {
    const bool held = errno == EAGAIN || errno == EACCES;
    if (!held || std::chrono::steady_clock::now() > give_up) return;
    std::this_thread::sleep_for(kLockPoll);
  }
}

}  // namespace tileops
