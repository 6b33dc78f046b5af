// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/checkpoint_copy.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tileops/core/safetensors.h"

namespace tileops::testing {
namespace fs = std::filesystem;

std::string checkpoint_dir(const std::string& name) {
  const char* data = std::getenv("TILEOPS_TEST_DATA");
  return std::string(data == nullptr ? "tests/checkpoint/data" : data) + "/" + name;
}

CheckpointCopy::CheckpointCopy(const std::string& name) {
  std::string dir = ::testing::TempDir() + "checkpoint_XXXXXX";
  EXPECT_NE(::mkdtemp(dir.data()), nullptr);
  dir_ = dir;
  for (const auto& file : fs::directory_iterator(checkpoint_dir(name))) {
    fs::copy(file.path(), dir_ / file.path().filename());
    const std::string stem = file.path().filename().string();
    if (!stem.starts_with("model") || !stem.ends_with(".safetensors")) continue;
    const SafetensorsFile shard = SafetensorsFile::open(file.path().string());
    for (const std::string& tensor : shard.names()) tensors.emplace(tensor, shard.tensor(tensor));
  }
}

CheckpointCopy::~CheckpointCopy() { fs::remove_all(dir_); }

void CheckpointCopy::write() const {
  const std::vector<std::pair<std::string, Tensor>> all(tensors.begin(), tensors.end());
  write_safetensors((dir_ / "model.safetensors").string(), all);
}

void CheckpointCopy::set_config(const std::string& key, const std::string& json) const {
  auto config = nlohmann::json::parse(std::ifstream(dir_ / "config.json"));
  config.erase(key);
  if (!json.empty()) config[key] = nlohmann::json::parse(json);
  set_file("config.json", config.dump());
}

void CheckpointCopy::set_file(const std::string& file, const std::string& text) const {
  std::ofstream(dir_ / file) << text;
}

}  // namespace tileops::testing
