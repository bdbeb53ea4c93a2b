#include "app/report/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "app/base/lenient_json.h"
#include "app/report/events.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace {

using HistoryJson = nlohmann::ordered_json;

/// Returns true for fields such as times, steps and counts, which are not results.
bool is_bookkeeping(const std::string& key) {
  static const std::set<std::string> keys = {
      "v",       "epoch",         "step",          "n",         "seconds",
      "grad_sq", "grad_variance", "train_samples", "elapsed_s", "unreadable"};
  return keys.count(key) > 0;
}

/// Returns the value of a field, or `otherwise` if it is missing or has another type, because logs
/// may be old or damaged.
template <class Value>
Value value_in(const HistoryJson& line, const char* key, Value otherwise) {
  const auto found = line.find(key);
  if (found == line.end()) return otherwise;
  if constexpr (std::is_same_v<Value, std::string>) {
    return found->is_string() ? found->get<Value>() : otherwise;
  } else if constexpr (std::is_integral_v<Value>) {
    return found->is_number_integer() ? found->get<Value>() : otherwise;
  } else {
    return found->is_number() ? found->get<Value>() : otherwise;
  }
}

constexpr std::int64_t kNoStep = -1;

class HistoryReader {
 public:
  explicit HistoryReader(RunHistory& history) : history_(history) {}

  void line(const std::string& text) {
    const HistoryJson json = HistoryJson::parse(text, nullptr, false);
    if (!json.is_object()) {
      ++history_.unreadable_lines;
      return;
    }
    const std::string event = value_in<std::string>(json, "event", "");
    if (event == "run_start") start(json);
    if (event == "step") add_points(json, "step");
    if (event == "epoch") epoch(json);
    if (event == "eval") evaluation(json);
    if (event == "run_end") place_tests(best_step_in(json));
    if (event == "ledger") ledger(json);
    events_.add(event, json);
  }

  /// Completes the history after the last line.
  void end() {
    const RunFacts& facts = history_.facts;
    const std::int64_t best_step = facts.best_name.empty() ? kNoStep : facts.best_step;
    place_tests(best_step);
    const auto best = epochs_of_steps_.find(best_step);
    if (best != epochs_of_steps_.end()) history_.best = EpochEnd{best_step, best->second};
    history_.events = events_.take();
    for (Curve& curve : history_.curves) {
      std::stable_sort(curve.points.begin(), curve.points.end(),
                       [](const CurvePoint& a, const CurvePoint& b) { return a.step < b.step; });
    }
    if (history_.rate == 0) history_.rate = last_rate();
    if (history_.seconds == 0) history_.seconds = epoch_seconds_;
  }

 private:
  void start(const HistoryJson& json) {
    ++history_.starts;
    history_.name = value_in<std::string>(json, "run", history_.name);
    history_.parameters = value_in(json, "params", history_.parameters);
    history_.train_samples = value_in(json, "train_samples", history_.train_samples);
    history_.val_samples = value_in(json, "val_samples", history_.val_samples);
    history_.test_samples = value_in(json, "test_samples", history_.test_samples);
    history_.batch_size = value_in(json, "batch_size", history_.batch_size);
    history_.epochs_planned = value_in(json, "epochs", history_.epochs_planned);
    steps_per_epoch_ = value_in(json, "steps_per_epoch", steps_per_epoch_);
    if (json.contains("devices") && json["devices"].is_array()) {
      history_.devices.clear();
      for (const auto& device : json["devices"]) {
        if (device.is_string()) history_.devices.push_back(device.get<std::string>());
      }
    }
  }

  void epoch(const HistoryJson& json) {
    add_points(json, "train");
    history_.epochs = std::max(history_.epochs, value_in(json, "epoch", std::int64_t{0}));
    history_.rate = value_in(json, "images_per_s", history_.rate);
    epoch_seconds_ += value_in(json, "seconds", 0.0);
  }

  void evaluation(const HistoryJson& json) {
    const std::string split = value_in<std::string>(json, "split", "val");
    if (split == "val") {
      epochs_of_steps_[value_in(json, "step", kNoStep)] = value_in(json, "epoch", std::int64_t{0});
    }
    add_points(json, split);
  }

  /// Returns the step of the best checkpoint that a line `run_end` states.
  static std::int64_t best_step_in(const HistoryJson& run_end) {
    const auto best = run_end.find("best");
    return best != run_end.end() && best->is_object() ? value_in(*best, "step", kNoStep) : kNoStep;
  }

  /// Moves test results that are not placed yet from the last epoch, where the log has them, to the
  /// epoch of `best_step`, whose weights were tested.
  void place_tests(std::int64_t best_step) {
    const auto best = epochs_of_steps_.find(best_step);
    for (Curve& each : history_.curves) {
      if (each.of != "test") continue;
      std::size_t& placed = placed_tests_[each.name];
      for (; placed < each.points.size(); ++placed) {
        if (best == epochs_of_steps_.end()) continue;
        each.points[placed].step = best_step;
        each.points[placed].epoch = static_cast<double>(best->second);
      }
    }
  }

