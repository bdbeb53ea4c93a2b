// Blocks in a config, from the user's view: trained, shown, written out and resumed.
#include <doctest/doctest.h>

#include "tests/cli/outcome.h"
#include "tests/cli/workplace.h"

using namespace dpt::testing;

namespace {

/// Returns program_config with other `layers` and few epochs.
std::string config_with(const std::string& layers) {
  std::string text = program_config();
  const std::size_t begin = text.find("    - {type: Conv2d"), end = text.find("optimizer:");
  text.replace(begin, end - begin, layers);
  return text.replace(text.find("epochs: 30"), 10, "epochs: 3");
}

const std::string kBlocks =
    R"(    - {type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3, padding: 1}
    - type: Residual
      name: layer1
      repeat: 2
      layers:
        - {type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3, padding: 1}
        - {type: ReLU}
        - {type: Conv2d, name: conv2, out_channels: 4, kernel_size: 3, padding: 1}
      activation: ReLU
    - type: Residual
      name: layer2
      layers:
        - {type: Conv2d, name: conv1, out_channels: 8, kernel_size: 3, stride: 2, padding: 1}
      shortcut:
        - type: Sequential
          name: downsample
          layers: [{type: Conv2d, out_channels: 8, kernel_size: 1, stride: 2, bias: false}]
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 4}
)";

}  // namespace

TEST_CASE(
    "a config with blocks and the layers that config show --expand prints train to one result") {
  const Workplace w(config_with(kBlocks));
  w.run_well({"config", "check", "small.yaml"});
  const std::string shown = w.run_well({"config", "show", "small.yaml"}).out;
  const std::string expanded = w.run_well({"config", "show", "--expand", "small.yaml"}).out;
  check_contains(shown, "type: Residual");
  CHECK(expanded.find("Residual") == std::string::npos);
  check_contains(expanded, "name: layer2.downsample.0\n      from: [layer1.1.activation]\n");
  write_file(w.dir.file("explicit.yaml"), expanded);
  CHECK(w.run_well({"config", "show", "--expand", "explicit.yaml"}).out == expanded);

  w.run_well({"train", "small.yaml", "--run-dir", "blocks"});
  w.run_well({"train", "explicit.yaml", "--run-dir", "explicit"});
  const Outcome outcome = outcome_of(w.dir.file("blocks"));
  CHECK_FALSE(outcome.newest.empty());
  CHECK(outcome == outcome_of(w.dir.file("explicit")));
  // The run keeps the blocks, both in its folder and in its checkpoints.
  CHECK(read_file(w.dir.file("blocks/config.yaml")) == shown);
  const std::string accuracy = w.run_well({"eval", "blocks", "--json"}).out;
  CHECK(accuracy == w.run_well({"eval", "explicit", "--json"}).out);
  check_contains(w.run_well({"inspect", "blocks/best.safetensors"}).out, "layer1.1.conv2.weight");

  // Either config can resume either run, because both describe the same network. A config of
  // another network cannot.
  w.run_well({"train", "explicit.yaml", "--run-dir", "blocks", "train.epochs=4"});
  w.run_well({"train", "small.yaml", "--run-dir", "explicit", "train.epochs=4"});
  CHECK(outcome_of(w.dir.file("blocks")) == outcome_of(w.dir.file("explicit")));
  const Finished other = w.run({"train", "small.yaml", "--run-dir", "blocks", "train.epochs=5",
                                "model.layers.layer1.repeat=3"});
  CHECK(other.exit_code == 2);
  check_contains(other.err, "layer1.2.conv1");
}

TEST_CASE("model summary and the messages of the plan use the names of expanded layers") {
  const Workplace w(config_with(kBlocks));
  const std::string summary = w.run_well({"model", "summary", "small.yaml"}).out;
  check_contains(summary, "\nlayer1.1.conv2 ");
  check_contains(summary, "from layer2.conv1, layer2.downsample.0");
  // The image is too small for the second copy.
  const Workplace shrinking(config_with(R"(    - type: Sequential
      name: stages
      repeat: 3
      layers:
        - {type: Conv2d, name: conv, out_channels: 4, kernel_size: 5}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 4}
)"));
  const Finished check = shrinking.run({"config", "check", "small.yaml"});
  CHECK(check.exit_code == 2);
  check_contains(check.err, "small.yaml:21:11: layer 'stages.1.conv' (Conv2d): ");
  CHECK(check.err.find("stages.0") == std::string::npos);
}

