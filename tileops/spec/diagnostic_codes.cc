// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/report.h"

namespace tileops::spec {

const std::vector<CodeInfo>& diagnostic_codes() {
  static const auto& codes = *new std::vector<CodeInfo>{};
  return codes;
}

}  // namespace tileops::spec
