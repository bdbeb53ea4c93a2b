// Patterns over names, as a config writes them to choose parameters: "*.bias", "layer1.*". A star
// is any number of characters, dots too; a question mark is one.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dpt {

bool matches_pattern(const std::string& pattern, const std::string& name);
bool matches_any(std::span<const std::string> patterns, const std::string& name);

/// Returns the message for a pattern that matches none of `names`, with a similar name; empty if it
/// matches some.
std::string problem_of_pattern(const std::string& pattern, std::span<const std::string> names);

}  // namespace dpt
