// dpt train --smoke: a complete run without the data, for every shipped config and each kind of
// data, without leaving files.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "tests/cli/tiny.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

struct Smoke : Workplace {
  explicit Smoke(const std::string& config = kTinyConfig) : Workplace(config) {
    fs::create_directory(dir.file("tmp"));
  }
  Finished smoke(const std::string& config, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"train", "--smoke", config};
    words.insert(words.end(), more.begin(), more.end());
    const std::string temporary = dir.file("tmp");
    return run_dpt(words, dir.path(), [&] { setenv("TMPDIR", temporary.c_str(), 1); });
  }
  /// Checks that the smoke test of `config` passes and leaves no files; returns its output.
  std::string passes(const std::string& config, const std::vector<std::string>& more = {}) const {
    const Finished finished = smoke(config, more);
    INFO(finished.out, finished.err);
    CHECK(finished.exit_code == 0);
    check_contains(finished.out, "\nsmoke test passed in ");
    for (const char* stage : {"data ", "\ntrain ", "\nresume ", "\nevaluate ", "\nexport "}) {
      check_contains(finished.out, stage);
    }
    check_contains(finished.out, "bit by bit");
    CHECK(fs::is_empty(dir.file("tmp")));
    // Only the config and the folder for temporary files exist.
    CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 2);
    return finished.out;
  }
};

/// Returns a small config with the given data and model sections, followed by `more`.
std::string smoke_config(const std::string& data, const std::string& model,
                         const std::string& more = "") {
  return "version: 1\nname: small\ndata:\n  batch_size: 64\n" + data + "model:\n" + model +
         "optimizer: {type: Adam, lr: 0.01}\ntrain: {epochs: 30}\ndevices: [cpu]\n" + more;
}

constexpr const char* kSmokeLayers =
    "  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]\n";
constexpr const char* kSmokeInput = "  input: [3, 12, 10]\n";

}  // namespace

TEST_CASE("every shipped config passes the smoke test without its data") {
  const Smoke w;
  std::vector<std::string> configs;
  for (const auto& entry : fs::directory_iterator(fs::path(source_dir()) / "configs")) {
    if (entry.path().extension() == ".yaml") configs.push_back(entry.path().string());
  }
  CHECK(configs.size() >= 8);
  for (const std::string& config : configs) {
    CAPTURE(config);
    // resnet18 is slow, with eleven million weights, and resnet20 has the same layers.
    if (config.find("resnet18") != std::string::npos) continue;
    w.passes(config, {"--devices", "cpu"});
  }
}

TEST_CASE("smoke: each kind of data and of targets, with no file there") {
  const auto passes = [](const std::string& data, const std::string& model,
                         const std::string& more = "") {
    CAPTURE(data);
    return Smoke(smoke_config(data, model, more)).passes("small.yaml");
  };
  const std::string transforms =
      "  transforms:\n    train: [{type: RandomResizedCrop, size: [12, 10]}, {type: ColorJitter, "
      "brightness: 0.2}, {type: Normalize, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}]\n"
      "    eval: [{type: Resize, size: 14}, {type: CenterCrop, size: [12, 10]}]\n";
  const std::string pixels = std::string(kSmokeInput) + kSmokeLayers;
  const std::string features = std::string("  input: [5, 1, 1]\n") + kSmokeLayers;
  check_contains(
      passes("  dataset: image_folder\n  root: nowhere\n  val_split: 500\n" + transforms, pixels),
      "PNG images of 24x20 and larger, class labels");
  passes(
      "  dataset: webdataset\n  train: {shards: nowhere.tar}\n  cache: nowhere\n"
      "  on_bad_sample: skip\n" +
          transforms,
      pixels);
  check_contains(
      passes("  dataset: csv\n  train: {file: nowhere.csv}\n  path: file\n  targets: [a, b, "
             "c]\n  target: multi_hot\n",
             pixels, "loss: {type: bce_with_logits}\n"),
      "multi-hot targets");
  check_contains(passes("  dataset: csv\n  train: {file: nowhere.csv}\n  label: kind\n", features),
                 "1x1 with 5 channels of fp32, class labels");
  check_contains(passes("  dataset: csv\n  train: {file: nowhere.csv}\n  targets: [a, b, c]\n"
                        "  target: values\n",
                        features, "loss: {type: mse}\n"),
                 "values (a number for each output)");
  const std::string npy =
      "  dataset: npy\n  train: {images: x.npy, targets: y.npy, weights: w.npy}\n  val_split: 8\n";
  passes(npy + "  target: soft_labels\n", pixels);
  check_contains(
      passes(npy,
             "  input: [5, 1, 1]\n  layers: [{type: Flatten}, {type: Linear, out_features: 1}]\n",
             "loss: {type: l1}\nmetrics: [{type: r2}]\n"),
      ", r2 ");
  // All images have CIFAR's size, which is larger than the model's input.
  check_contains(passes("  dataset: cifar10\n  root: nowhere\n" + transforms,
                        std::string(kSmokeInput) +
                            "  layers: [{type: Flatten}, {type: Linear, out_features: 10}]\n"),
                 "32x32 with 3 channels of u8");
  check_contains(
      passes("  dataset: npy\n  train: {images: x.npy, targets: y.npy}\n" + transforms, pixels),
      "24x20 with 3 channels of u8");
}

