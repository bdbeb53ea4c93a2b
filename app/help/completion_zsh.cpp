// The script for zsh: a function of the completion system (compsys) for each command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/help/completion.h"
#include "engine/config/config_paths.h"
#include "kernels/base/shell_word.h"

namespace dpt {
namespace {

constexpr const char* kZshHelpers = R"sh(#compdef dpt
# Completion of dpt for zsh, made by `dpt completion zsh`.

# The words given to these stand before the files.
_dpt_checkpoint() {
  local ret=1
  (( $# )) && compadd -- "$@" && ret=0
  _files -g '*.safetensors(-.)' && ret=0
  return ret
}

_dpt_samples() {
  if [[ $PREFIX == data.* ]]; then
    _dpt_override
  else
    _files -g '*.(#i)(jpg|jpeg|jpe|jfif|png|webp|bmp|gif|tif|tiff|pbm|pgm|ppm|pnm|yaml|yml)(-.)'
  fi
}

_dpt_list() {
  compset -P '*,'
  compadd -S '' -- "$@"
}
)sh";

/// Escapes colons and brackets, which are special for _arguments and _describe.
std::string zsh_escaped(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == ':' || letter == '[' || letter == ']' || letter == '\\') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

std::string zsh_function(const Command& command) {
  std::string name = command.words.empty() ? "_dpt" : "_dpt_" + command.words;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::string zsh_action(const CommandOption& option) {
  const std::string words = fmt::format("{}", fmt::join(option.words, " "));
  switch (option.kind) {
    case ValueKind::file:
      return "_files";
    case ValueKind::folder:
      return "_files -/";
    case ValueKind::config:
      return "_files -g \"*.y(|a)ml(-.)\"";
    case ValueKind::samples:
      return "_dpt_samples";
    // The leading space prevents _arguments from passing words of its own.
    case ValueKind::checkpoint:
    case ValueKind::run:
      return " _dpt_checkpoint " + words;
    case ValueKind::list:
      return " _dpt_list " + zsh_escaped(words);
    case ValueKind::override_:
      return "_dpt_override";
    case ValueKind::text:
      break;
  }
  return words.empty() ? " " : "(" + zsh_escaped(words) + ")";
}

std::string zsh_value(const CommandOption& option) {
  return fmt::format(":{}:{}", zsh_escaped(option.value), zsh_action(option));
}

std::string zsh_option(const CommandOption& option) {
  if (option.name == "--help" || option.name == "--version") {
    std::string lines;
    for (const std::string& name : {option.letter, option.name}) {
      if (name.empty()) continue;
      lines += "    " +
               shell_quoted(fmt::format("(- *){}[{}]", name, zsh_escaped(brief(option.doc)))) +
               " \\\n";
    }
    return lines;
  }
  std::vector<std::string> others = option.excludes;
  if (!option.may_repeat) others.push_back(option.name);
  std::string text = others.empty() ? "" : fmt::format("({})", fmt::join(others, " "));
  if (option.may_repeat) text += "*";
  text += option.name;
  if (!option.value.empty()) text += "=";
  text += fmt::format("[{}]", zsh_escaped(brief(option.doc)));
  if (!option.value.empty()) text += zsh_value(option);
  return "    " + shell_quoted(text) + " \\\n";
}

std::string zsh_options(const Command& command) {
  std::string text;
  for (const CommandOption& option : command.options) text += zsh_option(option);
  return text;
}

/// Returns the function of a command with options and arguments.
std::string zsh_leaf(const Command& command) {
  std::string arguments;
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    const CommandOption& argument = command.arguments[i];
    arguments +=
        "    " +
        shell_quoted((argument.takes_several ? "*" : std::to_string(i + 1)) + zsh_value(argument)) +
        " \\\n";
  }
  return fmt::format("\n{}() {{\n  _arguments -s -S \\\n{}{}    && return 0\n  return 1\n}}\n",
                     zsh_function(command), zsh_options(command), arguments);
}

/// Returns the function of a command with subcommands.
std::string zsh_group(const Command& command) {
  std::string names, cases;
  for (const Command& below : command.commands) {
    if (below.is_hidden) continue;
    names += "      " +
             shell_quoted(zsh_escaped(below.name) + ":" + zsh_escaped(brief(below.doc))) + "\n";
    cases += fmt::format("        {}) {} && ret=0 ;;\n", below.name, zsh_function(below));
  }
  return fmt::format(R"sh(
{}() {{
  local curcontext=$curcontext state state_descr line ret=1
  local -a commands
  typeset -A opt_args
  _arguments -C \
{}    '1: :->command' '*:: :->rest' && ret=0
  case $state in
    command)
      commands=(
{}      )
      _describe -t commands command commands && ret=0 ;;
    rest)
      case $words[1] in
{}      esac ;;
  esac
  return ret
}}
)sh",
                     zsh_function(command), zsh_options(command), names, cases);
}

std::string zsh_overrides(const std::vector<ConfigPath>& paths) {
  std::string keys, values;
  for (const ConfigPath& path : paths) {
    keys += fmt::format("    {}=\n", path.path);
    if (path.words.empty()) continue;
    values += fmt::format("      {}) compadd -- {} ;;\n", path.path, fmt::join(path.words, " "));
  }
  return fmt::format(R"sh(
_dpt_override() {{
  local -a keys
  if compset -P 1 '*='; then
    case ${{${{IPREFIX%=}}##*=}} in
{}      *) return 1 ;;
    esac
    return
  fi
  keys=(
{}  )
  compadd -S '' -- $keys
}}
)sh",
                     values, keys);
}

}  // namespace

std::string zsh_completion(const Command& root, const std::vector<ConfigPath>& paths) {
  std::string text = kZshHelpers + zsh_overrides(paths);
  for (const Command* command : shown_commands(root)) {
    text += command->commands.empty() ? zsh_leaf(*command) : zsh_group(*command);
  }
  // If the file is in $fpath, zsh runs it as the body of the function at the function's first call.
  // If the file is sourced, it must register the function itself.
  return text +
         "\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _dpt \"$@\"\nelse\n  compdef "
         "_dpt dpt\nfi\n";
}

}  // namespace dpt
