// The checkpoints of a run, its log and messages, and failed saves.
#include "engine/training/trainer.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <regex>
#include <thread>

#include "engine/checkpoints/checkpoint.h"
#include "engine/data/split.h"
#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "kernels/base/file_io.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;

/// A run in a separate folder, with its results.
struct Recorded {
  TrainOutcome train(const Job& job, TrainLimits limits = {},
                     const StartingPoint* start = nullptr) {
    RunFolder run(folder.path());
    RunLog log(run.file("metrics.jsonl"));
    Progress progress(true);
    progress.also_to(run.file("train.log"));
    return dpt::train(job, start ? *start : fresh_start(job), limits, run, log, progress);
  }
  std::vector<nlohmann::json> logged(const std::string& name) const { return events(folder, name); }
  std::vector<std::int64_t> steps_of(const std::string& name) const {
    std::vector<std::int64_t> steps;
    for (const auto& event : logged(name)) steps.push_back(event["step"]);
    return steps;
  }
  std::string messages() const { return read_whole_file(folder.file("train.log")); }
  std::string checkpoint(std::int64_t step) const {
    return folder.file("checkpoints/" + checkpoint_name(step));
  }

  TempDir folder;
};

using StepList = std::vector<std::int64_t>;

/// Returns a job with five steps per epoch and the given `checkpoint` settings.
Job saving_job(const std::string& checkpoint, std::vector<std::string> more = {}) {
  more.push_back(cpus(1));
  more.push_back("checkpoint=" + checkpoint);
  return small_job(small_config(kSgdWithoutDecay), more);
}

TrainLimits steps(std::int64_t most) {
  TrainLimits limits;
  limits.max_steps = most;
  return limits;
}

TrainLimits asking(std::function<StopReason()> question) {
  TrainLimits limits;
  limits.stop_request = std::move(question);
  return limits;
}

/// A source in which one sample takes three seconds.
class Sleepy : public Unresident {
 public:
  Sleepy(std::shared_ptr<const DataSource> source, std::int64_t sample)
      : Unresident(std::move(source)), sample_(sample) {}
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    if (index == sample_) std::this_thread::sleep_for(std::chrono::seconds(3));
    Unresident::read(index, pixels, label);
  }

 private:
  std::int64_t sample_;
};

}  // namespace

TEST_CASE("regular checkpoints: every so many steps and epochs, and at the end") {
  const auto saved = [](const std::string& checkpoint, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"data.val_split=0", "data.size=53"});
    Recorded run;
    run.train(saving_job(checkpoint, more));
    for (const auto& event : run.logged("checkpoint")) CHECK(event["best"] == false);
    return run.steps_of("checkpoint");
  };
  // The last step of an epoch is saved once, with the epoch's results.
  CHECK(saved("{every_steps: 1, every: 0}").size() == 20);
  CHECK(saved("{every_steps: 5, every: 0}") == StepList{5, 10, 15, 20});
  CHECK(saved("{every_steps: 3, every: 0}") == StepList{3, 6, 9, 12, 15, 18, 20});
  CHECK(saved("{every: 2}") == StepList{10, 20});
  CHECK(saved("{every: 3}") == StepList{15, 20});
  CHECK(saved("{every: 0}") == StepList{20});
  CHECK(saved("{every: 2, every_steps: 4}", {"train.epochs=3"}) == StepList{4, 8, 10, 12, 15});
}

TEST_CASE("the best is saved when it is, and becomes a checkpoint where the run ends there") {
  Recorded run;
  const Job job =
      saving_job("{every: 0, keep_best: {monitor: val/loss, mode: min}}", {"train.epochs=3"});
  run.train(job, steps(5));
  const auto events = run.logged("checkpoint");
  REQUIRE(events.size() == 2);
  CHECK(events[0]["path"] == "best.safetensors");
  CHECK(events[0]["best"] == true);
  CHECK(events[0]["step"] == 5);
  CHECK(events[1]["path"] == "checkpoints/" + checkpoint_name(5));
  CHECK(events[1]["best"] == false);
  const RunState last = read_checkpoint_header(run.checkpoint(5)).state;
  CHECK(last.best_checksum == read_checkpoint_header(run.folder.file("best.safetensors")).checksum);

  // A whole run: the last checkpoint is that of the last epoch, and each improvement becomes the
  // best.
  Recorded whole;
  whole.train(job);
  const auto all = whole.logged("checkpoint");
  REQUIRE(!all.empty());
  CHECK(all.back()["path"] == "checkpoints/" + checkpoint_name(15));
  const auto evals = whole.logged("eval");
  double best = INFINITY;
  for (const auto& eval : evals) {
    if (eval["split"] != "val") continue;
    const bool improves = eval["loss"] < best;
    best = std::min(best, eval["loss"].get<double>());
    const bool is_logged = std::any_of(all.begin(), all.end(), [&](const nlohmann::json& event) {
      return event["best"] == true && event["step"] == eval["step"];
    });
    CHECK(is_logged == improves);
  }
}

