#include "app/runs/run_facts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "app/base/lenient_json.h"
#include "app/runs/run_results.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/run/run_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/terminal.h"

namespace dpt {
namespace {

using FactsJson = nlohmann::ordered_json;

constexpr const char* kInterrupted = "interrupted";

std::int64_t time_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::int64_t>(status.st_mtime) : 0;
}

// Return the value of a field, or `otherwise` if it is missing or has another type: an invalid file
// must not hide all other runs.
std::string text_in(const FactsJson& line, const char* key, const char* otherwise) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : otherwise;
}
std::int64_t count_in(const FactsJson& line, const char* key, std::int64_t otherwise) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

/// Returns the status in a line `run_end` or in summary.json.
std::string status_of(const FactsJson& end) {
  const std::string status = text_in(end, "status", "ended");
  const bool is_diverged =
      count_in(end, "exit_code", 0) == static_cast<std::int64_t>(ErrorKind::diverged);
  return status == "failed" && is_diverged ? "diverged" : status;
}

/// Adds an object of results, from summary.json or a line `epoch` or `eval`.
void add_results(const std::string& split, const FactsJson& values, RunFacts& facts) {
  for (const auto& [key, value] : values.items()) {
    static const std::set<std::string> others = {"n",         "step",      "epoch",
                                                 "v",         "seconds",   "images_per_s",
                                                 "data_wait", "elapsed_s", "unreadable"};
    const bool counts = others.count(key) > 0;
    if (value.is_number() && !counts) {
      facts.results.emplace_back(split + "/" + key, value.get<double>());
    }
  }
}

void set_best(const FactsJson& best, RunFacts& facts) {
  if (!best.is_object()) return;
  facts.best_step = count_in(best, "step", 0);
  for (const auto& [key, value] : best.items()) {
    if (key == "step" || key == "smoothing") continue;
    facts.best_name = key;
    if (value.is_number()) facts.best = value.get<double>();
  }
}

/// Results in a log.
struct LoggedResults {
  std::map<std::string, FactsJson> newest;  ///< by split
  std::int64_t starts = 0;                  ///< number of processes
  /// Time of all processes; unset if one of them, from an earlier release, did not log it.
  std::optional<double> seconds = 0.0;
  std::map<std::int64_t, FactsJson> validations;  ///< by step
};

/// Adds the time of a process, from the last line of its log, to the total.
void add_time_of_process(const std::string& last_line, std::optional<double>& seconds) {
  const FactsJson last = FactsJson::parse(last_line, nullptr, false);
  const bool has_time = last.is_object() && last.contains("elapsed_s");
  if (!has_time || !last["elapsed_s"].is_number()) {
    seconds.reset();
  } else if (seconds) {
    *seconds += last["elapsed_s"].get<double>();
  }
}

/// Reads the last step, the end of the last process and the results from the log.
LoggedResults read_log(const std::string& path, RunFacts& facts) {
  std::error_code error;
  // Do not open a pipe, which might block forever.
  std::ifstream lines;
  if (std::filesystem::is_regular_file(path, error)) lines.open(path);
  LoggedResults results;
  facts.status = kInterrupted;
  // Most lines of a long log are steps. Parse only the last complete one, to save time.
  std::string last_step, last_other;
  bool is_step_last = false;
  const auto end_process = [&] {
    add_time_of_process(is_step_last ? last_step : last_other, results.seconds);
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.find(R"("event":"step")") != std::string::npos) {
      if (line.back() == '}') {
        last_step = std::move(line);
        is_step_last = true;
      }
      continue;
    }
    const FactsJson json = FactsJson::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    const std::string name = text_in(json, "event", "");
    if (name.empty()) continue;
    if (name == "run_start") {
      if (results.starts > 0) end_process();
      ++results.starts;
      // Forget the best of earlier processes: it may belong to an abandoned branch, or be older
      // than the best that this process has saved.
      facts.status = kInterrupted;
      facts.best_name.clear();
      facts.best.reset();
      facts.best_step = 0;
      if (json.contains("step")) {
        facts.steps = 0;
        last_step.clear();
      }
    }
    last_other = std::move(line);
    is_step_last = false;
    facts.steps = std::max(facts.steps, count_in(json, "step", 0));
    if (name == "run_end") {
      facts.status = status_of(json);
      if (json.contains("best")) set_best(json["best"], facts);
    }
    if (name == "epoch") results.newest["train"] = json;
    if (name != "eval") continue;
    const std::string split = text_in(json, "split", "");
    results.newest[split] = json;
    if (split == "val") results.validations[count_in(json, "step", 0)] = json;
  }
  end_process();
  const FactsJson step = FactsJson::parse(last_step, nullptr, false);
  if (step.is_object()) facts.steps = std::max(facts.steps, count_in(step, "step", 0));
  return results;
}

