// The guarantee of exact mode: the same bits on any number of replicas, and after any stop.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"
#include "tests/support/skip.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// Trains with these overrides of the config and train.shards.
FinalState train_on(const std::string& config, std::vector<std::string> settings,
                    const std::string& shards) {
  const TempDir folder;
  settings.push_back("train.shards=" + shards);
  return train_small(small_job(config, settings), folder.path());
}

FinalState train_on(const std::string& config, const std::string& devices,
                    const std::string& shards) {
  return train_on(config, std::vector<std::string>{devices}, shards);
}

/// Returns the largest difference between two runs' weights.
double weight_distance(const FinalState& a, const FinalState& b) {
  REQUIRE(a.params.size() == b.params.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.params.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a.params[i]) - b.params[i]));
  }
  return worst;
}

/// Returns a config with batch normalisation of images and of vectors. In a shard of one sample,
/// only the images have something to normalise.
std::string normalised_config(const std::string& sync, int epochs = 4) {
  std::string config = small_config(kSgd, epochs);
  const auto insert_after = [&](const std::string& line, const std::string& layer) {
    const std::size_t at = config.find('\n', config.find(line)) + 1;
    config.insert(at, "    - {type: " + layer + ", sync: " + sync + "}\n");
  };
  insert_after("name: conv1", "BatchNorm2d, name: bn1");
  insert_after("name: conv2", "BatchNorm2d, name: bn2, momentum: null");
  if (sync == "true") insert_after("name: fc1", "BatchNorm1d, name: bn3");
  return config;
}

}  // namespace

TEST_CASE("exact mode: equal bits for 1, 2, 3, 4, 5 and 8 replicas") {
  for (const std::string& device : device_kinds()) {
    const bool slow = is_emulated(device);
    for (const char* optimizer : {kSgd, kAdam}) {
      CAPTURE(device);
      CAPTURE(optimizer);
      const std::string config = small_config(optimizer, epochs_on(device));
      const FinalState one = train_on(config, replicas_on(device, 1), "8");
      CHECK(one.step == kStepsPerEpoch * epochs_on(device));
      const auto counts = !slow               ? std::vector{2, 3, 4, 5, 8}
                          : optimizer == kSgd ? std::vector{3}
                                              : std::vector{8};
      for (const int replicas : counts) {
        CAPTURE(replicas);
        CHECK((train_on(config, replicas_on(device, replicas), "8") == one));
      }
    }
  }
}

TEST_CASE(
    "exact mode: branches that are added, multiplied and joined, equal bits for 1, 3 and 8 "
    "replicas and after a stop") {
  std::string config = small_config(kSgd, kSanitized ? 1 : 2);
  const std::string flatten = "    - {type: Flatten}\n";
  config.replace(config.find(flatten), 0,
                 R"(    - {type: Conv2d, name: conv3, out_channels: 7, kernel_size: 3, padding: 1}
    - {type: Add, name: block, from: [conv3, "4"]}
    - {type: ReLU, name: sum}
    - {type: GroupNorm, name: norm1, num_groups: 7}
    - {type: PReLU, name: prelu, num_parameters: 7}
    - {type: AdaptiveAvgPool2d, name: pooled}
    - {type: Multiply, name: gated, from: [prelu, pooled]}
    - {type: Concat, name: joined, from: [gated, sum]}
    - {type: LayerNorm, name: norm2}
)");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const FinalState one = train_on(config, replicas_on(device, 1), "8");
    for (const int replicas : {3, 8}) {
      if (is_emulated(device) && replicas == 8) continue;
      CAPTURE(replicas);
      CHECK((train_on(config, replicas_on(device, replicas), "8") == one));
    }
    const TempDir folder;
    const Job two = small_job(config, {replicas_on(device, 2), "train.shards=8"});
    train_small(two, folder.path(), nullptr, 3);
    const StartingPoint rest =
        start_from_checkpoint(two, folder.path() + "/checkpoints/" + checkpoint_name(3));
    const TempDir resumed;
    CHECK((train_small(two, resumed.path(), &rest) == one));
  }
}

