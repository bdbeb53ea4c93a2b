// train.on_divergence: the log and the messages, and the files after a rollback.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/divergence.h"
#include "tests/engine/training/poisoned.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A run in a folder, with its messages.
struct Told {
  TrainOutcome train(const Job& job, const std::function<StopReason()>& stop = {},
                     const StartingPoint* start = nullptr) {
    RunFolder run(folder.path());
    RunLog log(run.file("metrics.jsonl"));
    Progress progress(true);
    progress.also_to(run.file("train.log"));
    TrainLimits limits;
    if (stop) limits.stop_request = stop;
    return dpt::train(job, start ? *start : fresh_start(job), limits, run, log, progress);
  }
  std::string messages() const { return read_whole_file(folder.file("train.log")); }
  std::vector<nlohmann::json> logged(const std::string& name) const { return events(folder, name); }

  TempDir folder;
};

/// Returns a job with one replica, because overflow_once() affects a single call of the schedule.
Job rollback_job(std::vector<std::string> more = {}) {
  std::vector<std::string> overrides = {cpus(1),
                                        "checkpoint.every_steps=0",
                                        "checkpoint.every=1",
                                        "checkpoint.keep_best={monitor: val/loss, mode: min}",
                                        "lr_schedule={type: constant}",
                                        "train.on_divergence.policy=rollback"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return small_job(small_config(kSgdWithoutDecay), overrides);
}

/// Returns rollback_job() with a keep_best that prefers the second epoch to the first.
Job improving_job() {
  Job job = rollback_job();
  Told probe;
  probe.train(rollback_job({"train.epochs=2"}));
  const auto evals = probe.logged("eval");
  const double first = evals.at(0)["loss"], second = evals.at(1)["loss"];
  REQUIRE(first != second);
  job.spec.checkpoint.keep_best.mode = second < first ? Direction::min : Direction::max;
  return job;
}

/// Makes the update after `step` steps overflow, the first time only.
void overflow_once(Job& job, std::int64_t step, const std::function<void()>& then = {}) {
  const auto is_done = std::make_shared<bool>(false);
  job.update.schedule = [usual = job.update.schedule, step, then, is_done](std::int64_t now) {
    if (now != step || std::exchange(*is_done, true)) return usual(now);
    if (then) then();
    return 1e39;
  };
}

}  // namespace

TEST_CASE("the log of a bad step has what was measured, and no more") {
  // Without clipping the norm is measured only at logged steps.
  for (const bool is_measured : {false, true}) {
    CAPTURE(is_measured);
    Told run;
    const Job job = poisoned_job(
        small_config(kSgd),
        {cpus(1), "train.grad_clip_norm=null", is_measured ? "log.every=3" : "log.every=1000"}, 30,
        kNaN);
    CHECK_THROWS_AS(run.train(job), Error);
    const auto event = run.logged("diverged").at(0);
    CHECK(event.contains("grad_norm") == is_measured);
    CHECK(event["lr"].get<double>() == job.update.schedule(2));
    CHECK(event["loss"].is_null());
    CHECK_FALSE(event.contains("layer"));
    CHECK_FALSE(event.contains("parameter"));
  }
  Told run;
  const Job job =
      small_job(small_config("{type: SGD, lr: 1e39}"), {cpus(1), "lr_schedule={type: constant}"});
  try {
    run.train(job);
    FAIL("the run ends well");
  } catch (const Error& error) {
    check_contains(error.what(),
                   "There is no checkpoint yet; running the same command again starts from the "
                   "beginning and");
  }
  const auto event = run.logged("diverged").at(0);
  CHECK(event["first"] == "weights");
  CHECK(event["layer"] == "fc2");
  CHECK(event["parameter"] == "fc2.bias");
  CHECK(event["samples"].empty());
}

TEST_CASE("halt: the message says whether there is a checkpoint to resume from") {
  Told run;
  const Job job = poisoned_job(small_config(kSgd), {cpus(1)}, 30, kNaN);
  const std::string resumes =
      "The last checkpoint is good; running the same command again resumes from it and";
  const std::string text = diverged(job, run.folder);
  check_contains(text, resumes);
  // A checkpoint from elsewhere counts, even before the run has saved one itself.
  const TempDir other;
  StartingPoint start = checkpoint_of(job, run.folder, 2);
  start.state.rollback_candidate = -1;
  check_contains(diverged(job, other, &start), resumes);
}

