// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tileops/core/cache_folder.h"

namespace tileops::testing {

/// While it lives, the cache folder is a fresh one: tables and kernels of nobody else. Each has a
/// path of its own, since a process reads a table once.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& name) : former_(cache_folder()) {
    static int turn = 0;
    path_ = ::testing::TempDir() + "tileops_" + name + "_" + std::to_string(++turn);
    std::filesystem::remove_all(path_);
    setenv("TILEOPS_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheFolder() {
    std::filesystem::remove_all(path_);
    setenv("TILEOPS_CACHE_DIR", former_.c_str(), 1);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string former_, path_;
};

}  // namespace tileops::testing