TEST_CASE(
    "exact mode: shared weights, equal bits for 1, 2, 3 and 8 replicas, in micro-batches, and "
    "after a stop") {
  // A layer between the layers that share weights couples samples, so each of them has a separate
  // phase over all micro-batches.
  std::string config = small_config(kSgd, kSanitized ? 1 : 2);
  const std::string flatten = "    - {type: Flatten}\n";
  config.replace(config.find(flatten), 0,
                 R"(    - {type: Conv2d, name: conv3, out_channels: 7, kernel_size: 3, padding: 1}
    - {type: BatchNorm2d, name: bn, sync: SYNC}
    - {type: ReLU}
    - {type: Conv2d, share_weights: conv3, out_channels: 7, kernel_size: 3, padding: 1}
    - {type: GroupNorm, name: norm1, num_groups: 7}
    - {type: Conv2d, share_weights: conv3, out_channels: 7, kernel_size: 3, padding: 1}
    - {type: GroupNorm, share_weights: norm1, num_groups: 1}
)");
  for (const std::string& device : device_kinds()) {
    for (const std::string sync : {"true", "false"}) {
      CAPTURE(device);
      CAPTURE(sync);
      std::string with_sync = config;
      with_sync.replace(with_sync.find("SYNC"), 4, sync);
      const FinalState one = train_on(with_sync, replicas_on(device, 1), "8");
      for (const int replicas : {2, 3, 8}) {
        if (is_emulated(device) && replicas != 3) continue;
        CAPTURE(replicas);
        CHECK((train_on(with_sync, replicas_on(device, replicas), "8") == one));
      }
      const bool slow = kSanitized && is_emulated(device);
      if (slow && sync == "false") continue;
      // Fewer shards with more samples, each in three micro-batches.
      const auto in_pieces = [&](int replicas) {
        const TempDir folder;
        return train_small(small_job(with_sync, {replicas_on(device, replicas), "train.shards=2",
                                                 "train.accumulate=3"}),
                           folder.path());
      };
      const FinalState pieces = in_pieces(1);
      CHECK((in_pieces(2) == pieces));
      // With equal statistics only rounding distinguishes this from one shard in one micro-batch.
      if (sync == "true" && !slow) {
        CHECK(weight_distance(train_on(with_sync, replicas_on(device, 1), "1"), one) < 1e-4);
        CHECK(weight_distance(pieces, one) < 1e-4);
      }
      if (sync == "false") continue;
      const TempDir folder;
      const Job two = small_job(with_sync, {replicas_on(device, 2), "train.shards=8"});
      train_small(two, folder.path(), nullptr, 3);
      const StartingPoint rest =
          start_from_checkpoint(two, folder.path() + "/checkpoints/" + checkpoint_name(3));
      const TempDir resumed;
      CHECK((train_small(two, resumed.path(), &rest) == one));
    }
  }
}

TEST_CASE("bf16: shared weights, equal bits on any replicas, and near those of fp32") {
  std::string config = small_config(kSgd, 2);
  const std::string fc2 = "    - {type: Linear, name: fc2";
  config.replace(config.find(fc2), 0,
                 R"(    - {type: Linear, name: again, out_features: 9}
    - {type: Linear, share_weights: again, out_features: 9}
    - {type: Linear, share_weights: again, out_features: 9}
)");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    if (device == "cpu" && !cpu_info().bf16) {
      skip_test("this processor has neither AVX512-BF16 nor AMX");
      continue;
    }
    const auto train_in = [&](const char* precision, int replicas) {
      const TempDir folder;
      return train_small(small_job(config, {replicas_on(device, replicas), "train.shards=8",
                                            std::string("train.precision=") + precision}),
                         folder.path());
    };
    const FinalState one = train_in("bf16", 1);
    CHECK((train_in("bf16", 3) == one));
    const FinalState exact = train_in("fp32", 1);
    const double distance = weight_distance(one, exact);
    CHECK(distance > 0);
    CHECK(distance < 1e-3);
  }
}

