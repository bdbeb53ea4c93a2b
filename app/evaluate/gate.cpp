#include "app/evaluate/gate.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/evaluate/verdict.h"
#include "engine/config/secrets.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Fails for a file that cannot be written, or that somebody else has written: an option with the
/// wrong name must not cost a config.
void check_verdict_file(const std::string& option, const std::string& path, const char* mark) {
  if (path.empty()) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    fail(ErrorKind::usage, "{} {}: expected a file to write, found a folder", option, path);
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) return;  // a device, a pipe
  // A missing folder, such as that of the run, is created with the file.
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

Gate::Gate(const GateOptions& options, std::string command, std::string subject, bool is_first,
           bool writes)
    : options_(options),
      command_(std::move(command)),
      subject_(std::move(subject)),
      is_first_(is_first),
      writes_(is_first && writes) {
  for (const std::string& text : options_.requirements) {
    requirements_.push_back(parse_requirement(text));
  }
  for (const Requirement& requirement : requirements_) {
    if (requirement.of_baseline && options_.baseline.empty()) {
      fail(ErrorKind::usage,
           "--require {}: its bound is that of a baseline: name it with --baseline (a run folder, "
           "its summary.json, or a file with the output of dpt eval --json)",
           requirement.text);
    }
  }
  if (is_first) check_files();
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
  // An earlier verdict is not taken for that of a process that is killed.
  for (const std::string& path : {verdict, junit}) {
    if (!path.empty() && fs::is_regular_file(path, error)) fs::resize_file(path, 0, error);
  }
}

void Gate::read_baseline() {
  if (!is_first_ || options_.baseline.empty()) return;
  baseline_ = load_baseline(options_.baseline);
  for (const auto& [split, values] : baseline_.results.by_split.items()) {
    for (const char* other : {"other_model", "other_data"}) {
      if (!values.contains(other)) continue;
      const std::string text = fmt::format(
          "--baseline {}: its {} results were allowed to be of {} than the run's", baseline_.path,
          split, other == std::string("other_model") ? "another model" : "other data");
      say("warning: " + text);
      note(text);
    }
  }
  // A bound that cannot be known is told now, and not after the training.
  std::vector<Judgement> judgements =
      unchecked("Nothing was run: the baseline does not have all that is asked for.");
  for (Judgement& judgement : judgements) {
    const Requirement& requirement = judgement.requirement;
    if (!requirement.of_baseline) continue;
    check_best_is_known(requirement, baseline_.results, "--baseline " + baseline_.path);
    const Json any = {{requirement.results, {{requirement.metric, 0.0}}}};
    const Judgement tried = dpt::judge({requirement}, any, baseline_)[0];
    if (!tried.bound.empty()) continue;
    judgement.verdict = tried.verdict;
    judgement.reason = tried.reason;
  }
  if (!problems_of(judgements).empty()) finish(judgements);
}

int Gate::guard(const std::function<int()>& body) {
  try {
    read_baseline();
    return body();
  } catch (const StopRequested&) {
    if (!is_done_) {
      leave_unchecked(
          "The run was stopped before its first step: requirements are checked at its "
          "end.");
    }
    throw;
  } catch (const std::exception& error) {
    try {
      if (!is_done_) write(unchecked({}), error.what());
    } catch (const Error& failure) {
      say(fmt::format("warning: {}", failure.what()));
    }
    throw;
  }
}

void Gate::judge(const RunResults& results, const std::string& owner) {
  for (const Requirement& requirement : requirements_) {
    check_best_is_known(requirement, results, owner);
  }
  const std::vector<Judgement> judgements = dpt::judge(requirements_, results.by_split, baseline_);
  for (const auto& [split, values] : baseline_.results.by_split.items()) {
    if (split == "last/val") continue;  // the same samples as those of val
    const Json mine = results.by_split.value(split, Json::object());
    if (mine.contains("n") && values.contains("n") && mine["n"] != values["n"]) {
      say(fmt::format(
          "warning: --baseline {}: its {} results are of {} samples, those of this run of {}",
          baseline_.path, split, values["n"].dump(), mine["n"].dump()));
    }
  }
  finish(judgements);
}

void Gate::finish(const std::vector<Judgement>& judgements) {
  const std::string problems = problems_of(judgements);
  try {
    write(judgements, {});
  } catch (const Error& failure) {
    // The first reason to fail stays.
    if (problems.empty()) throw;
    say(fmt::format("warning: {}", failure.what()));
  }
  for (const Judgement& judgement : judgements) {
    if (judgement.verdict != Judgement::Verdict::met) continue;
    say(text_of_met(judgement, baseline_.path));
  }
  if (!problems.empty()) throw Error(ErrorKind::requirement, problems);
}

void Gate::leave_unchecked(const std::string& reason) {
  write(unchecked(reason), {});
}

std::vector<Judgement> Gate::unchecked(const std::string& reason) const {
  std::vector<Judgement> judgements;
  for (const Requirement& requirement : requirements_) {
    judgements.emplace_back().requirement = requirement;
    judgements.back().reason = reason;
  }
  return judgements;
}

void Gate::write(const std::vector<Judgement>& judgements, const std::string& error) {
  is_done_ = true;
  if (!writes_) return;
  const VerdictFacts facts{command_, hide_secrets(subject_), hide_secrets(options_.baseline),
                           hide_secrets(error), notes_};
  const auto write_file = [](const std::string& path, const std::string& text) {
    if (path.empty()) return;
    make_folders(folder_of(path));
    write_results(path, std::as_bytes(std::span(text)));
  };
  write_file(options_.verdict, verdict_markdown(facts, judgements));
  write_file(options_.junit, verdict_junit(facts, judgements));
}

}  // namespace dpt
