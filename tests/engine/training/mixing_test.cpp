// Runs that mix batches (MixUp, CutMix) and erase parts of samples (RandomErasing).
#include <doctest/doctest.h>

#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/data/split.h"
#include "engine/job/starting_point.h"
#include "engine/training/overfit.h"
#include "tests/engine/training/run.h"
#include "tests/support/npy_data.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

constexpr const char* kMixed = "data.transforms.batch=[{type: MixUp, alpha: 0.4}, {type: CutMix}]";
constexpr const char* kErased =
    "data.transforms.train=[{type: RandomCrop, size: 8, padding: 2}, {type: RandomHorizontalFlip}, "
    "{type: Normalize, mean: [0.4], std: [0.3]}, {type: RandomErasing, p: 0.5, value: 0.3}]";

/// Returns small_config with `data` as its data settings and this loss.
std::string arrays_config(const std::string& data, const std::string& loss, int epochs) {
  std::string config = small_config(kSgd, epochs);
  const std::string begin = "  dataset: synthetic\n", end = "  classes: 4\n";
  const std::size_t from = config.find(begin);
  config.replace(from, config.find(end) + end.size() - from, data);
  return config + "loss: {type: " + loss + "}\n";
}

std::string files_of(const std::string& folder, const std::string& targets) {
  std::string text = "  dataset: npy\n  target: " + targets + "\n";
  for (const std::string part : {"train", "test"}) {
    text += "  " + part + ": {images: " + folder + "/" + part + "_x.npy, targets: " + folder + "/" +
            part + "_y.npy}\n";
  }
  return text;
}

