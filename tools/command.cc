// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tileops/core/error.h"
#include "tileops/dispatch/backend.h"
#include "tileops/ops/register.h"
#include "tileops/spec/registry.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

/// 2 for what the user can mend by asking otherwise, 1 for the rest.
int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kAmbiguousSelection:
    case ErrorKind::kBackend:
    case ErrorKind::kBuild:
    case ErrorKind::kDelegate:
    case ErrorKind::kInternal:
    case ErrorKind::kOutOfMemory:
      return kCheckFailed;
    default:
      return kUsage;
  }
}

/// A build's log stays whole; everything else is one line.
std::string one_line(const Error& error) {
  std::string text = error.what();
  if (error.kind() == ErrorKind::kBuild) return text;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, " ");
  return text;
}

int fail(const std::string& who, const std::string& text, int exit_code) {
  clear_progress();
  fmt::print(stderr, "tileops{}{}: {}\n", who.empty() ? "" : " ", who, text);
  return exit_code;
}

std::string unknown_subcommand(const CLI::App& app, const char* name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return fmt::format("there is no subcommand {}; there are: {}", name, fmt::join(names, ", "));
}

int run_chosen(const Chosen& chosen) {
  try {
    register_ops();
    for (const std::string& file : chosen.common.spec_files) spec::load_spec_file(file);
    load_backends();
    const int exit_code = chosen.run();
    if (std::fflush(stdout) != 0)
      return fail(chosen.name, "the output cannot be written", kCheckFailed);
    return exit_code;
  } catch (const Error& error) {
    const std::string text = fmt::format("{}: {}", error_kind_name(error.kind()), one_line(error));
    return fail(chosen.name, text, exit_code_of(error.kind()));
  } catch (const std::exception& error) {
    return fail(chosen.name, error.what(), kCheckFailed);
  }
}

}  // namespace

CLI::App& add_command(CLI::App& app, Chosen& chosen, const std::string& name,
                      const std::string& summary, std::function<int()> body, JsonOption json) {
  CLI::App& command = *app.add_subcommand(name, summary);
  if (json == JsonOption::kCommon) command.add_flag("--json", chosen.common.json, "Print JSON");
  command
      .add_option("--spec", chosen.common.spec_files,
                  "Load a spec file of yours first (repeatable)")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  command.callback([&chosen, name, body = std::move(body)] {
    chosen.name = name;
    chosen.run = body;
  });
  return command;
}

int run_command(int argc, char** argv) {
  CLI::App app("TileOPs: composite operators for LLM engineers", "tileops");
  Chosen chosen;
  app.set_version_flag("--version", "tileops " TILEOPS_VERSION);
  app.require_subcommand(1);
  add_list(app, chosen);
  add_show(app, chosen);
  add_validate(app, chosen);
  add_run(app, chosen);
  add_explain(app, chosen);
  add_trace(app, chosen);
  add_env(app, chosen);
  add_tune(app, chosen);
  add_warm(app, chosen);
  add_bench(app, chosen);
  add_report(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::vector<CLI::App*> given = app.get_subcommands();
    if (given.empty() && argc > 1) return fail("", unknown_subcommand(app, argv[1]), kUsage);
    const std::string who = given.empty() ? "" : given.front()->get_name();
    std::string text = error.what();
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, " ");
    return fail(who, text + "; see --help", kUsage);
  }
  return run_chosen(chosen);
}

}  // namespace tileops::tools
