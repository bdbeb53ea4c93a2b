#include "app/cli/option_values.h"

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "app/help/command_tree.h"
#include "app/help/help_text.h"
#include "app/help/value_names.h"
#include "engine/config/paths.h"
#include "kernels/base/terminal.h"

namespace dpt {
namespace {

/// Formats help texts with help_text.h, as wide as the terminal on stdout, up to 100 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  /// `name`: the words of the command line up to the command, "dpt config show".
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode /*mode*/) const override {
    constexpr std::size_t kMaxColumns = 100;
    const std::size_t blank = name.find(' ');
    const std::string words = blank == std::string::npos ? "" : name.substr(blank + 1);
    return help_text(command_tree(*app, words),
                     std::min(terminal_columns(STDOUT_FILENO), kMaxColumns));
  }
};

/// Returns true for values that are paths of files or folders.
bool is_path(ValueKind kind) {
  return kind == ValueKind::file || kind == ValueKind::folder || kind == ValueKind::config ||
         kind == ValueKind::checkpoint || kind == ValueKind::run || kind == ValueKind::samples;
}

/// Returns true for an option that accepts URLs.
bool takes_url(const CLI::App& app, const CLI::Option& option) {
  return option.get_name() == "--weights" ||
         (app.get_name() == "inspect" && option.get_name() == "file");
}

/// Expands a leading `~/` in place, because shells leave it in `--run-dir=~/runs`. Returns the
/// problem of the path, or an empty string.
std::string replace_home(std::string& path, bool takes_url) {
  ExpandedPath expanded = expand_home(path, takes_url);
  if (expanded.problem.empty()) path = std::move(expanded.path);
  return expanded.problem;
}

void name_values_below(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::Option* option : app.get_options()) {
    const ValueName* value = value_name(option->get_name());
    const bool is_flag = option->get_items_expected_max() == 0;
    if (!value || is_flag) continue;
    option->type_name(std::string(value->name));  // messages show it too
    if (!is_path(value->kind)) continue;
    const bool is_remote_too = takes_url(app, *option);
    const auto replace = [is_remote_too](std::string& path) {
      return replace_home(path, is_remote_too);
    };
    option->transform(CLI::Validator(replace, "", "path"));
  }
  for (CLI::App* below : app.get_subcommands({})) name_values_below(*below, formatter);
}

}  // namespace

void name_values(CLI::App& app) {
  name_values_below(app, std::make_shared<HelpFormatter>());
}

}  // namespace dpt
