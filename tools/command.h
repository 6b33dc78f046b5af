// SPDX-License-Identifier: Apache-2.0
// The `tileops` command: one file a subcommand, each of which adds itself to the parser.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tileops::tools {

inline constexpr int kSuccess = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kUsage = 2;

/// What every subcommand takes.
struct Common {
  bool json = false;
  std::vector<std::string> spec_files;
};

/// The subcommand that the command line chose; `run` returns the exit code.
struct Chosen {
  Common common;
  std::string name;
  std::function<int()> run;
};

/// Adds a subcommand with the common options; `body` runs once it is chosen and the spec files and
/// backends are loaded.
enum class JsonOption { kCommon, kOwn };  // kOwn: the subcommand defines --json itself
CLI::App& add_command(CLI::App& app, Chosen& chosen, const std::string& name,
                      const std::string& summary, std::function<int()> body,
                      JsonOption json = JsonOption::kCommon);

void add_list(CLI::App& app, Chosen& chosen);
void add_show(CLI::App& app, Chosen& chosen);
void add_validate(CLI::App& app, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_explain(CLI::App& app, Chosen& chosen);
void add_trace(CLI::App& app, Chosen& chosen);
void add_env(CLI::App& app, Chosen& chosen);
void add_tune(CLI::App& app, Chosen& chosen);
void add_warm(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);

/// Parses the command line and runs what it asks for. Returns the exit code; errors are one line on
/// standard error.
int run_command(int argc, char** argv);

}  // namespace tileops::tools
