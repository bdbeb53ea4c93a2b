#include "app/runs/run_results.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

namespace dpt {
namespace {

/// Returns the value in a summary's "best", and sets `metric` to that value's name without "val/".
Json best_value(const Json& best, std::string& metric) {
  for (const auto& [key, value] : best.items()) {
    if (key.rfind("val/", 0) != 0) continue;
    metric = key.substr(4);
    return value;
  }
  return {};
}

/// Returns the line of the validation after `step`; null if the log has none.
Json validation_at(const std::string& log, std::int64_t step) {
  std::ifstream lines(log);
  Json found;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(R"("event":"eval")") == std::string::npos) continue;
    Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("split", Json()) != "val") continue;
    if (json.value("step", Json()) == step) found = std::move(json);
  }
  return found;
}

/// Sets `found` to the best epoch's values from the log. Returns the reason if that fails.
std::string find_best_val(const Json& best, const std::string& log, Json& found) {
  const Json step = best.value("step", Json());
  if (!step.is_number_integer()) return "its summary does not say at which step it was best";
  found = validation_at(log, step.get<std::int64_t>());
  if (found.is_null()) {
    return fmt::format("{} has no 'eval' line of the split val at step {}", log, step.dump());
  }
  std::string metric;
  const Json value = best_value(best, metric);
  // A smoothed best is the mean of several evaluations: no single line has this value.
  if (!best.contains("smoothing") && value.is_number() && found.value(metric, Json()) != value) {
    const std::string other = found.value(metric, Json()).dump();
    found = nullptr;
    return fmt::format(
        "{} is the log of another run: expected val/{} {} at step {} (the best of the summary), "
        "found {}",
        log, metric, value.dump(), step.dump(), other);
  }
  return {};
}

}  // namespace

RunResults results_of_summary(const Json& summary, const std::string& log) {
  RunResults results;
  const auto add = [&](const char* split, const Json& values) {
    if (!values.is_null()) results.by_split[split] = values;
  };
  const Json best = summary.value("best", Json());
  const Json last_val = summary.value("val", Json());
  Json val = last_val;
  if (summary.contains("best_val")) {
    val = summary["best_val"];
  } else if (best.is_object()) {
    results.why_no_val = find_best_val(best, log, val);
  }
  add("train", summary.value("train", Json()));
  add("val", val);
  add("last/val", last_val);
  add("test", summary.value("test", Json()));
  return results;
}

}  // namespace dpt
