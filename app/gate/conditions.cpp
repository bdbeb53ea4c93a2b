#include "app/gate/conditions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include <fmt/ranges.h>

#include "engine/config/fields.h"
#include "engine/config/suggest.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

/// Removes the first of `choices` with which `text` begins, and returns it; empty if none matches.
std::string take_one_of(std::string& text, std::span<const char* const> choices) {
  for (const std::string choice : choices) {
    if (!text.starts_with(choice)) continue;
    text.erase(0, choice.size());
    return choice;
  }
  return {};
}

/// Returns false if the text is not a finite number.
bool read_finite(const std::string& text, double& value) {
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, value);
  return number.ec == std::errc() && number.ptr == end && std::isfinite(value);
}

/// Reads "0.9", "baseline", "baseline-0.005", "baseline*1.02"; returns false for anything else.
bool read_bound(std::string text, Condition& condition) {
  condition.asked = text;
  condition.of_baseline = !take_one_of(text, std::array{"baseline"}).empty();
  if (!condition.of_baseline) return read_finite(text, condition.bound);
  if (text.empty()) return true;
  const std::string operation = take_one_of(text, std::array{"+", "-", "*"});
  if (operation.empty() || text.starts_with('-')) return false;  // "baseline--1"
  double& operand = operation == "*" ? condition.factor : condition.bound;
  const bool is_number = read_finite(text, operand);
  if (operation == "-") operand = -operand;
  return is_number;
}

/// Formats a number for people: with six digits, or with all if six do not distinguish it from
/// `other`.
std::string text_beside(double value, double other) {
  std::string text = fmt::format("{:.6g}", value);
  return value != other && text == fmt::format("{:.6g}", other) ? fmt::format("{}", value) : text;
}

void judge_one(Condition& condition, const Json& results, const Baseline& baseline) {
  double value = 0, reference = 0;
  if (find_value(condition, baseline.results.by_split, &baseline, reference).empty()) {
    condition.baseline = fmt::format("{:.6g}", reference);
  }
  condition.outcome = Condition::Outcome::not_met;
  condition.message = find_value(condition, results, nullptr, value);
  if (!condition.message.empty()) return;
  const double bound = condition.bound_for(reference);
  condition.found = text_beside(value, bound);
  condition.limit = text_beside(bound, value);
  const bool is_met = condition.is_met(value, reference);
  if (is_met) condition.outcome = Condition::Outcome::met;
  condition.message = is_met ? fmt::format("met: {} {} {} {}", condition.name(), condition.found,
                                           condition.relation, condition.limit)
                             : "not met: the value is " + condition.found;
  if (!condition.of_baseline) return;
  condition.message +=
      is_met ? fmt::format(" (the baseline {}: {})", baseline.path, condition.baseline)
             : fmt::format("; expected {} {}, because the value of the baseline {} is {}",
                           condition.relation, condition.limit, baseline.path, condition.baseline);
}

/// Returns the longest metric type that a name contains ("f1" for "macro_f1"); empty if none.
std::string metric_type_in(const std::string& name) {
  std::string found;
  for (const ObjectTable* type : metric_kinds().table().alternatives) {
    const bool is_in = name.find(type->name) != std::string::npos;
    if (is_in && type->name.size() > found.size()) found = type->name;
  }
  return found;
}

}  // namespace

bool Condition::is_met(double value, double baseline_value) const {
  const double against = bound_for(baseline_value);
  if (relation.ends_with('=') && value == against) return true;
  return relation.starts_with('>') ? value > against : value < against;
}

Condition parse_condition(const std::string& text) {
  Condition condition;
  condition.text = text;
  std::string rest = text;
  std::erase(rest, ' ');
  condition.results = take_one_of(rest, kResultSplits);
  const bool has_split = !condition.results.empty() && rest.starts_with('/');
  const std::size_t end = std::min(rest.find_first_of("<>="), rest.size());
  if (has_split) condition.metric = rest.substr(1, end - 1);
  rest.erase(0, end);
  condition.relation = take_one_of(rest, std::array{">=", "<=", ">", "<"});
  if (!condition.metric.empty() && !condition.relation.empty() && read_bound(rest, condition)) {
    return condition;
  }
  fail(ErrorKind::usage,
       "--require '{}': expected SPLIT/METRIC RELATION NUMBER, such as val/accuracy>=0.90, or with "
       "--baseline also baseline, baseline+N, baseline-N or baseline*F in place of the number "
       "(splits: train, val, last/val, test; metrics: loss, accuracy and those of the config; "
       "relations: >=, <=, >, <)",
       text);
}

void check_metrics_of(const std::vector<Condition>& conditions, const MetricSet& metrics) {
  for (const Condition& condition : conditions) {
    std::vector<std::string> known = {"loss"};
    for (const Metric& metric : metrics.metrics) {
      if (metric.in_training || condition.split() != "train") known.push_back(metric.name);
    }
    if (std::find(known.begin(), known.end(), condition.metric) != known.end()) continue;
    std::string near = closest(condition.metric, known);
    if (near.empty()) near = name_ending_in(condition.metric, known);
    const std::string type = metric_type_in(condition.metric);
    fail(ErrorKind::usage, "--require {}: expected a metric of {}: {}; found '{}'{}",
         condition.text, condition.split(), fmt::join(known, ", "), condition.metric,
         !near.empty()   ? fmt::format("; did you mean '{}'?", near)
         : !type.empty() ? fmt::format("; add it to the config: metrics: [{{type: {}}}]", type)
                         : std::string());
  }
}

void check_best_is_known(const Condition& condition, const RunResults& results,
                         const std::string& owner) {
  if (condition.results != "val" || results.why_no_val.empty()) return;
  fail(ErrorKind::data,
       "--require {}: {}: expected the validation results of its best epoch, found none: {}. "
       "Its summary.json is from an earlier release: ask for last/val/{} (the last epoch), or "
       "train it again",
       condition.text, owner, results.why_no_val, condition.metric);
}

std::string find_value(const Condition& condition, const Json& results, const Baseline* of,
                       double& value) {
  const std::string owner = of != nullptr ? "the baseline " + of->path : "this run";
  const Json split = results.value(condition.results, Json());
  const Json found = split.is_object() ? split.value(condition.metric, Json()) : split;
  // In JSON, null represents a non-finite number.
  if (of != nullptr && !found.is_null() && !found.is_number()) {
    fail(ErrorKind::data,
         "--baseline {}: expected a number for {}/{} in {}, found {}: name another baseline",
         of->path, condition.results == "val" ? of->val_key : condition.split(), condition.metric,
         of->file,
         found.is_structured() ? fmt::format("an {}", found.type_name()) : json_text(found));
  }
  if (!split.is_object() || split.empty()) {
    return fmt::format("{} has no {} result", owner, condition.results);
  }
  if (!split.contains(condition.metric)) {
    return fmt::format("{} has no {}", owner, condition.name());
  }
  value = found.is_number() ? found.get<double>() : NAN;
  if (std::isfinite(value)) return {};
  return fmt::format("not met: the value{} is not finite", of != nullptr ? " of " + owner : "");
}

void judge(std::vector<Condition>& conditions, const Json& results, const Baseline& baseline) {
  for (Condition& condition : conditions) judge_one(condition, results, baseline);
}

std::string problems_of(const std::vector<Condition>& conditions) {
  std::vector<std::string> lines;
  for (const Condition& condition : conditions) {
    if (condition.outcome != Condition::Outcome::not_met) continue;
    lines.push_back(fmt::format("--require {}: {}", condition.text, condition.message));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace dpt
