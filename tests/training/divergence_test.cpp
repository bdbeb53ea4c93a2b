// train.on_divergence: what a run does with steps that are not finite, with NaN and with infinity.
#include "engine/training/divergence.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/text.h"
#include "tests/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A source in floats, of which one sample has one bad value.
class Poisoned : public Unresident {
 public:
  Poisoned(std::shared_ptr<const DataSource> source, std::int64_t sample, float value)
      : Unresident(source), source_(std::move(source)), sample_(sample), value_(value) {}
  DType type() const override { return DType::f32; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    std::vector<std::byte> raw(pixels.size() / sizeof(float));
    source_->read(index, raw, label);
    std::vector<float> values(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      values[i] = static_cast<float>(std::to_integer<int>(raw[i])) / 255.0F;
    }
    if (index == sample_) values[values.size() / 2] = value_;
    std::copy_n(std::as_bytes(std::span(values)).begin(), pixels.size(), pixels.begin());
  }

 private:
  std::shared_ptr<const DataSource> source_;
  std::int64_t sample_;
  float value_;
};

/// Each step multiplies the weights by about -100: they overflow within ten steps.
constexpr const char* kExploding = "{type: SGD, lr: 100, momentum: 0.5, weight_decay: 1}";

/// A job whose sample number `position` in the order of the first epoch has the value.
Job poisoned_job(const std::string& config, std::vector<std::string> overrides,
                 std::int64_t position, float value, std::int64_t* sample = nullptr) {
  Job job = small_job(config, std::move(overrides));
  const auto order = epoch_order(job.splits.train.size(), 7, 0, job.spec.data.shuffle);
  const std::int64_t id =
      job.splits.train.indices[static_cast<std::size_t>(order[static_cast<std::size_t>(position)])];
  const auto source = std::make_shared<Poisoned>(job.splits.train.source, id, value);
  job.splits.train.source = source;
  job.splits.val.source = source;
  job.splits.test = {};
  job.train_input.raw_type = job.eval_input.raw_type = DType::f32;
  // The value stays in the picture whatever the augmentation.
  job.train_input.crop_padding = 0;
  if (sample) *sample = id;
  return job;
}

StartingPoint checkpoint_of(const Job& job, const TempDir& folder, std::int64_t step) {
  return start_from_checkpoint(job, folder.file("checkpoints/" + checkpoint_name(step)));
}

/// What the run ends with; empty when it ends well.
std::string diverged(const Job& job, const TempDir& folder, const StartingPoint* start = nullptr) {
  try {
    train_small(job, folder.path(), start);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::diverged);
    return error.what();
  }
  return {};
}

void all_checkpoints_are_finite(const Job& job, const TempDir& folder) {
  for (const std::string& path : list_checkpoints(folder.file("checkpoints"))) {
    CAPTURE(path);
    const StartingPoint point = start_from_checkpoint(job, path);
    const auto finite = [](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    };
    CHECK(finite(point.params));
    for (const auto& [name, values] : point.optimizer) CHECK(finite(values));
  }
}

}  // namespace

TEST_CASE("halt: the report names step, layer and sample, and the last checkpoint is good") {
  struct Case {
    float value;
    std::string place;
  };
  for (const std::string& device : device_kinds()) {
    for (const Case& c : {Case{kNaN, "input"}, Case{kInfinity, "input"}, Case{1e25F, "output"}}) {
      for (const int replicas : {1, 3}) {
        CAPTURE(device);
        CAPTURE(c.value);
        CAPTURE(replicas);
        const TempDir folder;
        std::int64_t sample = 0;
        // Position 30 is in the third batch of twelve.
        const Job job =
            poisoned_job(small_config(kSgd), {replicas_on(device, replicas)}, 30, c.value, &sample);
        StartingPoint fresh = fresh_start(job);
        if (c.place == "output") {
          // Weights with which the sample's large value, and no other, overflows.
          for (const Param& param : job.plan.params) {
            if (param.name != "conv2.weight") continue;
            for (std::int64_t i = 0; i < param.count; ++i) {
              fresh.params[static_cast<std::size_t>(param.offset + i)] *= 1e20F;
            }
          }
        }
        const std::string text = diverged(job, folder, &fresh);
        check_contains(text, "training diverged at step 3 (epoch 1): the ");
        check_contains(text, fmt::format("1 of the batch's 12 samples show it: {} ({})", sample,
                                         job.splits.train.source->describe(sample)));
        check_contains(text, "train.on_divergence.policy=rollback");
        if (c.place == "output") {
          check_contains(text, "The first layer with an output that is not finite is 'conv2'");
        }
        const auto event = events(folder, "diverged").at(0);
        CHECK(event["step"] == 3);
        CHECK(event["epoch"] == 1);
        CHECK(event["first"] == c.place);
        CHECK((event["samples"] == nlohmann::json{sample}));
        CHECK(event["batch_samples"].size() == 12);
        all_checkpoints_are_finite(job, folder);
        check_contains(
            newest_good_checkpoint(folder.file("checkpoints"), [](const std::string&) {}),
            checkpoint_name(2));
        // The same bits lead to the same end.
        const StartingPoint start = checkpoint_of(job, folder, 2);
        CHECK(diverged(job, folder, &start) == text);
      }
    }
  }
}

