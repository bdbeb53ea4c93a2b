// The strict reader: it accepts good values, and reports every bad one in a single run.
#include "engine/config/read_spec.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "engine/config/suggest.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

TEST_CASE("a good config arrives in the structs") {
  const TrainSpec spec = good_spec(kGoodConfig);
  CHECK(spec.name == "small");
  CHECK(spec.seed == 7);
  CHECK(spec.data.batch_size == 64);
  CHECK(spec.data.val_split.count == 100);
  CHECK(spec.data.shuffle);
  CHECK(spec.data.dataset.type == "images");
  CHECK(spec.data.dataset.as<SmallImages>().root ==
        (std::filesystem::current_path() / "images").string());
  REQUIRE(spec.data.transforms.train.size() == 2);
  CHECK(spec.data.transforms.train[1].type == "Normalize");
  CHECK(spec.model.input == std::vector<std::int64_t>{1, 28, 28});
  REQUIRE(spec.model.layers.size() == 4);
  const LayerSpec& conv = spec.model.layers[0];
  CHECK(conv.name == "conv1");
  CHECK(conv.op.type == "Conv2d");
  CHECK(conv.op.as<SmallConv>().out_channels == 20);
  CHECK(conv.op.as<SmallConv>().kernel_size == Size2{3, 3});
  CHECK(conv.op.as<SmallConv>().bias);
  CHECK(conv.where.text() == "test.yaml:15:7");
  CHECK(conv.op.where.text() == "test.yaml:15:7");
  CHECK(spec.model.layers[1].name == "1");
  CHECK(spec.model.layers[2].from == Texts{"conv1"});
  CHECK(spec.optimizer.as<SmallSgd>().lr == 0.2);
  CHECK(spec.lr_schedule.type == "step");
  CHECK(spec.warmup.epochs == 1);
  CHECK(spec.train.epochs == 10);
  CHECK(spec.train.shards == 0);
  CHECK(spec.train.grad_clip_norm == 5.0);
  CHECK_FALSE(spec.train.early_stopping.has_value());
  CHECK(spec.log.every == 10);
  CHECK(spec.devices == Texts{"cpu", "cpu:2"});
  CHECK(spec.origins.at("train.epochs").text() == "test.yaml:22:17");
}

TEST_CASE("omitted fields have their defaults") {
  const TrainSpec spec = load_spec_text(small_catalog(),
                                        "data: {dataset: synthetic, batch_size: 8}\n"
                                        "model: {input: [3, 8, 8], layers: [{type: ReLU}]}\n"
                                        "optimizer: {type: Adam, lr: 1e-3}\n"
                                        "train: {epochs: 1}\n",
                                        "some/where/tiny.run.yaml");
  CHECK(spec.name == "tiny.run");
  CHECK(spec.version == 1);
  CHECK(spec.lr_schedule.type == "constant");
  CHECK(spec.devices == Texts{"auto"});
  CHECK(spec.checkpoint.keep_last == 2);
  CHECK(spec.optimizer.as<SmallSgd>().lr == 1e-3);
  CHECK_FALSE(spec.train.grad_clip_norm.has_value());
}

TEST_CASE("a schedule may be left to its default and still have a warm-up") {
  const TrainSpec spec = good_spec(changed("type: step, step_size: 3, ", ""));
  CHECK(spec.lr_schedule.type == "constant");
  CHECK(spec.warmup.epochs == 1);
}

