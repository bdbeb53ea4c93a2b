#include "app/gate/gate.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/gate/baseline.h"
#include "engine/config/secrets.h"
#include "engine/run/run_files.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Throws for a file that cannot be written, or that is not an earlier verdict: a mistyped path
/// must not destroy a config.
void check_verdict_file(const std::string& option, const std::string& path, const char* mark) {
  if (path.empty()) return;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    fail(ErrorKind::usage, "{} {}: expected a file to write, found a folder", option, path);
  }
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) return;  // a device, a pipe
  // A missing folder, such as that of the run, will be created with the file.
  std::string folder = folder_of(path);
  while (!fs::exists(folder, error) && folder_of(folder) != folder) folder = folder_of(folder);
  if (!fs::is_directory(folder, error)) {
    fail(ErrorKind::usage, "{} {}: {}: expected a folder, found a file", option, path, folder);
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorKind::data, "{} {}: cannot write to the folder {}: {}", option, path, folder,
         std::strerror(errno));
  }
  check_replaceable(option, path, "verdict", {mark});
}

}  // namespace

Gate::Gate(const GateOptions& options, const std::string& command, const std::string& subject,
           bool is_first, bool writes)
    : options_(is_first ? options : GateOptions()), writes_(writes) {
  result_.command = command;
  result_.subject = subject;
  for (const std::string& text : options.requirements) {
    result_.conditions.push_back(parse_condition(text));
  }
  for (const Condition& condition : conditions()) {
    if (condition.of_baseline && options.baseline.empty()) {
      fail(ErrorKind::usage,
           "--require {}: the condition compares with a baseline: name one with --baseline (a run "
           "folder, its "
           "summary.json, or a file with the output of dpt eval --json)",
           condition.text);
    }
  }
  check_files();
}

void Gate::check_files() {
  const std::string &verdict = options_.verdict, &junit = options_.junit;
  std::error_code error;
  if (!verdict.empty() && (verdict == junit || fs::equivalent(verdict, junit, error))) {
    fail(ErrorKind::usage, "--verdict and --junit: expected two files, found {} twice", verdict);
  }
  check_verdict_file("--verdict", verdict, kMarkdownMark);
  check_verdict_file("--junit", junit, kJUnitMark);
  if (!writes_) return;
  // Remove earlier verdicts: if this process is killed, they must not pass for its own.
  for (const std::string& path : {verdict, junit}) {
    if (!path.empty() && fs::is_regular_file(path, error)) fs::resize_file(path, 0, error);
  }
}

void Gate::read_baseline() {
  if (options_.baseline.empty()) return;
  baseline_ = load_baseline(options_.baseline);
  const Json& results = baseline_.results.by_split;
  for (const auto& [split, values] : results.items()) {
    for (const auto& [key, other] : {std::pair{"other_model", "a different model"},
                                     std::pair{"other_data", "different data"}}) {
      if (!values.contains(key)) continue;
      const std::string text =
          fmt::format("--baseline {}: its {} results come from {} than the run's", baseline_.path,
                      split, other);
      say("warning: " + text);
      note(text);
    }
  }
  // Report an unknown bound now instead of after the training.
  std::vector<Condition> refused = conditions();
  for (Condition& condition : refused) {
    double reference = 0;
    condition.message =
        "Nothing was run: the baseline lacks a result that --require compares with.";
    const std::string problem = find_value(condition, results, &baseline_, reference);
    if (!condition.of_baseline) continue;
    check_best_is_known(condition, baseline_.results, "--baseline " + baseline_.path);
    if (problem.empty()) continue;
    condition.outcome = Condition::Outcome::not_met;
    condition.message = problem;
  }
  if (problems_of(refused).empty()) return;
  result_.conditions = std::move(refused);
  finish();
}

int Gate::guard(const std::function<int()>& body) {
  try {
    read_baseline();
    return body();
  } catch (const StopRequested&) {
    if (!is_done_) {
      leave_unchecked(
          "The run was stopped before its first step: requirements are checked at its end.");
    }
    throw;
  } catch (const std::exception& error) {
    if (!is_done_) write(error.what());
    throw;
  }
}

void Gate::judge(const RunResults& results, const std::string& owner) {
  for (const Condition& condition : conditions()) check_best_is_known(condition, results, owner);
  dpt::judge(result_.conditions, results.by_split, baseline_);
  for (const auto& [split, values] : baseline_.results.by_split.items()) {
    if (split == "last/val") continue;  // the same samples as those of val
    const Json mine = results.by_split.value(split, Json::object());
    if (mine.contains("n") && values.contains("n") && mine["n"] != values["n"]) {
      say(
          fmt::format("warning: --baseline {}: its {} results are of {} samples, but those of this "
                      "run are of {}",
                      baseline_.path, split, values["n"].dump(), mine["n"].dump()));
    }
  }
  finish();
}

void Gate::finish() {
  const std::string problems = problems_of(conditions());
  write();
  for (const Condition& condition : conditions()) {
    if (condition.outcome == Condition::Outcome::met) say(condition.message);
  }
  if (!problems.empty()) throw Error(ErrorKind::requirement, problems);
}

void Gate::leave_unchecked(const std::string& reason) {
  for (Condition& condition : result_.conditions) condition.message = reason;
  write();
}

void Gate::write(const std::string& error) {
  is_done_ = true;
  if (!writes_) return;
  GateResult shown = result_;
  shown.subject = hide_secrets(shown.subject);
  shown.baseline = hide_secrets(options_.baseline);
  shown.error = hide_secrets(error);
  const auto write_file = [](const std::string& path, const std::string& text) {
    if (path.empty()) return;
    make_folders(folder_of(path));
    write_results(path, std::as_bytes(std::span(text)));
  };
  try {
    write_file(options_.verdict, verdict_markdown(shown));
    write_file(options_.junit, verdict_junit(shown));
  } catch (const Error& failure) {
    // Let an earlier reason to fail take precedence.
    if (error.empty() && problems_of(conditions()).empty()) throw;
    say(fmt::format("warning: {}", failure.what()));
  }
}

}  // namespace dpt
