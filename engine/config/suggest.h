// "Did you mean ...?"
#pragma once

#include <span>
#include <string>

namespace dpt {

/// Returns the most similar candidate (edit distance), or empty if none is near.
std::string closest(const std::string& word, std::span<const std::string> candidates);

/// Returns the first candidate whose last words are `word`, such as val/macro_f1 for val/f1, or
/// empty if there is none.
std::string name_ending_in(const std::string& word, std::span<const std::string> candidates);

}  // namespace dpt
