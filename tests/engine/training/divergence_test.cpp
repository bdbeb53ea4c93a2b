// train.on_divergence: the handling of non-finite steps, with NaN and with infinity.
#include "engine/training/divergence.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "tests/engine/training/poisoned.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

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
          // With these weights only the sample's large value overflows.
          for (const Param& param : job.model.plan.params) {
            if (param.name != "conv2.weight") continue;
            for (std::int64_t i = 0; i < param.count; ++i) {
              fresh.params[param.offset + i] *= 1e20F;
            }
          }
        }
        const std::string text = diverged(job, folder, &fresh);
        check_contains(text, "training diverged at step 3 (epoch 1): the ");
        check_contains(text, fmt::format("Affected samples (1 of the batch's 12): {} ({})", sample,
                                         job.data.splits.train.source->describe(sample)));
        check_contains(text, "train.on_divergence.policy=rollback");
        if (c.place == "output") {
          check_contains(text, "The first layer with a non-finite output is 'conv2'");
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
  // The weights are still those of the bad step, so the layer can be found. Without clipping, only
  // the update detects a non-finite gradient. The run then ends at the step of that gradient, too.
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

namespace {

/// Returns a job with a sample whose channel has a variance beyond fp32: the normalised outputs,
/// the loss and the gradient are finite, but the running statistics are not.
Job overflowing_statistics(std::vector<std::string> overrides, int epochs) {
  std::string config = small_config(kSgd, epochs);
  const std::string relu = "    - {type: ReLU}\n";
  config.insert(config.find(relu), "    - {type: BatchNorm2d, name: bn, sync: true}\n");
  return poisoned_job(config, std::move(overrides), 30, 2e19F);
}

/// Returns a start at which the weights of the first convolution cancel each other, so that the
/// mean stays small.
StartingPoint alternating_start(const Job& job) {
  StartingPoint start = fresh_start(job);
  for (const Param& param : job.model.plan.params) {
    if (param.name != "conv1.weight") continue;
    float* weights = start.params.data() + param.offset;
    for (std::int64_t i = 0; i < param.count; ++i) weights[i] = i % 9 % 2 == 0 ? 0.3F : -0.3F;
  }
  return start;
}

}  // namespace

TEST_CASE("running statistics that overflow make a step bad before anything is written") {
  for (const std::string& device : device_kinds()) {
    for (const char* shards : {"train.shards=0", "train.shards=4"}) {
      for (const int replicas : {1, 2}) {
        CAPTURE(device);
        CAPTURE(shards);
        CAPTURE(replicas);
        const auto job = [&](std::vector<std::string> more) {
          more.insert(more.end(), {replicas_on(device, replicas), shards});
          return overflowing_statistics(std::move(more), 2);
        };
        const TempDir halted, skipping, rolling;
        const StartingPoint start = alternating_start(job({}));
        const std::string text = diverged(job({}), halted, &start);
        check_contains(text, "training diverged at step 3 (epoch 1): the loss is ");
        check_contains(text, "after the update some running statistics would not be finite");
        check_contains(text, "in layer 'bn' (bn.running_var). The batch's 12 samples are ");
        const auto event = events(halted, "diverged").at(0);
        REQUIRE(event["first"] == "running statistics");
        CHECK(event["layer"] == "bn");
        CHECK(event["parameter"] == "bn.running_var");
        CHECK(event["loss"].is_number());
        CHECK(events(halted, "checkpoint").back()["step"] == 2);
        all_checkpoints_are_finite(job({}), halted);

        const Job skips = job({"train.on_divergence.policy=skip"});
        CHECK(train_small(skips, skipping.path(), &start).step == 2 * kStepsPerEpoch);
        CHECK(events(skipping, "skipped_step").size() == 2);
        all_checkpoints_are_finite(skips, skipping);

        const std::string limit =
            diverged(job({"train.on_divergence={policy: rollback, max_rollbacks: 2}",
                          "checkpoint.every_steps=0"}),
                     rolling, &start);
        check_contains(limit, "The run has rolled back 2 times");
        CHECK(events(rolling, "rollback").size() == 2);
      }
    }
  }
}

TEST_CASE("skip: the step changes nothing, and the run continues with the same bits everywhere") {
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
        // The sample occurs once in each epoch.
        const auto skipped = events(folder, "skipped_step");
        REQUIRE(skipped.size() == static_cast<std::size_t>(epochs_on(device)));
        CHECK(skipped[0]["step"] == 3);
        CHECK(skipped[0]["epoch"] == 1);
        CHECK(skipped[0]["in_row"] == 1);
        CHECK(skipped[0]["grad_norm"].is_null());
        // On a GPU the ReLU of cuBLASLt may turn a NaN into 0, so that the loss stays a number.
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
        // An epoch's loss covers only the samples that were trained on.
        for (const auto& epoch : events(folder, "epoch")) {
          CHECK(epoch["loss"].get<double>() > 0.1);
          CHECK(epoch["loss"].get<double>() < 3);
        }
        if (!one) one = end;
        CHECK((end == *one));
        if (replicas != 2) continue;
        // Resume right before the skipped step, and right after it.
        for (const std::int64_t from : {2, 3}) {
          const TempDir other;
          const StartingPoint start = checkpoint_of(job, folder, from);
          CHECK((train_small(job, other.path(), &start) == end));
        }
      }
    }
  }
}

