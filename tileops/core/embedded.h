// SPDX-License-Identifier: Apache-2.0
// Files that are part of the library as text: spec entries, device code, device profiles,
// tuning tables.
#pragma once

#include <span>
#include <string_view>

namespace tileops {

struct EmbeddedFile {
  std::string_view path;  // from the project's root, such as "tileops/ops/moe/…/grouped_gemm.yaml"
  std::string_view text;
};

namespace embedded {
std::span<const EmbeddedFile> spec_files();
std::span<const EmbeddedFile> device_files();
std::span<const EmbeddedFile> profile_files();
std::span<const EmbeddedFile> tuned_files();
}  // namespace embedded

}  // namespace tileops