TEST_CASE("skip: each skipped step is reported, and the epoch's results are those of the others") {
  Told run;
  const Job job = poisoned_job(
      small_config(kSgd),
      {cpus(1), "train.on_divergence.policy=skip", "log.every=1", "train.epochs=2"}, 30, kNaN);
  run.train(job);
  check_contains(run.messages(), "warning: step 3 (epoch 1) is skipped: the loss is nan. ");
  CHECK(run.logged("skipped_step").size() == 2);
  double loss = 0, correct = 0;
  int samples = 0;
  for (const auto& step : run.logged("step")) {
    if (step["epoch"] != 1) continue;
    const int n = step["step"] == 5 ? 5 : 12;
    loss += n * step["loss"].get<double>();
    correct += n * step["accuracy"].get<double>();
    samples += n;
  }
  CHECK(samples == 53 - 12);
  const auto epoch = run.logged("epoch").at(0);
  CHECK(epoch["loss"].get<double>() == doctest::Approx(loss / samples).epsilon(1e-9));
  CHECK(epoch["accuracy"].get<double>() == doctest::Approx(correct / samples).epsilon(1e-9));
}

TEST_CASE("a step of which no sample counts: warnings at the 1st, the 10th, ..., a line for each") {
  Told run;
  const Job job = small_job(small_config(kSgd) + "loss: {class_weights: [0, 1, 1, 1]}\n",
                            {cpus(1), "data.batch_size=1", "train.epochs=2"});
  run.train(job);
  const auto skipped = run.logged("skipped_step");
  REQUIRE(skipped.size() > 10);
  REQUIRE(skipped.size() < 100);
  const std::string messages = run.messages();
  std::size_t warnings = 0;
  for (std::size_t at = messages.find(" is skipped: "); at != std::string::npos;
       at = messages.find(" is skipped: ", at + 1)) {
    ++warnings;
  }
  CHECK(warnings == 2);
  const auto begins = [&](std::size_t i) {
    return fmt::format("step {} (epoch {}) is skipped: none of its samples counts",
                       skipped[i]["step"].get<int>(), skipped[i]["epoch"].get<int>());
  };
  check_contains(messages, begins(0));
  check_contains(messages,
                 ". Another warning follows after 10, 100, ... steps skipped for this reason");
  check_contains(messages, begins(9));
  check_contains(messages, "Steps skipped for this reason: 10");
}

TEST_CASE("skip: an epoch of which nothing was trained has no results") {
  Told run;
  const Job job = poisoned_job(
      small_config(kSgd),
      {cpus(1), "train.on_divergence.policy=skip", "data.batch_size=53", "train.epochs=1"}, 30,
      kNaN);
  const TrainOutcome outcome = run.train(job);
  CHECK_FALSE(outcome.state.train_loss.has_value());
  CHECK_FALSE(outcome.state.train_accuracy.has_value());
  CHECK(outcome.state.val_loss.has_value());
  const auto epoch = run.logged("epoch").at(0);
  CHECK(epoch["loss"].is_null());
  CHECK((epoch["nonfinite"] == nlohmann::json{"loss", "accuracy"}));
}

TEST_CASE("rollback: right before a bad step there is nothing to go back to") {
  // The first batch is bad: a lower learning rate changes nothing before it.
  Told run;
  const Job job =
      poisoned_job(small_config(kSgd), {cpus(1), "train.on_divergence.policy=rollback"}, 5, kNaN);
  check_contains(diverged(job, run.folder),
                 ". A rollback would go back to right before this step, where a lower learning "
                 "rate changes nothing. There is no checkpoint yet; ");
  CHECK(run.logged("rollback").empty());
  // If an update overflows instead, a lower rate may prevent it.
  Told other;
  Job overflowing = rollback_job({"train.epochs=1"});
  overflow_once(overflowing, 0);
  CHECK(other.train(overflowing).end == RunEnd::complete);
  CHECK(other.logged("rollback").at(0)["step"] == 0);
  // A rollback also takes place if the checkpoint is one step earlier.
  Told later;
  const Job poisoned =
      poisoned_job(small_config(kSgd),
                   {cpus(1), "train.on_divergence.policy=rollback",
                    "train.on_divergence.max_rollbacks=1", "checkpoint.every_steps=2"},
                   41, kNaN);
  check_contains(diverged(poisoned, later.folder), "The run has rolled back 1 time,");
  CHECK(later.logged("rollback").at(0)["step"] == 2);
}

