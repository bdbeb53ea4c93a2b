// A start in an existing run folder: the files that stay, the files that are moved aside, and the
// choice of the best.
#include "engine/run/lineage.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "engine/run/run_folder.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;

using Steps = std::vector<std::int64_t>;

/// A run folder with hand-written checkpoints, five steps per epoch.
struct Branches {
  /// Writes a checkpoint of `state`; another `seed` makes it belong to another run.
  StartingPoint write(const std::string& path, RunState state, int seed = 0) {
    Checkpoint checkpoint;
    checkpoint.state = std::move(state);
    checkpoint.params.assign(static_cast<std::size_t>(job.model.plan.param_floats),
                             static_cast<float>(checkpoint.state.step));
    checkpoint.config = seed == 0 ? "config" : "another config";
    checkpoint.made_by = std::to_string(seed);
    make_folders(folder_of(path));
    StartingPoint start;
    start.checksum = save_checkpoint(path, job.model.plan, checkpoint);
    start.state = checkpoint.state;
    start.config = checkpoint.config;
    start.folder = folder_of(path);
    return start;
  }
  /// Returns the state at the end of an epoch with this validation accuracy.
  static RunState after_epoch(std::int64_t epoch, double accuracy) {
    RunState state;
    state.step = 5 * epoch;
    state.epoch = epoch;
    state.val_n = 7;
    state.val_accuracy = accuracy;
    state.val_loss = 1 - accuracy;
    return state;
  }
  /// Returns `state` with `best` recorded as the best checkpoint so far.
  static RunState with_best(RunState state, const StartingPoint& best) {
    state.best = best.state.val_accuracy;
    state.best_step = best.state.step;
    state.best_monitor = "val/accuracy max";
    state.best_checksum = best.checksum;
    return state;
  }
  StartingPoint checkpoint(const RunState& state) { return write(place(state.step), state); }
  std::string place(std::int64_t step) const { return folder.checkpoint(step); }
  void take(const std::string& from, StartingPoint& start, bool overwrite = false) {
    messages.clear();
    take_place(job, folder, from, overwrite, start,
               [&](const std::string& text) { messages += text + "\n"; });
  }
  static Steps steps_in(const std::string& path) {
    Steps steps;
    for (const std::string& each : list_checkpoints(path)) {
      steps.push_back(step_of_checkpoint(fs::path(each).filename().string()));
    }
    return steps;
  }
  Steps steps() const { return steps_in(folder.checkpoints()); }
  Steps abandoned(int n) const {
    return steps_in(folder.checkpoints() + "/abandoned-" + std::to_string(n));
  }
  std::string best_checksum() const {
    return fs::exists(folder.best()) ? read_checkpoint_header(folder.best()).checksum : "";
  }
  void write_log(const std::string& text) {
    write_file_atomically(folder.file("metrics.jsonl"), text);
  }

  TempDir dir;
  Job job = small_job(small_config(kSgd), {cpus(1)});
  RunFolder folder{dir.file("run")};
  std::string messages;
};

constexpr const char* kLog =
    "{\"v\":1,\"event\":\"step\",\"step\":5}\n{\"v\":1,\"event\":\"step\",\"step\":8}\n";

}  // namespace

TEST_CASE("a resume in place: later files go aside, ancestors stay") {
  Branches b;
  const StartingPoint first = b.checkpoint(Branches::after_epoch(1, 0.5));
  StartingPoint start = b.checkpoint(Branches::with_best(Branches::after_epoch(2, 0.4), first));
  b.checkpoint(Branches::with_best(Branches::after_epoch(3, 0.4), first));
  b.checkpoint(Branches::with_best(Branches::after_epoch(4, 0.4), first));
  copy_durably(b.place(5), b.folder.best());
  SUBCASE("from checkpoints/") {
    b.write_log(kLog);
    b.take(b.place(10), start);
    CHECK(b.steps() == Steps{10, 5});
    CHECK(b.abandoned(1) == Steps{20, 15});
    check_contains(b.messages, "the run continues from step 10; the checkpoints of steps 15, 20, ");
    check_contains(b.messages, b.folder.checkpoints() + "/abandoned-1");
    check_contains(b.messages, "1 abandoned branch takes ");
    CHECK(count_of(b.messages, "\n") == 2);
  }
  SUBCASE("from best.safetensors") {
    b.write_log(kLog);
    start = first;
    start.state = Branches::with_best(first.state, first);
    b.take(b.folder.best(), start);
    CHECK(b.steps() == Steps{5});
    CHECK(b.abandoned(1) == Steps{20, 15, 10});
    check_contains(b.messages, "1 line of metrics.jsonl, of steps that will be repeated, is moved");
  }
  SUBCASE("from the newest one nothing moves, and nothing is said") {
    b.take(b.place(20),
           start = b.checkpoint(Branches::with_best(Branches::after_epoch(4, 0.4), first)));
    CHECK(b.steps() == Steps{20, 15, 10, 5});
    CHECK(b.messages.empty());
    CHECK_FALSE(fs::exists(b.folder.checkpoints() + "/abandoned-1"));
  }
  CHECK(start.is_saved);
  CHECK(start.state.best_step == 5);
  CHECK(b.best_checksum() == first.checksum);
}