TEST_CASE("halt: steps that were queued after the bad one have changed nothing") {
  // Then the layer can be found with the weights of that step; and a gradient without clipping, of
  // which only the update knows that it is not finite, ends the run at its own step too.
  for (const std::string& device : device_kinds()) {
    for (const char* clip : {"train.grad_clip_norm=1.0", "train.grad_clip_norm=null"}) {
      CAPTURE(device);
      CAPTURE(clip);
      const TempDir folder;
      const Job job = small_job(small_config(kExploding), {replicas_on(device, 2), clip});
      const std::string text = diverged(job, folder);
      const auto event = events(folder, "diverged").at(0);
      const std::int64_t step = event["step"];
      check_contains(text, fmt::format("training diverged at step {} ", step));
      CHECK(events(folder, "checkpoint").back()["step"] == step - 1);
      CHECK(event["first"] != "not found");
      all_checkpoints_are_finite(job, folder);
    }
  }
}

TEST_CASE("halt: an update that overflows is found at its own step") {
  for (const std::string& device : device_kinds()) {
    for (const char* optimizer : {"{type: SGD, lr: 1e39}", "{type: Adam, lr: 1e39}"}) {
      for (const char* policy : {"halt", "skip"}) {
        CAPTURE(device);
        CAPTURE(optimizer);
        const TempDir folder;
        const Job job = small_job(small_config(optimizer),
                                  {replicas_on(device, 1), "lr_schedule={type: constant}",
                                   std::string("train.on_divergence.policy=") + policy});
        const std::string text = diverged(job, folder);
        check_contains(text, "training diverged at step 1 (epoch 1): the loss is ");
        check_contains(text, "after the update some weights or optimizer state are not finite");
        check_contains(text, "are in layer 'fc2' (fc2.bias)");
        if (policy == std::string("skip"))
          check_contains(text, "this update has already been written");
        CHECK(list_checkpoints(folder.file("checkpoints")).empty());
      }
    }
  }
}

TEST_CASE("skip: the step changes nothing, and the run goes on with the same bits everywhere") {
  for (const std::string& device : device_kinds()) {
    for (const float value : {kNaN, kInfinity}) {
      CAPTURE(device);
      CAPTURE(value);
      std::optional<FinalState> one;
      for (const int replicas : {1, 2, 3}) {
        if (is_emulated(device) && (replicas == 2 || value == kInfinity)) continue;
        CAPTURE(replicas);
        const TempDir folder;
        std::int64_t sample = 0;
        const Job job = poisoned_job(
            small_config(kSgd, epochs_on(device)),
            {replicas_on(device, replicas), "train.shards=8", "train.on_divergence.policy=skip"},
            30, value, &sample);
        const FinalState end = train_small(job, folder.path());
        CHECK(end.step == kStepsPerEpoch * epochs_on(device));
        // Once in each epoch.
        const auto skipped = events(folder, "skipped_step");
        REQUIRE(skipped.size() == static_cast<std::size_t>(epochs_on(device)));
        CHECK(skipped[0]["step"] == 3);
        CHECK(skipped[0]["epoch"] == 1);
        CHECK(skipped[0]["in_row"] == 1);
        CHECK(skipped[0]["grad_norm"].is_null());
        // On a GPU the ReLU of cuBLASLt may turn a NaN into 0, and the loss stays a number.
        const bool finite_loss = device != "cpu" && skipped[0]["loss"].is_number();
        CHECK(skipped[0]["loss"].is_null() == !finite_loss);
        CHECK((skipped[0]["nonfinite"] ==
               (finite_loss ? nlohmann::json{"grad_norm"} : nlohmann::json{"loss", "grad_norm"})));
        for (const auto& event : skipped) {
          CHECK((event["samples"] == nlohmann::json{sample}));
        }
        const StartingPoint before = checkpoint_of(job, folder, 2);
        const StartingPoint after = checkpoint_of(job, folder, 3);
        CHECK((before.params == after.params));
        CHECK((before.optimizer == after.optimizer));
        CHECK(after.state.skipped_steps == 1);
        CHECK(after.state.skipped_in_row == 1);
        CHECK(after.state.epoch_skipped == 12);
        CHECK(checkpoint_of(job, folder, 4).state.skipped_in_row == 0);
        // An epoch's loss is over the samples that were trained on.
        for (const auto& epoch : events(folder, "epoch")) {
          CHECK(epoch["loss"].get<double>() > 0.1);
          CHECK(epoch["loss"].get<double>() < 3);
        }
        if (!one) one = end;
        CHECK((end == *one));
        if (replicas != 2) continue;
        // Resumed right after the skipped step, and right before it.
        for (const std::int64_t from : {2, 3}) {
          const TempDir other;
          const StartingPoint start = checkpoint_of(job, folder, from);
          CHECK((train_small(job, other.path(), &start) == end));
        }
      }
    }
  }
}