TEST_CASE("shared weights: trained, saved once, shown, frozen, resumed and evaluated") {
  const Workplace w(
      config_with(R"(    - {type: Conv2d, name: stem, out_channels: 4, kernel_size: 3, padding: 1}
    - type: Residual
      name: layer1
      repeat: 2
      layers:
        - {type: Conv2d, share_weights: stem2, out_channels: 4, kernel_size: 3, padding: 1}
        - {type: ReLU}
        - {type: Conv2d, name: own, out_channels: 4, kernel_size: 3, padding: 1}
        - {type: Conv2d, share_weights: own, out_channels: 4, kernel_size: 3, padding: 1}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 4}
)"));
  const Finished unknown = w.run({"config", "check", "small.yaml"});
  CHECK(unknown.exit_code == 2);
  check_contains(unknown.err,
                 "expected the name of an earlier layer in 'share_weights', found "
                 "'stem2', did you mean 'stem'?");
  std::string good = read_file(w.dir.file("small.yaml"));
  good.replace(good.find("stem2"), 5, "stem");
  // The input has one channel, so the first convolution has weights of another shape.
  write_file(w.dir.file("small.yaml"), good);
  const Finished other = w.run({"config", "check", "small.yaml"});
  CHECK(other.exit_code == 2);
  check_contains(other.err,
                 "layer 'layer1.0.0' (Conv2d): share_weights: expected the parameters "
                 "of 'stem', which are weight 4x1x3x3 and bias 4; this layer's are "
                 "weight 4x4x3x3 and bias 4");
  const std::string stem = "    - {type: Conv2d, name: stem,";
  good.insert(good.find(stem),
              "    - {type: Conv2d, out_channels: 4, kernel_size: 1, name: first}\n");
  write_file(w.dir.file("small.yaml"), good);
  w.run_well({"config", "check", "small.yaml"});
  check_contains(w.run_well({"model", "summary", "small.yaml"}).out,
                 "3x3, stride 1, padding 1, shares layer1.1.own");

  w.run_well({"train", "small.yaml", "--run-dir", "whole", "train.shards=4"});
  const std::string tensors = w.run_well({"inspect", "whole/best.safetensors"}).out;
  check_contains(tensors, "layer1.1.own.weight");
  CHECK(tensors.find("layer1.0.0.weight") == std::string::npos);
  CHECK(tensors.find("layer1.1.2.weight") == std::string::npos);
  // Stop the run midway and resume it on another number of replicas, from the expanded layers.
  write_file(w.dir.file("explicit.yaml"),
             w.run_well({"config", "show", "--expand", "small.yaml"}).out);
  w.run({"train", "small.yaml", "--run-dir", "parts", "train.shards=4", "--max-steps", "2"});
  w.run_well({"train", "explicit.yaml", "--run-dir", "parts", "train.shards=4", "--devices",
              "cpu,cpu,cpu"});
  const Outcome outcome = outcome_of(w.dir.file("whole"));
  CHECK_FALSE(outcome.newest.empty());
  CHECK(outcome == outcome_of(w.dir.file("parts")));
  CHECK(w.run_well({"eval", "whole", "--json"}).out == w.run_well({"eval", "parts", "--json"}).out);
  // Without sharing, the network is a different one.
  std::string own = good;
  own.replace(own.find("share_weights: stem, "), 21, "");
  write_file(w.dir.file("own.yaml"), own);
  const Finished refused =
      w.run({"train", "own.yaml", "--run-dir", "whole", "train.epochs=5", "train.shards=4"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "layer1.0.0.share_weights: stem -> (absent)");

  w.run_well({"train", "small.yaml", "--run-dir", "frozen", "train.freeze=[stem.*]"});
  const Finished no_param = w.run({"config", "check", "small.yaml", "train.freeze=[layer1.0.0.*]"});
  CHECK(no_param.exit_code == 2);
}

TEST_CASE("a network of the zoo trains as the layers that it stands for, which the run keeps") {
  std::string text = program_config();
  const std::size_t begin = text.find("  layers:"), end = text.find("optimizer:");
  text.replace(begin, end - begin, "  zoo: mlp\n  classes: 4\n  hidden: [16, 8]\n");
  text.replace(text.find("epochs: 30"), 10, "epochs: 2");
  const Workplace w(text);
  const std::string shown = w.run_well({"config", "show", "small.yaml"}).out;
  check_contains(shown, "model:\n  zoo: mlp\n  classes: 4\n  hidden: [16, 8]\n");
  write_file(w.dir.file("explicit.yaml"),
             w.run_well({"config", "show", "--expand", "small.yaml"}).out);
  w.run_well({"train", "small.yaml", "--run-dir", "zoo"});
  w.run_well({"train", "explicit.yaml", "--run-dir", "explicit"});
  const Outcome outcome = outcome_of(w.dir.file("zoo"));
  CHECK_FALSE(outcome.newest.empty());
  CHECK(outcome == outcome_of(w.dir.file("explicit")));
  const std::string kept = read_file(w.dir.file("zoo/config.yaml"));
  CHECK(kept.find("zoo") == std::string::npos);
  check_contains(kept, "name: fc3");
  w.run_well({"eval", "zoo"});
  w.run_well({"train", "small.yaml", "--run-dir", "zoo", "train.epochs=3"});
  // One more layer makes it another network.
  const Finished other = w.run({"train", "small.yaml", "--run-dir", "zoo", "train.epochs=4",
                                "model.patch=[{insert_after: fc2, layers: [{type: Linear, name: "
                                "new, out_features: 8}]}]"});
  CHECK(other.exit_code == 2);
  check_contains(other.err, "model.layers.new.out_features: (absent) -> 8");
}
