// The script for bash: tables generated from the commands, and the code below, which reads them and
// does not need the package bash-completion.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/help/completion.h"
#include "engine/config/config_paths.h"

namespace dpt {
namespace {

constexpr const char* kBashHead = R"sh(# Completion of dpt for bash, made by `dpt completion bash`.

# Sets `words`, the command line up to the cursor, as the user wrote it: bash splits words at = and :
# too, and says so nowhere else.
_dpt_words() {
  local line=${COMP_LINE:0:COMP_POINT} word gap i
  words=()
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    gap=${line%%[![:space:]]*}
    line=${line:${#gap}}
    if ((i == COMP_CWORD)) || [[ ${line:0:${#word}} != "$word" ]]; then
      word=$line
    fi
    if [[ -n $gap || $i -eq 0 ]]; then
      words+=("$word")
    else
      words[${#words[@]} - 1]+=$word
    fi
    line=${line:${#word}}
  done
}

# _dpt_offer WORDS VALUE
_dpt_offer() {
  local IFS=$' \t\n'
  COMPREPLY+=($(compgen -W "$1" -- "$2"))
}

# _dpt_files VALUE [PATTERN]: folders, and the files that fit.
_dpt_files() {
  local file
  compopt -o filenames 2>/dev/null
  while IFS= read -r file; do
    COMPREPLY+=("$file")
  done < <(compgen -d -- "$1"; [[ ${2:-} == none ]] || compgen -f -X "${2:+!$2}" -- "$1" |
    while IFS= read -r file; do [[ -d $file ]] || printf '%s\n' "$file"; done)
}

# _dpt_value KIND WORDS VALUE
_dpt_value() {
  local value=$3 head='' i
  [[ $1 != samples || $value != data.* ]] || set -- override '' "$value"
  case $1 in
    list)
      [[ $value != *,* ]] || head=${value%,*},
      _dpt_offer "$2" "${value##*,}"
      for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=$head${COMPREPLY[i]}; done
      compopt -o nospace 2>/dev/null ;;
    override)
      if [[ $value == *=* ]]; then
        _dpt_override "${value%%=*}"
        _dpt_offer "$override" "${value#*=}"
        for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${value%%=*}=${COMPREPLY[i]}; done
      else
        _dpt_offer "$_dpt_keys" "$value"
        compopt -o nospace 2>/dev/null
      fi ;;
    *)
      _dpt_offer "$2" "$value"
      case $1 in
        file) _dpt_files "$value" ;;
        folder) _dpt_files "$value" none ;;
        config) _dpt_files "$value" '*.y?(a)ml' ;;
        checkpoint | run) _dpt_files "$value" '*.safetensors' ;;
        samples)
          local images='@([jJ][pP][gGeE]|[jJ][pP][eE][gG]|[jJ][fF][iI][fF]|[pP][nN][gG]|[wW][eE][bB][pP]'
          images+='|[bB][mM][pP]|[gG][iI][fF]|[tT][iI][fF]?([fF])|[pP][bBgGpPnN][mM]|yaml|yml)'
          _dpt_files "$value" "*.$images" ;;
      esac ;;
  esac
}

_dpt() {
  local words commands options kind choices several override command='' word='' cur i index=0
  local had_extglob=no
  shopt -q extglob && had_extglob=yes
  shopt -s extglob
  COMPREPLY=()
  _dpt_words
  cur=${words[${#words[@]} - 1]}
  _dpt_command ''
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    word=${words[i]}
    if [[ " $commands " == *" $word "* ]]; then
      command+=${command:+ }$word
      _dpt_command "$command"
      word=''
    elif [[ $word == --*=* ]]; then
      word=''
    elif [[ $word == -* ]]; then
      # The value of this option is the next word.
      _dpt_option "$command $word"
      if [[ -n $kind ]] && ((i + 2 < ${#words[@]})); then
        ((++i))
        word=''
      fi
    else
      ((++index))
    fi
  done
  kind=''
  if [[ $cur == --*=* ]]; then
    _dpt_option "$command ${cur%%=*}"
    [[ -z $kind ]] || _dpt_value "$kind" "$choices" "${cur#*=}"
    cur=${cur#*=}
  else
    [[ $word != -* ]] || _dpt_option "$command $word"
    if [[ -n $kind ]]; then
      _dpt_value "$kind" "$choices" "$cur"
    elif [[ $cur == -* ]]; then
      _dpt_offer "$options" "$cur"
    elif [[ -n $commands ]]; then
      _dpt_offer "$commands" "$cur"
    else
      _dpt_argument "$command" "$index"
      [[ -z $kind ]] || _dpt_value "$kind" "$choices" "$cur"
    fi
  fi
  # Readline replaces only what stands after the last = or :, where these split words.
  local head=$cur
  while [[ -n $head && ! ( ${head: -1} == [=:] && $COMP_WORDBREAKS == *"${head: -1}"* ) ]]; do
    head=${head%?}
  done
  for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$head"}; done
  [[ $had_extglob == yes ]] || shopt -u extglob
}
)sh";

const char* bash_kind(ValueKind kind) {
  switch (kind) {
    case ValueKind::file:
      return "file";
    case ValueKind::folder:
      return "folder";
    case ValueKind::config:
      return "config";
    case ValueKind::checkpoint:
      return "checkpoint";
    case ValueKind::run:
      return "run";
    case ValueKind::samples:
      return "samples";
    case ValueKind::list:
      return "list";
    case ValueKind::override_:
      return "override";
    case ValueKind::text:
      break;
  }
  return "text";
}

std::string kind_and_choices(const CommandOption& option) {
  return fmt::format("kind={} choices='{}'", bash_kind(option.kind), fmt::join(option.words, " "));
}

std::string bash_words_of_command(const Command& command) {
  std::vector<std::string> commands, options;
  for (const Command& below : command.commands) {
    if (!below.is_hidden) commands.push_back(below.name);
  }
  for (const CommandOption& option : command.options) {
    options.push_back(option.name);
    if (!option.letter.empty()) options.push_back(option.letter);
  }
  return fmt::format("    '{}') commands='{}' options='{}' ;;\n", command.words,
                     fmt::join(commands, " "), fmt::join(options, " "));
}

}  // namespace

std::string bash_completion(const Command& root, const std::vector<ConfigPath>& paths) {
  std::string commands, options, arguments, keys, overrides;
  for (const Command* command : shown_commands(root)) {
    commands += bash_words_of_command(*command);
    for (const CommandOption& option : command->options) {
      if (option.value.empty()) continue;
      options += fmt::format("    '{} {}') {} ;;\n", command->words, option.name,
                             kind_and_choices(option));
    }
    for (std::size_t i = 0; i < command->arguments.size(); ++i) {
      const CommandOption& argument = command->arguments[i];
      arguments +=
          fmt::format("    '{} '{}) {} ;;\n", command->words,
                      argument.takes_several ? "*" : std::to_string(i), kind_and_choices(argument));
    }
  }
  for (const ConfigPath& path : paths) {
    keys += fmt::format("  {}=\n", path.path);
    if (path.words.empty()) continue;
    overrides += fmt::format("    {}) override='{}' ;;\n", path.path, fmt::join(path.words, " "));
  }
  return kBashHead +
         fmt::format(
             "\n_dpt_command() {{\n  commands='' options=''\n  case $1 in\n{}  esac\n}}\n"
             "\n_dpt_option() {{\n  kind='' choices=''\n  case $1 in\n{}  esac\n}}\n"
             "\n_dpt_argument() {{\n  kind='' choices=''\n  case \"$1 $2\" in\n{}  esac\n}}\n"
             "\n_dpt_override() {{\n  override=''\n  case $1 in\n{}  esac\n}}\n"
             "\n_dpt_keys='\n{}'\n\ncomplete -F _dpt dpt\n",
             commands, options, arguments, overrides, keys);
}

}  // namespace dpt
