// A golden run: the log, checkpoints and reports of nine epochs compared with PyTorch.
//
// make_golden_run.py writes run.json and run.safetensors and describes them. As in golden_test.cpp,
// every tolerance is kSlack times the distance of PyTorch's own float32 runs from float64. Counts
// are exact.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/program.h"

namespace dpt::testing {
namespace {

using Json = nlohmann::json;
constexpr double kSlack = 4.0;

std::string golden(const char* name) {
  return source_dir() + "/tests/golden/" + name;
}

const Json& expected() {
  static const Json json = Json::parse(read_file(golden("run.json")));
  return json;
}

double allowed(const char* what) {
  return kSlack * expected()["error"][what].get<double>();
}

/// The config of make_golden_run.py.
constexpr const char* kConfig = R"(version: 1
name: golden
seed: 11
data:
  dataset: digits
  val_split: 1300
  batch_size: 24
  transforms:
    train: [{type: RandomCrop, size: 8, padding: 1}, {type: RandomHorizontalFlip}, {type: Normalize, mean: [0.305], std: [0.375]}]
    eval: [{type: Normalize, mean: [0.28], std: [0.42]}]
model:
  input: [1, 8, 8]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 10}
optimizer: {type: SGD, lr: 0.25, momentum: 0.9, weight_decay: 0.001}
lr_schedule: {type: multistep, milestones: [5, 8], gamma: 0.5, warmup: {steps: 4, start_factor: 0.25}}
train: {epochs: 9, grad_clip_norm: 1.25}
checkpoint: {every: 3, keep_last: 2, keep_best: {monitor: val/loss, mode: min}}
log: {every: 4}
)";

/// The log of a run folder. A later line replaces an earlier one for the same step or epoch.
struct Log {
  std::map<int, Json> steps, epochs, val;
  Json test;
  std::vector<Json> checkpoints;
};

Log read_log(const std::string& folder) {
  Log log;
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json event = Json::parse(line);
    const std::string name = event["event"];
    if (name == "step") log.steps[event["step"]] = event;
    if (name == "epoch") log.epochs[event["epoch"]] = event;
    if (name == "eval" && event["split"] == "val") log.val[event["epoch"]] = event;
    if (name == "eval" && event["split"] == "test") log.test = event;
    if (name == "checkpoint") log.checkpoints.push_back(event);
  }
  return log;
}

/// Compares `key` of `got` with the golden `want`, within `tolerance`.
void check_near(const Json& got, const char* key, double want, double tolerance) {
  CAPTURE(key);
  REQUIRE(got.contains(key));
  REQUIRE(got[key].is_number());
  INFO("expected ", want, ", found ", got[key].get<double>(), ", allowed ", tolerance);
  CHECK(std::abs(got[key].get<double>() - want) <= tolerance);
}

/// Checks that the accuracy is `hits` / `n`, except for the last bits of the division.
void check_share(const Json& got, double hits, double n) {
  check_near(got, "accuracy", hits / n, 1e-6);
}

/// Checks epochs 1 to `last`, and every logged step of them.
void check_log(const Log& log, int last) {
  const Json& golden = expected();
  const int per_epoch = golden["steps_per_epoch"],
            in_all = static_cast<int>(golden["steps"].size());
  for (int step = 1; step <= last * per_epoch; ++step) {
    const bool is_logged = step == 1 || step % 4 == 0 || step == in_all;
    CAPTURE(step);
    REQUIRE(log.steps.count(step) == (is_logged ? 1 : 0));
    if (!is_logged) continue;
    const Json &got = log.steps.at(step), &want = golden["steps"][step - 1];
    check_near(got, "loss", want["loss"], allowed("loss"));
    check_near(got, "accuracy", want["accuracy"], 1e-6);
    check_near(got, "grad_norm", want["grad_norm"], allowed("grad_norm"));
    check_near(got, "lr", want["lr"], 1e-12);
    CHECK(got["epoch"] == (step - 1) / per_epoch + 1);
  }
  CHECK(log.epochs.size() == static_cast<std::size_t>(last));
  CHECK(log.val.size() == static_cast<std::size_t>(last));
  for (int epoch = 1; epoch <= last; ++epoch) {
    CAPTURE(epoch);
    REQUIRE(log.epochs.count(epoch) == 1);
    REQUIRE(log.val.count(epoch) == 1);
    const Json &trained = log.epochs.at(epoch), &val = log.val.at(epoch);
    const Json& want = golden["epochs"][epoch - 1];
    check_near(trained, "loss", want["loss"], allowed("epoch_loss"));
    check_near(trained, "accuracy", want["accuracy"], 1e-6);
    CHECK(trained["step"] == epoch * per_epoch);
    check_near(val, "loss", want["val_loss"], allowed("eval_loss"));
    check_share(val, want["val_hits"], golden["val_samples"]);
    CHECK(val["n"] == golden["val_samples"]);
    CHECK(val["step"] == epoch * per_epoch);
  }
}

/// Checks the test set's result with the weights after `epoch`.
void check_test(const Json& got, int epoch) {
  const Json& want = expected()["epochs"][epoch - 1];
  check_near(got, "loss", want["test_loss"], allowed("eval_loss"));
  check_share(got, want["test_hits"], expected()["test_samples"]);
  CHECK(got["n"] == expected()["test_samples"]);
}

