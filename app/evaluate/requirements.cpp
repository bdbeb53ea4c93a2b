#include "app/evaluate/requirements.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include <fmt/ranges.h>

#include "app/runs/run_facts.h"
#include "engine/config/fields.h"
#include "engine/config/suggest.h"
#include "engine/metrics/metric.h"
#include "engine/run/run_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

constexpr std::array kSplitNames{"train/", "val/", "last/val/", "test/"};

/// The first of `choices` that `text` begins with, taken off it; empty if there is none.
template <std::size_t N>
std::string take_one_of(std::string& text, const std::array<const char*, N>& choices) {
  for (const char* name : choices) {
    const std::string choice = name;
    if (text.compare(0, choice.size(), choice) == 0) {
      text.erase(0, choice.size());
      return choice;
    }
  }
  return {};
}

/// The whole of `text` as a finite number.
std::optional<double> finite_bound(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, value);
  if (number.ec != std::errc() || number.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// "0.9", "baseline", "baseline-0.005", "baseline*1.02"; false for anything else.
bool read_bound(std::string text, Requirement& requirement) {
  requirement.of_baseline = !take_one_of(text, std::array{"baseline"}).empty();
  if (requirement.of_baseline && text.empty()) return true;
  char operation = 0;
  if (requirement.of_baseline) {
    operation = text[0];
    text.erase(0, 1);
    // A sign has been read already.
    if (text.empty() || text[0] == '-') return false;
  }
  const std::optional<double> value = finite_bound(text);
  if (!value) return false;
  if (operation == '*') {
    requirement.factor = *value;
    return true;
  }
  requirement.bound = operation == '-' ? -*value : *value;
  return operation == 0 || operation == '+' || operation == '-';
}

/// What a split of the results has under a metric's name; null where it has neither.
Json value_in(const Json& results, const Requirement& requirement) {
  const auto split = results.find(requirement.results);
  if (split == results.end() || !split->is_object()) return {};
  const auto value = split->find(requirement.metric);
  return value == split->end() ? Json() : *value;
}

/// JSON has no word for what is not a finite number, and nothing is met by that.
bool is_finite(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>());
}

/// Why there is no finite value; `owner`: "this run", "the baseline runs/a".
std::string why_no_value(const Json& results, const Requirement& requirement,
                         const std::string& owner) {
  const Json split = results.value(requirement.results, Json());
  if (!split.is_object() || split.empty()) {
    return fmt::format("{} has no {} result", owner, requirement.results);
  }
  if (!split.contains(requirement.metric)) {
    return fmt::format("{} has no {}", owner, requirement.name());
  }
  return {};
}

/// A number as people read it; with all of its digits where six of them do not tell it from
/// `other`.
std::string text_beside(double value, double other) {
  std::string text = fmt::format("{:.6g}", value);
  return value != other && text == fmt::format("{:.6g}", other) ? fmt::format("{}", value) : text;
}

Judgement judge_one(const Requirement& requirement, const Json& results, const Baseline& baseline) {
  Judgement judgement;
  judgement.requirement = requirement;
  judgement.verdict = Judgement::Verdict::not_met;
  const Json value = value_in(results, requirement);
  const Json reference = value_in(baseline.results.by_split, requirement);
  if (is_finite(reference)) judgement.baseline = fmt::format("{:.6g}", reference.get<double>());
  if (!is_finite(value)) {
    const std::string missing = why_no_value(results, requirement, "this run");
    judgement.reason = missing.empty() ? "not met: the value is not finite" : missing;
    return judgement;
  }
  const double found = value.get<double>();
  judgement.found = fmt::format("{:.6g}", found);
  if (requirement.of_baseline && !is_finite(reference)) {
    const std::string owner = "the baseline " + baseline.path;
    const std::string missing = why_no_value(baseline.results.by_split, requirement, owner);
    judgement.reason =
        missing.empty() ? fmt::format("not met: the value of {} is not finite", owner) : missing;
    return judgement;
  }
  const double bound =
      requirement.bound_for(requirement.of_baseline ? reference.get<double>() : 0.0);
  judgement.found = text_beside(found, bound);
  judgement.bound = text_beside(bound, found);
  if (is_met(requirement, found, requirement.of_baseline ? reference.get<double>() : 0.0)) {
    judgement.verdict = Judgement::Verdict::met;
    return judgement;
  }
  judgement.reason = "not met: the value is " + judgement.found;
  if (requirement.of_baseline) {
    judgement.reason +=
        fmt::format("; expected {} {}, the value of the baseline {} is {}", requirement.relation,
                    judgement.bound, baseline.path, judgement.baseline);
  }
  return judgement;
}

/// The run has a summary.json only while it is not under way.
[[noreturn]] void refuse_unfinished(const std::string& path, const std::string& status) {
  fail(ErrorKind::data,
       "--baseline {}: expected a run that has ended, found one that {}: {}, or name another run",
       path,
       status == "running"    ? "is under way"
       : status == "stopped"  ? "was stopped"
       : status == "failed"   ? "failed"
       : status == "diverged" ? "diverged"
                              : "was interrupted",
       status == "running" ? "wait for its end"
                           : "let it go on to its end (the same dpt train command again)");
}

std::string summary_file_of(const std::string& folder) {
  const std::string file = folder + "/summary.json";
  std::error_code ignored;
  if (fs::exists(file, ignored)) return file;
  if (!is_run_folder(folder)) {
    fail(ErrorKind::data, "--baseline {}: expected the folder of a run, found no config.yaml in it",
         folder);
  }
  refuse_unfinished(folder, read_run_facts(folder).status);
}

