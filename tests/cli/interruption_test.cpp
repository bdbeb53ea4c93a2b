// Disturbances that a run survives: signals, kill -9 at any moment, a full disk, a second process.
#include <doctest/doctest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "tests/cli/outcome.h"
#include "tests/cli/workplace.h"
#include "tests/support/skip.h"

using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;

constexpr const char* kLong = "train.epochs=200";

struct InterruptedRuns : Workplace {
  TempDir logs;
  /// Returns the outcome of an undisturbed run; `more` is appended to its command.
  Outcome undisturbed(const std::vector<std::string>& more = {}) {
    run_well({"train", "small.yaml", "--run-dir", "whole"}, more);
    Outcome outcome = outcome_of(dir.file("whole"));
    REQUIRE(!outcome.newest.empty());
    REQUIRE(!outcome.best.empty());
    REQUIRE(!outcome.results.empty());
    return outcome;
  }
};

std::int64_t log_lines(const std::string& folder) {
  const std::string text = read_file(folder + "/metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

/// Starts a run in the folder `cut`, sends it `signal` after its first checkpoint, and returns how
/// it ended. A run that finishes before the signal reaches it proves nothing, so it is repeated.
Finished interrupted(const InterruptedRuns& w, const std::vector<std::string>& command,
                     int signal) {
  for (int tries = 0;; ++tries) {
    fs::remove_all(w.dir.file("cut"));
    Program program(command, w.dir.path(), w.logs);
    REQUIRE(wait_for_checkpoint(w.dir.file("cut")));
    program.send(signal);
    Finished finished = program.wait();
    if (finished.exit_code != 0 || tries == 9) return finished;
  }
}

}  // namespace

TEST_CASE(
    "signals that ask for a stop save a checkpoint, and the same command ends as if nothing was") {
  InterruptedRuns w;
  const Outcome whole = w.undisturbed({kLong});
  const std::vector<std::string> command = {"train", "small.yaml", "--run-dir", "cut", kLong};
  for (const auto& [signal, exit_code] :
       {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}, std::pair{SIGHUP, 129},
        std::pair{SIGUSR1, 75}, std::pair{SIGUSR2, 75}, std::pair{SIGXCPU, 75}}) {
    CAPTURE(signal);
    const Finished stopped = interrupted(w, command, signal);
    INFO(stopped.err);
    CHECK(stopped.exit_code == exit_code);
    CHECK(stopped.err.find("run the same command again to resume") != std::string::npos);
    // The request was acknowledged before the stop, both on stderr and in train.log.
    const std::string acknowledged = "stopping as soon as the state can be saved (";
    CHECK(stopped.err.find(acknowledged) < stopped.err.find("stopped at step"));
    CHECK(read_file(w.dir.file("cut/train.log")).find(acknowledged) != std::string::npos);
    const Finished rest = run_dpt(command, w.dir.path());
    INFO(rest.err);
    CHECK(rest.exit_code == 0);
    CHECK((outcome_of(w.dir.file("cut")) == whole));
  }
}

TEST_CASE("kill -9 at random instants, then the same command: equal weights, best, summary") {
  InterruptedRuns w;
  // Six evaluations without a better loss end the run after epoch 18 of 30. After a kill, the next
  // process must continue their count.
  const std::string early = "train.early_stopping={monitor: val/loss, mode: min, patience: 6}";
  const Outcome whole = w.undisturbed({early});
  REQUIRE(whole.results.find("\"early_stopped\":true") != std::string::npos);
  const std::vector<std::string> command = {"train", "small.yaml", "--run-dir", "cut", early};
  std::mt19937 random(20);
  int kills = 0, runs = 0;
  const std::string folder = w.dir.file("cut");
  for (int starts = 0; kills < 20; ++starts) {
    REQUIRE(starts < 200);
    // Kill after a random number of new log lines, not after a time. With zero lines, the kill hits
    // the start and the loading; with more lines, it comes after saved checkpoints. The polling
    // interval adds randomness.
    const std::int64_t lines = log_lines(folder) + static_cast<std::int64_t>(random() % 12);
    Program program(command, w.dir.path(), w.logs);
    REQUIRE(wait_until([&] { return !program.is_running() || log_lines(folder) >= lines; }));
    program.send(SIGKILL);
    const Finished ended = program.wait();
    INFO(ended.err);
    if (ended.exit_code == -SIGKILL) {
      ++kills;
      continue;
    }
    // The run finished before the signal reached it.
    REQUIRE(ended.exit_code == 0);
    CHECK((outcome_of(folder) == whole));
    fs::remove_all(folder);
    ++runs;
  }
  const Finished rest = run_dpt(command, w.dir.path());
  INFO(rest.err);
  CHECK(rest.exit_code == 0);
  CHECK((outcome_of(w.dir.file("cut")) == whole));
  MESSAGE(kills, " kills, ", runs + 1, " runs completed");
}

TEST_CASE("a second run into a live folder is refused") {
  InterruptedRuns w;
  Program first({"train", "small.yaml", "train.epochs=100000"}, w.dir.path(), w.logs);
  REQUIRE(wait_for_checkpoint(w.dir.file("runs/small")));
  const Finished second = run_dpt({"train", "small.yaml", "train.epochs=100000"}, w.dir.path());
  CHECK(second.exit_code == 2);
  CHECK(second.err.find("in use by another dpt process") != std::string::npos);
  first.send(SIGTERM);
  CHECK(first.wait().exit_code == 143);
}

TEST_CASE(
    "a full disk: the error says so, the last good checkpoint stays, and freeing space is enough") {
  InterruptedRuns w;
  const std::string disk = w.dir.file("disk");
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=512k") != 0) {
    skip_test(std::string("cannot mount a small tmpfs here: ") + std::strerror(errno));
    return;
  }
  const Outcome whole = w.undisturbed({kLong});
  const std::vector<std::string> command = {"train", "small.yaml", "--run-dir", disk + "/cut",
                                            kLong};
  Program program(command, w.dir.path(), w.logs);
  REQUIRE(wait_for_checkpoint(disk + "/cut"));
  write_file(disk + "/filler", std::string(1 << 20, 'x'));
  const Finished full = program.wait();
  INFO(full.err);
  CHECK(full.exit_code == 3);
  CHECK(full.err.find("No space left on device") != std::string::npos);
  fs::remove(disk + "/filler");
  const Finished rest = run_dpt(command, w.dir.path());
  INFO(rest.err);
  CHECK(rest.exit_code == 0);
  CHECK((outcome_of(disk + "/cut") == whole));
  CHECK(umount(disk.c_str()) == 0);
}