TEST_CASE("rollback: the best and the messages are again those of the step gone back to") {
  Told run;
  Job job = improving_job();
  bool stops = false;
  overflow_once(job, 10, [&] { stops = true; });
  const TrainOutcome outcome =
      run.train(job, [&] { return stops ? StopReason::user : StopReason::none; });
  REQUIRE(outcome.end == RunEnd::stopped);
  // The stop request arrived with step 12, which does not count after the bad step 11. After the
  // rollback, step 6 is the first that counts.
  const auto back = run.logged("rollback").at(0);
  CHECK(back["bad_step"] == 11);
  CHECK(back["step"] == 5);
  CHECK(back["epoch"] == 3);
  CHECK(back["lr_scale"] == 0.5);
  check_contains(run.messages(), "warning: step 11 (epoch 3) diverged: the loss is ");
  check_contains(
      run.messages(),
      "Going back to step 5, with the learning rate at 0.5 of the schedule's (rollback 1 of "
      "at most 5)");
  CHECK(outcome.state.step == 6 + job.placement.steps_ahead);
  CHECK(outcome.state.lr_scale == 0.5);
  CHECK(outcome.state.rollback_step == 5);
  CHECK(outcome.state.rollback_candidate == -1);
  CHECK(outcome.state.best_step == 5);
  CHECK(outcome.state.best_monitor.starts_with("val/loss "));
  const std::string best = run.folder.file("best.safetensors");
  CHECK(read_checkpoint_header(best).state.step == 5);
  CHECK(outcome.state.best_checksum == read_checkpoint_header(best).checksum);
  CHECK(std::filesystem::exists(run.folder.file("checkpoints/abandoned-1/" + checkpoint_name(10))));
  // The run continues as if it had not stopped, with checkpoints at the same steps.
  stops = false;
  const StartingPoint start = checkpoint_of(job, run.folder, outcome.state.step);
  CHECK(run.train(job, {}, &start).state.step == 20);
  for (const std::int64_t step : {10, 15, 20}) {
    CHECK(checkpoint_of(job, run.folder, step).state.rollbacks == 1);
  }
}

TEST_CASE("rollback: back at its start, a run is a new one with a lower learning rate") {
  // The sums of Adagrad start from the value of its option, and the average starts from the
  // weights.
  for (const char* optimizer :
       {"{type: Adagrad, lr: 0.01, initial_accumulator_value: 0.5}", "{type: Adam, lr: 0.01}"}) {
    CAPTURE(optimizer);
    const auto job = [&] {
      return rollback_job(
          {std::string("optimizer=") + optimizer, "train.ema={decay: 0.9}", "train.epochs=1"});
    };
    Told back, fresh;
    Job overflowing = job();
    overflow_once(overflowing, 2);
    CHECK(back.train(overflowing).end == RunEnd::complete);
    CHECK(back.logged("rollback").at(0)["step"] == 0);
    StartingPoint start = fresh_start(job());
    start.state.lr_scale = 0.5;
    CHECK(fresh.train(job(), {}, &start).end == RunEnd::complete);
    const StartingPoint end = checkpoint_of(job(), back.folder, 5);
    const StartingPoint expected = checkpoint_of(job(), fresh.folder, 5);
    CHECK(end.params == expected.params);
    CHECK((end.optimizer == expected.optimizer));
  }
}

TEST_CASE("rollback: a checkpoint is made again where one of the same step was moved aside") {
  Told run;
  Job job = rollback_job({"train.epochs=3"});
  overflow_once(job, 10);
  CHECK(run.train(job).end == RunEnd::complete);
  std::vector<std::int64_t> saved;
  for (const auto& event : run.logged("checkpoint")) saved.push_back(event["step"]);
  CHECK(saved == std::vector<std::int64_t>{5, 10, 15});
  for (const std::int64_t step : saved) {
    CHECK(checkpoint_of(job, run.folder, step).state.rollbacks == (step > 5 ? 1 : 0));
  }
  // A rollback goes back to the last checkpoint before a good step: here to that of step 10.
  Told other;
  Job later = rollback_job({"train.epochs=3"});
  overflow_once(later, 12);
  CHECK(other.train(later).end == RunEnd::complete);
  CHECK(other.logged("rollback").at(0)["step"] == 10);
  const RunState state = checkpoint_of(later, other.folder, 15).state;
  CHECK(state.rollback_step == 10);
  CHECK(state.rollback_candidate == 15);
}

TEST_CASE("rollback: if the best is lost meanwhile, a new one is chosen") {
  Told run;
  Job job = improving_job();
  overflow_once(job, 10, [&] {
    // Both files must be removed: otherwise the next best would restore the checkpoint.
    std::filesystem::remove(run.folder.file("best.safetensors"));
    std::filesystem::remove(run.folder.file("checkpoints/" + checkpoint_name(5)));
  });
  const TrainOutcome outcome = run.train(job);
  CHECK(outcome.end == RunEnd::complete);
  check_contains(run.messages(),
                 "the best checkpoint from before step 5 is missing; the next validation gives the "
                 "first candidate for a new best");
  // The tenth step is the first to be measured again, and thus the best whatever the previous best
  // was.
  bool is_best_again = false;
  for (const auto& event : run.logged("checkpoint")) {
    if (event["step"] == 10) is_best_again = event["best"];
  }
  CHECK(is_best_again);
  CHECK(outcome.test.has_value());
}