/// Returns the type of metric that a name such as macro_f1 contains; empty if there is none.
std::string metric_type_in(const std::string& name) {
  std::string found;
  for (const ObjectTable* type : metric_kinds().table().alternatives) {
    const bool is_in = name.find(type->name) != std::string::npos;
    if (is_in && type->name.size() > found.size()) found = type->name;
  }
  return found;
}

}  // namespace

Requirement parse_requirement(const std::string& text) {
  std::string rest = text;
  rest.erase(std::remove(rest.begin(), rest.end(), ' '), rest.end());
  Requirement requirement;
  requirement.text = text;
  requirement.results = take_one_of(rest, kSplitNames);
  if (!requirement.results.empty()) requirement.results.pop_back();  // its slash
  const std::size_t name_end = std::min(rest.find_first_of("<>="), rest.size());
  requirement.metric = rest.substr(0, name_end);
  rest.erase(0, name_end);
  requirement.relation = take_one_of(rest, std::array{">=", "<=", ">", "<"});
  if (requirement.results.empty() || requirement.metric.empty() || requirement.relation.empty() ||
      !read_bound(rest, requirement)) {
    fail(ErrorKind::usage,
         "--require '{}': expected SPLIT/METRIC RELATION NUMBER, such as val/accuracy>=0.90, or "
         "with --baseline also baseline, baseline+N, baseline-N or baseline*F in place of the "
         "number (splits: train, val, last/val, test; metrics: loss, accuracy and those of the "
         "config; relations: >=, <=, >, <)",
         text);
  }
  return requirement;
}

void check_metrics_of(const std::vector<Requirement>& requirements, const MetricSet& metrics) {
  for (const Requirement& requirement : requirements) {
    std::vector<std::string> known = {"loss"};
    for (const Metric& metric : metrics.metrics) {
      if (metric.in_training || requirement.split() != "train") known.push_back(metric.name);
    }
    if (std::find(known.begin(), known.end(), requirement.metric) != known.end()) continue;
    const std::string near = closest(requirement.metric, known);
    const std::string type = metric_type_in(requirement.metric);
    fail(ErrorKind::usage, "--require {}: expected a metric of {}: {}; found '{}'{}",
         requirement.text, requirement.split(), fmt::join(known, ", "), requirement.metric,
         !near.empty()   ? fmt::format("; did you mean '{}'?", near)
         : !type.empty() ? fmt::format("; add it to the config: metrics: [{{type: {}}}]", type)
                         : std::string());
  }
}

bool is_met(const Requirement& requirement, double value, double baseline) {
  const double bound = requirement.bound_for(baseline);
  if (requirement.relation == ">=") return value >= bound;
  if (requirement.relation == "<=") return value <= bound;
  if (requirement.relation == ">") return value > bound;
  return value < bound;
}

Baseline load_baseline(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? summary_file_of(path) : path;
  if (!fs::exists(file, ignored)) {
    fail(ErrorKind::data,
         "--baseline {}: no such file: expected a run folder, its summary.json, or a file with the "
         "output of dpt eval --json",
         path);
  }
  const Json json = Json::parse(read_whole_file(file), nullptr, false);
  Baseline baseline{path, {}};
  const auto names = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string();
  };
  if (names("status")) {
    const std::string status = json["status"];
    // What --max-steps has limited is judged where it ended, too.
    if (status != "ok" && status != "max_steps") refuse_unfinished(path, status);
    baseline.results = results_of_summary(json, folder_of(file) + "/metrics.jsonl");
    return baseline;
  }
  if (names("split") && json.contains("loss")) {
    baseline.results.by_split[json["split"].get<std::string>()] = json;
    return baseline;
  }
  fail(ErrorKind::data,
       "--baseline {}: expected a run folder, its summary.json, or the output of dpt eval --json; "
       "found {}",
       path,
       json.is_discarded() ? "no JSON"
       : !json.is_object() ? "JSON that is not an object"
                           : "an object without 'status' or 'split'");
}

void check_best_is_known(const Requirement& requirement, const RunResults& results,
                         const std::string& owner) {
  if (requirement.results != "val" || results.why_no_val.empty()) return;
  fail(ErrorKind::data,
       "--require {}: {}: expected the validation results of its best epoch, found none: {}. An "
       "earlier release wrote its summary.json; ask for last/val/{} (the last epoch), or train it "
       "again",
       requirement.text, owner, results.why_no_val, requirement.metric);
}

std::vector<Judgement> judge(const std::vector<Requirement>& requirements, const Json& results,
                             const Baseline& baseline) {
  std::vector<Judgement> judgements;
  for (const Requirement& requirement : requirements) {
    judgements.push_back(judge_one(requirement, results, baseline));
  }
  return judgements;
}

std::string text_of_met(const Judgement& judgement, const std::string& baseline_path) {
  const Requirement& requirement = judgement.requirement;
  std::string text = fmt::format("met: {} {} {} {}", requirement.name(), judgement.found,
                                 requirement.relation, judgement.bound);
  if (requirement.of_baseline) {
    text += fmt::format(" (the baseline {}: {})", baseline_path, judgement.baseline);
  }
  return text;
}

std::string problems_of(const std::vector<Judgement>& judgements) {
  std::vector<std::string> lines;
  for (const Judgement& judgement : judgements) {
    if (judgement.verdict != Judgement::Verdict::not_met) continue;
    lines.push_back(fmt::format("--require {}: {}", judgement.requirement.text, judgement.reason));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace dpt