TEST_CASE("skip: the first update made counts as the first, whatever was skipped before it") {
  // Adam's first update moves each weight by the learning rate; its second one, from empty moments,
  // would move it by three quarters of it.
  const TempDir folder;
  const Job job = poisoned_job(
      small_config("{type: Adam, lr: 0.01, eps: 1e-30}"),
      {cpus(1), "lr_schedule={type: constant}", "train.on_divergence.policy=skip"}, 5, kNaN);
  train_small(job, folder.path(), nullptr, 2);
  const StartingPoint start = fresh_start(job), end = checkpoint_of(job, folder, 2);
  CHECK(end.state.skipped_steps == 1);
  double farthest = 0;
  for (std::size_t i = 0; i < start.params.size(); ++i) {
    farthest = std::max(farthest, std::abs(static_cast<double>(start.params[i]) - end.params[i]));
  }
  CHECK(farthest == doctest::Approx(0.01).epsilon(1e-3));
}

TEST_CASE("skip: too many steps in a row end the run") {
  const TempDir folder;
  const Job job =
      small_job(small_config("{type: SGD, lr: 1e30}"),
                {cpus(2), "train.on_divergence.policy=skip", "train.on_divergence.max_skips=3"});
  const std::string text = diverged(job, folder);
  check_contains(
      text, "The 3 steps before it were skipped, and train.on_divergence.max_skips allows no more");
  check_contains(text,
                 "raise train.on_divergence.max_skips, or add to the command "
                 "train.on_divergence.policy=rollback (returns");
  CHECK_FALSE(contains(text, "policy=skip"));
  CHECK(events(folder, "skipped_step").size() == 3);
  CHECK(events(folder, "diverged").size() == 1);
  all_checkpoints_are_finite(job, folder);
}

TEST_CASE("rollback: goes on with a lower learning rate, with the same bits on any replicas") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    // Regular checkpoints where the weights are large already, and none before the divergence.
    for (const char* every : {"checkpoint.every_steps=3", "checkpoint.every=2"}) {
      if (is_emulated(device) && every != std::string("checkpoint.every=2")) continue;
      CAPTURE(every);
      const std::string config = small_config(kExploding, epochs_on(device));
      const auto overrides = [&](int replicas) {
        return std::vector<std::string>{replicas_on(device, replicas),
                                        "train.shards=8",
                                        "checkpoint.every_steps=0",
                                        every,
                                        "train.on_divergence.policy=rollback",
                                        "train.on_divergence.lr_factor=0.01"};
      };
      std::optional<FinalState> one;
      for (const int replicas : {1, 2, 3}) {
        if (is_emulated(device) && replicas == 2) continue;
        CAPTURE(replicas);
        const TempDir folder;
        const Job job = small_job(config, overrides(replicas));
        const FinalState end = train_small(job, folder.path());
        CHECK(end.step == kStepsPerEpoch * epochs_on(device));
        const auto rollbacks = events(folder, "rollback");
        REQUIRE(rollbacks.size() == 1);
        CHECK(rollbacks[0]["lr_scale"] == 0.01);
        CHECK(rollbacks[0]["rollbacks"] == 1);
        // The best of the first epoch, saved at its end: a later checkpoint had no good step after
        // it.
        CHECK(rollbacks[0]["step"] == 5);
        CHECK(rollbacks[0]["bad_step"].get<std::int64_t>() > 3);
        CHECK(checkpoint_of(job, folder, end.step).state.lr_scale == 0.01);
        all_checkpoints_are_finite(job, folder);
        if (!one) one = end;
        CHECK((end == *one));
      }
      // Stopped at any step, on another number of replicas, and resumed.
      const bool slow = is_emulated(device);
      for (std::int64_t stop = slow ? 8 : 1; stop < one->step; stop += slow              ? 20
                                                                       : device == "cpu" ? 1
                                                                                         : 8) {
        CAPTURE(stop);
        const TempDir folder;
        train_small(small_job(config, overrides(static_cast<int>(stop % 3) + 1)), folder.path(),
                    nullptr, stop);
        const Job rest = small_job(config, overrides(static_cast<int>(stop % 2) + 1));
        const StartingPoint start = checkpoint_of(rest, folder, stop);
        CHECK((train_small(rest, folder.path(), &start) == *one));
      }
    }
  }
}

