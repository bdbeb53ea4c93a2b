#include "app/runs/run_groups.h"

#include <algorithm>
#include <utility>

namespace dpt {
namespace {

bool is_fold(const std::string& path) {
  return path.ends_with(".fold");
}

/// Returns the part of a fold that all folds of the same division share: ", 5]" for "[1, 5]".
std::string division_of(const std::string& fold) {
  const std::size_t comma = fold.find(',');
  return fold.starts_with('[') && comma != std::string::npos ? fold.substr(comma) : std::string();
}

/// A config, divided into the values that repetitions share and those that may differ.
struct Repetition {
  ConfigValues rest, own;
};

Repetition repetition_of(const ConfigValues& config) {
  Repetition made{config, {}};
  made.rest.erase("name");
  const auto mode = config.find("data.normalize.mode");
  if (mode != config.end() && mode->second.find("auto") != std::string::npos) {
    // These values were measured on the training samples, which depend on seed and fold.
    for (const char* measured : {"data.normalize.mean", "data.normalize.std"}) {
      std::erase_if(made.rest,
                    [&](const auto& value) { return value.first.starts_with(measured); });
    }
  }
  for (const auto& [path, value] : config) {
    const bool has_no_fold = value == "null";
    if (path != "seed" && (!is_fold(path) || has_no_fold)) continue;
    made.own[path] = value;
    made.rest[path] = is_fold(path) ? division_of(value) : std::string();
  }
  return made;
}

}  // namespace

std::vector<RunGroup> groups_of_runs(const std::vector<ConfigValues>& configs,
                                     const std::vector<bool>& ended) {
  std::vector<RunGroup> groups;
  std::vector<std::vector<ConfigValues>> own;  // Repetition::own of each group's runs
  std::map<ConfigValues, std::size_t> known;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    if (!ended[i]) continue;
    Repetition run = repetition_of(configs[i]);
    const auto [found, is_new] = known.emplace(std::move(run.rest), groups.size());
    if (is_new) {
      groups.emplace_back();
      own.emplace_back();
    }
    std::vector<ConfigValues>& others = own[found->second];
    if (std::find(others.begin(), others.end(), run.own) != others.end()) continue;
    groups[found->second].runs.push_back(i);
    others.push_back(std::move(run.own));
  }
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const auto& first : own[group][0]) {
      const bool differs = std::any_of(
          own[group].begin(), own[group].end(),
          [&](const ConfigValues& each) { return each.at(first.first) != first.second; });
      if (differs) groups[group].over.push_back(first.first);
    }
  }
  std::erase_if(groups, [](const RunGroup& group) { return group.runs.size() < 2; });
  return groups;
}

}  // namespace dpt
