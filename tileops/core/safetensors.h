// SPDX-License-Identifier: Apache-2.0
// Reading and writing safetensors files (format: huggingface/safetensors, README "Format").
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tileops/core/tensor.h"

namespace tileops {

/// A safetensors file, mapped; its tensors view the mapping and keep it alive (one whose data is
/// not aligned to its dtype is a copy). Writing to a tensor never changes the file. The file must
/// not shrink while it is mapped. Thread safety: const members may be called from several threads.
class SafetensorsFile {
 public:
  /// Maps the file and checks its header whole: size limits, JSON, offsets in range, no overlap, no
  /// hole, sizes that agree with shape and dtype. Errors: kIo, naming file, tensor and fault.
  static SafetensorsFile open(const std::string& path);

  /// Names in the header's order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// The tensor, without a copy. Errors: kIo naming the file and what it holds.
  Tensor tensor(const std::string& name) const;
  /// The header's __metadata__ (empty where absent).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> names_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Checks and reads a file image that is in memory already; `owner` keeps `data` alive.
std::map<std::string, Tensor> parse_safetensors(
    const void* data, size_t bytes, const std::string& source,
    const std::shared_ptr<const void>& owner,
    std::map<std::string, std::string>* metadata = nullptr);

/// Writes contiguous copies of CPU tensors, replacing `path` atomically. The header lists them in
/// the given order; their data lies widest dtype first, so that all of it is aligned.
/// Errors: kIo, kDevice, kValue (an absent tensor, a name that is double, reserved or not UTF-8).
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tileops