TEST_CASE("rollback: no more than max_rollbacks times") {
  const TempDir folder;
  const Job job = small_job(
      small_config("{type: SGD, lr: 1e30}"),
      {cpus(2), "train.on_divergence.policy=rollback", "train.on_divergence.max_rollbacks=2"});
  const std::string text = diverged(job, folder);
  check_contains(
      text, "The run has rolled back 2 times, the learning rate is down to 0.25 of the schedule's");
  check_contains(text,
                 "lower train.on_divergence.lr_factor, raise train.on_divergence.max_rollbacks, or "
                 "add to the command train.on_divergence.policy=skip (continues");
  CHECK_FALSE(contains(text, "policy=rollback"));
  CHECK(events(folder, "rollback").size() == 2);
  all_checkpoints_are_finite(job, folder);
}

TEST_CASE("an infinite loss that is no NaN, with a finite gradient, is a divergence") {
  // One linear layer: the logits reach 1e37 and more before they overflow, and the loss of a batch
  // is the sum of such numbers.
  const std::string config = R"(
name: linear
data: {dataset: synthetic, size: 64, test_size: 4, classes: 4, batch_size: 64}
model: {input: [1, 8, 8], layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]}
optimizer: {type: SGD, lr: 6, weight_decay: 1}
train: {epochs: 100}
checkpoint: {every_steps: 1, keep_last: 3}
)";
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const TempDir folder;
    const Job job = small_job(config, {replicas_on(device, 2)});
    const std::string text = diverged(job, folder);
    check_contains(text, ": the loss is inf. ");
    all_checkpoints_are_finite(job, folder);
  }
}

namespace {

/// A run in a folder, whose messages are kept.
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

/// One replica, so that its learning rates can follow from how often they were asked for.
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

/// The same, with a second epoch that is better than the first by keep_best.
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

/// The update after `step` steps overflows, the first time.
void overflow_once(Job& job, std::int64_t step, const std::function<void()>& then = {}) {
  const auto is_done = std::make_shared<bool>(false);
  job.schedule = [usual = job.schedule, step, then, is_done](std::int64_t now) {
    if (now != step || std::exchange(*is_done, true)) return usual(now);
    if (then) then();
    return 1e39;
  };
}

}  // namespace