TEST_CASE("a rollback goes back to a later start, the checkpoint that it names, or the start") {
  const TempDir folder;
  const Job job = small_job(small_config(kSgd), {cpus(1), "train.on_divergence.policy=rollback"});
  train_small(job, folder.path(), nullptr, 9);
  StartingPoint start = checkpoint_of(job, folder, 9);
  std::string warnings;
  const auto origin = [&](const Job& of) {
    warnings.clear();
    return rollback_origin(of, start, [&](const std::string& text) { warnings += text; });
  };
  start.state.rollback_step = 7;
  CHECK(origin(job).state.step == 7);
  CHECK(origin(job).state.rollback_step == 7);
  CHECK((origin(job).params == checkpoint_of(job, folder, 7).params));
  CHECK(warnings.empty());
  start.state.rollback_step = 0;
  CHECK(origin(job).state.step == 0);
  CHECK((origin(job).params == fresh_start(job).params));
  for (const std::int64_t step : {-1, 9}) {
    start.state.rollback_step = step;
    CHECK(origin(job).state.step == 9);
    CHECK(origin(job).state.rollback_step == step);
  }
  start.state.rollback_step = 7;
  CHECK(origin(small_job(small_config(kSgd), {cpus(1)})).state.step == 9);
  std::filesystem::remove(folder.file("checkpoints/" + checkpoint_name(7)));
  CHECK(origin(job).state.step == 9);
  CHECK(origin(job).state.rollback_step == 9);
  check_contains(warnings, "a rollback would go back to step 7, but ");
  check_contains(warnings, "; it will go back to step 9 instead");
}

TEST_CASE("a bad step in words: what is wrong, where, and with which learning rate") {
  StepResult result;
  result.step = 7;
  result.lr = 0.05;
  result.metrics.loss_sum = 24;
  result.metrics.count.add_count(12);
  result.metrics.weight = 12;
  result.metrics.bad_norm = kInfinity;
  result.outcome = UpdateOutcome::refused;
  const auto told = [&] { return std::string(BadStep(result, 2, {12, 24}).what()); };
  const std::string where = "training diverged at step 7 (epoch 3): ";
  const std::string rate = ". The learning rate was 0.05";
  CHECK(told() == where + "the loss is 2, but the norm of the gradient is inf" + rate);
  result.metrics.bad_norm = -kNaN;
  CHECK(told() == where + "the loss is 2, but the norm of the gradient is nan" + rate);
  result.outcome = UpdateOutcome::broken;
  CHECK(told() == where +
                      "the loss is 2, but after the update some weights or optimizer state are "
                      "not finite" +
                      rate);
  result.outcome = UpdateOutcome::refused;
  result.metrics.bad_statistic = StepMetrics::kFirstStatistic;
  CHECK(told() == where +
                      "the loss is 2, but after the update some running statistics would not be "
                      "finite" +
                      rate);
  result.metrics.weight = kInfinity;
  CHECK(told() ==
        where +
            "the sum of the weights of its samples (their own, loss.class_weights) is not "
            "finite" +
            rate);
  result.metrics.weight = 12;
  result.metrics.loss_sum = -kNaN;
  CHECK(told() == where + "the loss is nan" + rate);
  result.metrics.loss_sum = -kInfinity;
  CHECK(told() == where + "the loss is -inf" + rate);
  result.metrics.loss_sum = 6;
  const BadStep bad(result, 2, {12, 24});
  CHECK(bad.kind() == ErrorKind::diverged);
  CHECK(bad.loss() == 0.5);
  CHECK(bad.epoch() == 2);
  CHECK(bad.batch() == Range{12, 24});
  CHECK(bad.result().step == 7);
}

TEST_CASE("without shuffling the samples of a bad step are those of the file's order") {
  Told run;
  std::int64_t sample = 0;
  const Job job =
      poisoned_job(small_config(kSgd), {cpus(1), "data.shuffle=false"}, 30, kNaN, &sample);
  diverged(job, run.folder);
  const auto event = run.logged("diverged").at(0);
  CHECK(event["step"] == 3);
  CHECK((event["samples"] == nlohmann::json{sample}));
  CHECK(sample == job.data.splits.train.indices[30]);
  const std::vector<std::int64_t> third(job.data.splits.train.indices.begin() + 24,
                                        job.data.splits.train.indices.begin() + 36);
  CHECK((event["batch_samples"] == nlohmann::json(third)));
}