TEST_CASE("values of every sort are read strictly") {
  const auto issue = [](const std::string& from, const std::string& to) {
    const Texts all = issues_of(changed(from, to));
    return all.size() == 1 ? all[0] : fmt::format("{} issues", all.size());
  };
  CHECK(issue("epochs: 10", "epochs: abc") ==
        "22:17: expected an integer from 1 to 1000000, found 'abc'");
  CHECK(issue("epochs: 10", "epochs: 0") ==
        "22:17: expected an integer from 1 to 1000000, found 0");
  CHECK(issue("epochs: 10", "epochs: 010") ==
        "22:17: expected an integer from 1 to 1000000, found '010'; a leading zero means octal to "
        "some YAML readers and is not accepted; write 10");
  CHECK(issue("epochs: 10", "epochs: 0x10") ==
        "22:17: expected an integer from 1 to 1000000, found '0x10'; only decimal digits are "
        "accepted");
  CHECK(issue("epochs: 10", "epochs: 1e1") ==
        "22:17: expected an integer from 1 to 1000000, found 1e1; write 10");
  CHECK(issue("epochs: 10", "epochs: 2.5") ==
        "22:17: expected an integer from 1 to 1000000, found 2.5");
  CHECK(issue("epochs: 10", "epochs: '10'") ==
        "22:17: expected an integer from 1 to 1000000, found '10'; remove the quotes");
  CHECK(issue("epochs: 10", "epochs: 99999999999999999999") ==
        "22:17: expected an integer from 1 to 1000000, found 99999999999999999999; it does not fit "
        "in 64 bits");
  CHECK(issue("epochs: 10", "epochs: ") ==
        "22:9: expected an integer from 1 to 1000000, found nothing");
  CHECK(issue("epochs: 10", "epochs: [10]") ==
        "22:17: expected an integer from 1 to 1000000, found a list of 1");
  CHECK(issue("epochs: 10", "epochs: {a: 1}") ==
        "22:17: expected an integer from 1 to 1000000, found a mapping");
  CHECK(issue("lr: 0.2", "lr: .nan") ==
        "20:28: expected a number above 0, found '.nan'; it must be finite");
  CHECK(issue("lr: 0.2", "lr: -inf") ==
        "20:28: expected a number above 0, found '-inf'; it must be finite");
  CHECK(issue("lr: 0.2", "lr: 0") == "20:28: expected a number above 0, found 0");
  CHECK(issue("lr: 0.2", "lr: 0.2, momentum: 1.5") ==
        "20:43: expected a number from 0 to 1, found 1.5");
  CHECK(issue("epochs: 10", "epochs: 1000001") ==
        "22:17: expected an integer from 1 to 1000000, found 1000001");
  CHECK(issue("lr: 0.2", "lr: 1e999") ==
        "20:28: expected a number above 0, found 1e999; it does not fit in a double");
  CHECK(issue("lr: 0.2", "lr: 0.2, nesterov: yes") ==
        "20:43: expected true or false, found 'yes'; write true");
  CHECK(issue("lr: 0.2", "lr: 0.2, nesterov: Off") ==
        "20:43: expected true or false, found 'Off'; write false");
  CHECK(issue("lr: 0.2", "lr: 0.2, nesterov: 1") == "20:43: expected true or false, found 1");
  CHECK(issue("lr: 0.2", "lr: 0.2, nesterov: 'true'") ==
        "20:43: expected true or false, found 'true'; remove the quotes");
  CHECK(issue("name: small", "name: 2024") ==
        "2:7: expected a string, found 2024; put it into quotes to make it a string");
  CHECK(issue("name: small", "name: true") ==
        "2:7: expected a string, found true; put it into quotes to make it a string");
  // Quotes do not help if the text is not one of the allowed ones.
  CHECK(issue("epochs: 10", "epochs: 10, self_check: true") ==
        "22:33: expected one of auto, always, never, found true");
  CHECK(issue("mean: [0.5]", "mean: 0.5") ==
        "10:67: expected a list of numbers, found 0.5; write [0.5]");
  CHECK(issue("mean: [0.5]", "mean: [0.5, x]") == "10:73: expected a number, found 'x'");
  CHECK(issue("kernel_size: 3", "kernel_size: [3, 0]") ==
        "15:70: expected an integer from 1 to 1024, found 0");
  CHECK(issue("kernel_size: 3", "kernel_size: [3, 3, 3]") ==
        "15:66: expected an integer from 1 to 1024 or [height, width], found a list of 3");
  CHECK(issue("input: [1, 28, 28]", "input: [28, 28]") ==
        "13:10: expected a list of 3 integers, each from 1 to 65536, found a list of 2");
  CHECK(issue("shards: auto", "shards: many") ==
        "22:29: expected auto or an integer from 1 to 65536, found 'many'");
  CHECK(issue("{type: cross_entropy}", "{type: cross-entropy}") ==
        "19:14: unknown loss 'cross-entropy', did you mean 'cross_entropy'? Known losses: "
        "cross_entropy");
}

TEST_CASE("values that are fine in YAML 1.2 are fine here") {
  CHECK(good_spec(changed("name: small", "name: no")).name == "no");
  CHECK(good_spec(changed("name: small", "name: '2024'")).name == "2024");
  CHECK(good_spec(changed("name: small", "name: 1:30")).name == "1:30");
  CHECK(good_spec(changed("shards: auto", "shards: 8")).train.shards == 8);
  CHECK(good_spec(changed("grad_clip_norm: 5.0", "grad_clip_norm: null")).train.grad_clip_norm ==
        std::nullopt);
  CHECK(good_spec(changed("lr: 0.2", "lr: .5")).optimizer.as<SmallSgd>().lr == 0.5);
  CHECK(good_spec(changed("lr: 0.2", "lr: +5.e-1")).optimizer.as<SmallSgd>().lr == 0.5);
  CHECK(good_spec(changed("kernel_size: 3", "kernel_size: [3, 5]"))
            .model.layers[0]
            .op.as<SmallConv>()
            .kernel_size == Size2{3, 5});
}

