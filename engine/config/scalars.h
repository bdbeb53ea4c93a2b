// Strict reading of YAML scalars: YAML 1.1's octals, yes/no and the like are refused with a hint
// rather than guessed at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/yaml_tree.h"

namespace dpt {

/// Returns a description of a node for "found ...": `'abc'`, `12`, `a list of 3`, `nothing`.
std::string found_text(const YamlNode& node);
/// Returns `text` between single quotes, shortened and without control characters.
std::string in_quotes(const std::string& text);
/// Lists known names for a message: "a, b, c"; only the first 20 if there are more.
std::string known_names(const std::vector<std::string>& names);
/// Returns `text` with ASCII letters in lower case, whatever the locale.
std::string lower_case(std::string text);
/// Returns a number as people write it: 65536, 0.5.
std::string number_text(double value);

/// A value, or a hint that says what to write instead. The hint may be empty.
template <class T>
struct Scalar {
  std::optional<T> value;
  std::string hint;
};
/// Reads a scalar strictly. Records no issue if there is no value: the caller does.
Scalar<bool> read_boolean(const YamlNode& node);
Scalar<std::int64_t> read_integer(const YamlNode& node);
Scalar<double> read_number(const YamlNode& node);
Scalar<std::string> read_string(const YamlNode& node);

/// Returns true if a plain scalar of this text would not be read as a string.
bool needs_quotes(const std::string& text);
/// Returns a string as YAML, in double quotes if a plain string would be read differently.
std::string yaml_string(const std::string& text);

}  // namespace dpt
