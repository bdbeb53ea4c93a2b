#include "app/report/events.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kernels/base/json_text.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

using EventJson = nlohmann::ordered_json;
using Weight = RunEvent::Weight;

/// Maximum number of events of one kind.
constexpr std::int64_t kMaxEvents = 20;

std::string event_text(const EventJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Formats a number as on the terminal. Returns "?" if it is missing, and "not finite" for any
/// value that is not a number.
std::string event_number(const EventJson& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end()) return "?";
  return found->is_number() ? fmt::format("{:.6g}", found->get<double>()) : "not finite";
}

/// Returns a count of an event with its noun: "1 line", "2 lines".
std::string event_count(const EventJson& line, const char* key, const char* noun) {
  const std::string number = event_number(line, key);
  return fmt::format("{} {}{}", number, noun, number == "1" ? "" : "s");
}

/// Returns the cause of a bad step: "the output of layer fc1 is not finite".
std::string cause(const EventJson& line) {
  const std::string first = event_text(line, "first");
  const std::string of = event_text(line, "parameter").empty() ? event_text(line, "layer")
                                                               : event_text(line, "parameter");
  if (first.empty()) return "the loss or the gradient is not finite";
  if (first == "no sample") return "none of its samples counts in the loss";
  if (first == "not found") return "not finite, for a reason that was not found";
  return fmt::format("the first non-finite value: {}{}", first, of.empty() ? "" : " of " + of);
}

std::string starting_words(const EventJson& line) {
  std::vector<std::string> devices;
  if (line.contains("devices") && line["devices"].is_array()) {
    for (const auto& device : line["devices"]) {
      if (device.is_string()) devices.push_back(device.get<std::string>());
    }
  }
  const std::string from = event_text(line, "resumed_from");
  return fmt::format("{}{}{}{}", from.empty() ? "started" : "resumed from " + from,
                     devices.empty() ? "" : " on ", fmt::join(devices, ", "),
                     line.contains("other_data") ? ", with other data (--allow-other-data)" : "");
}

std::string ending_words(const EventJson& line) {
  const std::string status = event_text(line, "status"), reason = event_text(line, "reason");
  return fmt::format("ended: {}{}{}", status.empty() ? "?" : status, reason.empty() ? "" : ": ",
                     reason);
}

/// Returns the step of a line; nothing if it has none.
std::optional<std::int64_t> event_step(const EventJson& line) {
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

}  // namespace

void EventReader::tell(Weight weight, const EventJson& line, std::string words) {
  // Place an event without a step at the last step of the lines before it.
  events_.push_back({weight, event_step(line).value_or(last_step_), std::move(words)});
}

bool EventReader::is_one_too_many(const std::string& event) {
  for (auto& [name, count] : counts_) {
    if (name == event) return ++count > kMaxEvents;
  }
  counts_.emplace_back(event, 1);
  return false;
}

void EventReader::add(const std::string& event, const EventJson& line) {
  static const std::map<std::string, Weight> weights = {
      {"run_start", Weight::note},     {"run_end", Weight::note},
      {"diverged", Weight::failure},   {"skipped_step", Weight::warning},
      {"rollback", Weight::warning},   {"lr_reduced", Weight::note},
      {"bad_sample", Weight::warning}, {"checkpoint_failed", Weight::warning},
      {"log_gap", Weight::warning},    {"eval", Weight::warning}};
  last_step_ = event_step(line).value_or(last_step_);
  const auto known = weights.find(event);
  if (known == weights.end()) return;
  // Keep only evaluations with non-finite numbers.
  if (event == "eval" && !line.contains("nonfinite")) return;
  if (is_one_too_many(event)) return;
  Weight weight = known->second;
  std::string words;
  if (event == "run_start") words = starting_words(line);
  if (event == "run_end") {
    words = ending_words(line);
    if (event_text(line, "status") == "failed") weight = Weight::failure;
  }
  if (event == "diverged") words = "diverged: " + cause(line);
  if (event == "skipped_step") words = "step skipped: " + cause(line);
  if (event == "rollback") {
    words =
        fmt::format("went back to this step after step {}: {}; learning rate x {} from here on",
                    event_number(line, "bad_step"), cause(line), event_number(line, "lr_scale"));
  }
  if (event == "lr_reduced") {
    words = fmt::format(
        "learning rate lowered from {} to {}: {} is {} after {} without an improvement",
        event_number(line, "from"), event_number(line, "lr"), event_text(line, "monitor"),
        event_number(line, "value"), event_count(line, "evaluations", "evaluation"));
  }
  if (event == "bad_sample") words = "unreadable sample: " + event_text(line, "problem");
  if (event == "checkpoint_failed") words = "checkpoint not saved: " + event_text(line, "reason");
  if (event == "log_gap") {
    words = event_count(line, "lines", "line") + " of the log could not be written";
  }
  if (event == "eval") {
    words =
        fmt::format("{}: not finite: {}", event_text(line, "split"), json_text(line["nonfinite"]));
  }
  tell(weight, line, std::move(words));
}

std::vector<RunEvent> EventReader::take() {
  for (const auto& [name, count] : counts_) {
    if (count <= kMaxEvents) continue;
    events_.push_back({Weight::warning, -1,
                       fmt::format("and {} `{}` (see metrics.jsonl)",
                                   counted(count - kMaxEvents, "more event"), name)});
  }
  return std::move(events_);
}

void add_warnings(std::istream& messages, std::vector<RunEvent>& events) {
  std::vector<std::string> known;
  std::int64_t others = 0;
  for (std::string line; std::getline(messages, line);) {
    // TIME LEVEL TEXT
    const std::size_t level = line.find(' ');
    const std::size_t text = level == std::string::npos ? level : line.find(' ', level + 1);
    if (text == std::string::npos) continue;
    if (line.compare(level + 1, text - level - 1, "warning") != 0) continue;
    std::string words = line.substr(text + 1);
    if (std::find(known.begin(), known.end(), words) != known.end()) continue;
    if (static_cast<std::int64_t>(known.size()) >= kMaxEvents) {
      ++others;
      continue;
    }
    known.push_back(words);
    events.push_back({Weight::warning, -1, std::move(words)});
  }
  if (others > 0) {
    events.push_back({Weight::warning, -1,
                      fmt::format("and {} (see train.log)", counted(others, "more warning"))});
  }
}

}  // namespace dpt
