// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tileops {

/// Makes every op class of the library known by name, so that it can be listed, validated and
/// constructed without an instance. Idempotent; any thread.
void register_ops();

}  // namespace tileops
