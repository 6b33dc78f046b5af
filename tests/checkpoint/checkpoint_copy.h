// SPDX-License-Identifier: Apache-2.0
// The checkpoints of the tests, and copies of them with something changed.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tileops/core/tensor.h"

namespace tileops::testing {

/// Folder of a checkpoint of tests/checkpoint/data.
std::string checkpoint_dir(const std::string& name);

/// A folder of its own that goes with this object; tensors as change them and write() them.
class CheckpointCopy {
 public:
  explicit CheckpointCopy(const std::string& name);
  ~CheckpointCopy();
  CheckpointCopy(const CheckpointCopy&) = delete;
  CheckpointCopy& operator=(const CheckpointCopy&) = delete;

  std::map<std::string, Tensor> tensors;  // of all shards
  /// Writes them as model.safetensors, in place of what there was.
  void write() const;

  /// Sets a key of config.json to a JSON value; "" removes it.
  void set_config(const std::string& key, const std::string& json) const;
  /// Replaces a file's contents.
  void set_file(const std::string& file, const std::string& text) const;
  void remove(const std::string& file) const { std::filesystem::remove(dir_ / file); }
  std::string dir() const { return dir_.string(); }

 private:
  std::filesystem::path dir_;
};

}  // namespace tileops::testing
