// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/report.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tileops/core/check.h"
#include "tileops/dispatch/target.h"

namespace tileops::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPerGigaUs = 1e-3;  // x / (GB/s) in ns, times this in us

void set_floor(Report& report, const DeviceProfile& profile) {
  const double bytes_us = report.cost->bytes / profile.gbps(report.cost->bytes) * kPerGigaUs;
  const double flops_us = report.cost->flops / profile.peak_gflops * kPerGigaUs;
  report.floor_us = std::max(bytes_us, flops_us);
  if (report.floor_us > 0) report.bound = flops_us > bytes_us ? Bound::kFlops : Bound::kBytes;
}

void set_share(Report& report, const DeviceProfile& profile) {
  if (!report.time_us || *report.time_us <= 0 || report.floor_us <= 0) return;
  const double gbps = report.cost->bytes / *report.time_us * kPerGigaUs;
  const double gflops = report.cost->flops / *report.time_us * kPerGigaUs;
  if (gbps > profile.ceiling_gbps) {
    report.fault = fmt::format(
        "formula error: {:.1f} GB/s, and {} can read {:.1f} at most; the spec's bytes are too many",
        gbps, profile.device, profile.ceiling_gbps);
  } else if (gflops > profile.ceiling_gflops) {
    report.fault = fmt::format(
        "formula error: {:.1f} GFLOP/s, and {} can do {:.1f} at most; the spec's flops are too "
        "many",
        gflops, profile.device, profile.ceiling_gflops);
  } else {
    report.share = report.floor_us / *report.time_us;
  }
}

std::string what_ran(const Report& report) {
  if (report.served_by.empty()) return "nothing ran";
  if (report.served_by != kBuiltinTarget) return "target " + report.served_by;
  return fmt::format("{}", fmt::join(report.kernels, ", "));
}

void write_row(const Report& report, int depth, std::string& text) {
  const std::string name = report.stage.empty() ? report.op : report.stage + " = " + report.op;
  const auto number = [](bool is_there, double value, const char* format) {
    return is_there ? fmt::format(fmt::runtime(format), value) : std::string("-");
  };
  const spec::Cost cost = report.cost.value_or(spec::Cost());
  const bool priced = report.cost.has_value();
  text += fmt::format("{:<42} {:>11} {:>10} {:>10} {:>11} {:>7}  {:<5}  {}\n",
                      std::string(static_cast<size_t>(2 * depth), ' ') + name,
                      number(report.time_us.has_value(), report.time_us.value_or(0), "{:.1f}"),
                      number(priced, cost.flops * 1e-6, "{:.3f}"),
                      number(priced, cost.bytes * 1e-6, "{:.3f}"),
                      number(priced, report.floor_us, "{:.2f}"),
                      number(report.share.has_value(), 100 * report.share.value_or(0), "{:.1f}%"),
                      bound_name(report.bound), what_ran(report));
  for (const Report& stage : report.stages) write_row(stage, depth + 1, text);
}

void write_faults(const Report& report, std::string& text) {
  if (!report.fault.empty()) {
    text += fmt::format("! {}{}: {}\n", report.op,
                        report.stage.empty() ? "" : " (" + report.stage + ")", report.fault);
  }
  for (const Report& stage : report.stages) write_faults(stage, text);
}

Json json_of(const Report& report) {
  Json json{{"stage", report.stage},         {"op", report.op},
            {"served_by", report.served_by}, {"kernels", report.kernels},
            {"floor_us", report.floor_us},   {"bound", bound_name(report.bound)}};
  json["time_us"] = report.time_us ? Json(*report.time_us) : Json();
  json["flops"] = report.cost ? Json(report.cost->flops) : Json();
  json["bytes"] = report.cost ? Json(report.cost->bytes) : Json();
  json["share"] = report.share ? Json(*report.share) : Json();
  json["fault"] = report.fault.empty() ? Json() : Json(report.fault);
  json["stages"] = Json::array();
  for (const Report& stage : report.stages) json["stages"].push_back(json_of(stage));
  return json;
}

}  // namespace

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::kNone:
      return "none";
    case Bound::kBytes:
      return "bytes";
    default:
      return "flops";
  }
}

bool Report::has_fault() const {
  return !fault.empty() || std::any_of(stages.begin(), stages.end(),
                                       [](const Report& stage) { return stage.has_fault(); });
}

void set_cost(Report& report, const spec::Cost& cost, const DeviceProfile& profile) {
  report.cost = cost;
  set_floor(report, profile);
  set_share(report, profile);
}

Report make_report(const CallRecord& record, const DeviceProfile& profile) {
  Report report;
  report.op = record.op();
  report.served_by = record.served_by();
  report.time_us = record.elapsed_us();
  for (const KernelUse& use : record.kernels()) {
    report.kernels.push_back(fmt::format("{}/{}", use.interface, use.entry->implementation));
  }
  try {
    set_cost(report, price(record), profile);
  } catch (const Error& error) {
    const bool cannot_tell =
        record.device().type == DeviceType::kCUDA && error.kind() == ErrorKind::kState;
    if (!cannot_tell) report.fault = error.what();
  }
  for (const std::string& name : record.stage_names()) {
    for (const RecordPtr& staged : record.stages(name)) {
      report.stages.push_back(make_report(*staged, profile));
      report.stages.back().stage = name;
    }
  }
  return report;
}

std::string text(const Report& report) {
  std::string text = fmt::format("{:<42} {:>11} {:>10} {:>10} {:>11} {:>7}  {:<5}  {}\n", "stage",
                                 "time us", "Mflop", "MB", "floor us", "share", "bound", "kernel");
  write_row(report, 0, text);
  write_faults(report, text);
  return text;
}

std::string to_json(const Report& report) { return json_of(report).dump(2); }

}  // namespace tileops::perf
