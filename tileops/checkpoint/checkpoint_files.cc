// SPDX-License-Identifier: Apache-2.0
#include "tileops/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>

#include "tileops/checkpoint/json_object.h"
#include "tileops/core/check.h"

namespace tileops::checkpoint {
namespace {

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string facts_text(const Tensor& tensor) {
  return fmt::format("{}{}", dtype_name(tensor.dtype()), to_string(tensor.shape()));
}

}  // namespace

std::string to_string(const Expected& expected) {
  std::vector<std::string_view> names;
  for (DType dtype : expected.dtypes) names.push_back(dtype_name(dtype));
  return fmt::format("{}{}", fmt::join(names, " or "), to_string(expected.shape));
}

CheckpointFiles CheckpointFiles::open(const std::string& dir) {
  const std::string whole = dir + "/" + kWhole, index = dir + "/" + kIndex;
  CheckpointFiles files;
  if (std::filesystem::exists(whole)) {
    const auto it = files.open_.emplace(whole, SafetensorsFile::open(whole)).first;
    for (const std::string& name : it->second.names()) files.files_.emplace(name, whole);
    files.list_ = whole;
    return files;
  }
  TILEOPS_CHECK(ErrorKind::kIo, std::filesystem::exists(index),
                "{}: expected {} or {}, found neither", dir, kWhole, kIndex);
  for (const auto& [name, file] : JsonObject::read(index).texts("weight_map")) {
    files.files_.emplace(name, dir + "/" + file);
  }
  files.list_ = index;
  return files;
}

const Tensor& CheckpointFiles::mapped(const std::string& name) {
  const auto known = tensors_.find(name);
  if (known != tensors_.end()) return known->second;
  const std::string& path = files_.at(name);
  auto file = open_.find(path);
  if (file == open_.end()) file = open_.emplace(path, SafetensorsFile::open(path)).first;
  TILEOPS_CHECK(ErrorKind::kIo, file->second.contains(name),
                "{}: tensor {}: expected here by {}, found none", path, name, list_);
  return tensors_.emplace(name, file->second.tensor(name)).first->second;
}

Tensor CheckpointFiles::tensor(const std::string& name, const Expected& expected,
                               std::string_view note) {
  TILEOPS_CHECK(ErrorKind::kIo, contains(name), "{}: tensor {}: expected {}, found none{}", list_,
                name, to_string(expected), note);
  const Tensor& found = mapped(name);
  const auto& dtypes = expected.dtypes;
  const bool has_dtype = std::find(dtypes.begin(), dtypes.end(), found.dtype()) != dtypes.end();
  TILEOPS_CHECK(ErrorKind::kIo, has_dtype && found.shape() == expected.shape,
                "{}: tensor {}: expected {}, found {}{}", files_.at(name), name,
                to_string(expected), facts_text(found), note);
  return found;
}

std::string CheckpointFiles::facts(const std::string& name) { return facts_text(mapped(name)); }

}  // namespace tileops::checkpoint