  void ledger(const HistoryJson& json) {
    history_.seconds += value_in(json, "seconds", 0.0);
    add_ledger(json, history_.ledger);
  }

 public:
  static void add_ledger(const HistoryJson& json, TimeLedger& ledger) {
    const auto parts = json.find("parts");
    if (parts == json.end() || !parts->is_object()) return;
    for (const auto& [name, seconds] : parts->items()) {
      if (!seconds.is_number()) continue;
      const std::string& wanted = name;  // Clang cannot capture a structured binding
      const auto known = std::find_if(ledger.parts.begin(), ledger.parts.end(),
                                      [&](const auto& part) { return part.first == wanted; });
      auto& part = known == ledger.parts.end() ? ledger.parts.emplace_back(wanted, 0.0) : *known;
      part.second += seconds.get<double>();
      ledger.seconds += seconds.get<double>();
    }
  }

 private:
  void add_points(const HistoryJson& json, const std::string& of) {
    const auto step = value_in(json, "step", std::int64_t{-1});
    if (step < 0) return;
    double epoch = value_in(json, "epoch", 0.0);
    // Place a logged step at a fractional epoch.
    if (of == "step" && steps_per_epoch_ > 0) {
      epoch = static_cast<double>(step) / static_cast<double>(steps_per_epoch_);
    }
    std::set<std::string> not_finite;
    const auto names = json.find("nonfinite");
    if (names != json.end() && names->is_array()) {
      for (const auto& name : *names) {
        if (name.is_string()) not_finite.insert(name.get<std::string>());
      }
    }
    for (const auto& [key, value] : json.items()) {
      if (is_bookkeeping(key)) continue;
      if (value.is_number()) {
        curve(key, of).points.push_back({step, epoch, value.get<double>()});
      } else if (value.is_null() && not_finite.count(key) > 0) {
        curve(key, of).points.push_back({step, epoch, std::numeric_limits<double>::quiet_NaN()});
      }
    }
  }

  Curve& curve(const std::string& name, const std::string& of) {
    for (Curve& each : history_.curves) {
      if (each.name == name && each.of == of) return each;
    }
    return history_.curves.emplace_back(Curve{name, of, {}});
  }

  double last_rate() const {
    for (const Curve& each : history_.curves) {
      if (each.name != "images_per_s" || each.of != "step") continue;
      return std::isfinite(each.points.back().value) ? each.points.back().value : 0;
    }
    return 0;
  }

  RunHistory& history_;
  EventReader events_;
  std::map<std::int64_t, std::int64_t> epochs_of_steps_;  ///< epochs of validations, by step
  std::map<std::string, std::size_t> placed_tests_;  ///< number of placed points, by test curve
  std::int64_t steps_per_epoch_ = 0;
  double epoch_seconds_ = 0;
};

/// Sets `bound_by` and `share` of a ledger by the rule of engine/run/ledger.cpp.
void judge(TimeLedger& ledger) {
  double computing = 0, most = 0;
  std::string largest;
  for (const auto& [name, seconds] : ledger.parts) {
    if (name == "forward" || name == "backward" || name == "update") {
      computing += seconds;
    } else if (seconds > most) {
      most = seconds;
      largest = name;
    }
  }
  if (ledger.seconds <= 0) return;
  ledger.bound_by = most > computing ? largest : "compute";
  ledger.share = std::max(most, computing) / ledger.seconds;
}

/// Takes the ledger and the time from the summary if the run had one process. If it had several,
/// the summary covers only the last one.
void read_summary(const std::string& path, RunHistory& history) {
  const HistoryJson summary = lenient_json<HistoryJson>(path);
  history.ledger.is_of_log = true;
  if (!summary.is_object()) return judge(history.ledger);
  history.epochs = value_in(summary, "epochs", history.epochs);
  const auto ledger = summary.find("ledger");
  const bool has_ledger = ledger != summary.end() && ledger->is_object();
  if (has_ledger && (history.starts <= 1 || history.ledger.parts.empty())) {
    history.ledger = {};
    HistoryReader::add_ledger(*ledger, history.ledger);
  }
  judge(history.ledger);
  if (has_ledger) history.ledger.advice = value_in<std::string>(*ledger, "advice", "");
  if (history.starts <= 1) history.seconds = value_in(summary, "seconds", history.seconds);
}

}  // namespace

RunHistory read_history(const std::string& folder) {
  RunHistory history;
  history.facts = read_run_facts(folder);
  HistoryReader reader(history);
  const std::string log = folder + "/metrics.jsonl";
  if (entry_type(log) == EntryType::other) {
    fail(ErrorKind::data, "{}: expected a file, found a device, pipe or socket", log);
  }
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) reader.line(line);
  }
  reader.end();
  if (history.facts.status == "interrupted" && history.starts > 0) {
    history.events.push_back(
        {RunEvent::Weight::failure, history.facts.steps,
         "the log ends here: the process or its machine was stopped without warning"});
  }
  read_summary(folder + "/summary.json", history);
  std::ifstream messages(folder + "/train.log");
  add_warnings(messages, history.events);
  return history;
}

}  // namespace dpt
