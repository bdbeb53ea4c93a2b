// dpt compare RUN RUN ...: prints a row with the results and the config differences of each run,
// and the spread over repetitions.
#include "app/runs/command_compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/base/csv_field.h"
#include "app/runs/run_comparison.h"
#include "app/runs/run_groups.h"
#include "app/runs/run_sorting.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

/// Maximum number of differing config fields that are columns of the table of runs.
constexpr std::size_t kMaxFieldColumns = 6;

struct Comparison {
  std::vector<ComparedRun> runs;
  std::vector<ConfigDifference> differing;
  RunNumbers numbers;
  std::vector<std::string> measured;  ///< names in `numbers`
  std::vector<RunGroup> groups;
};

ComparedRun load_run(const std::string& given) {
  const std::string folder = checked_run_folder(given);
  ComparedRun run{read_run_facts(folder), config_of_run(folder), {}};
  run.numbers = numbers_of(run.facts);
  return run;
}

Comparison compare_runs(std::vector<ComparedRun> runs) {
  Comparison comparison;
  std::vector<RunConfig> configs;
  std::vector<ConfigValues> by_path;
  std::vector<bool> ended;
  for (const ComparedRun& run : runs) {
    configs.push_back(run.config);
    by_path.push_back(run.config.by_path);
    ended.push_back(run.facts.status == "ok");
    comparison.numbers.push_back(run.numbers);
  }
  comparison.differing = differences_of(configs);
  comparison.measured = measures_in(comparison.numbers);
  comparison.groups = groups_of_runs(by_path, ended);
  comparison.runs = std::move(runs);
  return comparison;
}

/// Returns "the seed", "the fold (data.val_split.fold)", or several of these.
std::string over_text(const RunGroup& group) {
  std::vector<std::string> texts;
  for (const std::string& path : group.over) {
    texts.push_back(path == "seed" ? "the seed" : fmt::format("the fold ({})", path));
  }
  return fmt::format("{}", fmt::join(texts, " and "));
}

struct Spread {
  double mean = 0, deviation = 0;  ///< sample standard deviation (divisor n - 1)
};
Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  const auto n = static_cast<double>(values.size());
  for (const double value : values) spread.mean += value / n;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

/// Returns the values of `name` in a group; empty unless all of its runs have one.
std::vector<double> values_of(const Comparison& of, const RunGroup& group,
                              const std::string& name) {
  std::vector<double> values;
  for (const std::size_t run : group.runs) {
    if (const auto value = number_at(of.numbers, run, name)) values.push_back(*value);
  }
  if (values.size() != group.runs.size()) values.clear();
  return values;
}

Json json_of_comparison(const Comparison& of) {
  Json out = {{"runs", Json::array()}, {"differences", Json::object()}};
  for (const ComparedRun& run : of.runs) out["runs"].push_back(json_of(run.facts));
  for (const auto& [path, values] : of.differing) {
    Json& list = out["differences"][path] = Json::array();
    for (const auto& value : values) list.push_back(value ? Json(*value) : Json());
  }
  out["groups"] = Json::array();
  for (const RunGroup& group : of.groups) {
    Json& made = out["groups"].emplace_back();
    made["over"] = group.over;
    for (const std::size_t run : group.runs) made["runs"].push_back(of.runs[run].facts.folder);
    for (const std::string& name : of.measured) {
      const std::vector<double> all = values_of(of, group, name);
      if (all.empty()) continue;
      const Spread spread = spread_of(all);
      made["results"][name] = {{"mean", spread.mean}, {"std", spread.deviation}};
    }
  }
  return out;
}

/// Returns a CSV file of all differences and numbers, with all digits. Missing values are empty.
std::string csv_of(const Comparison& of) {
  std::vector<std::string> names = {"run", "status"};
  for (const ConfigDifference& difference : of.differing) names.push_back(difference.path);
  names.insert(names.end(), of.measured.begin(), of.measured.end());
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::vector<std::string> fields;
    for (const std::string& cell : cells) fields.push_back(csv_field(cell));
    text += fmt::format("{}\n", fmt::join(fields, ","));
  };
  add_line(names);
  for (std::size_t run = 0; run < of.runs.size(); ++run) {
    std::vector<std::string> cells = {of.runs[run].facts.folder, of.runs[run].facts.status};
    for (const auto& [path, values] : of.differing) cells.push_back(values[run].value_or(""));
    for (const std::string& name : of.measured) {
      const auto value = number_at(of.numbers, run, name);
      cells.push_back(value ? fmt::format("{}", *value) : std::string());
    }
    add_line(cells);
  }
  return text;
}

