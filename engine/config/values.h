// Conversion of a YAML node to the value of a field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Returns the values that a field accepts, in words: "an integer of at least 1".
std::string expected_text(const Field& field);
/// Returns the hint for a device that is given only as a number.
std::string hint_of_device(const std::string& number);

/// Returns "at most 3 are accepted" for the message about a list of `count` items; empty if the
/// list is not too long, or expected_text already gives the number.
std::string most_text(const Field& field, std::size_t count);

/// Author of a config.
enum class Author : std::uint8_t {
  user,
  dpt  ///< config stored by dpt: strings of earlier versions may contain `${`, and an unset
       ///< variable in a path is not an error until the path is opened
};

/// Converts `node` to the value of a field of a simple type. On failure, adds issues and returns
/// false.
bool convert_value(const Field& field, const YamlNode& node, PlainValue& value,
                   std::vector<ConfigIssue>& issues, Author author = Author::user);

}  // namespace dpt