TEST_CASE("a resume from elsewhere: nothing of the folder's own run stays") {
  Branches b;
  const StartingPoint own = b.checkpoint(Branches::after_epoch(1, 0.5));
  const StartingPoint same_step = b.checkpoint(Branches::after_epoch(2, 0.6));
  copy_durably(b.place(10), b.folder.best());
  b.write_log(kLog);
  const std::string other = b.dir.file("other/checkpoints/");
  const StartingPoint best = b.write(other + checkpoint_name(5), Branches::after_epoch(1, 0.7), 1);
  const std::string from = other + checkpoint_name(10);
  StartingPoint start = b.write(from, Branches::with_best(Branches::after_epoch(2, 0.3), best), 1);
  b.take(from, start);
  CHECK(b.steps() == Steps{10});
  CHECK(read_checkpoint_header(b.place(10)).checksum == start.checksum);
  CHECK(b.abandoned(1) == Steps{10, 5});
  check_contains(b.messages, "of steps 5, 10, which");
  const std::string aside = b.folder.checkpoints() + "/abandoned-1/";
  CHECK(read_checkpoint_header(aside + checkpoint_name(10)).checksum == same_step.checksum);
  CHECK(read_checkpoint_header(aside + checkpoint_name(5)).checksum == own.checksum);
  // All lines of the log belong to the previous run.
  CHECK(read_whole_file(b.folder.file("metrics.jsonl")).empty());
  CHECK(read_whole_file(b.folder.file("metrics.abandoned.jsonl")) == kLog);
  check_contains(b.messages, "2 lines of metrics.jsonl");
  // The best of the resumed run is taken along, and the previous best is kept.
  CHECK(b.best_checksum() == best.checksum);
  CHECK(start.state.best_step == 5);
  CHECK(read_checkpoint_header(aside + "best.safetensors").checksum == same_step.checksum);
  check_contains(b.messages, "is not the best checkpoint of this run: moved to " + aside);
  CHECK(start.is_saved);
}

TEST_CASE("a fresh start in a folder that has a best and a log of another run") {
  Branches b;
  const StartingPoint foreign = b.write(b.folder.best(), Branches::after_epoch(1, 0.5), 1);
  b.write_log(kLog);
  StartingPoint start = fresh_start(b.job);
  b.take("", start);
  CHECK_FALSE(start.is_saved);
  CHECK_FALSE(fs::exists(b.folder.best()));
  CHECK(read_checkpoint_header(b.folder.checkpoints() + "/abandoned-1/best.safetensors").checksum ==
        foreign.checksum);
  CHECK(read_whole_file(b.folder.file("metrics.jsonl")).empty());
}

TEST_CASE("--overwrite: the resumed file and the best are found where they were set aside") {
  Branches b;
  const StartingPoint best = b.checkpoint(Branches::after_epoch(1, 0.5));
  StartingPoint start = b.checkpoint(Branches::with_best(Branches::after_epoch(2, 0.4), best));
  copy_durably(b.place(5), b.folder.best());
  b.write_log(kLog);
  b.take(b.place(10), start, true);
  CHECK_FALSE(start.is_saved);
  CHECK(b.steps().empty());
  CHECK(Branches::steps_in(b.folder.file("replaced/checkpoints")) == Steps{10, 5});
  CHECK_FALSE(fs::exists(b.folder.file("metrics.jsonl")));
  CHECK(b.best_checksum() == best.checksum);
}

TEST_CASE("the best is found wherever it may lie, by its checksum") {
  // The best may be next to the resumed file, in the folder above, or among the files moved aside.
  for (const char* where :
       {"x/checkpoints/step-00000005.safetensors", "x/checkpoints/best.safetensors",
        "x/best.safetensors", "x/step-00000005.safetensors", "best.safetensors"}) {
    CAPTURE(where);
    Branches b;
    const StartingPoint best = b.write(b.dir.file(where), Branches::after_epoch(1, 0.5));
    const std::string from = b.dir.file("x/checkpoints/step-00000010.safetensors");
    StartingPoint start = b.write(from, Branches::with_best(Branches::after_epoch(2, 0.4), best));
    b.take(from, start);
    CHECK(b.best_checksum() == best.checksum);
    CHECK(start.state.best == 0.5);
    CHECK(b.messages.empty());
  }
  // The best may be the resumed file itself.
  Branches b;
  const std::string from = b.dir.file("x/a.safetensors");
  StartingPoint start = b.write(from, Branches::after_epoch(1, 0.5));
  start.state = Branches::with_best(start.state, start);
  b.take(from, start);
  CHECK(b.best_checksum() == start.checksum);
  CHECK(b.messages.empty());
}

