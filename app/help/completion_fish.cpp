// The script for fish: a line for each command, option and argument, with a condition that tests
// the command on the command line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/help/completion.h"
#include "engine/config/config_paths.h"

namespace dpt {
namespace {

constexpr const char* kFishHelpers = R"sh(
# The word at the cursor, without --option=.
function __dpt_token
    commandline -ct | string replace -r -- '^--[^=]*=' ''
end

# The words before the cursor that are neither options nor their values: `COMMANDS|ARGUMENTS`.
function __dpt_state
    set -l tokens (commandline -opc)
    set -e tokens[1]
    set -l path
    set -l count 0
    set -l skip 0
    for token in $tokens
        if test $skip = 1
            set skip 0
            continue
        end
        if string match -q -- '-*' $token
            contains -- "$path $token" $__dpt_valued; and set skip 1
            continue
        end
        set -l next (string trim -- "$path $token")
        if contains -- "$next" $__dpt_commands
            set path $next
        else
            set count (math $count + 1)
        end
    end
    echo "$path|$count"
end

# __dpt_is COMMAND: whether the line is of this command.
function __dpt_is
    string match -q -- "$argv[1]|*" (__dpt_state)
end

# __dpt_argument COMMAND INDEX [more]: whether its argument of this index is to come, or a later one.
function __dpt_argument
    set -l state (string split -- '|' (__dpt_state))
    test "$state[1]" = "$argv[1]"; or return 1
    if set -q argv[3]
        test $state[2] -ge $argv[2]
    else
        test $state[2] -eq $argv[2]
    end
end

# __dpt_list WORD...: of a list with commas.
function __dpt_list
    set -l head (__dpt_token | string match -r -- '.*,')
    printf '%s\n' "$head"$argv
end

function __dpt_folders
    __fish_complete_directories (__dpt_token) ''
end

# __dpt_files SUFFIX...: such files, and folders.
function __dpt_files
    set -l suffixes (string join '|' -- (string escape --style=regex -- $argv))
    __fish_complete_path (__dpt_token) | string match -r -- ".*(?:/|$suffixes)(?:\t.*)?\$"
end

# Images and configs, or keys of `data`.
function __dpt_samples
    if string match -q -- 'data.*' (__dpt_token)
        __dpt_overrides
    else
        __dpt_files .jpg .jpeg .jpe .jfif .png .webp .bmp .gif .tif .tiff .pbm .pgm .ppm .pnm .yaml .yml
    end
end
)sh";

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + "'";
}

/// Returns the part of a line that completes the value.
std::string fish_value(const CommandOption& option) {
  const std::string words = fmt::format("{}", fmt::join(option.words, " "));
  std::string more;
  switch (option.kind) {
    case ValueKind::file:
      return " -F" + (words.empty() ? "" : " -a " + fish_quoted(words));
    case ValueKind::folder:
      more = "(__dpt_folders)";
      break;
    case ValueKind::config:
      more = "(__dpt_files .yaml .yml)";
      break;
    case ValueKind::checkpoint:
    case ValueKind::run:
      more = "(__dpt_files .safetensors)";
      break;
    case ValueKind::samples:
      more = "(__dpt_samples)";
      break;
    case ValueKind::list:
      return " -f -a " + fish_quoted("(__dpt_list " + words + ")");
    case ValueKind::override_:
      return " -f -a " + fish_quoted("(__dpt_overrides)");
    case ValueKind::text:
      break;
  }
  std::string all = words;
  if (!all.empty() && !more.empty()) all += " ";
  all += more;
  return all.empty() ? " -f" : " -f -a " + fish_quoted(all);
}

std::string fish_option(const Command& command, const CommandOption& option) {
  std::string line = "complete -c dpt -n " + fish_quoted("__dpt_is " + fish_quoted(command.words)) +
                     " -l " + option.name.substr(2);
  if (!option.letter.empty()) line += " -s " + option.letter.substr(1);
  line += " -d " + fish_quoted(brief(option.doc));
  if (!option.value.empty()) line += " -r" + fish_value(option);
  return line + "\n";
}

std::string fish_argument(const Command& command, std::size_t index) {
  const CommandOption& argument = command.arguments[index];
  const std::string condition = fmt::format("__dpt_argument {} {}{}", fish_quoted(command.words),
                                            index, argument.takes_several ? " more" : "");
  return "complete -c dpt -n " + fish_quoted(condition) + fish_value(argument) + "\n";
}

std::string fish_overrides(const std::vector<ConfigPath>& paths) {
  std::string keys, values;
  for (const ConfigPath& path : paths) {
    keys += " \\\n        " + path.path + "=";
    for (const std::string& word : path.words) {
      values += " \\\n        " + fish_quoted(path.path + "=" + word);
    }
  }
  return fmt::format(R"sh(
function __dpt_overrides
    if string match -q -- '*=*' (__dpt_token)
        printf '%s\n'{}
    else
        printf '%s\n'{}
    end
end
)sh",
                     values, keys);
}

}  // namespace

std::string fish_completion(const Command& root, const std::vector<ConfigPath>& paths) {
  std::string commands, valued, lines;
  for (const Command* command : shown_commands(root)) {
    if (!command->words.empty()) commands += " " + fish_quoted(command->words);
    for (const Command& below : command->commands) {
      if (below.is_hidden) continue;
      lines +=
          fmt::format("complete -c dpt -n {} -a {} -d {}\n",
                      fish_quoted(fmt::format("__dpt_argument {} 0", fish_quoted(command->words))),
                      below.name, fish_quoted(brief(below.doc)));
    }
    for (const CommandOption& option : command->options) {
      if (!option.value.empty()) valued += " " + fish_quoted(command->words + " " + option.name);
      lines += fish_option(*command, option);
    }
    for (std::size_t i = 0; i < command->arguments.size(); ++i) lines += fish_argument(*command, i);
  }
  return "# Completion of dpt for fish, made by `dpt completion fish`.\n" +
         fmt::format("set -g __dpt_commands{}\nset -g __dpt_valued{}\n", commands, valued) +
         kFishHelpers + fish_overrides(paths) + "\ncomplete -c dpt -f\n" + lines;
}

}  // namespace dpt
