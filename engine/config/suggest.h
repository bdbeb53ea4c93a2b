// "Did you mean ...?"
#pragma once

#include <span>
#include <string>

namespace dpt {

/// Returns the most similar candidate (edit distance), or empty if none is near.
std::string closest(const std::string& word, std::span<const std::string> candidates);

}  // namespace dpt
