#include "engine/config/name_patterns.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "engine/config/fields.h"
#include "engine/config/suggest.h"

namespace dpt {

bool matches_pattern(const std::string& pattern, const std::string& name) {
  // On a mismatch, let the last star match one more character.
  std::size_t p = 0, n = 0;
  std::size_t star = std::string::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

bool matches_any(std::span<const std::string> patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& each) { return matches_pattern(each, name); });
}

std::string problem_of_pattern(const std::string& pattern, std::span<const std::string> names) {
  constexpr std::size_t kMaxNames = 10;
  const auto matches = [&](const std::string& name) { return matches_pattern(pattern, name); };
  if (std::any_of(names.begin(), names.end(), matches)) return {};
  std::string text = fmt::format("'{}' matches no parameter", pattern);
  if (pattern.starts_with('!')) {
    return text + "; a pattern cannot exclude: train.freeze has a list `except` for that";
  }
  // For a pattern with a star, prefer the names of layers and the last parts of parameters' names;
  // for one without, prefer whole names.
  const std::string word = pattern.substr(0, pattern.find_last_not_of(".*") + 1);
  std::vector<std::string> known;
  for (const std::string& name : names) {
    for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = name.rfind('.', dot - 1)) {
      known.push_back(name.substr(0, dot));
    }
    known.push_back(name.substr(name.rfind('.') + 1));
  }
  const bool has_star = pattern.find('*') != std::string::npos;
  known.insert(has_star ? known.end() : known.begin(), names.begin(), names.end());
  const std::string plain = word.substr(std::min(word.find_first_not_of("*."), word.size()));
  const std::string near = closest(plain, known);
  if (near.empty()) {
    const auto shown = names.first(std::min(names.size(), kMaxNames));
    text += fmt::format("; the parameters are {}{}", fmt::join(shown, ", "),
                        shown.size() < names.size() ? ", ..." : "");
    return text;
  }
  if (near == plain) {
    const bool is_layer = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(near + ".");
    });
    return text + fmt::format("; a pattern is compared with the whole name: did you mean '{}'?",
                              is_layer ? near + ".*" : "*" + near + "*");
  }
  // Keep the stars of the pattern.
  std::string better = pattern;
  better.replace(better.find(plain), plain.size(), near);
  if (!std::any_of(names.begin(), names.end(),
                   [&](const std::string& name) { return matches_pattern(better, name); })) {
    better = near + ".*";
  }
  return text + fmt::format("; did you mean '{}'?", better);
}

}  // namespace dpt