TEST_CASE("skip: dropout draws by steps that include the skipped ones, also after a resume") {
  std::string config = small_config(kSgd, 2);
  config.insert(config.find('\n', config.find("type: Flatten")) + 1, "    - {type: Dropout}\n");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const TempDir folder;
    std::int64_t sample = 0;
    const Job job = poisoned_job(
        config, {replicas_on(device, 1), "train.shards=8", "train.on_divergence.policy=skip"}, 30,
        kNaN, &sample);
    const FinalState end = train_small(job, folder.path());
    CHECK(events(folder, "skipped_step").size() == 2);
    for (const std::int64_t from : {3, 4}) {
      const TempDir other;
      const StartingPoint start = checkpoint_of(job, folder, from);
      CHECK((train_small(job, other.path(), &start) == end));
    }
  }
}

TEST_CASE("skip: the first update made counts as the first, whatever was skipped before it") {
  // Adam's first update moves each weight by the learning rate; its second update, with moments
  // that are still zero, would move it by three quarters of that.
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

TEST_CASE("rollback: continues with a lower learning rate, with the same bits on any replicas") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    // The first setting saves regular checkpoints whose weights are already large. With the second
    // one, only the best of the first epoch is saved before the divergence.
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
        if ((is_emulated(device) || kSanitized) && replicas == 2) continue;
        CAPTURE(replicas);
        const TempDir folder;
        const Job job = small_job(config, overrides(replicas));
        const FinalState end = train_small(job, folder.path());
        CHECK(end.step == kStepsPerEpoch * epochs_on(device));
        const auto rollbacks = events(folder, "rollback");
        REQUIRE(rollbacks.size() == 1);
        CHECK(rollbacks[0]["lr_scale"] == 0.01);
        CHECK(rollbacks[0]["rollbacks"] == 1);
        // The run returns to the best of the first epoch, because no later checkpoint was followed
        // by a good step.
        CHECK(rollbacks[0]["step"] == 5);
        CHECK(rollbacks[0]["bad_step"].get<std::int64_t>() > 3);
        CHECK(checkpoint_of(job, folder, end.step).state.lr_scale == 0.01);
        all_checkpoints_are_finite(job, folder);
        if (!one) one = end;
        CHECK((end == *one));
      }
      // The run is stopped at any step and resumed on another number of replicas.
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

TEST_CASE("an infinite loss with a finite gradient is a divergence") {
  // One linear layer: the logits exceed 1e37 before they overflow, and the loss of a batch sums
  // these numbers.
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
