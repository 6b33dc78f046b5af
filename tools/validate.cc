// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tileops/core/embedded.h"
#include "tileops/core/text_file.h"
#include "tileops/op/op_class.h"
#include "tileops/spec/validator.h"
#include "tools/command.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

std::vector<spec::SpecText> texts_of(const std::vector<std::string>& paths) {
  std::vector<spec::SpecText> texts;
  for (const std::string& path : paths) texts.push_back({path, read_text(path)});
  if (!paths.empty()) return texts;
  for (const EmbeddedFile& file : embedded::spec_files()) {
    texts.push_back({std::string(file.path), std::string(file.text)});
  }
  return texts;
}

int validate(const Common& common, const std::vector<std::string>& paths) {
  const std::vector<spec::SpecText> texts = texts_of(paths);
  const std::vector<spec::Diagnostic> diagnostics = spec::validate(texts, class_lookup());
  if (common.json) {
    nlohmann::ordered_json json{{"files", texts.size()},
                                {"diagnostics", nlohmann::ordered_json::array()}};
    for (const spec::Diagnostic& each : diagnostics) {
      json["diagnostics"].push_back({{"code", each.code},
                                     {"source", each.source},
                                     {"line", each.line},
                                     {"entry", each.entry},
                                     {"field", each.field},
                                     {"message", each.message}});
    }
    print(json.dump(2) + "\n");
  } else {
    for (const spec::Diagnostic& each : diagnostics) print(to_string(each) + "\n");
    print(fmt::format("{} files, {} diagnostics\n", texts.size(), diagnostics.size()));
  }
  return diagnostics.empty() ? kSuccess : kCheckFailed;
}

}  // namespace

void add_validate(CLI::App& app, Chosen& chosen) {
  const auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App& command =
      add_command(app, chosen, "validate", "Check spec files; without any, the library's own",
                  [&chosen, paths] { return validate(chosen.common, *paths); });
  command.add_option("files", *paths, "Spec files")->type_name("FILES");
}

}  // namespace tileops::tools
