// The commands of `dpt` as plain data, from which shell completion and the manual pages are
// generated. The data comes from the definitions in app/cli and the table of value_names.h.
#pragma once

#include <string>
#include <vector>

#include "app/help/value_names.h"

namespace CLI {
class App;
}  // namespace CLI

namespace dpt {

/// An option ("--run-dir") or, if `is_argument`, a positional argument ("CONFIG").
struct CommandOption {
  std::string name;    ///< "--run-dir"; for an argument, its name in CLI11: "config"
  std::string letter;  ///< "-h"; empty if there is none
  std::string value;   ///< name of its value; empty if it takes none
  std::string doc;
  ValueKind kind = ValueKind::text;
  std::vector<std::string> words;  ///< suggested values; all allowed values if `is_choice`
  std::vector<std::string> excludes, needs;  ///< names of other options
  bool is_argument = false, is_required = false, is_choice = false;
  bool takes_several = false;  ///< takes all words until the next option
  bool may_repeat = false;
};

struct Command {
  std::string name;   ///< "check"
  std::string words;  ///< "data check"; empty for dpt itself
  std::string doc;
  std::vector<CommandOption> options, arguments;
  std::vector<Command> commands;
  bool is_hidden = false;  ///< left out of help texts, completion and manual pages
};

/// Returns the tree of `app`. `words`: the command line up to the command, without "dpt".
Command command_tree(const CLI::App& app, const std::string& words = "");

/// Returns the commands that users see, `root` first, each followed by its subcommands.
std::vector<const Command*> shown_commands(const Command& root);

/// Returns the first sentence of a description, or the text before a semicolon if that is shorter.
/// Periods and semicolons in parentheses, and the period of "e.g.", do not count.
std::string brief(const std::string& doc);

}  // namespace dpt
