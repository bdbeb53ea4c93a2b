// Runs in which a file system call fails. Each call of a fresh run, of a resumed one and of one
// that replaces another fails in turn. The exit code and the message must report the failure, no
// checkpoint may be lost, and the same command afterwards must give the undisturbed result.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/checkpoints/checkpoint.h"
#include "tests/io_faults/harness.h"
#include "tests/support/text.h"

namespace dpt::testing {
namespace {

namespace fs = std::filesystem;

/// One way to use a run folder, prepared once.
struct Scenario {
  std::string name;
  std::vector<std::string> command = {"train", "watched.yaml", "--run-dir", "run"};
  TempDir before;  ///< the folder as the command finds it, under "run"
  Outcome want;    ///< result of the undisturbed command
  IoRun undisturbed;
  std::set<std::string> old_tensors;  ///< tensors of every earlier checkpoint
  std::int64_t old_step = 0;

  explicit Scenario(const std::string& which) : name(which) {
    write_file(before.file("watched.yaml"), watched_config());
    const auto prepare = [&](const std::vector<std::string>& more) {
      std::vector<std::string> words = command;
      words.insert(words.end(), more.begin(), more.end());
      const Finished run = run_dpt(words, before.path());
      INFO(run.err);
      REQUIRE(run.exit_code == 0);
    };
    if (which == "resumed") prepare({"--max-steps", "7"});
    if (which == "overwriting") {
      prepare({"seed=9"});
      command.push_back("--overwrite");
    }
    for (const auto& [path, bytes] : files_below(before.file("run"))) {
      if (path.ends_with(".safetensors")) {
        old_tensors.insert(tensors_of(before.file("run/" + path)));
      }
    }
    old_step = newest_step(before.file("run"));
    const TempDir place;
    undisturbed = run_in(place, {});
    INFO(undisturbed.finished.err);
    REQUIRE(undisturbed.finished.exit_code == 0);
    want = outcome_of(place.file("run"));
    REQUIRE(!want.newest.empty());
    REQUIRE(!want.best.empty());
    REQUIRE(want.results.find("\"test\":{") != std::string::npos);
  }

