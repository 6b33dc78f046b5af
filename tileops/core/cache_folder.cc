// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/cache_folder.h"

#include <cstdlib>

namespace tileops {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string cache_folder() {
  if (std::string stated = variable("TILEOPS_CACHE_DIR"); !stated.empty()) return stated;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/tileops";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/tileops";
  return "";
}

}  // namespace tileops
