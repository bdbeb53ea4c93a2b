#include "engine/checkpoints/weights_advice.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

namespace dpt {
namespace {

constexpr std::string_view kCounter = ".num_batches_tracked";

/// Returns the prefix of a tensor's name up to its last dot; empty if it has no dot.
std::string_view layer_of(std::string_view name) {
  return name.substr(0, name.rfind('.') + 1);
}

/// Returns the prefixes of all names up to each of their dots.
std::set<std::string_view> layers_of(const std::vector<std::string>& names) {
  std::set<std::string_view> layers;
  for (const std::string& name : names) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      layers.insert(std::string_view(name).substr(0, dot + 1));
    }
  }
  return layers;
}

}  // namespace

std::string patterns_for(const std::vector<std::string>& names,
                         const std::vector<std::string>& others) {
  constexpr std::size_t kMax = 10;  // a larger number suggests a file of another model
  const std::set<std::string_view> taken = layers_of(others);
  const bool counters_are_free =
      std::none_of(others.begin(), others.end(),
                   [](const std::string& name) { return name.ends_with(kCounter); });
  std::vector<std::string> patterns;
  std::set<std::string> known;
  for (const std::string& name : names) {
    const std::string_view layer = layer_of(name);
    std::string pattern = name;
    if (!layer.empty() && !taken.contains(layer)) {
      pattern = fmt::format("{}*", layer);
    } else if (counters_are_free && name.ends_with(kCounter)) {
      pattern = fmt::format("*{}", kCounter);
    }
    // Quote it, because a star begins an alias in YAML.
    pattern = fmt::format("\"{}\"", pattern);
    if (known.insert(pattern).second && known.size() <= kMax) {
      patterns.push_back(std::move(pattern));
    }
  }
  return fmt::format("[{}{}]", fmt::join(patterns, ", "),
                     known.size() > kMax ? fmt::format(", and {} more", known.size() - kMax) : "");
}

std::string pattern_for_layer(const std::string& name) {
  return patterns_for({name}, {});
}

std::string map_entry_for(const std::vector<std::string>& missing,
                          const std::vector<std::string>& left_over) {
  std::map<std::pair<std::string, std::string>, int> entries;
  // Counts each prefix that, followed by a name in `shorter`, gives a name in `longer`.
  const auto count = [&](const std::vector<std::string>& longer,
                         const std::vector<std::string>& shorter, bool is_file) {
    const std::set<std::string> known(shorter.begin(), shorter.end());
    for (const std::string& name : longer) {
      for (std::size_t dot = name.find('.'); dot != std::string::npos;
           dot = name.find('.', dot + 1)) {
        if (!known.contains(name.substr(dot + 1))) continue;
        const std::string prefix = name.substr(0, dot + 1);
        ++entries[is_file ? std::pair(prefix, std::string()) : std::pair(std::string(), prefix)];
      }
    }
  };
  count(left_over, missing, true);
  count(missing, left_over, false);
  const auto most =
      std::max_element(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == entries.end() || most->second < 2) return {};
  return fmt::format("{{\"{}\": \"{}\"}}", most->first.first, most->first.second);
}

}  // namespace dpt
