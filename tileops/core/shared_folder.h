// SPDX-License-Identifier: Apache-2.0
// Files that many processes share: written whole or not at all, by one writer at a time.
#pragma once

#include <string>
#include <string_view>

#include "tileops/core/file_descriptor.h"

namespace tileops {

/// The extension of files that are being written; a killed writer leaves one behind.
inline constexpr std::string_view kTemporaryExtension = ".tmp";

/// Writes a whole file under a temporary name in the same folder, then renames it, so that a reader
/// sees the former file or this one. Returns errno, 0 where it worked.
int write_file(const std::string& path, std::string_view content);

/// One process's right to a name within a folder: a lock of one byte of the folder's lock file,
/// which the system takes back when the holder dies. Waits for two minutes at most, since a holder
/// may be stopped; where the file system has no locks, all may go on.
class NameLock {
 public:
  NameLock(const std::string& folder, const std::string& name);

 private:
  FileDescriptor file_;  // closing it frees the lock
};

}  // namespace tileops