/// Converts the results of a log to the form of a summary.
RunResults results_of_log(LoggedResults logged, const RunFacts& facts) {
  RunResults results;
  for (const char* split : {"train", "val", "test"}) {
    if (logged.newest.count(split) > 0) results.by_split[split] = logged.newest[split];
  }
  if (!results.by_split.contains("val")) return results;
  results.by_split["last/val"] = results.by_split["val"];
  if (facts.best_name.empty()) return results;
  const auto best = logged.validations.find(facts.best_step);
  results.by_split.erase("val");
  if (best != logged.validations.end()) results.by_split["val"] = best->second;
  return results;
}

/// Reads the best value from the best checkpoint, for a run whose newest process has failed or has
/// not ended.
void read_best(const std::string& path, RunFacts& facts) {
  if (!facts.best_name.empty() || time_of(path) == 0) return;
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const Metadata& metadata = file.metadata();
    const std::string monitor = metadata.at("dpt.best_monitor");
    facts.best = std::stod(metadata.at("dpt.best"));
    facts.best_step = std::stoll(metadata.at("dpt.best_step"));
    facts.best_name = monitor.substr(0, monitor.find(' '));
  } catch (const std::exception&) {
    // Show no best for a damaged file; dpt eval reports it.
  }
}

std::string time_text(std::int64_t seconds, bool is_utc, const char* form) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (is_utc) {
    ::gmtime_r(&time, &parts);
  } else {
    ::localtime_r(&time, &parts);
  }
  char text[64];
  return {text, std::strftime(text, sizeof text, form, &parts)};
}

}  // namespace

RunFacts read_run_facts(const std::string& folder) {
  RunFacts facts;
  facts.folder = folder;
  const std::string log = folder + "/metrics.jsonl";
  facts.changed = std::max(time_of(log), time_of(folder + "/config.yaml"));
  LoggedResults logged = read_log(log, facts);
  if (logged.starts > 0) facts.seconds = logged.seconds;
  // The summary exists only after the end of a run.
  const FactsJson summary = lenient_json<FactsJson>(folder + "/summary.json");
  if (summary.is_object()) {
    const auto seconds = summary.find("seconds");
    // The summary has only the time of the last process.
    if (logged.starts <= 1 && seconds != summary.end() && seconds->is_number()) {
      facts.seconds = seconds->get<double>();
    }
    // The log may lack its last lines, for example after a full disk.
    facts.status = status_of(summary);
    facts.steps = count_in(summary, "steps", facts.steps);
    if (summary.contains("best")) set_best(summary["best"], facts);
  }
  read_best(folder + "/best.safetensors", facts);
  const RunResults results = summary.is_object() ? results_of_summary(summary, log)
                                                 : results_of_log(std::move(logged), facts);
  for (const char* split : kResultSplits) {
    // If no best is kept, "val" is already from the last epoch.
    if (split == std::string("last/val") && facts.best_name.empty()) continue;
    if (results.by_split.contains(split)) add_results(split, results.by_split[split], facts);
  }
  if (facts.status == kInterrupted && is_locked_run(folder)) facts.status = "running";
  return facts;
}

std::string local_time_text(std::int64_t seconds) {
  return time_text(seconds, false, "%Y-%m-%d %H:%M");
}

std::string utc_time_text(std::int64_t seconds) {
  return time_text(seconds, true, "%Y-%m-%dT%H:%M:%SZ");
}

std::string table_text(const std::vector<std::vector<std::string>>& rows, std::size_t first_right) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_columns(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - display_columns(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i >= first_right ? gap + row[i] : row[i] + gap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string fitted_table_text(std::vector<std::vector<std::string>> rows, std::size_t first_right,
                              const std::vector<std::string>& least) {
  std::string text = table_text(rows, first_right);
  if (isatty(STDOUT_FILENO) != 1) return text;
  const auto fits = [&] {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (display_columns(line) > terminal_columns(STDOUT_FILENO)) return false;
    }
    return true;
  };
  for (const std::string& name : least) {
    if (fits()) break;
    const auto found = std::find(rows[0].begin(), rows[0].end(), name);
    if (found == rows[0].end()) continue;
    const auto column = static_cast<std::size_t>(found - rows[0].begin());
    for (std::vector<std::string>& row : rows) {
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    }
    if (column < first_right) --first_right;
    text = table_text(rows, first_right);
  }
  return text;
}

}  // namespace dpt
