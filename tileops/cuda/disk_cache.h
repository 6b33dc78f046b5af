// SPDX-License-Identifier: Apache-2.0
// Machine code kept on disk, shared by many processes.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "tileops/cuda/program.h"

namespace tileops::cuda {

/// Files are written under another name and then renamed, and carry a checksum: a reader sees a
/// whole file or none, and a damaged one counts as absent and is written anew. Of processes that
/// want the same program at once, one builds and the others wait for its file; a lock's holder that
/// dies frees it. A folder that cannot be written is told once, and then nothing is kept.
/// Thread safety: all members, also between processes.
class DiskCache {
 public:
  /// `folder` is made at the first write; empty: nothing is kept.
  explicit DiskCache(std::string folder);

  const std::string& folder() const { return folder_; }
  /// The entry of a key (a file name); none where absent or damaged.
  std::optional<Binary> load(const std::string& key) const;
  /// The entry, else `build`'s result, which is then stored. `built` tells which it was.
  /// Errors: what `build` throws; never a file error.
  Binary load_or_build(const std::string& key, const std::function<Binary()>& build, bool& built);

 private:
  void store(const std::string& key, const Binary& binary);
  bool make_folder();
  void warn_once(const std::string& reason);

  std::string folder_;
  std::atomic<bool> warned_ = false;
  std::atomic<bool> swept_ = false;  // of temporary files that killed writers left
};

}  // namespace tileops::cuda
