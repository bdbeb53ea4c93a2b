// One YAML node -> the value of one field.
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
/// Returns the name of a device of which only the number is known.
std::string hint_of_device(const std::string& number);

/// For the message about a list of `count`: "at most 3 are accepted"; empty where it is not too
/// long, and where expected_text says how many there must be.
std::string most_text(const Field& field, std::size_t count);

/// Author of a config.
enum class Author : std::uint8_t {
  user,
  dpt  ///< stored in a checkpoint: text of earlier versions may have `${`, and a path whose
       ///< variable is not set matters only once it is opened
};

/// Converts `node` to what a field of a simple type holds. False, with issues, if it cannot be.
bool convert_value(const Field& field, const YamlNode& node, PlainValue& value,
                   std::vector<ConfigIssue>& issues, Author author = Author::user);

}  // namespace dpt
