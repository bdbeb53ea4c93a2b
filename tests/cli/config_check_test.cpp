// dpt config check reports the errors of all stages in one run, and the stages that it skipped.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/image_folders.h"

using namespace dpt::testing;

namespace {

/// Config with eight mistakes, each in a different place.
constexpr const char* kMulti = R"(data:
  dataset: image_folder
  root: photos
  val: none
  batch_size: 0
  transforms:
    train: [{type: Normalize, mean: [0.5], std: [0.5]}]
model:
  input: [3, 2, 2]
  layers:
    - {type: Conv2d, name: conv, out_channels: 4, kernel_size: 5}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 7}
optimizer: {type: SGD, lr: 0.1, nesterov: true}
lr_schedule: {type: cosine, warmup: {epochs: 100}}
train:
  epochs: 3
  swa: {from_epoch: 5}
  early_stopping: {monitor: val/loss}
)";

}  // namespace

TEST_CASE("config check: one run names the mistakes of all stages") {
  FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "light"});
  write_file(w.dir.file("multi.yaml"), kMulti);
  const Finished checked = w.run({"config", "check", "multi.yaml"});
  CHECK(checked.exit_code == 2);
  for (const char* expected :
       {"multi.yaml:5:15: expected an integer from 1",                  // batch size
        "nesterov",                                                     //
        "swa.from_epoch: expected one of the 3 epochs",                 //
        "kernel",                                                       // larger than the image
        "Normalize: mean has 1 value, but the images have 3 channels",  // transform
        "the data set has 3 classes",                                   // not 7
        "lr_schedule.warmup: 100 epochs are more than the run has"}) {
    check_contains(checked.err, expected);
  }
  check_contains(checked.err, "early_stopping");
  // In an otherwise valid config, an error of the data keeps its own exit code.
  const Finished data = w.run({"config", "check", "small.yaml", "data.root=nowhere"});
  CHECK(data.exit_code == 3);
  check_contains(data.err, "nowhere: no such folder");
}

TEST_CASE("config check: checks that depend on a mistake are named, not made") {
  FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "light"});
  const Finished model =
      w.run({"config", "check", "small.yaml", "model.layers.fc1.out_features=many"});
  CHECK(model.exit_code == 2);
  check_contains(model.err, "not checked because of the errors above: the network");
  CHECK_FALSE(contains(model.err, "the data set has"));
  // An unknown key may stand for any field of its section, so the data is not checked.
  const Finished data = w.run({"config", "check", "small.yaml", "data.rot=x", "optimizer.lr=-1"});
  CHECK(data.exit_code == 2);
  check_contains(data.err, "unknown key 'rot'");
  check_contains(data.err, "the data");
  check_contains(data.err, "optimizer.lr");
}

TEST_CASE("config check: a data set that is not there is an error, as it is of training") {
  const Workplace w;
  for (const char* kind : {"mnist", "fashion_mnist", "cifar10", "cifar100", "idx"}) {
    CAPTURE(kind);
    const std::string config =
        fmt::format("data: {{dataset: {}, root: \"${{DPT_DATA:-data}}/{}\", batch_size: 8}}\n",
                    kind, kind) +
        "model: {zoo: logistic, input: [1, 28, 28], classes: 10}\n"
        "optimizer: {type: SGD, lr: 0.1}\ntrain: {epochs: 1}\n";
    write_file(w.dir.file("small.yaml"), config);
    for (const auto& command : {std::vector<std::string>{"config", "check", "small.yaml"},
                                std::vector<std::string>{"train", "small.yaml", "--dry-run"},
                                std::vector<std::string>{"config", "lr", "small.yaml"}}) {
      const Finished finished = run_dpt(command, w.dir.path(), [] { unsetenv("DPT_DATA"); });
      CHECK(finished.exit_code == 3);
      check_contains(finished.err, "no such folder");
      check_contains(finished.err, "DPT_DATA is not set, so this is the config's default");
    }
    const Finished set = run_dpt({"config", "check", "small.yaml"}, w.dir.path(),
                                 [] { setenv("DPT_DATA", "/nowhere", 1); });
    CHECK(set.exit_code == 3);
    CHECK_FALSE(contains(set.err, "is not set"));
  }
  // Data that is generated when training starts is not checked, and the output says so.
  write_file(w.dir.file("small.yaml"), program_config());
  check_contains(w.run_well({"config", "check", "small.yaml"}).out,
                 "; data not checked: synthetic");
}

TEST_CASE("config check: schedules that train with a rate of 0, or never finish their warm-up") {
  const Workplace w;
  const auto warnings = [&](const std::vector<std::string>& overrides) {
    const std::string checked = w.run_well({"config", "check", "small.yaml"}, overrides).err;
    const std::string trained = w.run_well({"train", "small.yaml", "--dry-run"}, overrides).err;
    CHECK(contains(checked, "lr_schedule") == contains(trained, "lr_schedule"));
    return checked;
  };
  check_contains(warnings({"train.epochs=100", "lr_schedule={type: polynomial}"}),
                 "warning: lr_schedule: polynomial: ");
  // The rise ends after 5 epochs; training continues at the full rate.
  CHECK_FALSE(contains(warnings({"train.epochs=100", "lr_schedule={type: linear}"}), "warning"));
  check_contains(
      warnings({"train.epochs=100", "lr_schedule={type: linear, start_factor: 1, end_factor: 0}"}),
      "warning: lr_schedule: linear: ");
  check_contains(warnings({"train.epochs=1", "lr_schedule.warmup.epochs=50"}),
                 "warning: lr_schedule.warmup: 50 epochs are more than the run has (1)");
  CHECK_FALSE(contains(warnings({"train.epochs=5", "lr_schedule={type: polynomial}"}), "warning"));
  // Steps are counted if the data is known.
  check_contains(
      w.run_well({"train", "small.yaml", "--dry-run", "lr_schedule.warmup.steps=100000"}).err,
      "warning: lr_schedule.warmup: 100000 steps are more than the run has");
}
