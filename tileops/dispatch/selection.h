// SPDX-License-Identifier: Apache-2.0
// Choosing an implementation: availability, then refusals, then preference; reasons kept
// throughout.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/dispatch/implementation.h"

namespace tileops {

/// One implementation's part in a selection.
struct Candidate {
  std::string key;
  bool chosen = false;
  std::string reason;  // why not chosen; for the chosen one, why it won
  std::string config;  // of the chosen one: "tile_rows=128 (tuned)"; empty where it has none
};

/// Checks an op's whole table (I4): keys unique; each implementation's interface declared; at most
/// one general one a device type and interface; preferences that name siblings and form no circle;
/// `archs` with exactly one device type. Errors: kValue, naming op and key.
void check_table(std::string_view op, std::span<const std::string> interfaces,
                 std::span<const AnyImplementation> implementations);

/// What a selection works on: an interface's implementations, in declaration order.
struct SelectionQuery {
  std::string_view op;
  std::string_view interface;
  std::span<const ImplementationInfo* const> implementations;
  std::function<Refusal(size_t index)> refusal;
  std::string_view forced;                 // "" or the key that alone may serve
  std::function<std::string()> call_text;  // for messages
};

/// The index of the winner (I2). `candidates`, where given, gets every implementation's part.
/// Errors: kOpNotAvailable (none is left; lists each with its reason),
///         kAmbiguousSelection (several are left: a fault of the table).
size_t select_implementation(const SelectionQuery& query, const DeviceFacts& facts,
                             std::vector<Candidate>* candidates = nullptr);

/// The same without the errors: fills `candidates` only; none chosen where selection would fail.
std::vector<Candidate> explain_selection(const SelectionQuery& query, const DeviceFacts& facts);

}  // namespace tileops
