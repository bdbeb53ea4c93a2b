#include "app/runs/run_sorting.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/config/fields.h"
#include "engine/config/suggest.h"
#include "engine/metrics/metric.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr const char* kBestPrefix = "best ";

/// Sort value of a run: a number or a string.
struct SortValue {
  std::optional<double> number;
  std::string text;
  bool is_known() const { return number || !text.empty(); }
};

SortValue value_of(const ComparedRun& run, const std::string& name) {
  if (name == "run") return {std::nullopt, run.facts.folder};
  if (name == "status") return {std::nullopt, run.facts.status};
  if (name == "best") return {run.facts.best, {}};
  if (name == "changed") return {static_cast<double>(run.facts.changed), {}};
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

/// Returns true if larger values are better and come first.
bool is_larger_better(const std::vector<ComparedRun>& runs, const std::string& name) {
  std::string metric = name;
  if (name == "best" && !runs.empty()) metric = runs[0].facts.best_name;
  if (metric.starts_with(kBestPrefix)) metric = metric.substr(std::string(kBestPrefix).size());
  const std::size_t slash = metric.rfind('/');
  if (slash == std::string::npos) return false;
  return better_direction("val" + metric.substr(slash)) == Direction::max;
}

void check_sort_name(const std::vector<ComparedRun>& runs, const std::string& name) {
  std::vector<std::string> known = {"run", "status", "changed", "best"};
  for (const ComparedRun& run : runs) {
    for (const auto& [each, number] : run.numbers) known.push_back(each);
    for (const auto& [path, value] : run.config.by_path) known.push_back(path);
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = closest(name, known);
  fail(ErrorKind::usage,
       "--sort: expected run, status, changed, best, a result such as test/accuracy, or a key of "
       "the configs such as optimizer.lr; found '{}'{}",
       name, near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near));
}

}  // namespace

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

}  // namespace dpt