TEST_CASE("the log of a run in one process: each epoch, each evaluation, the replica once") {
  Recorded run;
  const Job job = saving_job("{every: 1}", {"log.every=1", "train.epochs=3"});
  const TrainOutcome outcome = run.train(job);
  CHECK(outcome.seconds > 0);
  CHECK(run.steps_of("step").size() == 15);
  const auto replicas = run.logged("replica");
  REQUIRE(replicas.size() == 1);
  CHECK(replicas[0]["device"].get<std::string>().find("cpu") != std::string::npos);
  const auto epochs = run.logged("epoch"), evals = run.logged("eval");
  REQUIRE(epochs.size() == 3);
  REQUIRE(evals.size() == 4);
  const std::string messages = run.messages();
  std::int64_t best = 0;
  double best_accuracy = -1;
  for (int i = 0; i < 3; ++i) {
    const auto& epoch = epochs[i];
    const auto& eval = evals[i];
    CHECK(eval["step"] == 5 * (i + 1));
    CHECK(eval["launches"] == "calls");
    const double accuracy = eval["accuracy"];
    const bool improves = accuracy > best_accuracy;
    if (improves) best = 5 * (i + 1), best_accuracy = accuracy;
    check_contains(messages,
                   fmt::format("epoch {}/3: train loss {:.4f} accuracy {:.4f}, val loss {:.4f} "
                               "accuracy {:.4f}{}, {} images/s ({})",
                               i + 1, epoch["loss"].get<double>(), epoch["accuracy"].get<double>(),
                               eval["loss"].get<double>(), accuracy, improves ? " (best)" : "",
                               format_rate(epoch["images_per_s"].get<double>()),
                               format_duration(epoch["seconds"].get<double>())));
  }
  CHECK(outcome.state.best_step == best);
  CHECK(outcome.state.val_n == 7);
  CHECK(outcome.state.val_loss == evals[2]["loss"].get<double>());
  CHECK(outcome.state.train_loss == epochs[2]["loss"].get<double>());
  CHECK(outcome.state.train_accuracy == epochs[2]["accuracy"].get<double>());
  // Without validation, the state has no results on val.
  Recorded without;
  const TrainOutcome none = without.train(saving_job("{every: 1}", {"data.val_split=0"}));
  CHECK(none.state.val_n == 0);
  CHECK_FALSE(none.state.val_loss.has_value());
  CHECK_FALSE(none.state.val_accuracy.has_value());
  CHECK(none.state.best_step == 0);
  CHECK(without.logged("eval").size() == 1);
  CHECK(contains(without.messages(), ", val loss") == false);
}

namespace {

/// A source in which the samples of a list are slow.
class Slow : public Unresident {
 public:
  Slow(std::shared_ptr<const DataSource> source, std::vector<std::int64_t> slow)
      : Unresident(std::move(source)), slow_(std::move(slow)) {}
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    if (std::find(slow_.begin(), slow_.end(), index) != slow_.end()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    Unresident::read(index, pixels, label);
  }

 private:
  std::vector<std::int64_t> slow_;
};

}  // namespace

