// Metrics and losses of the config in whole runs: log, monitors, checkpoints.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

const std::string kMetrics = "metrics: [{type: top_k, k: 2}, {type: per_class_accuracy}]\n";

std::string error_of(const std::string& config, const std::vector<std::string>& overrides) {
  try {
    small_job(config, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("metrics of the config are logged, monitored and kept in checkpoints") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const std::vector<std::string> overrides = {
        replicas_on(device, 2), "checkpoint.keep_best={monitor: val/accuracy_top2}",
        "train.early_stopping={monitor: val/per_class_accuracy}"};
    const std::string config = small_config(kSgd, 2) + kMetrics;
    const TempDir whole;
    train_small(small_job(config, overrides), whole.path());
    const auto steps = events(whole, "step"), epochs = events(whole, "epoch");
    const auto evals = events(whole, "eval");
    REQUIRE(epochs.size() == 2);
    REQUIRE(evals.size() == 3);
    CHECK(steps.front()["accuracy_top2"] >= steps.front()["accuracy"]);
    CHECK_FALSE(steps.front().contains("per_class_accuracy"));
    CHECK(epochs.back()["accuracy_top2"] >= epochs.back()["accuracy"]);
    for (const auto& eval : evals) {
      CHECK(eval["accuracy_top2"] >= eval["accuracy"]);
      double sum = 0;
      for (const auto& accuracy : eval["per_class_accuracy_of"]) sum += accuracy.get<double>();
      const auto classes = static_cast<double>(eval["per_class_accuracy_of"].size());
      CHECK(eval["per_class_accuracy"].get<double>() == doctest::Approx(sum / classes));
    }
    const auto newest = [](const TempDir& folder, std::int64_t step) {
      return read_checkpoint_header(folder.path() + "/checkpoints/" + checkpoint_name(step)).state;
    };
    const RunState end = newest(whole, 2 * kStepsPerEpoch);
    CHECK(end.best_monitor == "val/accuracy_top2 max");
    CHECK(end.early_monitor == "val/per_class_accuracy max");
    REQUIRE(end.val_metrics.size() == 2);
    CHECK(end.val_metrics[0].second == evals[1]["accuracy_top2"].get<double>());
    CHECK(end.early_best >= end.val_metrics[1].second);

    // Stop within an epoch, whose sums continue after the resume.
    const TempDir folder;
    const Job job = small_job(config, overrides);
    train_small(job, folder.path(), nullptr, kStepsPerEpoch + 2);
    const StartingPoint rest = start_from_checkpoint(
        job, folder.path() + "/checkpoints/" + checkpoint_name(kStepsPerEpoch + 2));
    CHECK(rest.state.epoch_sums.size() == 1);
    train_small(job, folder.path(), &rest);
    const auto resumed = events(folder, "epoch");
    CHECK(resumed.back()["loss"] == epochs.back()["loss"]);
    CHECK(resumed.back()["accuracy_top2"] == epochs.back()["accuracy_top2"]);
    CHECK(newest(folder, 2 * kStepsPerEpoch).val_metrics == end.val_metrics);
  }
}

TEST_CASE("losses of values train and are measured") {
  for (const char* type : {"mse", "bce_with_logits"}) {
    CAPTURE(type);
    const std::string config = small_config(kAdam, 3) + "loss: {type: " + type +
                               "}\nmetrics: [{type: mean_absolute_error}, {type: r2}]\n";
    const TempDir folder;
    train_small(small_job(config, {cpus(2)}), folder.path());
    const auto epochs = events(folder, "epoch"), evals = events(folder, "eval");
    CHECK(epochs.back()["loss"] < epochs.front()["loss"]);
    CHECK(epochs.back()["mean_absolute_error"] < 0.5);
    CHECK(evals.back()["r2"] < 1.0);
    CHECK(evals.back()["mean_absolute_error"] > 0.0);
  }
}

TEST_CASE("a batch whose samples do not count updates nothing, and the run continues") {
  // Some batches of 2 lack samples of the classes 2 and 3.
  const std::string config = small_config(kSgd, 2) + "loss: {class_weights: [0, 0, 2, 1]}\n";
  for (const std::string& device : device_kinds()) {
    for (const char* policy : {"halt", "skip", "rollback"}) {
      CAPTURE(device);
      CAPTURE(policy);
      std::vector<float> first;
      for (const int replicas : {1, 2}) {
        const TempDir folder;
        const std::vector<std::string> overrides = {
            replicas_on(device, replicas), "data.batch_size=2", "train.shards=2",
            "train.on_divergence.max_skips=1", std::string("train.on_divergence.policy=") + policy};
        const FinalState end = train_small(small_job(config, overrides), folder.path());
        CHECK(end.step == 2 * 27);
        const auto skipped = events(folder, "skipped_step");
        CHECK(skipped.size() > 4);
        CHECK(skipped.size() < 27);
        for (const auto& event : skipped) {
          CHECK(event["first"] == "no sample");
          CHECK(event["loss"].is_null());
          CHECK(event["in_row"] == 0);
          CHECK(event["batch_samples"].size() >= 1);
        }
        CHECK(events(folder, "rollback").empty());
        for (const auto& epoch : events(folder, "epoch")) CHECK(epoch["loss"] > 0.0);
        const std::vector<float>& params = end.params;
        CHECK(std::all_of(params.begin(), params.end(), [](float x) { return std::isfinite(x); }));
        if (first.empty()) first = params;
        CHECK(params == first);
      }
    }
  }
}

TEST_CASE("an epoch without a sample that counts ends the run") {
  const std::string config =
      small_config(kSgd, 1) + "loss: {class_weights: [0, 0, 0, 1], ignore_index: 3}\n";
  for (const int replicas : {1, 3}) {
    const TempDir folder;
    CHECK_THROWS_WITH_AS(
        train_small(small_job(config, {cpus(replicas)}), folder.path()),
        "epoch 1: expected at least one batch with a sample that counts in the loss, found none in "
        "the 53 training samples: check loss.ignore_index, loss.class_weights and the "
        "weights of the samples",
        Error);
  }
}

TEST_CASE("an epoch whose batches diverge is not one without samples that count") {
  // Every step is bad: some have no sample that counts, the others an infinite gradient.
  const std::string config = small_config(kSgd, 2) + "loss: {class_weights: [0, 0, 2, 1]}\n";
  const TempDir folder;
  const Job job = small_job(
      config, {cpus(1), "data.batch_size=2", "optimizer.lr=1e30", "train.grad_clip_norm=null",
               "train.on_divergence={policy: skip, max_skips: 100}"});
  CHECK(train_small(job, folder.path()).step == 2 * 27);
}

TEST_CASE("a value that is not measured cannot be monitored") {
  const std::string config = small_config(kSgd, 1) + kMetrics;
  const std::string known =
      "expected one of val/accuracy, val/accuracy_top2, val/loss, val/per_class_accuracy, found ";
  CHECK(error_of(config, {"checkpoint.keep_best.monitor=val/accuracy_top5"})
            .find(known + "'val/accuracy_top5'; did you mean 'val/accuracy'?") !=
        std::string::npos);
  CHECK(error_of(config, {"train.early_stopping={monitor: val/r2}"}).find(known + "'val/r2'") !=
        std::string::npos);
  CHECK(error_of(config, {"lr_schedule={type: plateau, monitor: accuracy}"})
            .find(known + "'accuracy'; did you mean 'val/accuracy'?") != std::string::npos);
  CHECK(error_of(config, {"metrics=[{type: r2}]"}).find("found cross_entropy") !=
        std::string::npos);
}
