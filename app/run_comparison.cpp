#include "app/run_comparison.h"

#include <algorithm>
#include <filesystem>

#include "app/catalog.h"
#include "engine/checkpoints/file_io.h"
#include "engine/spec/flat_values.h"
#include "engine/spec/read_spec.h"
#include "kernels/error.h"

namespace dpt {

std::string RunConfig::at(const std::string& path) const {
  const auto found = by_path.find(path);
  return found == by_path.end() ? "-" : found->second;
}

std::string checked_run_folder(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  std::error_code error;
  if (!std::filesystem::is_regular_file(folder + "/config.yaml", error)) {
    fail(ErrorKind::data, "{}: expected the folder of a run, found no config.yaml in it", folder);
  }
  return folder;
}

RunConfig config_of_run(const std::string& folder) {
  const std::string file = folder + "/config.yaml";
  const TrainSpec spec = load_stored_spec(catalog(), read_whole_file(file), file);
  RunConfig config;
  config.values = flat_values(show_spec(catalog(), with_explicit_layers(spec)), file);
  config.by_path = {config.values.begin(), config.values.end()};
  return config;
}

std::vector<std::string> differing_paths(const std::vector<RunConfig>& configs) {
  std::vector<std::vector<std::pair<std::string, std::string>>> values;
  for (const RunConfig& config : configs) values.push_back(config.values);
  std::vector<std::string> paths = names_in(values);
  std::erase_if(paths, [&](const std::string& path) {
    return std::all_of(configs.begin(), configs.end(), [&](const RunConfig& config) {
      return config.at(path) == configs[0].at(path);
    });
  });
  return paths;
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
    for (const char* beginning : {"best ", "train/", "val/", "test/"}) {
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
