#include "app/help/command_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

namespace dpt {
namespace {

/// Returns the sorted names of a set of options, whose order in CLI11 changes from run to run.
std::vector<std::string> sorted_names(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns the words that a CLI::IsMember allows, from the name of its type: {csv,jsonl}.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words_of(words);
}

bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

CommandOption option_of(const CLI::Option& option) {
  CommandOption made;
  made.is_argument = option.get_positional();
  made.name = option.get_name();
  if (!option.get_snames().empty()) made.letter = "-" + option.get_snames()[0];
  made.doc = option.get_description();
  made.is_required = option.get_required();
  made.excludes = sorted_names(option.get_excludes());
  made.needs = sorted_names(option.get_needs());
  if (is_flag(option)) return made;
  made.may_repeat = option.get_expected_max() > 1;
  made.takes_several = made.may_repeat && (made.is_argument || option.get_allow_extra_args());
  made.words = choices_of(option);
  made.is_choice = !made.words.empty();
  if (made.is_choice) {
    made.value = fmt::format("{}", fmt::join(made.words, "|"));
  } else if (const ValueName* value = value_name(made.name)) {
    made.value = value->name;
    made.kind = value->kind;
    made.words = words_of(value->words);
  } else {
    made.value = option.get_type_name();
  }
  if (!made.is_argument && option.get_items_expected_min() == 0) {
    made.value = "[" + made.value + "]";
  }
  return made;
}

bool is_shown(const CLI::Option* option) {
  return !option->get_group().empty();
}

void add_shown(const Command& command, std::vector<const Command*>& all) {
  if (command.is_hidden) return;
  all.push_back(&command);
  for (const Command& below : command.commands) add_shown(below, all);
}

}  // namespace

Command command_tree(const CLI::App& app, const std::string& words) {
  Command command;
  command.name = app.get_name();
  command.words = words;
  command.doc = app.get_description();
  command.is_hidden = app.get_group().empty();
  for (const CLI::Option* option : app.get_options(is_shown)) {
    (option->get_positional() ? command.arguments : command.options).push_back(option_of(*option));
  }
  for (const CLI::App* below : app.get_subcommands({})) {
    const std::string& name = below->get_name();
    command.commands.push_back(command_tree(*below, words.empty() ? name : words + " " + name));
  }
  return command;
}

std::vector<const Command*> shown_commands(const Command& root) {
  std::vector<const Command*> all;
  add_shown(root, all);
  return all;
}

std::string brief(const std::string& doc) {
  int depth = 0;
  for (std::size_t i = 0; i < doc.size(); ++i) {
    if (doc[i] == '(') ++depth;
    if (doc[i] == ')') --depth;
    const bool ends = (doc[i] == ';' || doc[i] == '.') && doc.compare(i + 1, 1, " ") == 0;
    const bool is_abbreviation = i >= 3 && doc.compare(i - 3, 4, "e.g.") == 0;
    if (doc[i] == '\n' || (ends && depth == 0 && !is_abbreviation)) return doc.substr(0, i);
  }
  return doc;
}

}  // namespace dpt
