// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/nvrtc_search.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace tileops::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kNames = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr std::string_view kToolkitFolder = "/usr/local/cuda/lib64";

/// Libraries whose folder, or a folder near it, may hold NVRTC.
bool is_landmark(const std::string& file_name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"libcudart.so", "libcudart-", "libtorch",
                                                         "libc10_cuda"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return file_name.starts_with(prefix); });
}

std::vector<fs::path> subfolders(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void append_files(const fs::path& folder, std::vector<std::string>& candidates) {
  for (const std::string_view name : kNames) {
    std::error_code error;
    const std::string file = (folder / name).lexically_normal().string();
    const bool known = std::find(candidates.begin(), candidates.end(), file) != candidates.end();
    if (!known && fs::exists(file, error)) candidates.push_back(file);
  }
}

}  // namespace

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
          static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &paths);
  return paths;
}

std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& loaded) {
  std::vector<std::string> candidates(kNames.begin(), kNames.end());
  for (const std::string& library : loaded) {
    const fs::path path(library);
    if (!is_landmark(path.filename().string())) continue;
    const fs::path folder = path.parent_path();
    append_files(folder, candidates);
    // site-packages/nvidia/X/lib beside site-packages/nvidia/Y/lib or site-packages/torch/lib.
    for (const fs::path& packages : {folder / ".." / "..", folder / ".." / ".." / "nvidia"}) {
      for (const fs::path& package : subfolders(packages)) {
        append_files(package / "lib", candidates);
      }
    }
  }
  append_files(kToolkitFolder, candidates);
  return candidates;
}

}  // namespace tileops::cuda
