#include "app/help/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/help/exit_codes.h"

namespace dpt {
namespace {

/// Escapes text for a line of roff. Hyphens become minus signs, so that a search finds options.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\') {
      escaped += "\\e";
    } else if (letter == '-') {
      escaped += "\\-";
    } else {
      escaped += letter;
    }
  }
  const bool is_request = !escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'');
  return is_request ? "\\&" + escaped : escaped;
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}

/// Formats the name of a value: placeholders (FILE) in italics, literal words (auto) in bold.
std::string value_text(const std::string& value) {
  std::string text, word;
  const auto take = [&] {
    if (word.empty()) return;
    const bool is_placeholder = std::none_of(
        word.begin(), word.end(), [](char letter) { return letter >= 'a' && letter <= 'z'; });
    text += is_placeholder ? "\\fI" + roff(word) + "\\fR" : bold(word);
    word.clear();
  };
  for (const char letter : value) {
    if (letter == '|' || letter == ',' || letter == '=' || letter == '.') {
      take();
      text += letter;
    } else {
      word += letter;
    }
  }
  take();
  return text;
}

/// Returns a description with each sentence on a separate line.
std::string paragraph(const std::string& text) {
  std::string lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find(". ", begin);
    // Skip abbreviations, which do not end a sentence.
    while (end != std::string::npos && end >= 3 && text.compare(end - 3, 4, "e.g.") == 0) {
      end = text.find(". ", end + 1);
    }
    const std::size_t until = end == std::string::npos ? text.size() : end + 1;
    lines += roff(text.substr(begin, until - begin)) + "\n";
    begin = until + (end == std::string::npos ? 0 : 1);
  }
  return lines;
}

std::string synopsis_line(const Command& command) {
  std::string line = bold("dpt" + (command.words.empty() ? "" : " " + command.words));
  if (!command.commands.empty()) return line + " \\fICOMMAND\\fR ...";
  for (const CommandOption& argument : command.arguments) {
    const std::string text = value_text(argument.value) + (argument.takes_several ? " ..." : "");
    line += argument.is_required ? " " + text : " [" + text + "]";
  }
  for (const CommandOption& option : command.options) {
    if (!option.is_required) continue;
    line += " " + bold(option.name) + " " + value_text(option.value);
  }
  // Mention options only if there are any besides --help.
  return command.options.size() > 1 ? line + " [\\fIOPTION\\fR ...]" : line;
}

std::string option_entry(const CommandOption& option) {
  std::string head = option.letter.empty() ? "" : bold(option.letter) + ", ";
  if (!option.is_argument) head += bold(option.name);
  if (!option.value.empty()) {
    head += (option.is_argument ? "" : " ") + value_text(option.value);
    if (option.takes_several) head += " ...";
  }
  std::string doc = with_full_stop(option.doc);
  if (!option.needs.empty()) doc += fmt::format(" Only with {}.", fmt::join(option.needs, ", "));
  if (!option.excludes.empty())
    doc += fmt::format(" Not with {}.", fmt::join(option.excludes, ", "));
  return ".TP\n" + head + "\n" + paragraph(doc);
}

std::string section(const std::string& title, const std::string& text) {
  return text.empty() ? "" : ".SH " + title + "\n" + text;
}

std::string commands_of(const Command& command) {
  std::string text;
  for (const Command& below : command.commands) {
    if (below.is_hidden) continue;
    text += ".TP\n.BR " + roff(page_name(below)) + " (1)\n" + paragraph(with_full_stop(below.doc));
  }
  return text;
}

/// Returns the related pages: parent, subcommands, and the other commands of its group.
std::string see_also(const Command& root, const Command& command) {
  const std::string group = command.words.substr(0, command.words.find(' '));
  std::vector<std::string> names;
  for (const Command* other : shown_commands(root)) {
    if (other == &command) continue;
    const bool is_near = other->words.empty() || command.words.empty() || other->words == group ||
                         other->words.starts_with(group + " ");
    // The page of dpt lists only its direct commands; their pages list the subcommands.
    if (command.words.empty() && other->words.find(' ') != std::string::npos) continue;
    if (is_near) names.push_back(page_name(*other));
  }
  std::string text;
  for (const std::string& name : names) {
    text += ".BR " + roff(name) + " (1)" + (&name == &names.back() ? "\n" : ",\n");
  }
  return text;
}

std::string exit_status() {
  std::string text;
  for (const ExitCode& code : exit_codes()) {
    std::string doc;
    bool is_bold = false;
    for (const char letter : code.doc) {
      if (letter == '`') is_bold = !is_bold;
      doc += letter == '`' ? (is_bold ? "\\fB" : "\\fR") : roff(std::string(1, letter));
    }
    text += ".TP\n" + bold(code.code) + "\n" + doc + "\n";
  }
  return text;
}

}  // namespace

std::string with_full_stop(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

std::pair<std::string, std::string> split_prose(const std::string& prose) {
  if (prose.starts_with(".SH ")) return {"", prose};
  const std::size_t sections = prose.find("\n.SH ");
  if (sections == std::string::npos) return {prose, ""};
  return {prose.substr(0, sections + 1), prose.substr(sections + 1)};
}

std::string page_name(const Command& command) {
  std::string name = command.words.empty() ? "dpt" : "dpt-" + command.words;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string manual_page(const Command& root, const Command& command, const std::string& prose,
                        const std::string& date) {
  const auto [description, rest] = split_prose(prose);
  std::string name = page_name(command), title = name;
  std::transform(title.begin(), title.end(), title.begin(), [](char letter) {
    return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  });
  std::string arguments, options;
  for (const CommandOption& argument : command.arguments) arguments += option_entry(argument);
  for (const CommandOption& option : command.options) options += option_entry(option);
  const bool is_root = command.words.empty();
  const std::string purpose =
      is_root ? "train image classifiers from one YAML file, on any number of devices"
              : brief(command.doc);

  std::string page = fmt::format(".TH {} 1 {} \"dpt {}\" \"User Commands\"\n", roff(title), date,
                                 roff(DPT_VERSION));
  page += section("NAME", roff(name) + " \\- " + roff(purpose) + "\n");
  page += section("SYNOPSIS", synopsis_line(command) + "\n");
  page +=
      section("DESCRIPTION", (is_root ? "" : paragraph(with_full_stop(command.doc))) + description);
  page += section("COMMANDS", commands_of(command));
  page += section("ARGUMENTS", arguments);
  page += section("OPTIONS", options);
  page += rest;
  page += section(
      "EXIT STATUS",
      is_root ? exit_status() : "0 on success; the other codes are listed in\n.BR dpt (1).\n");
  return page + section("SEE ALSO", see_also(root, command));
}

}  // namespace dpt