TEST_CASE("a file from before 1.2 knows its best by step and value") {
  for (const bool same_value : {true, false}) {
    CAPTURE(same_value);
    Branches b;
    RunState of_best = Branches::after_epoch(1, 0.5);
    of_best.best = same_value ? 0.5 : 0.25;
    of_best.best_step = 5;
    const StartingPoint best = b.checkpoint(of_best);
    RunState state = Branches::after_epoch(2, 0.4);
    state.best = 0.5;
    state.best_step = 5;
    StartingPoint start = b.checkpoint(state);
    b.take(b.place(10), start);
    if (same_value) {
      CHECK(b.best_checksum() == best.checksum);
      CHECK(b.messages.empty());
    } else {
      check_contains(b.messages, "warning: the best checkpoint (step 5, ");
      // The checkpoint from which the run continues is then the best known one.
      CHECK(b.best_checksum() == start.checksum);
      CHECK(start.state.best == 0.4);
    }
  }
}

TEST_CASE("the best is lost: the resumed file takes its place if it was measured, else none") {
  Branches b;
  RunState gone = Branches::after_epoch(1, 0.5);
  const StartingPoint best = b.checkpoint(gone);
  RunState state = Branches::with_best(Branches::after_epoch(2, 0.4), best);
  SUBCASE("measured") {
    StartingPoint start = b.checkpoint(state);
    fs::remove(b.place(5));
    b.take(b.place(10), start);
    CHECK(start.state.best == 0.4);
    CHECK(start.state.best_step == 10);
    CHECK(start.state.best_monitor == "val/accuracy max");
    CHECK(start.state.best_checksum == start.checksum);
    CHECK(b.best_checksum() == start.checksum);
    check_contains(b.messages,
                   "warning: the best checkpoint (step 5, val/accuracy max 0.5) was not found\n"
                   "the best checkpoint so far is that of step 10: val/accuracy 0.4\n");
  }
  SUBCASE("in the middle of an epoch") {
    state.step = 12;
    state.position = 24;
    StartingPoint start = b.checkpoint(state);
    fs::remove(b.place(5));
    // best.safetensors is from a later step of the run than the best that the checkpoint records,
    // so it is moved aside.
    const StartingPoint later = b.write(b.folder.best(), Branches::after_epoch(3, 0.9));
    b.take(b.place(12), start);
    CHECK_FALSE(start.state.best.has_value());
    CHECK(start.state.best_step == 0);
    CHECK(start.state.best_monitor.empty());
    CHECK(start.state.best_checksum.empty());
    check_contains(
        b.messages,
        "there is no best checkpoint now; the next validation gives the first candidate");
    CHECK_FALSE(fs::exists(b.folder.best()));
    CHECK(
        read_checkpoint_header(b.folder.checkpoints() + "/abandoned-1/best.safetensors").checksum ==
        later.checksum);
  }
}

TEST_CASE("keep_best monitors something else: the better of the best and the resumed file") {
  for (const double loss : {0.1, 0.9}) {
    CAPTURE(loss);
    Branches b;
    b.job.spec.checkpoint.keep_best.monitor = "val/loss";
    b.job.spec.checkpoint.keep_best.mode = Direction::min;
    const StartingPoint best = b.checkpoint(Branches::after_epoch(1, 0.5));  // its loss is 0.5
    RunState state = Branches::with_best(Branches::after_epoch(2, 0.4), best);
    state.val_loss = loss;
    StartingPoint start = b.checkpoint(state);
    copy_durably(b.place(5), b.folder.best());
    b.take(b.place(10), start);
    const bool is_resumed = loss < 0.5;
    CHECK(start.state.best == (is_resumed ? loss : 0.5));
    CHECK(start.state.best_step == (is_resumed ? 10 : 5));
    CHECK(start.state.best_monitor == "val/loss min");
    CHECK(b.best_checksum() == (is_resumed ? start.checksum : best.checksum));
    check_contains(b.messages,
                   "checkpoint.keep_best monitors val/loss min now and monitored val/accuracy max "
                   "before\nthe best checkpoint so far is that of step ");
  }
}