TEST_CASE("smoke: several replicas, exact mode, averages, and what the config reads") {
  const Smoke w(program_config());
  check_contains(w.passes("small.yaml"), "on 2 replicas (cpu, cpu): 4 steps of 8 samples");
  w.passes("small.yaml", {"train.shards=auto", "train.ema={decay: 0.9}"});
  check_contains(w.passes("small.yaml", {"data.val_split={fold: [1, 5], stratify: true}",
                                         "data.sampler=balanced"}),
                 "4 of them held out for validation");
  w.passes("small.yaml",
           {"train.swa={from_epoch: 20}", "train.accumulate=2", "log.noise_scale=true",
            "lr_schedule={type: cosine, warmup: {steps: 900}}"});
  const Finished finished =
      w.smoke("small.yaml", {"weights={file: nowhere.safetensors}", "loss.class_weights=balanced",
                             "data.classes=4", "data.val_split=0"});
  INFO(finished.err);
  CHECK(finished.exit_code == 0);
  check_contains(finished.err,
                 "/nowhere.safetensors is not read: the weights are initial values\n");
  check_contains(finished.err, "loss.class_weights: balanced is not tested: the weights are 1\n");
  CHECK(finished.out.find("validation loss") == std::string::npos);
}

TEST_CASE("smoke: the folder of the config's run is left alone") {
  const Smoke w;
  w.run_well({"train", "small.yaml"});
  const auto files = [&] {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(w.dir.path())) {
      if (!entry.is_regular_file()) continue;
      all.push_back(entry.path().string() + "\n" + read_file(entry.path().string()));
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto before = files();
  CHECK(w.smoke("small.yaml").exit_code == 0);
  CHECK(files() == before);
}

TEST_CASE("smoke: an empty TMPDIR counts as unset") {
  const Smoke w;
  const Finished run =
      run_dpt({"train", "--smoke", "small.yaml"}, w.dir.path(), [] { setenv("TMPDIR", "", 1); });
  INFO(run.err);
  CHECK(run.exit_code == 0);
}

TEST_CASE("smoke: a failure names its stage, and its files are kept") {
  const Smoke w;
  const Finished failed = w.smoke("small.yaml", {"optimizer.lr=1e38"});
  CHECK(failed.exit_code == 5);
  check_contains(failed.out, "\nsmoke test failed: train\n");
  const std::string kept = "dpt: the files of the smoke test are in ";
  REQUIRE(failed.err.find(kept) != std::string::npos);
  const std::size_t at = failed.err.find(kept) + kept.size();
  const std::string folder = failed.err.substr(at, failed.err.find('\n', at) - at);
  CHECK(fs::exists(folder + "/through/train.log"));
  CHECK(folder.rfind(w.dir.file("tmp") + "/dpt-smoke-", 0) == 0);
  fs::remove_all(folder);
  // No folder is kept if the test fails before the first file exists.
  const Finished refused = w.smoke("small.yaml", {"model.layers.fc.out_features=0"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.out, "smoke test failed: data\n");
  CHECK(fs::is_empty(w.dir.file("tmp")));
  // These transforms do not produce the model's input size.
  CHECK(w.smoke("small.yaml", {"data.transforms.train=[{type: CenterCrop, size: 3}]"}).exit_code ==
        2);
  CHECK(fs::is_empty(w.dir.file("tmp")));
}

TEST_CASE("smoke: options of a real run are refused") {
  const Smoke w;
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--run-dir", "r"},
                                                  {"--resume", "never"},
                                                  {"--nproc", "2"},
                                                  {"--require", "test/loss<1"},
                                                  {"--dry-run"},
                                                  {"--max-steps", "3"},
                                                  {"--overfit", "2"},
                                                  {"--overwrite"},
                                                  {"--weights", "w"},
                                                  {"--rank-logs"}}) {
    CAPTURE(options[0]);
    const Finished finished = w.smoke("small.yaml", options);
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, options[0]);
  }
  const std::string tmp = w.dir.file("tmp/none");
  const Finished nowhere = run_dpt({"train", "--smoke", "small.yaml"}, w.dir.path(),
                                   [&] { setenv("TMPDIR", tmp.c_str(), 1); });
  CHECK(nowhere.exit_code == 3);
  check_contains(nowhere.err, "set TMPDIR to");
  const Finished launched = run_dpt({"train", "--smoke", "small.yaml"}, w.dir.path(), [] {
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29999", 1);
  });
  CHECK(launched.exit_code == 2);
  check_contains(launched.err, "--smoke: expected one process");
}

TEST_CASE("smoke: a signal ends it, and nothing is left") {
  const Smoke w;
  const TempDir logs;
  const std::string tmp = w.dir.file("tmp");
  const std::string config = (fs::path(source_dir()) / "configs/resnet18-cifar10.yaml").string();
  Program program({"train", "--smoke", config, "--devices", "cpu"}, w.dir.path(), logs,
                  [&] { setenv("TMPDIR", tmp.c_str(), 1); });
  const auto trains = [&] {
    for (const auto& entry : fs::directory_iterator(tmp)) {
      if (fs::exists(entry.path() / "through")) return true;
    }
    return false;
  };
  REQUIRE(wait_until(trains));
  program.send(SIGINT);
  const Finished finished = program.wait();
  CHECK(finished.exit_code == 130);
  check_contains(finished.err, "dpt: smoke test stopped (");
  CHECK(finished.out.find("passed") == std::string::npos);
  CHECK(fs::is_empty(tmp));
}