TEST_CASE("exact mode in bf16: batch normalisation, equal bits on any replicas of a CPU") {
  if (!cpu_info().bf16) {
    skip_test("this processor has neither AVX512-BF16 nor AMX");
    return;
  }
  const std::string config = normalised_config("true", 1);
  const auto train_in_bf16 = [&](int replicas) {
    const TempDir folder;
    return train_small(
        small_job(config, {replicas_on("cpu", replicas), "train.shards=8", "train.precision=bf16"}),
        folder.path());
  };
  const FinalState one = train_in_bf16(1);
  for (const int replicas : {2, 3, 4, 8}) {
    CAPTURE(replicas);
    CHECK((train_in_bf16(replicas) == one));
  }
}

TEST_CASE("exact mode: batch normalisation, equal bits on any replicas and after stops") {
  for (const std::string& device : device_kinds()) {
    for (const std::string sync : {"false", "true"}) {
      CAPTURE(device);
      CAPTURE(sync);
      const std::string config = normalised_config(sync, epochs_on(device));
      const FinalState one = train_on(config, replicas_on(device, 1), "8");
      for (const int replicas : {2, 3, 8}) {
        if (is_emulated(device) && replicas == 8) continue;
        CAPTURE(replicas);
        CHECK((train_on(config, replicas_on(device, replicas), "8") == one));
      }
      const TempDir folder;
      const Job two = small_job(config, {replicas_on(device, 2), "train.shards=8"});
      train_small(two, folder.path(), nullptr, 7);
      const StartingPoint rest =
          start_from_checkpoint(two, folder.path() + "/checkpoints/" + checkpoint_name(7));
      const Job three = small_job(config, {replicas_on(device, 3), "train.shards=8"});
      CHECK((train_small(three, folder.path(), &rest) == one));
    }
  }
}

TEST_CASE("exact mode: a loss with class weights, equal bits on any replicas") {
  const std::string config = small_config(kSgd, 2) +
                             "loss: {class_weights: balanced, ignore_index: 2, label_smoothing: "
                             "0.1}\n";
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const FinalState one = train_on(config, replicas_on(device, 1), "8");
    for (const int replicas : {2, 3, 8}) {
      if (is_emulated(device) && replicas == 8) continue;
      CAPTURE(replicas);
      CHECK((train_on(config, replicas_on(device, replicas), "8") == one));
    }
    // The mean is over the batch, not over the shards, whose weights differ.
    CHECK(weight_distance(train_on(config, replicas_on(device, 1), "1"), one) < 2e-5);
  }
}

TEST_CASE("exact mode: dropout, equal bits on any replicas and micro-batches and after stops") {
  std::string config = small_config(kSgd, 2);
  const auto insert_after = [&](const std::string& line, const std::string& layer) {
    const std::size_t at = config.find('\n', config.find(line)) + 1;
    config.insert(at, "    - {" + layer + "}\n");
  };
  const std::string without = config;
  insert_after("name: conv2", "type: Dropout2d, name: drop1, p: 0.2");
  insert_after("type: Flatten", "type: Dropout, name: drop2");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const FinalState one = train_on(config, replicas_on(device, 1), "8");
    for (const int replicas : {2, 3}) {
      CAPTURE(replicas);
      CHECK((train_on(config, replicas_on(device, replicas), "8") == one));
    }
    CHECK(weight_distance(one, train_on(without, replicas_on(device, 1), "8")) > 1e-3);
    // In fast mode another partition of the batch changes the rounding, but not the masks.
    CHECK(weight_distance(one, train_on(config, replicas_on(device, 2), "auto")) < 1e-4);
    Job pieces = small_job(config, {replicas_on(device, 1), "train.shards=auto"});
    pieces.placement.max_micro_batches.assign(1, 5);
    const TempDir in_pieces;
    CHECK(weight_distance(one, train_small(pieces, in_pieces.path())) < 1e-4);

    const TempDir folder;
    const Job two = small_job(config, {replicas_on(device, 2), "train.shards=8"});
    train_small(two, folder.path(), nullptr, 3);
    const StartingPoint rest =
        start_from_checkpoint(two, folder.path() + "/checkpoints/" + checkpoint_name(3));
    const Job three = small_job(config, {replicas_on(device, 3), "train.shards=8"});
    CHECK((train_small(three, folder.path(), &rest) == one));
  }
  // Another layer name gives another mask.
  std::string renamed = config;
  renamed.replace(renamed.find("drop2"), 5, "drop3");
  const FinalState one = train_on(config, cpus(1), "8");
  CHECK(weight_distance(one, train_on(renamed, cpus(1), "8")) > 1e-3);
}

