#include "app/help/reference_pages.h"

#include <algorithm>

#include <fmt/format.h>

#include "app/help/exit_codes.h"
#include "app/help/help_text.h"
#include "app/help/manual.h"
#include "app/help/roff_markdown.h"

namespace dpt {
namespace {

constexpr const char* kMadeBy =
    "<!-- Generated: dpt man docs/reference --prose docs/man --markdown -->\n";

std::string usage_text(const Command& command) {
  std::string line = "dpt " + command.words;
  for (const CommandOption& argument : command.arguments) {
    const std::string word = argument.value + (argument.takes_several ? " ..." : "");
    line += argument.is_required ? " " + word : " [" + word + "]";
  }
  for (const CommandOption& option : command.options) {
    if (option.is_required) line += " " + option.name + " " + option.value;
  }
  return command.options.size() > 1 ? line + " [OPTION ...]" : line;
}

std::string option_tables(const Command& command) {
  std::string text;
  for (const HelpSection& section : option_help(command)) {
    text += fmt::format("| {} | |\n|---|---|\n", section.title);
    std::string rows;
    for (const auto& [name, doc] : section.rows) {
      if (name == "-h, --help") continue;
      std::string code = name;
      // Escape bars, which end a cell even in code.
      for (std::size_t at = code.find('|'); at != std::string::npos; at = code.find('|', at + 2)) {
        code.insert(at, "\\");
      }
      rows += fmt::format("| `{}` | {} |\n", code, markdown_text(doc));
    }
    text = rows.empty() ? text.substr(0, text.rfind("| " + section.title)) : text + rows + "\n";
  }
  return text;
}

std::string command_part(const Command& command, const std::string& prose) {
  const auto [description, rest] = split_prose(prose);
  std::string text =
      fmt::format("\n## dpt {}\n\n```\n{}\n```\n\n", command.words, usage_text(command));
  text += markdown_lines(markdown_text(with_full_stop(command.doc))) + "\n";
  text += markdown_of_roff(description, 3);
  if (!text.ends_with("\n\n")) text += "\n";
  text += option_tables(command);
  return text + markdown_of_roff(rest, 3);
}

/// Returns the text with consecutive empty lines merged.
std::string without_gaps(std::string text) {
  for (std::size_t at = text.find("\n\n\n"); at != std::string::npos;
       at = text.find("\n\n\n", at)) {
    text.erase(at, 1);
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace

std::string commands_page(const Command& root,
                          const std::function<std::string(const Command&)>& prose) {
  std::string page = "# Commands\n\n";
  page += kMadeBy;
  page += "\n| command | what it does |\n|---|---|\n";
  std::string parts;
  for (const Command* command : shown_commands(root)) {
    // Skip groups such as `dpt config`: only their commands have sections.
    if (command->words.empty() || !command->commands.empty()) continue;
    page += fmt::format("| [`dpt {}`](#{}) | {} |\n", command->words, page_name(*command),
                        markdown_text(brief(command->doc)));
    parts += command_part(*command, prose(*command));
  }
  page +=
      "\nProcesses, signals and environment: [all commands](#all-commands). Exit codes: "
      "[exit-codes.md](exit-codes.md).\n";
  page += parts + "\n## All commands\n\n";
  return without_gaps(page + markdown_of_roff(prose(root), 3));
}

std::string exit_codes_page() {
  std::string page = "# Exit codes\n\n";
  page += kMadeBy;
  page += "\n| exit code | meaning |\n|---|---|\n";
  for (const ExitCode& code : exit_codes()) {
    page += fmt::format("| {} | {} |\n", code.code, markdown_text(code.doc));
  }
  return page +
         "\nSee [divergence.md](../guide/divergence.md) for code 5, "
         "[evaluation.md](../guide/evaluation.md#gates) for code 7,\n"
         "[commands.md](commands.md#signals) for when a signal takes effect, and\n"
         "[cluster.md](../guide/cluster.md#signals) for what containers and batch systems need.\n";
}

}  // namespace dpt
