// dpt compare RUN RUN ...: a row for each run with its results and where its config differs, and
// the spread over repetitions.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/commands.h"
#include "app/predictions.h"
#include "app/run_comparison.h"
#include "app/run_groups.h"
#include "engine/metrics/metric.h"
#include "engine/spec/fields.h"
#include "kernels/error.h"
#include "kernels/json_text.h"

namespace dpt {
namespace {

/// Differing fields of the configs that still fit into the rows of the runs.
constexpr std::size_t kMaxFieldColumns = 6;

constexpr const char* kBestPrefix = "best ";

struct ComparedRun {
  RunFacts facts;
  RunConfig config;
  std::vector<std::pair<std::string, double>> numbers;  ///< of numbers_of
};

struct Comparison {
  std::vector<ComparedRun> runs;
  std::vector<ConfigDifference> differing;
  RunNumbers numbers;                 ///< of each run
  std::vector<std::string> measured;  ///< names of the numbers
  std::vector<RunGroup> groups;
};

ComparedRun load_run(const std::string& given) {
  const std::string folder = checked_run_folder(given);
  ComparedRun run{read_run_facts(folder), config_of_run(folder), {}};
  run.numbers = numbers_of(run.facts);
  return run;
}

/// Value of a run by which rows are sorted: a number, or a text.
struct SortValue {
  std::optional<double> number;
  std::string text;
  bool is_known() const { return number || !text.empty(); }
};

SortValue value_of(const ComparedRun& run, const std::string& name) {
  if (name == "run") return {std::nullopt, run.facts.folder};
  if (name == "status") return {std::nullopt, run.facts.status};
  if (name == "best") return {run.facts.best, {}};
  for (const auto& [each, number] : run.numbers) {
    if (each == name) return {number, {}};
  }
  const auto found = run.config.by_path.find(name);
  if (found == run.config.by_path.end()) return {};
  double number = 0;
  const char* end = found->second.data() + found->second.size();
  const auto parsed = std::from_chars(found->second.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) return {number, found->second};
  return {std::nullopt, found->second};
}

/// True if larger values are better, so that they come first.
bool is_larger_better(const std::vector<ComparedRun>& runs, const std::string& name) {
  std::string metric = name;
  if (name == "best" && !runs.empty()) metric = runs[0].facts.best_name;
  if (metric.starts_with(kBestPrefix)) metric = metric.substr(std::string(kBestPrefix).size());
  const std::size_t slash = metric.rfind('/');
  if (slash == std::string::npos) return false;
  return better_direction("val" + metric.substr(slash)) == Direction::max;
}

void check_sort_name(const std::vector<ComparedRun>& runs, const std::string& name) {
  std::vector<std::string> known = {"run", "status", "best"};
  for (const ComparedRun& run : runs) {
    for (const auto& [each, number] : run.numbers) known.push_back(each);
    for (const auto& [path, value] : run.config.by_path) known.push_back(path);
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = closest(name, known);
  fail(
      ErrorKind::usage,
      "--sort: expected run, status, best, a result such as test/accuracy, or a key of the configs "
      "such as optimizer.lr; found '{}'{}",
      name, near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near));
}

/// Sorts the best first, other values in rising order; runs without the value come last.
void sort_runs(std::vector<ComparedRun>& runs, const std::string& name) {
  if (name.empty()) return;
  check_sort_name(runs, name);
  const bool falls = is_larger_better(runs, name);
  std::stable_sort(runs.begin(), runs.end(), [&](const ComparedRun& a, const ComparedRun& b) {
    const SortValue of_a = value_of(a, name), of_b = value_of(b, name);
    if (of_a.is_known() != of_b.is_known()) return of_a.is_known();
    if (of_a.number.has_value() != of_b.number.has_value()) return of_a.number.has_value();
    if (of_a.number) return falls ? *of_a.number > *of_b.number : *of_a.number < *of_b.number;
    return of_a.text < of_b.text;
  });
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

/// "the seed", "the fold (data.val_split.fold)", or several of them.
std::string over_text(const RunGroup& group) {
  std::vector<std::string> texts;
  for (const std::string& path : group.over) {
    texts.push_back(path == "seed" ? "the seed" : fmt::format("the fold ({})", path));
  }
  return fmt::format("{}", fmt::join(texts, " and "));
}

struct Spread {
  double mean = 0, deviation = 0;  ///< of the sample: divided by n - 1
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

/// Returns the values of `name` of a group; empty unless all of its runs have one.
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

/// A CSV file of all differences and numbers, with all digits; a missing value is empty.
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

/// True for a number that the text leaves to --csv and --json: it says little of what ships.
bool is_of_last_epoch(const std::string& name) {
  return name.starts_with("train/") || name.starts_with("last/");
}

/// A row for each run. Few differences of the configs are columns of it.
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
  return table_text(rows, first_number);
}

/// A row for each field in which the configs differ.
std::string text_of_fields(const Comparison& of) {
  std::vector<std::vector<std::string>> rows{{""}};
  for (const ComparedRun& run : of.runs) rows[0].push_back(run.facts.folder);
  for (const auto& [path, values] : of.differing) {
    auto& row = rows.emplace_back(std::vector{path});
    for (const auto& value : values) row.push_back(text_of(value));
  }
  return table_text(rows, 1);
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
  return fmt::format("\n{} runs that differ in {} only: {}\n{}", names.size(), over_text(group),
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
