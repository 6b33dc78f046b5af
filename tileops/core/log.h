// SPDX-License-Identifier: Apache-2.0
// Silent by default. TILEOPS_LOG=dispatch,build,exec,target (read once) chooses what is told.
#pragma once

#include <string_view>

namespace tileops {

enum class Log { kDispatch, kBuild, kExec, kTarget };

/// Whether events of this kind are told; one load.
bool log_on(Log kind);
/// One line on standard error: "tileops dispatch: …".
void log_line(Log kind, std::string_view text);

/// Warnings go to this function; null: the default, one line on standard error. Returns the former.
using WarningHandler = void (*)(std::string_view text);
WarningHandler set_warning_handler(WarningHandler handler);
/// Errors: whatever the handler throws (a front end may turn warnings into errors).
void warn(std::string_view text);

}  // namespace tileops
