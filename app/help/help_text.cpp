#include "app/help/help_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/help/exit_codes.h"
#include "app/help/option_groups.h"
#include "kernels/base/terminal.h"

namespace dpt {
namespace {

constexpr std::size_t kMinColumns = 40;
/// Names begin in column kIndent and their descriptions in column kTexts. In narrow texts,
/// descriptions are on separate lines, from column kNarrowTexts.
constexpr std::size_t kIndent = 2, kTexts = 28, kNarrowTexts = 6, kNarrow = 64;

std::string lines_of(const std::string& text, std::size_t indent, std::size_t columns) {
  std::string lines;
  for (const std::string& line : wrapped(text, columns - indent)) {
    lines += std::string(indent, ' ') + line + "\n";
  }
  return lines;
}

/// Returns the rows with their descriptions aligned at column `texts`.
std::string rows_text(const std::vector<HelpRow>& rows, std::size_t texts, std::size_t columns) {
  std::string text;
  for (const auto& [name, doc] : rows) {
    const std::string head = std::string(kIndent, ' ') + name;
    std::string lines = lines_of(doc, texts, columns);
    if (!lines.empty() && head.size() + 2 <= texts) {
      lines.replace(0, head.size(), head);
      text += lines;
    } else {
      text += head + "\n" + lines;
    }
  }
  return text;
}

std::string section(const std::string& title, const std::vector<HelpRow>& rows, std::size_t columns,
                    std::size_t texts = kTexts) {
  if (rows.empty()) return {};
  return "\n" + title + ":\n" + rows_text(rows, columns < kNarrow ? kNarrowTexts : texts, columns);
}

std::string usage_line(const Command& command, std::size_t columns) {
  std::string line = "dpt" + (command.words.empty() ? "" : " " + command.words);
  if (command.options.size() > 1) line += " [OPTIONS]";
  for (const CommandOption& argument : command.arguments) {
    const std::string word = argument.value + (argument.takes_several ? "..." : "");
    line += argument.is_required ? " " + word : " [" + word + "]";
  }
  if (!command.commands.empty()) line += " COMMAND";
  const std::vector<std::string> lines = wrapped(line, columns - 7);
  return fmt::format("Usage: {}\n", fmt::join(lines, "\n       "));
}

/// Returns the options that the description of `option` lists as excluded. Of two options that
/// exclude each other, only the one with more exclusions lists the other.
std::vector<std::string> noted_exclusions(const Command& command, const CommandOption& option) {
  std::vector<std::string> names;
  for (const CommandOption& other : command.options) {
    const auto& excluded = option.excludes;
    if (std::find(excluded.begin(), excluded.end(), other.name) == excluded.end()) continue;
    const bool is_tie = excluded.size() == other.excludes.size();
    if (excluded.size() > other.excludes.size() || (is_tie && &other < &option)) {
      names.push_back(other.name);
    }
  }
  return names;
}

std::string option_doc(const Command& command, const CommandOption& option) {
  std::string doc = option.doc;
  if (option.is_required && !option.is_argument) doc += " (required)";
  if (!option.needs.empty()) doc += fmt::format(" (with {} only)", fmt::join(option.needs, ", "));
  const std::vector<std::string> excluded = noted_exclusions(command, option);
  if (!excluded.empty()) doc += fmt::format(" (not with {})", fmt::join(excluded, ", "));
  return doc;
}

HelpRow option_row(const Command& command, const CommandOption& option) {
  std::string head = option.letter.empty() ? "" : option.letter + ", ";
  if (!option.is_argument) head += option.name;
  if (!option.value.empty()) head += (option.is_argument ? "" : " ") + option.value;
  if (option.takes_several) head += " ...";
  return {head, option_doc(command, option)};
}

std::string option_sections(const Command& command, std::size_t columns) {
  std::string text;
  for (const HelpSection& part : option_help(command)) {
    text += section(part.title, part.rows, columns);
  }
  return text;
}

std::string command_section(const Command& command, std::size_t columns) {
  std::vector<HelpRow> rows;
  std::size_t widest = 0;
  for (const Command& below : command.commands) {
    if (below.is_hidden) continue;
    rows.emplace_back(below.name, brief(below.doc));
    widest = std::max(widest, below.name.size());
  }
  return section("Commands", rows, columns, kIndent + widest + 2);
}

/// Returns the section that appears only in the help text of `dpt` itself.
std::string first_steps(std::size_t columns) {
  return section("First steps",
                 {{"dpt config init > config.yaml",
                   "write a config to start from (--data FOLDER: for your own images)"},
                  {"dpt train config.yaml", "train it; the same command resumes it"},
                  {"dpt eval runs/NAME", "evaluate its best checkpoint"}},
                 columns, 34);
}

std::string exit_code_section(std::size_t columns) {
  std::vector<HelpRow> rows;
  for (const ExitCode& code : exit_codes()) rows.emplace_back(code.code, code.brief);
  return section("Exit codes", rows, columns, 17);
}

}  // namespace

std::vector<HelpSection> option_help(const Command& command) {
  std::vector<HelpSection> sections{{"Arguments", {}}};
  for (const CommandOption& argument : command.arguments) {
    sections.front().rows.push_back(option_row(command, argument));
  }
  // Use headings only for many options.
  const bool is_grouped = command.options.size() > 8;
  for (const std::string& group : option_groups()) {
    HelpSection part{group, {}};
    for (const CommandOption& option : command.options) {
      const std::string own = is_grouped ? option_group(option.name) : option_groups().front();
      if (own == group) part.rows.push_back(option_row(command, option));
    }
    sections.push_back(std::move(part));
  }
  std::erase_if(sections, [](const HelpSection& part) { return part.rows.empty(); });
  return sections;
}

std::string help_text(const Command& command, std::size_t columns) {
  columns = std::max(columns, kMinColumns);
  const bool is_root = command.words.empty();
  std::string text = lines_of(command.doc, 0, columns) + "\n" + usage_line(command, columns);
  if (is_root) text += first_steps(columns);
  text += command_section(command, columns) + option_sections(command, columns);
  if (is_root) {
    text +=
        exit_code_section(columns) + "\n" +
        lines_of("dpt COMMAND --help describes a command; so does man dpt-COMMAND.", 0, columns);
  }
  return text;
}

}  // namespace dpt
