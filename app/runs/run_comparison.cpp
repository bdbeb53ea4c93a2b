#include "app/runs/run_comparison.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "engine/config/read_spec.h"
#include "engine/config/stored_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace {

/// Adds a difference for each list whose items are in different orders.
void add_orders(const std::vector<RunConfig>& configs, std::vector<ConfigDifference>& out) {
  for (const auto& [path, items] : configs[0].flat.orders) {
    std::vector<std::vector<std::string>> lists;
    for (const RunConfig& config : configs) {
      const auto found = config.flat.orders.find(path);
      if (found != config.flat.orders.end()) lists.push_back(found->second);
    }
    if (lists.size() < configs.size()) continue;
    const std::vector<std::string> texts = differing_orders(lists);
    if (!texts.empty()) out.push_back({path, {texts.begin(), texts.end()}});
  }
}

}  // namespace

std::string checked_run_folder(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  std::error_code error;
  if (!std::filesystem::is_regular_file(folder + "/config.yaml", error)) {
    fail(ErrorKind::data,
         "{}: expected a run folder, found no config.yaml in it (`dpt runs` lists the runs)",
         folder);
  }
  return folder;
}

RunConfig config_of_run(const std::string& folder) {
  const std::string file = folder + "/config.yaml";
  const TrainSpec spec = load_stored_spec(catalog(), read_whole_file(file), file);
  RunConfig config;
  config.flat = flat_config(show_to_compare(catalog(), spec), file);
  config.by_path = {config.flat.values.begin(), config.flat.values.end()};
  // Compare the numbers of data.normalize, measured or given. Keep the run's mode too:
  // groups_of_runs needs it to recognise measured numbers.
  config.by_path["data.normalize.mode"] = name_of(spec.data.normalize.mode);
  for (const auto& [path, items] : config.flat.orders) {
    config.by_path[path] = fmt::format("{}", fmt::join(items, ", "));
  }
  return config;
}

std::vector<ConfigDifference> differences_of(const std::vector<RunConfig>& configs) {
  std::vector<std::vector<std::pair<std::string, std::string>>> all;
  for (const RunConfig& config : configs) all.push_back(config.flat.values);
  std::vector<ConfigDifference> differences;
  for (const std::string& path : names_in(all)) {
    ConfigDifference difference{path, {}};
    for (const RunConfig& config : configs) {
      const auto found = config.by_path.find(path);
      difference.values.push_back(found == config.by_path.end() ? std::nullopt
                                                                : std::optional(found->second));
    }
    const auto& values = difference.values;
    const bool is_set = std::any_of(values.begin(), values.end(),
                                    [](const auto& value) { return value && *value != "null"; });
    // Ignore a field that is null in one config and absent in another.
    if (is_set && std::count(values.begin(), values.end(), values[0]) != std::ssize(values)) {
      differences.push_back(std::move(difference));
    }
  }
  if (!configs.empty()) add_orders(configs, differences);
  return differences;
}

Json json_of(const RunFacts& facts) {
  Json out = {{"folder", facts.folder}, {"status", facts.status}, {"steps", facts.steps}};
  if (!facts.best_name.empty()) {
    out["best"] = {{facts.best_name, facts.best ? Json(*facts.best) : Json()},
                   {"step", facts.best_step}};
  }
  out["changed"] = utc_time_text(facts.changed);
  for (const auto& [name, value] : facts.results) out["results"][name] = value;
  return out;
}

std::vector<std::pair<std::string, double>> numbers_of(const RunFacts& facts) {
  std::vector<std::pair<std::string, double>> numbers;
  if (facts.best) numbers.emplace_back("best " + facts.best_name, *facts.best);
  numbers.insert(numbers.end(), facts.results.begin(), facts.results.end());
  numbers.emplace_back("steps", static_cast<double>(facts.steps));
  if (facts.seconds) numbers.emplace_back("seconds", *facts.seconds);
  return numbers;
}

std::optional<double> number_at(const RunNumbers& numbers, std::size_t run,
                                const std::string& name) {
  for (const auto& [each, value] : numbers[run]) {
    if (each == name) return value;
  }
  return std::nullopt;
}

std::vector<std::string> measures_in(const RunNumbers& numbers) {
  std::vector<std::string> names = names_in(numbers);
  const auto place = [](const std::string& name) {
    int at = 0;
    for (const char* beginning : {"best ", "train/", "val/", "last/val/", "test/"}) {
      if (name.rfind(beginning, 0) == 0) return at;
      ++at;
    }
    return at;
  };
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
  return names;
}

}  // namespace dpt
