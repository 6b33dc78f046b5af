// SPDX-License-Identifier: Apache-2.0
// Report: a call's measured time beside what its roofline and the device allow, stage by stage
// (J2).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tileops/op/record.h"
#include "tileops/perf/profile.h"

namespace tileops::perf {

/// Which term of the floor binds.
enum class Bound { kNone, kBytes, kFlops };
std::string_view bound_name(Bound bound);

struct Report {
  std::string stage;  // "" for the whole call
  std::string op;
  std::string served_by;             // "builtin" or a target; "" where nothing ran
  std::vector<std::string> kernels;  // the op's own that ran: "grouped_gemm/cpu_blocked"
  std::optional<double> time_us;     // none unless calls were timed
  std::optional<spec::Cost> cost;    // none where the formula failed, or cannot tell (below)
  double floor_us = 0;               // max(bytes / bandwidth, flops / peak)
  Bound bound = Bound::kNone;
  std::optional<double> share;  // floor / time; none without a time or with a fault
  std::string fault;            // why the formula cannot be right; "" where nothing is wrong
  std::vector<Report> stages;   // the sub-op calls, in stage order

  /// Whether this or a stage has a fault.
  bool has_fault() const;
};

/// A rate above the profile's ceiling becomes a fault of the formula, never a share. A stage's call
/// on a GPU keeps no metadata: where its price depends on some, it has none, which is no fault.
Report make_report(const CallRecord& record, const DeviceProfile& profile);
/// Gives a report a price that is known from elsewhere, such as the same call on the CPU.
void set_cost(Report& report, const spec::Cost& cost, const DeviceProfile& profile);

/// A table for a person, one line a stage; faults follow it.
std::string text(const Report& report);
std::string to_json(const Report& report);

}  // namespace tileops::perf
