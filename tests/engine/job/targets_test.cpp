// Runs with targets other than plain class labels: soft labels, multi-hot targets, values, and
// sample weights.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/data/split.h"
#include "engine/job/starting_point.h"
#include "engine/training/gradient_check.h"
#include "engine/training/overfit.h"
#include "tests/engine/training/run.h"
#include "tests/support/npy_data.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A data set with targets of one kind, and small_config changed to use it with a matching loss.
struct Targets {
  TempDir data;
  std::string config;

  explicit Targets(const std::string& kind, bool weighted = true, const char* optimizer = kSgd,
                   int epochs = 2) {
    config = small_config(optimizer, epochs);
    const std::string begin = "  dataset: synthetic\n", end = "  classes: 4\n";
    const std::size_t from = config.find(begin);
    config.replace(from, config.find(end) + end.size() - from,
                   npy_data(data.path(), kind, weighted));
    config += "loss: {type: " + loss_of_kind(kind) + "}\n";
  }
  Job job(const std::vector<std::string>& overrides) const { return small_job(config, overrides); }
};

std::string error_of(const Targets& targets, const std::vector<std::string>& overrides) {
  try {
    targets.job(overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE(
    "exact mode: targets and weights, equal bits for 1, 2 and 3 replicas, staged, and after a "
    "stop") {
  for (const std::string& device : device_kinds()) {
    for (const std::string kind : {"soft_labels", "values"}) {
      CAPTURE(device);
      CAPTURE(kind);
      const Targets targets(kind);
      const auto train_on = [&](int replicas) {
        const TempDir folder;
        return train_small(targets.job({replicas_on(device, replicas), "train.shards=6"}),
                           folder.path());
      };
      const FinalState one = train_on(1);
      if (!is_emulated(device)) CHECK((train_on(2) == one));
      CHECK((train_on(3) == one));

      Job two = targets.job({replicas_on(device, 2), "train.shards=6"});
      const TempDir folder, resumed, staged;
      train_small(two, folder.path(), nullptr, 3);
      const StartingPoint rest =
          start_from_checkpoint(two, folder.path() + "/checkpoints/" + checkpoint_name(3));
      CHECK((train_small(two, resumed.path(), &rest) == one));

      for (Split* split : {&two.data.splits.train, &two.data.splits.val, &two.data.splits.test}) {
        split->source = std::make_shared<Unresident>(split->source);
      }
      CHECK((train_small(two, staged.path()) == one));
      CHECK(events(staged, "replica")[0]["data"] == "staged");
    }
  }
}

TEST_CASE("targets of each kind are learned, with and without weights") {
  for (const std::string& kind : npy_kinds()) {
    for (const bool weighted : {false, true}) {
      CAPTURE(kind);
      CAPTURE(weighted);
      const Targets targets(kind, weighted, kAdam, 12);
      const TempDir folder;
      const Job job = targets.job(
          {cpus(2), "data.transforms.train=[{type: Normalize, mean: [0.4], std: [0.3]}]"});
      CHECK(job.model.loss.is_weighted() == weighted);
      train_small(job, folder.path());
      const auto epochs = events(folder, "epoch"), evals = events(folder, "eval"),
                 steps = events(folder, "step");
      CHECK(epochs.back()["loss"] < epochs.front()["loss"]);
      const bool has_accuracy = kind != "values";
      for (const auto* lines : {&epochs, &evals, &steps}) {
        CHECK(lines->back().contains("accuracy") == has_accuracy);
      }
      if (has_accuracy) CHECK(epochs.back()["accuracy"] > 0.5);
      if (has_accuracy) CHECK(epochs.back()["accuracy"] <= 1.0);
    }
  }
}

TEST_CASE("weights of 1 give the loss of none, and those of 0 leave samples out") {
  // In fast mode, the scale of unweighted gradients includes the divisor of the mean; weighted
  // gradients are divided after their sum.
  const Targets targets("values", true, kSgd, 1);
  std::vector<float> ones(60, 1.0F);
  write_bytes(targets.data.file("train_w.npy"), npy({60}, ones));
  write_bytes(targets.data.file("test_w.npy"), npy({23}, std::vector<float>(23, 1.0F)));
  const TempDir with, without, some;
  train_small(targets.job({cpus(1), "data.shuffle=false", "data.val_split=0"}), with.path());
  const Targets plain("values", false, kSgd, 1);
  train_small(plain.job({cpus(1), "data.shuffle=false", "data.val_split=0"}), without.path());
  const auto first = [](const TempDir& folder) { return events(folder, "step").front(); };
  CHECK(first(with)["loss"] == first(without)["loss"]);
  CHECK(first(with)["grad_norm"].get<double>() ==
        doctest::Approx(first(without)["grad_norm"].get<double>()).epsilon(1e-5));

  // If the first half of a batch has equal weights and the second half has weight 0, the results
  // are those of the first half alone.
  for (std::size_t k = 0; k < 60; ++k) ones[k] = k < 6 ? 2.5F : 0.0F;
  write_bytes(targets.data.file("train_w.npy"), npy({60}, ones));
  const std::vector<std::string> still = {
      cpus(1), "data.shuffle=false", "data.val_split=0",
      "data.transforms.train=[{type: Normalize, mean: [0.4], std: [0.3]}]"};
  const auto run = [&](const Targets& data, const std::string& batch, const TempDir& folder) {
    std::vector<std::string> overrides = still;
    overrides.push_back("data.batch_size=" + batch);
    train_small(data.job(overrides), folder.path(), nullptr, 1);
    return first(folder);
  };
  const TempDir half;
  const auto all = run(targets, "12", some), begin = run(plain, "6", half);
  for (const char* name : {"loss", "grad_norm"}) {
    CHECK(all[name].get<double>() == doctest::Approx(begin[name].get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("gradient check: of targets of each kind, nothing is called wrong") {
  for (const std::string& kind : npy_kinds()) {
    for (int seed = 1; seed <= 2; ++seed) {
      CAPTURE(kind);
      CAPTURE(seed);
      const Targets targets(kind);
      const Job job = targets.job({cpus(1), "seed=" + std::to_string(seed)});
      int agree = 0;
      for (const CheckedTensor& checked : check_gradients(job, job.placement.devices.front(), 6)) {
        CAPTURE(checked.parameter);
        CHECK(checked.verdict != GradientVerdict::differs);
        agree += checked.verdict == GradientVerdict::agrees;
      }
      CHECK(agree >= 7);
    }
  }
}

TEST_CASE("overfitting soft labels ends near the entropy of the labels") {
  const Targets targets("soft_labels", true, kAdam, 1);
  const Job job = overfit_job(targets.job({cpus(1), "loss.label_smoothing=0.1"}), 1);
  const OverfitResult result = overfit(
      job, fresh_start(job), 3000, [] { return StopReason::none; }, [](const OverfitResult&) {});
  CHECK(result.least > 0.3);
  CHECK(result.least < result.loss);
  CHECK(result.has_fallen());
  CHECK(result.target < result.first_loss);
  const Targets values("values", false, kAdam, 1);
  const Job other = overfit_job(values.job({cpus(1)}), 1);
  const OverfitResult learned = overfit(
      other, fresh_start(other), 3000, [] { return StopReason::none; },
      [](const OverfitResult&) {});
  CHECK(learned.least == 0);
  CHECK(learned.has_fallen());
  CHECK_FALSE(learned.accuracy);
}

TEST_CASE("the best checkpoint of data without accuracy is that of the least loss") {
  const Targets targets("values", false, kSgd, 3);
  const Job job = targets.job({cpus(1), "train.early_stopping={patience: 3}"});
  CHECK(job.spec.checkpoint.keep_best.monitor == "val/loss");
  CHECK(job.spec.checkpoint.keep_best.mode == Direction::min);
  CHECK(job.spec.train.early_stopping->monitor == "val/loss");
  CHECK(job.spec.train.early_stopping->mode == Direction::min);
  check_contains(job.resolved_config, "monitor: val/loss");
  const TempDir folder;
  train_small(job, folder.path());
  const Checkpoint best = load_checkpoint(folder.file("best.safetensors"), job.model.plan);
  CHECK(best.state.best == best.state.val_loss);
  CHECK_FALSE(best.state.val_accuracy);
  // A resumed run has the same config.
  const Job again = small_job(job.resolved_config, {});
  CHECK(again.resolved_config == job.resolved_config);

  const std::string text =
      "val/accuracy needs class labels, but the data's targets are values (a number for each "
      "output): use val/loss, or val/NAME with a metric from `metrics`";
  for (const std::string path : {"checkpoint.keep_best", "train.early_stopping"}) {
    CHECK(error_of(targets, {path + ".monitor=val/accuracy"}) == path + ".monitor: " + text);
  }
  CHECK(error_of(targets, {"lr_schedule={type: plateau, monitor: val/accuracy}"}) ==
        "lr_schedule.monitor: " + text);
  CHECK(small_job(Targets("multi_hot").config, {}).spec.checkpoint.keep_best.monitor ==
        "val/accuracy");
}

TEST_CASE("targets that the loss or a metric is not of, or the test samples do not have") {
  const Targets values("values");
  check_contains(error_of(values, {"loss={type: cross_entropy}"}),
                 "expected one of mse, l1, smooth_l1, found cross_entropy");
  check_contains(error_of(values, {"metrics=[{type: top_k}]"}),
                 "expected one of mean_absolute_error, r2, found top_k");
  // Training samples have labels, but test samples have rows of values.
  const Targets labels("labels", false);
  write_npy_part(labels.data.path(), "test", "values", 23, 2);
  const std::string automatic = "data.target=auto";
  CHECK(error_of(labels, {automatic, "loss={type: mse}"}).find("can be soft_labels") !=
        std::string::npos);
  // A single output fits values but not classes.
  const std::string one = "model.layers.8.out_features=1";
  write_bytes(labels.data.file("train_y.npy"), npy({60}, std::vector<float>(60, 0.5F)));
  write_bytes(labels.data.file("test_y.npy"), npy({23}, std::vector<std::int32_t>(23, 0)));
  CHECK(error_of(labels, {automatic, "loss={type: mse}", one}) ==
        labels.data.file("test_x.npy") +
            ", sample 0: expected targets like those of the training samples (values (a number for "
            "each output), 1 per sample), found class labels");
  write_bytes(labels.data.file("test_y.npy"), npy({23}, std::vector<float>(23, 0.5F)));
  CHECK(error_of(labels, {automatic, "loss={type: mse}", one}) == "no error");
  write_bytes(labels.data.file("train_y.npy"), npy({60}, std::vector<std::int32_t>(60, 0)));
  write_bytes(labels.data.file("test_y.npy"), npy({23}, std::vector<std::int32_t>(23, 0)));
  CHECK(error_of(labels, {automatic, "loss={type: mse}", one}) ==
        "model: the data's targets are class labels: expected one output of the last layer per "
        "class, at least 2, found 1");
}

TEST_CASE("sums of metrics that overflow cost no checkpoint, and a resumed run has the same bits") {
  const Targets targets("values", false, kSgd, 2);
  // The squares of these errors overflow fp32, but their absolute values do not.
  write_bytes(targets.data.file("train_y.npy"), npy({60, 4}, std::vector<float>(4 * 60, 1e25F)));
  const Job job = targets.job(
      {cpus(2), "loss={type: l1}", "metrics=[{type: r2}, {type: mean_absolute_error}]"});
  const TempDir whole, folder;
  const FinalState end = train_small(job, whole.path());
  train_small(job, folder.path(), nullptr, 3);
  const StartingPoint rest =
      start_from_checkpoint(job, folder.path() + "/checkpoints/" + checkpoint_name(3));
  REQUIRE(rest.state.epoch_sums.size() == 2);
  CHECK(rest.state.epoch_sums[0] == HUGE_VAL);
  CHECK(rest.state.epoch_sums[1] == doctest::Approx(36e25));
  CHECK((train_small(job, folder.path(), &rest) == end));
  const auto epoch = events(folder, "epoch").back(), same = events(whole, "epoch").back();
  for (const char* field : {"loss", "mean_absolute_error"}) CHECK(epoch[field] == same[field]);
  const auto eval = events(folder, "eval").front();
  CHECK(eval["r2"].is_null());
  CHECK((eval["nonfinite"] == nlohmann::json{"r2"}));
}

TEST_CASE("a loss that overflows is traced to the sample with the target that makes it so") {
  const Targets targets("values", true, kSgd, 1);
  std::vector<float> values(4 * 60, 0.5F);
  values[4 * 5] = 1e30F;
  write_bytes(targets.data.file("train_y.npy"), npy({60, 4}, values));
  const TempDir folder;
  try {
    train_small(targets.job({cpus(2), "data.val_split=0"}), folder.path());
    FAIL("it did not diverge");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::diverged);
    check_contains(error.what(), "The outputs of all layers are finite, but the loss of some");
    check_contains(error.what(), "Affected samples (1 of the batch's 12): 5 (" +
                                     targets.data.file("train_x.npy") + ", sample 5)");
  }
}