std::string mixing_error(const std::string& config, const std::vector<std::string>& overrides) {
  try {
    small_job(config, overrides);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE(
    "exact mode: mixed and erased samples, equal bits for 1, 2, 3 and 8 replicas, staged, and "
    "after a stop") {
  for (const std::string& device : device_kinds()) {
    for (const std::string kind : {"labels", "multi_hot", "values"}) {
      if (is_emulated(device) && kind == "multi_hot") continue;
      CAPTURE(device);
      CAPTURE(kind);
      const TempDir data;
      const std::string config =
          arrays_config(npy_data(data.path(), kind, false), loss_of_kind(kind), 2);
      const auto job_on = [&](int replicas) {
        return small_job(config,
                         {replicas_on(device, replicas), "train.shards=8", kErased,
                          kind == "values" ? "data.transforms.batch=[{type: MixUp}]" : kMixed});
      };
      const auto train_on = [&](int replicas) {
        const TempDir folder;
        return train_small(job_on(replicas), folder.path());
      };
      const FinalState one = train_on(1);
      for (const int replicas : {2, 3, 8}) {
        if (is_emulated(device) && replicas != 3) continue;
        CAPTURE(replicas);
        CHECK((train_on(replicas) == one));
      }
      Job two = job_on(2);
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

TEST_CASE("mixed batches train as data that was erased and mixed before") {
  // Compute the same numbers here: the images and soft labels of each batch, in the order of the
  // files.
  constexpr std::int64_t kSamples = 60, kBatch = 12, kPixels = 64, kClasses = 4;
  const TempDir plain, mixed;
  std::vector<float> images = {};
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < kSamples * kPixels; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    images.push_back(philox::uniform(philox::block(9, philox::Use::synthesis, at, 1).v[0]));
  }
  for (std::int64_t k = 0; k < kSamples; ++k) labels.push_back(k * 5 % 7 % kClasses);
  for (const std::string part : {"train", "test"}) {
    write_bytes(plain.file(part + "_x.npy"), npy({kSamples, 8, 8}, images));
    write_bytes(plain.file(part + "_y.npy"), npy({kSamples}, labels));
  }
  const std::vector<std::string> same = {"data.shuffle=false", "data.val_split=0",
                                         "data.transforms={train: [], eval: []}", "train.shards=4"};
  std::vector<std::string> overrides = same;
  overrides.push_back(kMixed);
  overrides.push_back("data.transforms.train=[{type: RandomErasing, value: 0.25}]");
  overrides.push_back(cpus(3));
  const Job job =
      small_job(arrays_config(files_of(plain.path(), "labels"), "cross_entropy", 1), overrides);
  CHECK(job.model.train_loss().targets.kind == TargetKind::soft_labels);
  CHECK(job.model.loss.targets.kind == TargetKind::class_index);
  int cut = 0;
  std::vector<float> rows, pixels;
  std::vector<float> erased = images;
  for (std::int64_t k = 0; k < kSamples; ++k) {
    const InputBox box = job.data.draws.erased(0, k);
    for (int y = box.top; y < box.top + box.height; ++y) {
      for (int x = box.left; x < box.left + box.width; ++x) {
        erased[k * kPixels + y * 8 + x] = 0.25F;
      }
    }
  }
  CHECK(erased != images);
  for (std::int64_t k = 0; k < kSamples; ++k) {
    const std::int64_t batch = k / kBatch;
    const BatchMix mix = job.data.draws.mix(0, batch);
    const InputBox& box = mix.input.box;
    const std::int64_t partner = k % kBatch == 0 ? k + kBatch - 1 : k - 1;
    cut += mix.input.own == 0 ? 1 : 0;
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) {
        const float own = erased[k * kPixels + y * 8 + x];
        const float other = erased[partner * kPixels + y * 8 + x];
        const bool inside =
            y >= box.top && y < box.top + box.height && x >= box.left && x < box.left + box.width;
        pixels.push_back(!inside              ? own
                         : mix.input.own == 0 ? other
                                              : other * mix.partner + own * mix.own);
      }
    }
    for (std::int64_t c = 0; c < kClasses; ++c) {
      const float for_own = labels[k] == c ? mix.own : 0;
      rows.push_back((labels[partner] == c ? mix.partner : 0) + for_own);
    }
  }
  CHECK(cut > 0);
  CHECK(cut < kSamples);
  write_bytes(mixed.file("train_x.npy"), npy({kSamples, 8, 8}, pixels));
  write_bytes(mixed.file("train_y.npy"), npy({kSamples, kClasses}, rows));
  std::vector<float> hot(kSamples * kClasses, 0.0F);
  for (std::int64_t k = 0; k < kSamples; ++k) {
    hot[k * kClasses + labels[k]] = 1;
  }
  write_bytes(mixed.file("test_x.npy"), npy({kSamples, 8, 8}, images));
  write_bytes(mixed.file("test_y.npy"), npy({kSamples, kClasses}, hot));

  const TempDir here, before;
  const FinalState got = train_small(job, here.path());
  overrides = same;
  overrides.push_back(cpus(1));
  const Job other = small_job(
      arrays_config(files_of(mixed.path(), "soft_labels"), "cross_entropy", 1), overrides);
  const FinalState want = train_small(other, before.path());
  CHECK((got.params == want.params));
  // Evaluations use unmixed samples.
  CHECK(got.test_loss == doctest::Approx(want.test_loss).epsilon(1e-6));
  const auto a = events(here, "epoch").back(), b = events(before, "epoch").back();
  CHECK(a["loss"] == b["loss"]);
  CHECK(a["accuracy"] == b["accuracy"]);
}

TEST_CASE("mixed batches: partners are those of the whole batch, however it is divided") {
  // Micro-batches and fast mode only change the order of additions.
  const std::string config = small_config(kSgd, 1);
  const auto loss_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {kMixed, kErased};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const TempDir folder;
    train_small(small_job(config, overrides), folder.path());
    return events(folder, "epoch").back()["loss"].get<double>();
  };
  const double whole = loss_of({cpus(1)});
  CHECK(loss_of({cpus(1), "train.accumulate=5"}) == doctest::Approx(whole).epsilon(1e-5));
  CHECK(loss_of({cpus(5)}) == doctest::Approx(whole).epsilon(1e-5));
  CHECK(loss_of({cpus(2), "device_weights=[1, 3]"}) == doctest::Approx(whole).epsilon(1e-5));
  const double plain = loss_of({cpus(1), "data.transforms.batch=[]"});
  CHECK(std::abs(plain - whole) > 1e-3);
}

TEST_CASE("mixed samples have the weights of classes, and not those of samples") {
  const std::string config = small_config(kSgd, 1);
  const Job job = small_job(config, {cpus(2), kMixed, "loss.class_weights=[1, 2, 0.5, 1]"});
  CHECK(job.model.loss.is_weighted());
  CHECK_FALSE(job.model.train_loss().is_weighted());
  const TempDir folder;
  train_small(job, folder.path());
  CHECK(std::isfinite(events(folder, "epoch").back()["loss"].get<double>()));
}

TEST_CASE("targets that cannot be mixed are refused") {
  const TempDir data;
  const auto error = [&](const std::string& kind, bool weighted, const std::string& batch,
                         const std::string& more = "seed=1") {
    return mixing_error(arrays_config(npy_data(data.path(), kind, weighted), loss_of_kind(kind), 1),
                        {cpus(1), "data.transforms.batch=" + batch, more});
  };
  check_contains(error("labels", true, "[{type: MixUp}]"),
                 "MixUp: expected samples without weights, found some with");
  check_contains(error("values", false, "[{type: MixUp}, {type: CutMix}]"),
                 "CutMix: the data's targets are values (a number for each output), which do not "
                 "belong to parts of an image: expected MixUp, which mixes whole images");
  check_contains(error("labels", false, "[{type: CutMix}]", "loss.ignore_index=2"),
                 "CutMix: a mixed sample combines two labels, so neither can be ignored: expected "
                 "no loss.ignore_index, found 2");
  CHECK(error("values", false, "[{type: MixUp}]") == "no error");
  CHECK(error("labels", false, "[{type: CutMix}]", "loss={type: mse}") == "no error");
}

TEST_CASE("overfitting and evaluations neither mix nor erase") {
  const Job whole = small_job(small_config(kAdam), {cpus(1), kMixed, kErased});
  CHECK(whole.data.draws.mixes());
  CHECK(whole.data.draws.erases());
  CHECK(whole.data.train_input.erase);
  CHECK(whole.data.mixed_input().mix);
  CHECK_FALSE(whole.data.eval_input.erase);
  CHECK_FALSE(whole.data.eval_input.mix);
  const Job job = overfit_job(whole, 1);
  CHECK_FALSE(job.data.draws.mixes());
  CHECK_FALSE(job.data.draws.erases());
  CHECK_FALSE(job.data.mixed_input().mix);
  CHECK_FALSE(job.data.mixed_input().erase);
  CHECK(job.model.train_loss().targets.kind == TargetKind::class_index);
}
