// Run folders and checkpoints of earlier releases, in tests/golden/earlier/VERSION: this release
// loads, resumes, evaluates and exports them. The README.md there describes their origin.
#include <doctest/doctest.h>

#include <algorithm>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/safetensors.h"
#include "tests/cli/kept_runs.h"
#include "tests/cli/outcome.h"
#include "tests/support/places.h"

using namespace dpt;
using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

/// Config of all runs in tests/golden/earlier.
constexpr const char* kEarlierConfig = R"(version: 1
name: kept
seed: 3
data: {dataset: synthetic, size: 48, test_size: 6, classes: 3, val_split: 8, batch_size: 8}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.1, momentum: 0.9}
train: {epochs: 4, shards: 2}
checkpoint: {every_steps: 0, keep_last: 2}
devices: [cpu]
)";

std::vector<std::string> earlier_versions() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(source_dir() + "/tests/golden/earlier")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string version_in(const std::string& path) {
  return SafetensorsFile::open(path).metadata().at("dpt.version");
}

/// A copy of the run of a version in a separate folder.
struct EarlierRun : Workplace {
  explicit EarlierRun(const std::string& version) : Workplace(kEarlierConfig) {
    fs::copy(source_dir() + "/tests/golden/earlier/" + version, dir.file("r"),
             fs::copy_options::recursive);
  }
  std::string newest(const std::string& folder = "r") const {
    return list_checkpoints(dir.file(folder + "/checkpoints")).at(0);
  }
};

}  // namespace

TEST_CASE("earlier versions: one run of each format version is kept") {
  CHECK(earlier_versions() == Words{"1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7"});
  for (const std::string& version : earlier_versions()) {
    CAPTURE(version);
    const EarlierRun w(version);
    CHECK(version_in(w.newest()) == version);
    const RunState state = state_of(w.newest());
    CHECK(state.step == 12);
    CHECK(state.epoch == 2);
    CHECK(state.position == 16);
    CHECK(state.epoch_weight == 16);
    CHECK(state.epoch_labelled == 16);
    CHECK(state.best_step == state_of(w.dir.file("r/best.safetensors")).step);
  }
}

TEST_CASE("earlier versions: a run continues to the same bits as from a file of this version") {
  for (const std::string& version : earlier_versions()) {
    CAPTURE(version);
    const EarlierRun w(version);
    // For comparison, this release resumes the run in another folder. One step later, it saves a
    // checkpoint there in its own format.
    const Finished moved = w.run_well(
        {"train", "small.yaml", "--run-dir", "today", "--resume", "r", "--max-steps", "13"});
    check_contains(moved.err, "at step 12 (epoch 3)");
    CHECK(version_in(w.newest("today")) == "1.8");
    w.run_well({"train", "small.yaml", "--run-dir", "today"});

    const Finished run = w.run_well({"train", "small.yaml", "--run-dir", "r"});
    check_contains(run.err, "resuming r/checkpoints/step-00000012.safetensors at step 12");
    CHECK(tensors_of(w.newest()) == tensors_of(w.newest("today")));
    CHECK(state_of(w.newest()).best == state_of(w.newest("today")).best);
    CHECK(state_of(w.newest()).step == 20);
    // The log holds each epoch once.
    std::vector<std::int64_t> epochs;
    for (const auto& event : events(w.dir.file("r/metrics.jsonl"), "epoch")) {
      epochs.push_back(event["epoch"]);
    }
    CHECK(epochs == Steps{1, 2, 3, 4});
  }
}

TEST_CASE("earlier versions: a run is evaluated, exported, listed, reported and started from") {
  for (const std::string& version : earlier_versions()) {
    CAPTURE(version);
    const EarlierRun w(version);
    check_contains(w.run_well({"eval", "r"}).out, "r/best.safetensors: test split, 6 samples");
    w.run_well({"export", "r", "--onnx", "net.onnx", "--torch", "net.safetensors"});
    check_contains(w.run_well({"inspect", "r/best.safetensors"}).out, "dpt.version: " + version);
    check_contains(w.run_well({"runs", "."}).out, "r ");
    w.run_well({"report", "r"});
    w.run_well({"predict", "r", "small.yaml"});
    check_contains(w.run_well({"train", "small.yaml", "--run-dir", "w", "--weights", "r"}).err,
                   "weights from r/best.safetensors: 2 loaded");
  }
}