/// Returns true for a value of the last epoch, which only --csv and --json show: it does not
/// describe the best checkpoint.
bool is_of_last_epoch(const std::string& name) {
  return name.starts_with("train/") || name.starts_with("last/");
}

/// Returns a table with a row for each run. `with_fields` adds a column for each field in which the
/// configs differ.
std::string text_of_runs(const Comparison& of, bool with_fields) {
  std::vector<std::vector<std::string>> rows{{"run"}};
  for (const ConfigDifference& difference : of.differing) {
    if (with_fields) rows[0].push_back(difference.path);
  }
  rows[0].push_back("status");
  const std::size_t first_number = rows[0].size();
  for (const std::string& name : of.measured) {
    if (!is_of_last_epoch(name)) rows[0].push_back(name);
  }
  for (std::size_t run = 0; run < of.runs.size(); ++run) {
    auto& row = rows.emplace_back(std::vector{of.runs[run].facts.folder});
    for (const auto& [path, values] : of.differing) {
      if (with_fields) row.push_back(text_of(values[run]));
    }
    row.push_back(of.runs[run].facts.status);
    for (const std::string& name : of.measured) {
      if (is_of_last_epoch(name)) continue;
      const auto value = number_at(of.numbers, run, name);
      row.push_back(value ? fmt::format("{:.6g}", *value) : "-");
    }
  }
  std::vector<std::string> least = {"seconds", "steps", "status"};
  for (const std::string& name : of.measured) {
    if (name.ends_with("loss")) least.push_back(name);
  }
  least.insert(least.end(), of.measured.begin(), of.measured.end());
  return fitted_table_text(std::move(rows), first_number, least);
}

/// Returns a table with a row for each field in which the configs differ. Shows only the first
/// fields of layers and the number of the others, because two networks may differ in many.
std::string text_of_fields(const Comparison& of) {
  constexpr std::size_t kMaxLayerFields = 10;
  std::vector<std::vector<std::string>> rows{{""}};
  for (const ComparedRun& run : of.runs) rows[0].push_back(run.facts.folder);
  std::size_t layer_fields = 0;
  for (const auto& [path, values] : of.differing) {
    if (path.starts_with("model.layers.") && ++layer_fields > kMaxLayerFields) continue;
    auto& row = rows.emplace_back(std::vector{path});
    for (const auto& value : values) row.push_back(text_of(value));
  }
  std::string text = table_text(rows, 1);
  if (layer_fields > kMaxLayerFields) {
    text += fmt::format("model.layers: {} more field{} (--csv and --json have all)\n",
                        layer_fields - kMaxLayerFields,
                        layer_fields - kMaxLayerFields == 1 ? " differs" : "s differ");
  }
  return text;
}

std::string text_of_group(const Comparison& of, const RunGroup& group) {
  std::vector<std::string> names;
  for (const std::size_t run : group.runs) names.push_back(of.runs[run].facts.folder);
  std::vector<std::vector<std::string>> spreads{{"", "mean", "standard deviation"}};
  for (const std::string& name : of.measured) {
    const std::vector<double> all = values_of(of, group, name);
    if (all.empty()) continue;
    const Spread spread = spread_of(all);
    spreads.push_back(
        {name, fmt::format("{:.6g}", spread.mean), fmt::format("{:.3g}", spread.deviation)});
  }
  return fmt::format("\n{} runs that differ only in {}: {}\n{}", names.size(), over_text(group),
                     fmt::join(names, ", "), table_text(spreads, 1));
}

}  // namespace

int run_compare(const CompareOptions& options) {
  std::vector<ComparedRun> runs;
  for (const std::string& given : options.runs) runs.push_back(load_run(given));
  sort_runs(runs, options.sort);
  const Comparison comparison = compare_runs(std::move(runs));
  if (options.json) {
    fmt::print("{}\n", json_text(json_of_comparison(comparison)));
    return 0;
  }
  if (options.csv) {
    fmt::print("{}", csv_of(comparison));
    return 0;
  }
  const bool has_few_fields = comparison.differing.size() <= kMaxFieldColumns;
  fmt::print("{}", text_of_runs(comparison, has_few_fields));
  if (!has_few_fields) fmt::print("\n{}", text_of_fields(comparison));
  for (const RunGroup& group : comparison.groups) {
    fmt::print("{}", text_of_group(comparison, group));
  }
  return 0;
}

}  // namespace dpt
