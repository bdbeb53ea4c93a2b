// The commands of `dpt` as plain data: what shell completion and the manual pages are made from,
// and what a test can look at. All of it comes from the definitions in cli.cpp and the table of
// value_names.h.
#pragma once

#include <string>
#include <vector>

#include "app/help/value_names.h"

namespace CLI {
class App;
}  // namespace CLI

namespace dpt {

/// An option ("--run-dir") or, with `is_argument`, a word without a name ("CONFIG").
struct CommandOption {
  std::string name;    ///< "--run-dir"; of an argument the one given to CLI11: "config"
  std::string letter;  ///< "-h"; empty = it has none
  std::string value;   ///< name of its value; empty = it takes none
  std::string doc;
  ValueKind kind = ValueKind::text;
  std::vector<std::string> words;  ///< values that can be offered; all there are if `is_choice`
  std::vector<std::string> excludes, needs;  ///< names of other options
  bool is_argument = false, is_required = false, is_choice = false;
  bool takes_several = false;  ///< words until the next option
  bool may_repeat = false;
};

struct Command {
  std::string name;   ///< "check"
  std::string words;  ///< "data check"; empty for dpt itself
  std::string doc;
  std::vector<CommandOption> options, arguments;
  std::vector<Command> commands;
  bool is_hidden = false;  ///< in no help text, completion or manual page
};

/// Returns the tree of `app`. `words`: the words of the command line up to its command, without
/// "dpt".
Command command_tree(const CLI::App& app, const std::string& words = "");

/// The commands that users see, `root` first, each followed by those below it.
std::vector<const Command*> shown_commands(const Command& root);

/// The first sentence of a description, up to the first semicolon; abbreviations and parentheses
/// end none.
std::string brief(const std::string& doc);

}  // namespace dpt