/// Compares the parameters of a checkpoint with those in run.safetensors under `prefix`.
void check_weights(const std::string& path, const std::string& prefix) {
  const SafetensorsFile got = SafetensorsFile::open(path);
  const SafetensorsFile want = SafetensorsFile::open(golden("run.safetensors"));
  int compared = 0;
  for (const TensorEntry& entry : want.tensors()) {
    if (entry.name.rfind(prefix, 0) != 0) continue;
    CAPTURE(entry.name);
    const TensorEntry* mine = got.find(entry.name.substr(prefix.size()));
    REQUIRE(mine);
    const std::vector<float> a = want.read_floats(entry), b = got.read_floats(*mine);
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    CHECK(worst <= allowed("weight"));
    ++compared;
  }
  CHECK(compared == 4);
}

struct Workplace {
  TempDir dir;
  Workplace() { write_file(dir.file("golden.yaml"), kConfig); }
  std::string folder() const { return dir.file("run"); }
  Json summary() const { return Json::parse(read_file(folder() + "/summary.json")); }

  /// Starts or resumes the run.
  Finished train(std::vector<std::string> more) const {
    std::vector<std::string> words = {"train", "golden.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    if (!std::filesystem::exists(folder())) {
      words.insert(words.end(), {"--weights", golden("run.safetensors"), "--expect-left-over",
                                 "final.*", "best.*"});
    }
    // --run-dir comes last, because the preceding option accepts any number of words.
    words.insert(words.end(), {"--run-dir", "run"});
    const Finished run = run_dpt(words, dir.path());
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return run;
  }
};

/// One replica and three, in fast and exact mode.
const std::vector<std::vector<std::string>> kWays = {{"devices=[cpu]"},
                                                     {"devices=[cpu,cpu,cpu]"},
                                                     {"devices=[cpu]", "train.shards=5"},
                                                     {"devices=[cpu,cpu,cpu]", "train.shards=5"}};

/// Checks all results of a complete run of nine epochs.
void check_whole_run(const Workplace& w) {
  const Json& golden = expected();
  const int per_epoch = golden["steps_per_epoch"], best = golden["best"]["val/loss"];
  const Log log = read_log(w.folder());
  check_log(log, 9);
  check_test(log.test, best);
  const Json summary = w.summary();
  CHECK(summary["status"] == "ok");
  CHECK(summary["epochs"] == 9);
  CHECK(summary["best"]["step"] == best * per_epoch);
  CHECK(summary["best"]["val/loss"] == log.val.at(best)["loss"]);
  CHECK(summary["train"]["loss"] == log.epochs.at(9)["loss"]);
  CHECK(summary["train"]["accuracy"] == log.epochs.at(9)["accuracy"]);
  CHECK(summary["val"]["loss"] == log.val.at(9)["loss"]);
  CHECK(summary["test"]["loss"] == log.test["loss"]);
  check_test(summary["test"], best);
  check_weights(w.folder() + "/checkpoints/" + checkpoint_name(9 * per_epoch), "final.");
  check_weights(w.folder() + "/best.safetensors", "best.");
}

TEST_CASE("a whole run follows PyTorch: ragged batches, clipping, augmentation, validation, best") {
  for (const auto& way : kWays) {
    CAPTURE(way.front());
    CAPTURE(way.size());
    const Workplace w;
    w.train(way);
    check_whole_run(w);
  }
}

TEST_CASE("the same run, stopped within epochs and at their ends, follows PyTorch too") {
  for (const auto& way : kWays) {
    CAPTURE(way.front());
    CAPTURE(way.size());
    const Workplace w;
    for (const int stop : {5, 12, 21, 40}) {
      std::vector<std::string> words = way;
      words.insert(words.end(), {"--max-steps", std::to_string(stop)});
      w.train(words);
    }
    w.train(way);
    check_whole_run(w);
  }
}

TEST_CASE("keep_best by the largest accuracy: the first of equals") {
  const Workplace w;
  w.train({"checkpoint.keep_best={monitor: val/accuracy, mode: max}", "devices=[cpu,cpu]"});
  const int best = expected()["best"]["val/accuracy"];
  const int per_epoch = expected()["steps_per_epoch"];
  CHECK(w.summary()["best"]["step"] == best * per_epoch);
  check_near(w.summary()["best"], "val/accuracy",
             expected()["epochs"][best - 1]["val_hits"].get<double>() /
                 expected()["val_samples"].get<double>(),
             1e-6);
  check_test(w.summary()["test"], best);
  for (const Json& saved : read_log(w.folder()).checkpoints) {
    if (saved["step"] > best * per_epoch) CHECK(saved["best"] == false);
  }
}

TEST_CASE("early stopping ends where the golden run's validation says, also across resumes") {
  const int per_epoch = expected()["steps_per_epoch"];
  for (const Json& stop : expected()["early_stopping"]) {
    const std::string field =
        fmt::format("train.early_stopping={{monitor: {}, mode: {}, patience: {}, min_delta: {}}}",
                    stop["monitor"].get<std::string>(), stop["mode"].get<std::string>(),
                    stop["patience"].get<int>(), stop["min_delta"].get<double>());
    CAPTURE(field);
    const int last = stop["epoch"];
    for (const bool in_pieces : {false, true}) {
      CAPTURE(in_pieces);
      const Workplace w;
      // The run stops in every epoch, so the counter of early stopping must come from the
      // checkpoint.
      for (int epoch = 1; in_pieces && epoch < last; ++epoch) {
        w.train({field, "devices=[cpu]", "--max-steps", std::to_string(epoch * per_epoch + 2)});
        CHECK(w.summary()["status"] == "max_steps");
      }
      w.train({field, "devices=[cpu]"});
      const Json summary = w.summary();
      CHECK(summary["early_stopped"] == true);
      CHECK(summary["epochs"] == last);
      check_log(read_log(w.folder()), last);
    }
  }
}

}  // namespace
}  // namespace dpt::testing