TEST_CASE("an older best of the same run is replaced, a damaged one is moved aside") {
  Branches b;
  const StartingPoint older = b.checkpoint(Branches::after_epoch(1, 0.4));
  const StartingPoint best = b.checkpoint(Branches::after_epoch(2, 0.5));
  StartingPoint start = b.checkpoint(Branches::with_best(Branches::after_epoch(3, 0.4), best));
  SUBCASE("older") {
    copy_durably(b.place(5), b.folder.best());
    b.take(b.place(15), start);
    CHECK(b.messages.empty());
    CHECK_FALSE(fs::exists(b.folder.checkpoints() + "/abandoned-1"));
  }
  SUBCASE("older, of another run") {
    b.write(b.folder.best(), Branches::after_epoch(1, 0.4), 1);
    b.take(b.place(15), start);
    check_contains(b.messages, "is not the best checkpoint of this run");
    CHECK(fs::exists(b.folder.checkpoints() + "/abandoned-1/best.safetensors"));
  }
  SUBCASE("of the same step, with another result") {
    b.write(b.folder.best(), Branches::after_epoch(2, 0.6));
    b.take(b.place(15), start);
    check_contains(b.messages, "is not the best checkpoint of this run");
    CHECK(fs::exists(b.folder.checkpoints() + "/abandoned-1/best.safetensors"));
  }
  SUBCASE("damaged") {
    fs::copy_file(b.place(10), b.folder.best());
    fs::resize_file(b.folder.best(), fs::file_size(b.folder.best()) - 1);
    b.take(b.place(15), start);
    CHECK(fs::exists(b.folder.checkpoints() + "/abandoned-1/best.safetensors"));
  }
  SUBCASE("the same bytes stay as they are") {
    fs::copy_file(b.place(10), b.folder.best());
    const std::string witness = b.folder.file("witness");
    fs::create_hard_link(b.folder.best(), witness);
    b.take(b.place(15), start);
    CHECK(fs::equivalent(witness, b.folder.best()));
    CHECK(b.messages.empty());
  }
  CHECK(b.best_checksum() == best.checksum);
}

TEST_CASE("after a rollback: later checkpoints and lines go aside, those of the step stay") {
  Branches b;
  for (const std::int64_t epoch : {1, 2, 3}) b.checkpoint(Branches::after_epoch(epoch, 0.5));
  b.write_log(kLog);
  leave_later(b.folder, Branches::after_epoch(1, 0.5),
              [&](const std::string& text) { b.messages += text + "\n"; });
  CHECK(b.steps() == Steps{5});
  CHECK(b.abandoned(1) == Steps{15, 10});
  check_contains(b.messages, "the checkpoint of step 10 is moved to ");
  check_contains(b.messages, "the checkpoint of step 15 is moved to ");
  CHECK(read_whole_file(b.folder.file("metrics.jsonl")) ==
        "{\"v\":1,\"event\":\"step\",\"step\":5}\n");
  // An unreadable log is reported, and nothing else is lost.
  fs::remove(b.folder.file("metrics.jsonl"));
  fs::create_directory(b.folder.file("metrics.jsonl"));
  b.messages.clear();
  leave_later(b.folder, Branches::after_epoch(1, 0.5),
              [&](const std::string& text) { b.messages += text + "\n"; });
  check_contains(b.messages, "warning: ");
  check_contains(b.messages, "steps may appear twice in metrics.jsonl");
  StartingPoint start = fresh_start(b.job);
  b.take("", start);
  check_contains(b.messages, "steps may appear twice in metrics.jsonl");
}

TEST_CASE("the best file of a state: as it is, made again, or an error that says what to do") {
  Branches b;
  const StartingPoint best = b.checkpoint(Branches::after_epoch(1, 0.5));
  const RunState state = Branches::with_best(Branches::after_epoch(2, 0.4), best);
  const auto find = [&] {
    b.messages.clear();
    return find_best(b.folder, state, [&](const std::string& text) { b.messages += text; }).text();
  };
  copy_durably(b.place(5), b.folder.best());
  CHECK(find() == b.folder.best());
  CHECK(b.messages.empty());
  fs::remove(b.folder.best());
  b.write(b.folder.best(), Branches::after_epoch(4, 0.9), 1);
  CHECK(find() == b.folder.best());
  CHECK(b.best_checksum() == best.checksum);
  CHECK(b.messages == fmt::format("warning: {} was not the best checkpoint of this run; it is "
                                  "restored from {}",
                                  b.folder.best(), b.place(5)));
  fs::remove(b.place(5));
  CHECK(find() == b.folder.best());
  const auto error = [&] {
    try {
      find();
    } catch (const Error& thrown) {
      CHECK(thrown.kind() == ErrorKind::data);
      return std::string(thrown.what());
    }
    return std::string("no error");
  };
  fs::remove(b.folder.best());
  check_contains(error(), b.folder.best() +
                              ": no such file; expected the best checkpoint of this run there "
                              "(step 5, val/accuracy max 0.5). ");
  b.write(b.folder.best(), Branches::after_epoch(4, 0.9), 1);
  check_contains(error(), b.folder.best() + " is another checkpoint (step 20); expected");
  write_file_atomically(b.folder.best(), "no checkpoint");
  check_contains(error(), b.folder.best() + ": ");
}
