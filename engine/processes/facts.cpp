#include "engine/processes/facts.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "engine/config/flat_values.h"

namespace dpt {
namespace {

std::string place_text(std::size_t rank, const std::vector<std::string>& hosts) {
  return fmt::format("rank {} ({})", rank, hosts[rank]);
}

std::string difference_of_values(const std::string& name, const std::string& one,
                                 const std::string& other, const std::string& on_one,
                                 const std::string& on_other) {
  if (name != kConfigFact) {
    return fmt::format("{} is \"{}\" on {} and \"{}\" on {}", name, one, on_one, other, on_other);
  }
  const std::vector<std::string> lines = diff_specs(one, other, fields_of_process());
  if (lines.empty()) return {};
  return fmt::format("the config ({} -> {}): {}", on_one, on_other, fmt::join(lines, "; "));
}

}  // namespace

const std::vector<std::string>& fields_of_process() {
  static const std::vector<std::string> fields = {"devices",       "data.root",  "data.train",
                                                  "data.val",      "data.test",  "data.workers",
                                                  "data.prefetch", "data.cache", "weights"};
  return fields;
}

std::string difference_of_facts(const std::vector<Facts>& facts,
                                const std::vector<std::string>& hosts) {
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    const Facts &first = facts[0], &other = facts[rank];
    for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const bool both = i < first.size() && i < other.size();
      if (!both || first[i].first != other[i].first) {
        return fmt::format(
            "{} and {} check different facts about the run: run the same dpt on both",
            place_text(0, hosts), place_text(rank, hosts));
      }
      if (first[i].second == other[i].second) continue;
      const std::string difference =
          difference_of_values(first[i].first, first[i].second, other[i].second,
                               place_text(0, hosts), place_text(rank, hosts));
      if (difference.empty()) continue;
      return fmt::format(
          "the processes do not run the same job: {}. Start all with the same program, config, "
          "options and data",
          difference);
    }
  }
  return {};
}

}  // namespace dpt