TEST_CASE("unknown keys and kinds get a suggestion and the list of what is known") {
  CHECK(issues_of(changed("kernel_size: 3", "kernal_size: 3")) ==
        Texts{"15:53: unknown key 'kernal_size' in layer Conv2d, did you mean 'kernel_size'? Known "
              "keys: type, name, from, share_weights, out_channels, kernel_size, stride, bias, "
              "dilations"});
  CHECK(issues_of(changed("out_channels: 20", "filters: 20")) ==
        Texts{"15:35: unknown key 'filters' in layer Conv2d, did you mean 'out_channels'? Known "
              "keys: type, name, from, share_weights, out_channels, kernel_size, stride, bias, "
              "dilations"});
  CHECK(issues_of(changed("epochs: 10", "epochs: 10, batch_size: 5")) ==
        Texts{"22:21: unknown key 'batch_size' in train, did you mean 'data.batch_size'? Known "
              "keys: epochs, on_more_epochs, shards, accumulate, grad_clip_norm, grad_clip_value, "
              "freeze, ema, swa, early_stopping, on_divergence, precision, autotune, "
              "self_check, stall_timeout"});
  CHECK(issues_of(changed("type: SGD", "type: Adam, momentum: 0.9")) ==
        Texts{"20:25: unknown key 'momentum' in optimizer Adam; it belongs to SGD. Known keys: "
              "type, lr"});
  CHECK(issues_of(changed("type: ReLU", "type: ReLU, zzzzzz: 1")) ==
        Texts{"16:20: unknown key 'zzzzzz' in layer ReLU. Known keys: type, name, from, "
              "share_weights"});
  CHECK(issues_of(changed("type: Conv2d", "type: Conv2D")) ==
        Texts{"15:14: unknown layer 'Conv2D', did you mean 'Conv2d'? Known layers: Conv2d, ReLU, "
              "Flatten, Linear, Add, Sequential, Residual"});
  CHECK(issues_of(changed("type: ReLU", "type: Dense")) ==
        Texts{"16:14: unknown layer 'Dense', did you mean 'Linear'? Known layers: Conv2d, ReLU, "
              "Flatten, Linear, Add, Sequential, Residual"});
  CHECK(issues_of(changed("type: ReLU", "type: Pooling")) ==
        Texts{"16:14: unknown layer 'Pooling', did you mean a pooling layer? Known layers: Conv2d, "
              "ReLU, Flatten, Linear, Add, Sequential, Residual"});
  CHECK(issues_of(changed("dataset: images", "dataset: imagenet")) ==
        Texts{"5:12: unknown data set 'imagenet'. Known data sets: images, synthetic"});
  CHECK(
      issues_of(changed("optimizer: {type: SGD, lr: 0.2}", "optimizer: SGD")) ==
      Texts{"20:12: expected a mapping with 'type' for optimizer, found 'SGD'; write {type: SGD}"});
  CHECK(issues_of(changed("type: SGD, ", "")) ==
        Texts{"20:12: missing key 'type' in optimizer. Known optimizers: SGD, Adam"});
}

TEST_CASE("all errors of a file come in one run, in order of position") {
  std::string text = kGoodConfig;
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("seed: 7", "seed: -7");
  replace("batch_size: 64", "batchsize: 64");
  replace("type: ReLU", "type: Relu6");
  replace("kernel_size: 3", "kernel_size: x");
  replace("lr: 0.2", "lr: [1]");
  replace("devices: [cpu,", "devices: [gpu:0,");
  text += "seed: 8\n";
  CHECK(issues_of(text) ==
        Texts{"3:7: expected an integer of at least 0, found -7",
              "7:3: unknown key 'batchsize' in data set images, did you mean 'batch_size'? Known "
              "keys: dataset, batch_size, val_split, shuffle, sampler, workers, prefetch, "
              "on_bad_sample, max_bad_samples, exif_orientation, cache, cache_shorter_side, "
              "normalize, transforms, root, classes",
              "15:66: expected an integer from 1 to 1024 or [height, width], found 'x'",
              "16:14: unknown layer 'Relu6', did you mean 'ReLU'? Known layers: Conv2d, ReLU, "
              "Flatten, Linear, Add, Sequential, Residual",
              "20:28: expected a number above 0, found a list of 1",
              "25:11: expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th "
              "GPU from 0), found 'gpu:0'; write cuda:0",
              "26:1: duplicate key 'seed': first defined in line 3"});
}