TEST_CASE("accumulated gradients are those of the whole batch, with equal bits on any replicas") {
  for (const std::string& config : {small_config(kSgd, 2), normalised_config("false", 2)}) {
    const FinalState whole = train_on(config, cpus(1), "4");
    const auto accumulated = [&](int replicas, const char* parts) {
      const TempDir folder;
      return train_small(small_job(config, {cpus(replicas), "train.shards=4", parts}),
                         folder.path());
    };
    const FinalState parts = accumulated(1, "train.accumulate=2");
    CHECK_FALSE((parts == whole));
    CHECK(weight_distance(parts, whole) < 1e-4);
    CHECK((accumulated(3, "train.accumulate=2") == parts));
  }
}

TEST_CASE("batch normalisation over the whole batch does not depend on the shards") {
  const FinalState one = train_on(normalised_config("true"), cpus(1), "auto");
  // If each shard were normalised separately, weights would differ in the first digit.
  std::string apart = normalised_config("true");
  for (std::size_t at; (at = apart.find("sync: true")) != std::string::npos;) {
    apart.replace(at, 10, "sync: false");
  }
  CHECK(weight_distance(one, train_on(apart, cpus(3), "auto")) > 1e-2);
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    for (const auto& [replicas, shards] : {std::pair{3, "auto"}, {2, "8"}, {1, "3"}}) {
      CAPTURE(replicas);
      CAPTURE(shards);
      const FinalState other =
          train_on(normalised_config("true"), replicas_on(device, replicas), shards);
      // Each step differs by rounding, which a net that normalises five samples amplifies more than
      // a net without normalisation.
      CHECK(weight_distance(one, other) < 1e-4);
    }
  }
}

TEST_CASE("exact mode: another number of shards is another order of additions") {
  // Guards the test above, which could not fail if all sums were exact by luck.
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const std::string config = small_config(kSgd, epochs_on(device)), one = replicas_on(device, 1);
    CHECK_FALSE((train_on(config, one, "8") == train_on(config, one, "3")));
  }
}

TEST_CASE("fast mode: four replicas against one") {
  // 20 steps: the gradients differ only by rounding (a few parts in 2^24 of the largest terms), and
  // the net is small and its rate moderate, so differences grow by a small factor per step.
  const std::string config = small_config(kSgd);
  const FinalState one = train_on(config, cpus(1), "auto");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const FinalState four = train_on(config, replicas_on(device, 4), "auto");
    CHECK(weight_distance(one, four) < 1e-5);
    CHECK(std::abs(one.test_loss - four.test_loss) < 1e-5);
  }
}

TEST_CASE("a GPU and a CPU core together follow one CPU core") {
  if (!have_gpu()) return;
  const std::string config = small_config(kSgd);
  const FinalState one = train_on(config, cpus(1), "auto");
  for (const char* shards : {"auto", "8"}) {
    CAPTURE(shards);
    const FinalState both = train_on(config, "devices=[cuda:0,cpu]", shards);
    CHECK(weight_distance(one, both) < 1e-5);
  }
  // With these device weights the CPU core has no shards: it only takes part in the sums.
  const FinalState whole = train_on(normalised_config("true"), cpus(1), "auto");
  for (const char* shards : {"auto", "2"}) {
    CAPTURE(shards);
    const FinalState both = train_on(
        normalised_config("true"),
        std::vector<std::string>{"devices=[cuda:0,cpu]", "device_weights=[1000,1]"}, shards);
    CHECK(weight_distance(whole, both) < 1e-4);
  }
}

