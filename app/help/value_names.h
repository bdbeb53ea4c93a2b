// The table of the values of options and arguments: the names of the values in help texts and
// manual pages, and the words that shells suggest. A new option that takes a value needs a line in
// the table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dpt {

enum class ValueKind : std::uint8_t {
  text,        ///< text; only `words` are suggested
  file,        ///< any file
  folder,      ///< any folder
  config,      ///< a YAML file
  checkpoint,  ///< a safetensors file
  run,         ///< a run folder or a checkpoint
  samples,     ///< image files, folders of them, a YAML file, or KEY=VALUE of `data`
  list,        ///< words separated by commas
  override_,   ///< KEY=VALUE of a config
};

struct ValueName {
  std::string_view option;  ///< "--run-dir"; for an argument, its name in CLI11: "config"
  std::string_view name;    ///< name in help texts
  ValueKind kind = ValueKind::text;
  std::string_view words = {};  ///< allowed words, separated by spaces
};

/// Returns the line of an option or argument; null if the table has none.
const ValueName* value_name(std::string_view option);

/// Returns the words of a text, which are separated by spaces.
std::vector<std::string> words_of(std::string_view text);

}  // namespace dpt
