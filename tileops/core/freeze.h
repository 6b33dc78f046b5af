// SPDX-License-Identifier: Apache-2.0
// Freezing: a promise that no call of this process compiles or measures any more.
#pragma once

namespace tileops {

/// After it, a kernel that would have to be compiled, or a configuration that would have to be
/// measured, is an error that names it and the command that makes it ahead. What is in memory, in
/// the cache folder or in a table still serves. TILEOPS_FREEZE=1 (read once) freezes from the
/// start. Thread safety: all three.
void freeze();
/// Ends it.
void thaw();
bool is_frozen();

}  // namespace tileops
