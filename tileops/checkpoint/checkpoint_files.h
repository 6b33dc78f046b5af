// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint folder, wherever its files hold them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "tileops/core/safetensors.h"

namespace tileops::checkpoint {

/// What a tensor of a checkpoint must be.
struct Expected {
  Shape shape;
  std::span<const DType> dtypes;  // any of them
};

/// A folder with model.safetensors, or with shards and model.safetensors.index.json. A shard is
/// mapped when a tensor of it is first asked for. Not thread safe.
class CheckpointFiles {
 public:
  /// Errors: kIo (neither file, one that is malformed).
  static CheckpointFiles open(const std::string& dir);

  /// Every tensor's name, with the path of the file that holds it.
  const std::map<std::string, std::string>& files() const { return files_; }
  bool contains(const std::string& name) const { return files_.contains(name); }
  /// The file that lists the tensors.
  const std::string& list() const { return list_; }

  /// A view of the mapped file. Errors: kIo, "FILE: tensor NAME: expected …, found …" and the note.
  Tensor tensor(const std::string& name, const Expected& expected, std::string_view note);
  /// What the tensor is: "float32[8, 40]". Errors: kIo.
  std::string facts(const std::string& name);

 private:
  const Tensor& mapped(const std::string& name);

  std::string list_;
  std::map<std::string, std::string> files_;
  std::map<std::string, SafetensorsFile> open_;  // by path
  std::map<std::string, Tensor> tensors_;
};

/// "bfloat16 or float16[8, 40]".
std::string to_string(const Expected& expected);

}  // namespace tileops::checkpoint
