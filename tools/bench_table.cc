// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_table.h"
#include "tools/json_text.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace tileops::tools {
namespace {

std::optional<double> number_of(const Json& row, const char* key) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

std::string field_text(const Json& row, const char* key) {
  const auto it = row.find(key);
  return it == row.end() || !it->is_string() ? "" : it->get<std::string>();
}

/// Three digits that mean something: "8.43", "84.3", "843", "8,431" would hide none of them.
std::string time_text(std::optional<double> us) {
  if (!us) return "-";
  return *us < 10     ? fmt::format("{:.2f}", *us)
         : *us < 1000 ? fmt::format("{:.1f}", *us)
                      : fmt::format("{:.0f}", *us);
}

std::string share_text(const Json& row) {
  const auto share = number_of(row, "share");
  return share ? fmt::format("{:.0f}%", 100 * *share) : "-";
}

std::string check_text(const Json& row) {
  if (!row.contains("check")) return row.contains("error") ? "" : "not checked";
  const Json& check = row["check"];
  if (!check.value("passed", false)) return "FAILED: " + field_text(check, "fault");
  return fmt::format("{:.1e} to {}", check.value("error", 0.0), field_text(check, "against"));
}

std::string kernels_text(const Json& row, const char* separator) {
  std::string text;
  if (!row.contains("kernels")) return text;
  for (const Json& kernel : row["kernels"]) {
    text += (text.empty() ? "" : separator) + kernel.get<std::string>();
  }
  return text;
}

/// Names of the peers of any row, in the order in which they come.
std::vector<std::string> peers_of(const Json& benchmark) {
  std::vector<std::string> names;
  for (const Json& row : benchmark["rows"]) {
    if (!row.contains("peers")) continue;
    for (const auto& [name, peer] : row["peers"].items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

const Json* peer_of(const Json& row, const std::string& name) {
  const auto peers = row.find("peers");
  if (peers == row.end()) return nullptr;
  const auto peer = peers->find(name);
  return peer == peers->end() ? nullptr : &*peer;
}

/// The better of the two ways of timing, which is what peers are compared by.
std::optional<double> best_us(const Json& row) {
  const auto single = number_of(row, "single_us"), many = number_of(row, "back_to_back_us");
  if (!single || !many) return single ? single : many;
  return std::min(*single, *many);
}

std::string peer_text(const Json& row, const std::string& name) {
  const Json* peer = peer_of(row, name);
  if (peer == nullptr) return "-";
  if (peer->contains("error")) return field_text(*peer, "error");
  const auto ours = best_us(row), theirs = best_us(*peer);
  const std::string ratio = ours && theirs ? fmt::format(" ({:.2f}x)", *theirs / *ours) : "";
  return time_text(theirs) + ratio;
}

std::string head_text(const Json& benchmark) {
  const Json& profile = benchmark.value("profile", Json::object());
  std::string text = fmt::format("{}, tileops {}", field_text(benchmark, "device"),
                                 field_text(benchmark, "version"));
  const auto gbps = number_of(profile, "read_gbps"), gflops = number_of(profile, "peak_gflops");
  if (gbps && gflops) {
    text += fmt::format("; floors by {:.1f} GB/s and {:.0f} GFLOP/s ({})", *gbps, *gflops,
                        field_text(profile, "peak_of"));
  }
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string cell(const std::string& text, const char* kind = "") {
  return fmt::format("<td{}>{}</td>", kind, escaped(text));
}

std::string html_row(const Json& row, const std::vector<std::string>& peers) {
  constexpr const char* kNumber = " class=n";
  std::string html = cell(field_text(row, "name"));
  if (row.contains("error")) {
    return fmt::format("<tr>{}<td colspan={} class=bad>{}</td></tr>\n", html, 7 + peers.size(),
                       escaped(field_text(row, "error")));
  }
  html += cell(time_text(number_of(row, "single_us")), kNumber);
  html += cell(time_text(number_of(row, "back_to_back_us")), kNumber);
  html += cell(time_text(number_of(row, "host_us")), kNumber);
  html += cell(time_text(number_of(row, "floor_us")), kNumber);
  html += cell(share_text(row), kNumber);
  for (const std::string& peer : peers) html += cell(peer_text(row, peer), kNumber);
  const std::string check = check_text(row);
  html += cell(check, check.starts_with("FAILED") ? " class=bad" : "");
  html += cell(kernels_text(row, "; "));
  return "<tr>" + html + "</tr>\n";
}

constexpr const char* kStyle =
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{border-bottom:1px solid #ddd;padding:3px 10px;text-align:left;vertical-align:top}"
    "th{border-bottom:2px solid #888}.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".bad{color:#b00020}";

std::string html_table(const Json& benchmark) {
  const std::vector<std::string> peers = peers_of(benchmark);
  std::string html = "<h2>" + escaped(head_text(benchmark)) + "</h2>\n<table>\n<tr>";
  for (const char* title : {"row", "single us", "back to back us", "host us", "floor us", "share"})
    html += fmt::format("<th>{}</th>", title);
  for (const std::string& peer : peers) html += "<th>" + escaped(peer) + "</th>";
  html += "<th>check</th><th>kernels</th></tr>\n";
  for (const Json& row : benchmark["rows"]) html += html_row(row, peers);
  return html + "</table>\n";
}

}  // namespace

std::string bench_text(const Json& benchmark) {
  const std::vector<std::string> peers = peers_of(benchmark);
  std::string text = head_text(benchmark) + "\n";
  text += fmt::format("{:<44} {:>10} {:>12} {:>8} {:>10} {:>6}", "row", "single us", "back to back",
                      "host us", "floor us", "share");
  for (const std::string& peer : peers) text += fmt::format(" {:>20}", peer);
  text += "  check\n";
  for (const Json& row : benchmark["rows"]) {
    text += fmt::format("{:<44} ", field_text(row, "name"));
    if (row.contains("error")) {
      text += field_text(row, "error") + "\n";
      continue;
    }
    text += fmt::format("{:>10} {:>12} {:>8} {:>10} {:>6}", time_text(number_of(row, "single_us")),
                        time_text(number_of(row, "back_to_back_us")),
                        time_text(number_of(row, "host_us")), time_text(number_of(row, "floor_us")),
                        share_text(row));
    for (const std::string& peer : peers) text += fmt::format(" {:>20}", peer_text(row, peer));
    text += "  " + check_text(row) + "\n";
    for (const Json& kernel : row.value("kernels", Json::array())) {
      text += fmt::format("    {}\n", kernel.get<std::string>());
    }
  }
  return text;
}

std::string bench_html(const Json& benchmarks) {
  std::string html =
      "<!doctype html>\n<html lang=en><meta charset=utf-8><title>TileOPs "
      "benchmark</title>\n<style>";
  html += kStyle;
  html +=
      "</style>\n<h1>TileOPs benchmark</h1>\n<p>Times in microseconds of one call: single calls "
      "with a cold second-level cache, and calls back to back on different inputs. Share: of the "
      "floor, the larger of bytes over bandwidth and operations over peak. Peers: the better of "
      "their two times, and how many times ours it is.</p>\n";
  for (const Json& benchmark : benchmarks) html += html_table(benchmark);
  return html + "</html>\n";
}

bool bench_passed(const Json& benchmark) {
  return std::all_of(benchmark["rows"].begin(), benchmark["rows"].end(), [](const Json& row) {
    const bool failed = row.contains("check") && !row["check"].value("passed", false);
    return !failed && !row.contains("error");
  });
}

}  // namespace tileops::tools
