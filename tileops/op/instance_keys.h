// SPDX-License-Identifier: Apache-2.0
// Keys of live op instances: how a traced graph names the instance that a node calls.
#pragma once

#include <string>
#include <string_view>

namespace tileops {
class Op;

/// A key that was never handed out before: "<class>#<number>.<fingerprint>". Compiled code that
/// outlives its process names instances by it: an equal key in another process is an equal op. The
/// key answers once announced.
std::string new_instance_key(std::string_view op_class, std::string_view fingerprint);
void announce_instance(const std::string& key, const Op& op);
void retire_instance(const std::string& key) noexcept;

}  // namespace tileops
