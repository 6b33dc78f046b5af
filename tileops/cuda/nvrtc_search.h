// SPDX-License-Identifier: Apache-2.0
// Where NVRTC may lie. Private to nvrtc.cc and its test.
#pragma once

#include <string>
#include <vector>

namespace tileops::cuda {

/// Paths of the shared libraries of this process.
std::vector<std::string> loaded_libraries();

/// What to give to dlopen, in order: plain names; files beside the CUDA and torch libraries among
/// `loaded`, and in the neighbouring folders that pip's nvidia packages use; the toolkit's folder.
std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& loaded);

}  // namespace tileops::cuda