TEST_CASE("stopping after any step and resuming, also on another count, changes no bit") {
  for (const std::string& device : device_kinds()) {
    for (const char* optimizer : {kSgd, kAdam}) {
      if (is_emulated(device) && optimizer == kSgd) continue;
      CAPTURE(device);
      const std::string config = small_config(optimizer, epochs_on(device));
      const FinalState whole = train_on(config, replicas_on(device, 1), "8");
      const bool slow = is_emulated(device);
      const std::int64_t first = slow ? 7 : 1;
      const std::int64_t apart = slow ? 20 : device == "cpu" && !kSanitized ? 1 : 4;
      for (std::int64_t stop = first; stop < whole.step; stop += apart) {
        CAPTURE(stop);
        const TempDir folder;
        const int before = static_cast<int>(stop % 3) + 1, after = static_cast<int>(stop % 5) + 1;
        train_small(small_job(config, {replicas_on(device, before), "train.shards=8"}),
                    folder.path(), nullptr, stop);
        const Job rest = small_job(config, {replicas_on(device, after), "train.shards=8"});
        const StartingPoint start =
            start_from_checkpoint(rest, folder.path() + "/checkpoints/" + checkpoint_name(stop));
        CHECK(start.state.step == stop);
        CHECK((train_small(rest, folder.path(), &start) == whole));
      }
    }
  }
}

TEST_CASE("transforms on the host: equal bits on any replicas, with any decoders, after a stop") {
  std::string config = small_config(kSgd, 2);
  const std::string old = "{type: RandomCrop, size: 8, padding: 2}";
  config.replace(config.find(old), old.size(), "{type: RandomResizedCrop, size: 8}");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const FinalState one = train_on(config, replicas_on(device, 1), "8");
    CHECK((one != train_on(small_config(kSgd, 2), replicas_on(device, 1), "8")));
    const std::string workers = "data.workers=3";
    const Job three = small_job(config, {replicas_on(device, 3), "train.shards=8", workers});
    const TempDir folder;
    train_small(three, folder.path(), nullptr, 7);
    const Job two = small_job(config, {replicas_on(device, 2), "train.shards=8"});
    const StartingPoint rest =
        start_from_checkpoint(two, folder.path() + "/checkpoints/" + checkpoint_name(7));
    CHECK((train_small(two, folder.path(), &rest) == one));
  }
}

TEST_CASE("balanced sampling: equal bits on any replicas, after a stop, staged or on the device") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const std::string config = small_config(kSgd, 2), balanced = "data.sampler=balanced";
    const auto job_on = [&](int replicas) {
      return small_job(config, {replicas_on(device, replicas), "train.shards=8", balanced});
    };
    const TempDir whole, cut, staged;
    const FinalState one = train_small(job_on(1), whole.path());
    CHECK((one != train_on(config, replicas_on(device, 1), "8")));
    train_small(job_on(3), cut.path(), nullptr, 7);
    const Job two = job_on(2);
    const StartingPoint rest =
        start_from_checkpoint(two, cut.path() + "/checkpoints/" + checkpoint_name(7));
    CHECK((train_small(two, cut.path(), &rest) == one));
    Job read = job_on(2);
    read.data.splits.train.source = std::make_shared<Unresident>(read.data.splits.train.source);
    CHECK((train_small(read, staged.path()) == one));
  }
}

TEST_CASE("data that is staged batch by batch gives the bits of data on the device") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const std::string config = small_config(kSgd), one = replicas_on(device, 1);
    Job staged = small_job(config, {one});
    for (auto* source : {&staged.data.splits.train.source, &staged.data.splits.val.source,
                         &staged.data.splits.test.source}) {
      *source = std::make_shared<Unresident>(*source);
    }
    const TempDir folder;
    CHECK((train_small(staged, folder.path()) == train_on(config, one, "auto")));
  }
}

TEST_CASE("evaluation gives the same results on any number of devices") {
  const std::string config = small_config(kSgd);
  EvalResult one;
  for (const std::string& device : device_kinds())
    for (const int replicas : {1, 2, 3, 8}) {
      const Job job = small_job(config, {replicas_on(device, replicas)});
      const StartingPoint start = fresh_start(job);
      run_ranks(job.placement.devices, job.placement.backend_options,
                [&](Backend& backend, Communicator& communicator) {
                  Replica replica(backend, communicator, job);
                  replica.set_params(start.params);
                  const EvalResult result =
                      evaluate_split(replica, job, job.data.splits.test, "test");
                  if (communicator.rank() != 0) return;
                  if (replicas == 1) one = result;
                  CHECK(result.n == 23);
                  CHECK((result.samples.loss == one.samples.loss));
                  CHECK((result.samples.prediction == one.samples.prediction));
                  CHECK(result.loss == one.loss);
                });
    }
}