TEST_CASE("the log of a bad step has what was measured, and no more") {
  // Without clipping the norm is measured at logged steps only.
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
    CHECK(event["lr"].get<double>() == job.schedule(2));
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

TEST_CASE("halt: whether there is a checkpoint to resume from is said") {
  Told run;
  const Job job = poisoned_job(small_config(kSgd), {cpus(1)}, 30, kNaN);
  const std::string resumes =
      "The last checkpoint is good; running the same command again resumes from it and";
  const std::string text = diverged(job, run.folder);
  check_contains(text, resumes);
  // A checkpoint from elsewhere counts, also before the run has saved one of its own.
  const TempDir other;
  StartingPoint start = checkpoint_of(job, run.folder, 2);
  start.state.rollback_candidate = -1;
  check_contains(diverged(job, other, &start), resumes);
}

TEST_CASE("skip: each skipped step is told, and the epoch's results are of the others") {
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
  // The first batch: a lower learning rate changes nothing before it.
  Told run;
  const Job job =
      poisoned_job(small_config(kSgd), {cpus(1), "train.on_divergence.policy=rollback"}, 5, kNaN);
  check_contains(diverged(job, run.folder),
                 ". A rollback would go back to right before this step, where a lower learning "
                 "rate changes nothing. There is no checkpoint yet; ");
  CHECK(run.logged("rollback").empty());
  // An update that overflows is another matter: a lower rate may save it.
  Told other;
  Job overflowing = rollback_job({"train.epochs=1"});
  overflow_once(overflowing, 0);
  CHECK(other.train(overflowing).end == RunEnd::complete);
  CHECK(other.logged("rollback").at(0)["step"] == 0);
  // Nor does it matter when the checkpoint is a step away.
  Told later;
  const Job poisoned =
      poisoned_job(small_config(kSgd),
                   {cpus(1), "train.on_divergence.policy=rollback",
                    "train.on_divergence.max_rollbacks=1", "checkpoint.every_steps=2"},
                   41, kNaN);
  check_contains(diverged(poisoned, later.folder), "The run has rolled back 1 times");
  CHECK(later.logged("rollback").at(0)["step"] == 2);
}

TEST_CASE("rollback: the best is again the one of the step gone back to, as is what is said") {
  Told run;
  Job job = improving_job();
  bool stops = false;
  overflow_once(job, 10, [&] { stops = true; });
  const TrainOutcome outcome =
      run.train(job, [&] { return stops ? StopReason::user : StopReason::none; });
  REQUIRE(outcome.end == RunEnd::stopped);
  // The twelfth step brought the request too, but did not count; the sixth is the first that does.
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
  CHECK(outcome.state.step == 6 + job.steps_ahead);
  CHECK(outcome.state.lr_scale == 0.5);
  CHECK(outcome.state.rollback_step == 5);
  CHECK(outcome.state.rollback_candidate == -1);
  CHECK(outcome.state.best_step == 5);
  CHECK(outcome.state.best_monitor.starts_with("val/loss "));
  const std::string best = run.folder.file("best.safetensors");
  CHECK(read_checkpoint_header(best).state.step == 5);
  CHECK(outcome.state.best_checksum == read_checkpoint_header(best).checksum);
  CHECK(std::filesystem::exists(run.folder.file("checkpoints/abandoned-1/" + checkpoint_name(10))));
  // It goes on as if it had not stopped: with checkpoints of its own at the same steps.
  stops = false;
  const StartingPoint start = checkpoint_of(job, run.folder, outcome.state.step);
  CHECK(run.train(job, {}, &start).state.step == 20);
  for (const std::int64_t step : {10, 15, 20}) {
    CHECK(checkpoint_of(job, run.folder, step).state.rollbacks == 1);
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
  // Later good steps are gone back to next time: the one after step 10 is good.
  Told other;
  Job later = rollback_job({"train.epochs=3"});
  overflow_once(later, 12);
  CHECK(other.train(later).end == RunEnd::complete);
  CHECK(other.logged("rollback").at(0)["step"] == 10);
  const RunState state = checkpoint_of(later, other.folder, 15).state;
  CHECK(state.rollback_step == 10);
  CHECK(state.rollback_candidate == 15);
}

TEST_CASE("rollback: a best that is lost meanwhile is looked for anew") {
  Told run;
  Job job = improving_job();
  overflow_once(job, 10, [&] {
    std::filesystem::remove(run.folder.file("checkpoints/" + checkpoint_name(5)));
  });
  const TrainOutcome outcome = run.train(job);
  CHECK(outcome.end == RunEnd::complete);
  check_contains(run.messages(),
                 "the best checkpoint from before step 5 is missing; the next validation gives the "
                 "first candidate for a new best");
  // The tenth step is the first that is measured again, and so the best whatever it was before.
  bool is_best_again = false;
  for (const auto& event : run.logged("checkpoint")) {
    if (event["step"] == 10) is_best_again = event["best"];
  }
  CHECK(is_best_again);
  CHECK(outcome.test.has_value());
}

TEST_CASE(
    "what a rollback goes back to: a later start, the checkpoint that it names, or the start") {
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
  result.metrics.count = 12;
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
  CHECK(sample == job.splits.train.indices[30]);
  const std::vector<std::int64_t> third(job.splits.train.indices.begin() + 24,
                                        job.splits.train.indices.begin() + 36);
  CHECK((event["batch_samples"] == nlohmann::json(third)));
}