TEST_CASE("a missing required field is reported with its meaning") {
  CHECK(issues_of("{}") == Texts{"1:1: missing key 'data' in the config: The data set.",
                                 "1:1: missing key 'model' in the config: The network.",
                                 "1:1: missing key 'optimizer' in the config: The optimizer.",
                                 "1:1: missing key 'train' in the config: The training loop."});
  CHECK(issues_of("") ==
        Texts{"1:1: expected a config with the keys version, data, model, ..., found nothing"});
  CHECK(issues_of("- a\n") ==
        Texts{"1:1: expected a config with the keys version, data, model, ..., found a list of 1"});
  CHECK(
      issues_of(changed("train: {epochs: 10, shards: auto, grad_clip_norm: 5.0}", "train:")) ==
      Texts{
          "22:1: expected a mapping for train, found nothing; its keys are epochs, "
          "on_more_epochs, shards, accumulate, grad_clip_norm, grad_clip_value, freeze, ema, swa, "
          "early_stopping, on_divergence, precision, autotune, "
          "self_check, stall_timeout"});
}

TEST_CASE("a config for a newer version is refused by name and not taken apart") {
  CHECK(issues_of("version: 2\nfuture: {things: 1}\n") ==
        Texts{"1:10: expected a config of version 1, found version 2: it was written for a newer "
              "dpt"});
  CHECK(issues_of(changed("version: 1", "version: 0")) == Texts{"1:10: expected 1, found 0"});
}

TEST_CASE("layer names are unique and inputs are earlier layers") {
  CHECK(
      issues_of(changed("name: fc1", "name: conv1")) ==
      Texts{"18:28: expected a unique layer name, found 'conv1', which is also the name of layer 0 "
            "in line 15"});
  CHECK(
      issues_of(changed("name: fc1", "name: '1'")) ==
      Texts{"18:28: expected a unique layer name, found '1', which is also the name of layer 1 in "
            "line 16"});
  CHECK(issues_of(changed("name: fc1", "name: 'f c'")) ==
        Texts{"18:28: expected a layer name of letters, digits, '_', '-' and '.', found 'f c'"});
  CHECK(issues_of(changed("from: conv1", "from: [conv1, conv2]")) ==
        Texts{"17:37: expected the name of an earlier layer in 'from', found 'conv2', did you mean "
              "'conv1'? Earlier layers: conv1, 1"});
  CHECK(issues_of(changed("from: conv1", "from: fc1")) ==
        Texts{"17:29: expected the name of an earlier layer in 'from', found 'fc1', which does not "
              "come before this layer"});
  CHECK(issues_of(changed("{type: Conv2d,", "{type: Conv2d, from: x,")) ==
        Texts{"15:28: expected the name of an earlier layer in 'from', found 'x'. No layer comes "
              "before this one"});
  // The image is not a layer, but can be named as an input.
  CHECK(issues_of(changed("{type: Conv2d,", "{type: Conv2d, from: input,")).empty());
  CHECK(issues_of(changed("  layers:\n", "  layers: []\n  old:\n")).at(0) ==
        "14:11: expected a list of at least 1 layer, found an empty list");
}

TEST_CASE("devices have a form") {
  const auto with = [](const std::string& devices) {
    return issues_of(changed("devices: [cpu, \"cpu:2\"]", "devices: " + devices));
  };
  for (const char* good : {"auto", "cpu", "cuda", "cpu:16", "[cuda:0, cuda:1]", "[cuda:0, cpu]"}) {
    CHECK(with(good).empty());
  }
  const std::string expected =
      "expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th GPU from 0), "
      "found ";
  CHECK(with("gpu") == Texts{"25:10: " + expected + "'gpu'; write cuda"});
  CHECK(with("cpu,cpu") == Texts{"25:10: " + expected + "'cpu,cpu'; write a list: [cpu,cpu]"});
  CHECK(with("[cpu:0, cuda:x]") ==
        Texts{"25:11: " + expected + "'cpu:0'", "25:18: " + expected + "'cuda:x'"});
  CHECK(with("[cpu, auto]") == Texts{"25:16: expected 'auto' on its own, found it in a list"});
  CHECK(with("[cpu, cuda]") == Texts{"25:16: expected 'cuda' on its own, found it in a list"});
  CHECK(with("[cuda]").empty());
  CHECK(with("[]") ==
        Texts{"25:10: expected a string or a list of at least 1 string, found an empty list"});
}

