// Patterns by which a config chooses parameters: "*.bias", "layer1.*". A star matches any number of
// characters, including dots; a question mark matches one.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dpt {

/// Returns true if the pattern matches the whole name.
bool matches_pattern(const std::string& pattern, const std::string& name);
bool matches_any(std::span<const std::string> patterns, const std::string& name);

/// Returns a message, with a similar name, if the pattern matches none of `names`; otherwise empty.
std::string problem_of_pattern(const std::string& pattern, std::span<const std::string> names);

}  // namespace dpt