  /// Runs the command in `place`, which becomes a copy of the prepared folder.
  IoRun run_in(const TempDir& place, const std::optional<IoFault>& fault) const {
    fs::copy(before.path(), place.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    return run_watched(command, place.path(), place.file("run"), fault);
  }
};

/// Returns true for files meant for people; a run may continue without them, with a warning.
bool is_log(const std::string& path) {
  return path.ends_with("metrics.jsonl") || path.ends_with("train.log");
}

bool is_folder_call(const IoCall& call) {
  return call.kind == "open_folder" || call.kind == "fsync_folder";
}

/// Returns true if the call must continue after a signal, as all of dpt's own calls do. (Not all
/// are its own: spdlog writes the text log, and the standard library removes trees, lists folders
/// and reads configs.)
bool goes_on_after_signal(const IoCall& call) {
  if (call.kind == "write") return true;
  if (call.kind == "read") return call.path.ends_with(".safetensors");
  return call.kind != "truncate" && call.kind != "open_folder" && !is_log(call.path) &&
         call.path.find("/replaced") == std::string::npos;
}

/// Returns true if the call is part of publishing a file: the run must not ignore its failure.
/// (Cleaning up may fail, with a warning.)
bool publishes(const std::vector<IoCall>& calls, const IoCall& call) {
  static const std::set<std::string> published = {".safetensors", ".json", ".yaml", ".txt"};
  const auto is_published = [&](const std::string& path) {
    return path.find("/replaced") == std::string::npos &&
           published.count(fs::path(path).extension().string()) > 0;
  };
  if (is_folder_call(call)) {
    // A folder that is opened and synced for the preceding call counts; one that is only listed
    // does not.
    const IoCall* before = nullptr;
    for (const IoCall& each : calls) {
      if (each.number >= call.number) break;
      const bool opens_it = call.kind == "fsync_folder" && each.kind == "open_folder";
      if (!opens_it && !is_log(each.path)) before = &each;
    }
    return before && before->kind == "rename" && is_published(before->second);
  }
  if (call.kind == "rename") return is_published(call.second);
  return (call.kind == "open" || call.kind == "write" || call.kind == "fsync") &&
         call.path.ends_with(".tmp") && is_published(call.path.substr(0, call.path.size() - 4));
}

/// Returns true if every checkpoint of the run to be replaced is still intact.
bool old_run_is_there(const Scenario& scenario, const TempDir& place) {
  std::set<std::string> found;
  for (const auto& [path, bytes] : files_below(place.path())) {
    if (path.ends_with(".safetensors")) found.insert(tensors_of(place.file(path)));
  }
  return std::includes(found.begin(), found.end(), scenario.old_tensors.begin(),
                       scenario.old_tensors.end());
}

/// Runs with a fault, checks the result, and runs again. Returns an empty string if everything is
/// correct.
std::string complaint_about(const Scenario& scenario, const IoFault& fault) {
  const TempDir place;
  const IoRun run = scenario.run_in(place, fault);
  const std::string folder = place.file("run");
  // The order of calls of two threads may vary between runs, so this run's own calls are examined.
  const auto failed = std::find_if(run.calls.begin(), run.calls.end(),
                                   [&](const IoCall& call) { return call.number == fault.at; });
  if (failed == run.calls.end()) return {};
  const bool harmless = fault.what == "EINTR" || fault.what == "short";
  if (harmless && !goes_on_after_signal(*failed)) return {};
  const bool is_for_writes = fault.what == "short" || fault.what == "nothing";
  if (is_for_writes && failed->kind != "write") return {};
  const int exit_code = run.finished.exit_code;
  const std::string& err = run.finished.err;
  const auto complain = [&](const std::string& what) {
    return fmt::format("{}, call {} ({} {} {}) fails with {}: {}\nexit code {}, stderr:\n{}",
                       scenario.name, fault.at, failed->kind, failed->path, failed->second,
                       fault.what, what, exit_code, err);
  };
  if (harmless) {
    if (exit_code != 0) return complain("expected exit code 0");
    if (!(outcome_of(folder) == scenario.want)) return complain("another result");
    return {};
  }
  const char* reason = fault.what == "ENOSPC" ? "No space left on device" : "Input/output error";
  if (exit_code != 0 && exit_code != 3) return complain("expected exit code 0 or 3");
  if (exit_code == 3 && !contains(err, reason)) return complain("stderr lacks the reason");
  if (publishes(run.calls, *failed) && exit_code != 3) return complain("expected exit code 3");
  if (exit_code == 0 && !(outcome_of(folder) == scenario.want)) {
    return complain("exit code 0 with another result");
  }
  // A file under its final name is complete or unchanged.
  for (const auto& [path, bytes] : files_below(place.path())) {
    if (path.ends_with(".safetensors") && tensors_of(place.file(path)).empty()) {
      return complain(path + " is not intact");
    }
  }
  if (scenario.name == "resumed" && newest_step(folder) < scenario.old_step) {
    return complain("the checkpoint that was there is lost");
  }
  if (scenario.name == "overwriting" && newest_step(folder) == 0 &&
      !old_run_is_there(scenario, place)) {
    return complain("the old run is lost, and the new one has saved nothing");
  }
  const Finished again = run_dpt(scenario.command, place.path());
  if (again.exit_code != 0) return complain("the same command again fails: " + again.err);
  if (!(outcome_of(folder) == scenario.want)) {
    const Outcome got = outcome_of(folder);
    return complain("the same command again gives another " +
                    std::string(got.newest != scenario.want.newest ? "last checkpoint"
                                : got.best != scenario.want.best   ? "best checkpoint"
                                                                   : "summary: ") +
                    got.results + " instead of " + scenario.want.results + again.err);
  }
  return {};
}

/// Returns the faults. Every call of the scenario fails once, alternately with a full disk and an
/// I/O error. Every write also gets one of three other faults: it is interrupted, takes only half
/// of its bytes, or takes none. Of the other calls, the first of each kind and type of file is
/// interrupted.
std::vector<IoFault> all_faults(const std::vector<IoCall>& calls) {
  std::vector<IoFault> faults;
  std::set<std::pair<std::string, std::string>> interrupted;
  for (const IoCall& call : calls) {
    faults.push_back({call.number, call.number % 2 == 0 ? "ENOSPC" : "EIO"});
    if (call.kind == "write") {
      const char* kinds[] = {"EINTR", "short", "nothing"};
      faults.push_back({call.number, kinds[call.number % 3]});
    } else if (goes_on_after_signal(call) &&
               interrupted.emplace(call.kind, fs::path(call.path).extension()).second) {
      faults.push_back({call.number, "EINTR"});
    }
  }
  return faults;
}

void check_scenario(const std::string& name) {
  const Scenario scenario(name);
  const std::vector<IoFault> faults = all_faults(scenario.undisturbed.calls);
  REQUIRE(faults.size() > 20);
  const auto complaints = on_threads(static_cast<int>(faults.size()),
                                     [&](int i) { return complaint_about(scenario, faults[i]); });
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
  MESSAGE(name, ": ", scenario.undisturbed.calls.size(), " calls, ", faults.size(), " faults");
}

}  // namespace

TEST_CASE("every failing call of a fresh run") {
  check_scenario("fresh");
}

TEST_CASE("every failing call of a resumed run") {
  check_scenario("resumed");
}

TEST_CASE("every failing call of a run that replaces another") {
  check_scenario("overwriting");
}

TEST_CASE("on_failure continue: a last save that failed once is made again, as the best") {
  std::vector<std::string> command = {"train", "watched.yaml", "--run-dir", "run"};
  command.emplace_back("checkpoint.on_failure=continue");
  command.emplace_back("optimizer.lr=0.1");
  const auto in = [&](const TempDir& place, const std::optional<IoFault>& fault) {
    write_file(place.file("watched.yaml"), watched_config());
    return run_watched(command, place.path(), place.file("run"), fault);
  };
  const auto number_of_last_open = [](const std::vector<IoCall>& calls) {
    for (const IoCall& call : calls) {
      if (call.kind == "open" && call.path.ends_with(checkpoint_name(15) + ".tmp")) {
        return call.number;
      }
    }
    FAIL("the last checkpoint is not written");
    return 0;
  };
  const TempDir whole;
  const IoRun undisturbed = in(whole, {});
  INFO(undisturbed.finished.err);
  REQUIRE(undisturbed.finished.exit_code == 0);
  const Outcome want = outcome_of(whole.file("run"));
  // The last epoch is the best.
  REQUIRE(read_checkpoint_header(whole.file("run/best.safetensors")).state.step == 15);
  int at = number_of_last_open(undisturbed.calls);
  for (int tries = 0;; ++tries) {
    REQUIRE(tries < 20);
    const TempDir place;
    const IoRun run = in(place, IoFault{at, "EIO"});
    // The order of calls of two threads may vary between runs.
    const int should = number_of_last_open(run.calls);
    if (should != std::exchange(at, should)) continue;
    INFO(run.finished.err);
    CHECK(run.finished.exit_code == 0);
    check_contains(run.finished.err, "; continuing (checkpoint.on_failure is continue)");
    CHECK((outcome_of(place.file("run")) == want));
    break;
  }
}

}  // namespace dpt::testing