TEST_CASE("rates and waits follow from the time that passed") {
  Recorded run;
  Job job = saving_job("{every: 100}", {"log.every=1", "train.epochs=2", "data.val_split=0",
                                        "data.size=53", "data.workers=1"});
  const auto order = epoch_order(53, 7, 0, true);
  std::vector<std::int64_t> first;
  for (std::size_t i = 0; i < 12; ++i) {
    first.push_back(job.data.splits.train.indices[order[i]]);
  }
  job.data.splits.train.source = std::make_shared<Slow>(job.data.splits.train.source, first);
  const auto begun = std::chrono::steady_clock::now();
  run.train(job);
  const double whole =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();

  // The first batch alone takes 120 ms, and the trainer waits for it.
  const auto log = run.logged("step");
  REQUIRE(log.size() == 10);
  double sum = 0;
  for (std::size_t i = 0; i < log.size(); ++i) {
    const double samples = i % 5 == 4 ? 5 : 12;
    const double rate = log[i]["images_per_s"];
    const double seconds = samples / rate;
    sum += seconds;
    const double waited = log[i]["data_wait"].get<double>() * seconds;
    if (i == 0) {
      CHECK(seconds > 0.11);
      CHECK(waited > 0.1);
    }
    CHECK(log[i]["data_wait"] <= 1.001);
  }
  CHECK(sum > 0.11);
  CHECK(sum < 1.01 * whole + 0.01);
  const auto epochs = run.logged("epoch");
  double seconds = 0;
  for (const auto& epoch : epochs) {
    seconds += epoch["seconds"].get<double>();
    CHECK(epoch["data_wait"].get<double>() <= 1);
    const double rate = 53 / epoch["seconds"].get<double>();
    CHECK(std::abs(epoch["images_per_s"].get<double>() - rate) <= 0.5 + 1e-6 * rate);
  }
  CHECK(seconds <= whole);
  CHECK(epochs[0]["seconds"].get<double>() * epochs[0]["data_wait"].get<double>() > 0.1);
  const std::regex waiting(
      "epoch 1/2: .* images/s \\(\\d+:\\d\\d\\), waiting for data (\\d+) % of the time");
  std::smatch percent;
  const std::string messages = run.messages();
  REQUIRE(std::regex_search(messages, percent, waiting));
  CHECK(std::abs(std::stod(percent.str(1)) - 100 * epochs[0]["data_wait"].get<double>()) < 0.6);
}

TEST_CASE("a save that fails ends the run, or does not, as the config says") {
  // The folder for checkpoints is missing from the first step on.
  const std::string checkpoint =
      ", every: 1, keep_best: {monitor: val/loss, mode: min}, keep_last: 9}";
  Recorded run;
  const std::string there = run.folder.file("checkpoints"), away = run.folder.file("away");
  int moves = 0;
  const auto take_away = [&] {
    if (moves == 0) fs::rename(there, away), moves = 1;
    return StopReason::none;
  };
  const auto data_error = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  SUBCASE("stop") {
    const Job job = saving_job("{on_failure: stop" + checkpoint);
    check_contains(data_error([&] { run.train(job, asking(take_away)); }),
                   "cannot create a temporary file");
    const auto failed = run.logged("checkpoint_failed");
    REQUIRE(failed.size() == 1);
    CHECK(failed[0]["step"] == 5);
    check_contains(failed[0]["reason"].get<std::string>(), "cannot create a temporary file");
    CHECK_FALSE(contains(run.messages(), "continuing"));
    CHECK(run.steps_of("epoch").size() < 4);
  }
  SUBCASE("continue, but the last one must succeed") {
    const Job job = saving_job("{on_failure: continue" + checkpoint);
    check_contains(data_error([&] { run.train(job, asking(take_away)); }),
                   "cannot create a temporary file");
    CHECK(run.steps_of("epoch") == StepList{5, 10, 15, 20});
    // The last save is tried twice.
    CHECK(run.steps_of("checkpoint_failed") == StepList{5, 10, 15, 20, 20});
    CHECK(run.logged("checkpoint").empty());
    check_contains(run.messages(), "; continuing (checkpoint.on_failure is continue)");
    CHECK(run.logged("eval").size() == 4);  // none for the test set
  }
  SUBCASE("continue: a state that could not be saved is not the best") {
    Job job = saving_job("{on_failure: continue" + checkpoint, {"optimizer.lr=0.000001"});
    // The folder is restored before the last epoch is validated, when the result of the save at
    // step 15 is known.
    const auto back_in_time = [&] {
      take_away();
      const StepList failed = run.steps_of("checkpoint_failed");
      if (moves == 1 && !failed.empty() && failed.back() == 15) fs::rename(away, there), moves = 2;
      return StopReason::none;
    };
    const TrainOutcome outcome = run.train(job, asking(back_in_time));
    CHECK(outcome.end == RunEnd::complete);
    CHECK(run.steps_of("checkpoint_failed") == StepList{5, 10, 15});
    CHECK(run.steps_of("checkpoint") == StepList{20});
    // The best is the first that was saved, whatever was measured before.
    CHECK(outcome.state.best_step == 20);
    CHECK(read_checkpoint_header(run.folder.file("best.safetensors")).state.step == 20);
    CHECK(outcome.test.has_value());
  }
}