TEST_CASE("shards and device_weights fit a list of devices; how many auto is shows where it runs") {
  const auto with = [](const std::string& devices) {
    return issues_of(kGoodConfig, {"devices=" + devices, "train.shards=2", "device_weights=[9,1]"});
  };
  CHECK(with("[cpu, cuda:0]").empty());
  for (const char* unknown : {"auto", "cuda", "[auto]", "[cuda]"}) CHECK(with(unknown).empty());
  CHECK(with("cpu").size() == 1);
  CHECK(with("[cpu, cpu, cpu]").size() == 2);
  CHECK(issues_of(kGoodConfig, {"devices=[cpu, cpu, cpu]"}).empty());
}

TEST_CASE("values that exclude one another are reported") {
  CHECK(issues_of(changed("warmup: {epochs: 1}", "warmup: {epochs: 1, steps: 5}")) ==
        Texts{"21:49: lr_schedule.warmup: expected 'epochs' or 'steps', found both"});
  CHECK(issues_of(changed("lr: 0.2", "lr: 0.2, nesterov: true")) ==
        Texts{"20:12: optimizer SGD: expected momentum above 0 with nesterov, found 0"});
  CHECK(issues_of(changed("keep_last: 2", "keep_best: {monitor: val/loss, mode: max}")) ==
        Texts{"23:35: checkpoint.keep_best: expected mode: min with monitor: val/loss, found max"});
  // An unknown name is the only issue reported for its mapping.
  CHECK(issues_of(changed("keep_last: 2", "keep_best: {monitor: val/acuracy, mode: min}")) ==
        Texts{"23:45: expected one of val/accuracy, val/loss, found 'val/acuracy'; did you mean "
              "'val/accuracy'?"});
  std::string text = changed("shards: auto", "early_stopping: {patience: 2}");
  text.erase(text.find("  val_split: 100\n"), 17);
  CHECK(issues_of(text) == Texts{"21:37: early_stopping monitors val/accuracy, but there are no "
                                 "validation samples: set data.val_split"});
  CHECK(issues_of(changed("name: small", "name: a/b")) ==
        Texts{"2:7: expected a name for a folder (no '/', not starting with '.'), found 'a/b'"});
}

TEST_CASE("an error in an aliased value is reported once") {
  const Texts all =
      issues_of(changed("eval: [{type: Normalize, mean: [0.5], std: [0.25]}]",
                        "eval: [&n {type: Normalize, mean: [0.5], std: [0]}, *n, *n]"));
  CHECK(all == Texts{"11:52: expected a number above 0, found 0"});
}

TEST_CASE("the same mistake at two places is reported twice") {
  CHECK(issues_of(changed("mean: [0.5]", "mean: [x, x]")) ==
        Texts{"10:68: expected a number, found 'x'", "10:71: expected a number, found 'x'"});
  CHECK(issues_of(changed("    - {type: Linear, name: fc1, out_features: 10}\n",
                          "    - {type: Linear, out_features: 0}\n"
                          "    - {type: Linear, out_features: 0}\n")) ==
        Texts{"18:36: expected an integer of at least 1, found 0",
              "19:36: expected an integer of at least 1, found 0"});
}

TEST_CASE("load_spec throws one usage error with a line for each issue") {
  try {
    load_spec_text(small_catalog(), changed("seed: 7", "seed: x\nsede: 1"), "some.yaml");
    FAIL("no exception");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(
        std::string(error.what()) ==
        "some.yaml:3:7: expected an integer of at least 0, found 'x'\n"
        "some.yaml:4:1: unknown key 'sede' in the config, did you mean 'seed'? Known keys: "
        "version, name, seed, data, model, loss, metrics, optimizer, lr_schedule, train, weights, "
        "checkpoint, log, devices, device_weights, extends");
  }
}

TEST_CASE("closest() finds the intended word and nothing far-fetched") {
  const Texts names = {"kernel_size", "padding", "stride", "lr"};
  CHECK(closest("kernelSize", names) == "kernel_size");
  CHECK(closest("kernel", names) == "kernel_size");
  CHECK(closest("pading", names) == "padding");
  CHECK(closest("strdie", names) == "stride");
  CHECK(closest("rl", names) == "lr");
  CHECK(closest("foo", names) == "");
  CHECK(closest("", names) == "");
  CHECK(closest(std::string(5000, 'k'), names) == "");
}
