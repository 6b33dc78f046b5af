// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tileops {

/// Where this user's measurements and builds are kept between processes: TILEOPS_CACHE_DIR, else
/// $XDG_CACHE_HOME/tileops, else $HOME/.cache/tileops; "" where none of the three is set. The
/// folder need not exist.
std::string cache_folder();

}  // namespace tileops