TEST_CASE("a stalled replica ends the run after train.stall_timeout; a failed save is reported") {
  Recorded run;
  Job job = small_job(small_config(kSgdWithoutDecay),
                      {cpus(2), "train.stall_timeout=1", "checkpoint.on_failure=continue"});
  // The slow sample is in the second batch of twelve.
  Split& split = job.data.splits.train;
  const auto order = epoch_order(split.size(), job.spec.seed, 0, job.spec.data.shuffle);
  split.source = std::make_shared<Sleepy>(split.source, split.indices[order[13]]);
  std::atomic<bool> is_away = false;
  const auto take_away = [&] {
    if (!is_away.exchange(true))
      fs::rename(run.folder.file("checkpoints"), run.folder.file("away"));
    return StopReason::none;
  };
  std::string text = "no error";
  try {
    run.train(job, asking(take_away));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer);
    text = error.what();
  }
  check_contains(text, "has stalled (train.stall_timeout)");
  // The save is tried once more before the trainer returns.
  CHECK(run.steps_of("checkpoint_failed") == StepList{1, 1});
  check_contains(run.messages(), "cannot create a temporary file");
}

TEST_CASE("the end of patience is reported") {
  Recorded run;
  const Job job =
      saving_job("{every: 1}", {"optimizer.lr=0.000001", "train.epochs=9",
                                "train.early_stopping={monitor: val/accuracy, patience: 2}"});
  const TrainOutcome outcome = run.train(job);
  CHECK(outcome.early_stopped);
  check_contains(run.messages(), "early stopping: val/accuracy has not improved in 2 evaluations");
  // The last state is a regular checkpoint.
  CHECK(fs::exists(run.checkpoint(outcome.state.step)));
  // The run stays stopped on resume.
  const StartingPoint start = start_from_checkpoint(job, run.checkpoint(outcome.state.step));
  CHECK(run.train(job, {}, &start).state.step == outcome.state.step);
}

TEST_CASE("a run that begins at a checkpoint does not save it again") {
  Recorded run;
  const Job job = saving_job("{every: 1, keep_last: 9}", {"train.epochs=2"});
  run.train(job);
  const std::size_t saves = run.logged("checkpoint").size();
  StartingPoint start = start_from_checkpoint(job, run.checkpoint(10));
  start.is_saved = true;
  const TrainOutcome outcome = run.train(job, {}, &start);
  CHECK(outcome.end == RunEnd::complete);
  CHECK(outcome.test.has_value());
  CHECK(run.logged("checkpoint").size() == saves);
  start.is_saved = false;
  run.train(job, {}, &start);
  CHECK(run.logged("checkpoint").size() == saves + 1);
}

TEST_CASE("a checkpoint that is kept for ever outlives keep_last") {
  Recorded run;
  const Job job = saving_job("{every_steps: 1, keep_last: 100}");
  run.train(job, steps(4));
  const Job few = saving_job("{every_steps: 1, keep_last: 2}");
  StartingPoint start = start_from_checkpoint(few, run.checkpoint(3));
  start.keep_forever = true;
  run.train(few, steps(9), &start);
  CHECK(fs::exists(run.checkpoint(3)));
  CHECK_FALSE(fs::exists(run.checkpoint(2)));
  CHECK_FALSE(fs::exists(run.checkpoint(4)));
}

TEST_CASE("label smoothing reaches training and validation") {
  const auto losses = [](const std::string& smoothing) {
    Recorded run;
    run.train(saving_job("{every: 0}", {"loss.label_smoothing=" + smoothing}), steps(5));
    return std::pair(run.logged("step").at(0)["loss"].get<double>(),
                     run.logged("eval").at(0)["loss"].get<double>());
  };
  const auto plain = losses("0"), smooth = losses("0.3");
  CHECK(plain.first != smooth.first);
  CHECK(plain.second != smooth.second);
}
