// Enum fields, defaults that follow another field, the changes that a resumed run may make, former
// names.
#include <doctest/doctest.h>

#include "engine/config/blocks.h"
#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "engine/config/stored_spec.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

/// Returns the good config as stored before `shares` was renamed.
std::string of_an_older_release() {
  std::string text = shown(good_spec(kGoodConfig, {"device_weights=[3, 1]"}));
  const std::string now = "device_weights: [3, 1]";
  const std::size_t at = text.find(now);
  REQUIRE(at != std::string::npos);
  return text.replace(at, now.size(), "shares: [3, 1]");
}

}  // namespace

TEST_CASE("the names of an enum's values read back, and other names do not") {
  CHECK(std::string(name_of(OnFailure::continue_run)) == "continue");
  CHECK(enum_of<OnFailure>("continue") == OnFailure::continue_run);
  CHECK_FALSE(enum_of<OnFailure>("go_on").has_value());
  CHECK(good_spec(kGoodConfig, {"train.precision=bf16"}).train.precision == Precision::bf16);
  CHECK(issues_of(kGoodConfig, {"train.precision=fp16"}) ==
        Texts{"command line: train.precision: expected one of fp32, tf32, bf16, found 'fp16'"});
}

TEST_CASE("mode follows the monitor where it is not written") {
  CHECK(good_spec(kGoodConfig).checkpoint.keep_best.mode == Direction::max);
  const TrainSpec spec = good_spec(kGoodConfig, {"checkpoint.keep_best={monitor: val/loss}",
                                                 "train.early_stopping={monitor: val/loss}"});
  CHECK(spec.checkpoint.keep_best.mode == Direction::min);
  CHECK(spec.train.early_stopping.value().mode == Direction::min);
  // The stored text contains the value, and reads back.
  const std::string text = shown(spec);
  CHECK(text.find("mode: max") == std::string::npos);
  CHECK(shown(load_spec_text(small_catalog(), text, "/elsewhere/shown.yaml")) == text);
  CHECK(good_spec(kGoodConfig, {"train.early_stopping={monitor: val/accuracy}"})
            .train.early_stopping.value()
            .mode == Direction::max);
  CHECK(issues_of(kGoodConfig, {"train.early_stopping={monitor: val/loss, mode: max}"}) ==
        Texts{"command line: train.early_stopping: expected mode: min with monitor: val/loss, "
              "found max"});
}

TEST_CASE("a renamed key is named with its new name") {
  CHECK(issues_of(changed("seed: 7", "seed: 7\nshares: [3, 1]")) ==
        Texts{"4:1: the key 'shares' was renamed: write 'device_weights' in the config"});
  CHECK(issues_of(kGoodConfig, {"shares=[3, 1]"}) ==
        Texts{"command line: the key 'shares' was renamed: write 'device_weights' in the config"});
  // A misnamed required key is not also reported as missing.
  CHECK(issues_of(changed("std: [0.25]}]\n    eval", "sigma: [0.25]}]\n    eval")) ==
        Texts{"10:74: the key 'sigma' was renamed: write 'std' in transform Normalize"});
}

TEST_CASE("exif_orientation: apply for a new config, ignore for one stored before the field") {
  const TrainSpec today = good_spec(kGoodConfig);
  CHECK(today.data.exif_orientation == ExifOrientation::apply);
  const std::string stored = shown(today), line = "  exif_orientation: apply\n";
  const std::size_t at = stored.find(line);
  REQUIRE(at != std::string::npos);
  const std::string earlier = std::string(stored).erase(at, line.size());
  const auto orientation_in = [](const std::string& text) {
    return load_stored_spec(small_catalog(), text, "a.safetensors").data.exif_orientation;
  };
  CHECK(orientation_in(stored) == ExifOrientation::apply);
  CHECK(orientation_in(earlier) == ExifOrientation::ignore);
  // A resumed run takes its stored value unless the config sets one.
  const auto values = [&](const TrainSpec& spec) {
    return values_of_run(small_catalog(), spec, earlier, "config.yaml");
  };
  CHECK(values(today) == Texts{"data.exif_orientation=ignore"});
  CHECK(values(good_spec(kGoodConfig, {"data.exif_orientation=apply"})).empty());
  CHECK(values_of_run(small_catalog(), today, stored, "config.yaml").empty());
}

TEST_CASE("a config that an older release stored still loads") {
  const TrainSpec spec = load_stored_spec(small_catalog(), of_an_older_release(), "a.safetensors");
  CHECK(spec.device_weights == std::vector<double>{3, 1});
  CHECK(load_stored_spec(small_catalog(), of_an_older_release(), "a.safetensors",
                         {"device_weights=auto"})
            .device_weights.empty());
  CHECK_THROWS_AS(load_spec_text(small_catalog(), of_an_older_release(), "a.yaml"), Error);

  SUBCASE("an unreadable text is the file's fault, a bad override the command's") {
    const auto kind_of = [](const std::string& text, const Texts& overrides) {
      try {
        load_stored_spec(small_catalog(), text, "a.safetensors", overrides);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("a.safetensors") != std::string::npos);
        return error.kind();
      }
      return ErrorKind::unexpected;
    };
    CHECK(kind_of(of_an_older_release() + "colour: red\n", {}) == ErrorKind::data);
    CHECK_THROWS_WITH_AS(load_stored_spec(small_catalog(), kGoodConfig, "a", {"seed=x"}),
                         "command line: seed: expected an integer of at least 0, found 'x'", Error);
  }
}

TEST_CASE("former names count in each kind of mapping: layers, optimizers, data sets, transforms") {
  std::string text = shown(good_spec(kGoodConfig, {"model.layers.conv1.stride=[2, 1]",
                                                   "optimizer.momentum=0.5", "data.classes=[a]"}));
  const std::string now = text;
  for (const auto& [name, former] : {std::pair<std::string, std::string>("stride: ", "hop: "),
                                     {"momentum: ", "mu: "},
                                     {"classes: ", "labels: "},
                                     {"std: ", "sigma: "},
                                     {"std: ", "sigma: "}}) {
    const std::size_t at = text.find(" " + name);
    REQUIRE(at != std::string::npos);
    text.replace(at + 1, name.size(), former);
  }
  CHECK(shown(load_stored_spec(small_catalog(), text, "a.safetensors")) == now);
  CHECK_THROWS_AS(load_spec_text(small_catalog(), text, "a.yaml"), Error);
}

TEST_CASE("a resumed run may change the fields that the tables mark, and no others") {
  CHECK(changeable_fields(small_catalog()) ==
        Texts{"data.workers", "data.prefetch", "data.on_bad_sample", "data.max_bad_samples",
              "data.cache", "data.root", "train.epochs", "train.on_more_epochs", "train.accumulate",
              "train.early_stopping", "train.on_divergence", "train.self_check",
              "train.stall_timeout", "weights.file", "weights.sha256", "checkpoint", "log",
              "devices", "device_weights"});
  const auto changes = [](const std::string& stored, const Texts& overrides) {
    return refused_changes(small_catalog(), stored, "a.safetensors",
                           shown(good_spec(kGoodConfig, overrides)));
  };
  const std::string stored = shown(good_spec(kGoodConfig));
  CHECK(changes(stored, {}).empty());
  CHECK(changes(stored, {"train.epochs=99", "data.root=/elsewhere", "data.workers=3",
                         "data.prefetch=2", "checkpoint={every: 0, keep_best: {monitor: val/loss}}",
                         "log.every=1", "devices=[cpu]", "device_weights=[1]"})
            .empty());
  CHECK(changes(stored, {"seed=8", "train.epochs=99"}) == Texts{"seed: 7 -> 8"});
  CHECK(changes(stored, {"data.val_split=5"}) == Texts{"data.val_split: 100 -> 5"});
  CHECK(changes(stored, {"train.shards=4"}) == Texts{"train.shards: auto -> 4"});
  CHECK(changes(of_an_older_release(), {}).empty());
  // The start factor of a warm-up has no effect without a warm-up, whatever its default was.
  const Texts other_start = {"lr_schedule.warmup.start_factor=0"};
  CHECK(changes(stored, other_start).size() == 1);
  const Texts no_warmup = {"lr_schedule.warmup={start_factor: 0}"};
  CHECK(refused_changes(small_catalog(), shown(good_spec(kGoodConfig, no_warmup)), "a",
                        shown(good_spec(kGoodConfig, {"lr_schedule.warmup={}"})))
            .empty());
}

TEST_CASE("a field that an older release did not have counts as its default") {
  std::string stored = shown(good_spec(kGoodConfig));
  const std::string line = "  autotune: true\n";
  const std::size_t at = stored.find(line);
  REQUIRE(at != std::string::npos);
  stored.erase(at, line.size());
  CHECK(refused_changes(small_catalog(), stored, "a", shown(good_spec(kGoodConfig))).empty());
  CHECK(refused_changes(small_catalog(), stored, "a",
                        shown(good_spec(kGoodConfig, {"train.autotune=false"}))) ==
        Texts{"train.autotune: true -> false"});
}

TEST_CASE("the config of as many layers as there may be reads back once it is stored") {
  std::string layers = "    - {type: Conv2d, name: c0, out_channels: 1, kernel_size: 1}\n";
  for (std::size_t i = 1; i < kMaxLayers; ++i) {
    layers +=
        fmt::format("    - {{type: Conv2d, name: c{}, out_channels: 1, kernel_size: 1}}\n", i);
  }
  const std::size_t at = kGoodConfig.find("  layers:\n"), end = kGoodConfig.find("optimizer:");
  REQUIRE(at != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::string config =
      kGoodConfig.substr(0, at) + "  layers:\n" + layers + kGoodConfig.substr(end);
  const std::string stored = shown(good_spec(config));
  CHECK(load_stored_spec(small_catalog(), stored, "c").model.layers.size() == kMaxLayers);
  CHECK(refused_changes(small_catalog(), stored, "c", stored).empty());
}

namespace {

/// Returns the good config with other layers.
std::string with_layers(const std::string& layers) {
  std::string text = kGoodConfig;
  const std::size_t begin = text.find("    - {type: Conv2d"), end = text.find("loss: ");
  return text.replace(begin, end - begin, layers);
}

Texts changes_of(const std::string& before, const std::string& after) {
  return refused_changes(small_catalog(), shown(good_spec(before)), "a.safetensors",
                         shown(good_spec(after)));
}

constexpr const char* kHead =
    "    - {type: Flatten, name: f}\n    - {type: Linear, name: fc, out_features: 10}\n";

}  // namespace

TEST_CASE("the order of named layers is part of what a resumed run may not change") {
  const std::string conv = "    - {type: Conv2d, name: c, out_channels: 4, kernel_size: 3}\n";
  const std::string same = "    - {type: Conv2d, name: d, out_channels: 4, kernel_size: 3}\n";
  const std::string relu = "    - {type: ReLU, name: r}\n";
  const Texts changes =
      changes_of(with_layers(conv + relu + same + kHead), with_layers(conv + same + relu + kHead));
  CHECK(changes == Texts{"model.layers: the order differs: c, r, d, f, fc -> c, d, r, f, fc",
                         "model.layers.r.from: [c] -> [d]", "model.layers.d.from: [r] -> [c]",
                         "model.layers.f.from: [d] -> [r]"});
  // The same holds in a block.
  const auto block = [](const char* first, const char* second) {
    return with_layers(
        fmt::format("    - type: Sequential\n      name: b\n      layers:\n"
                    "        - {{type: {}}}\n        - {{type: {}}}\n{}",
                    first, second, kHead));
  };
  CHECK(changes_of(block("ReLU, name: x", "Conv2d, name: y, out_channels: 4, kernel_size: 3"),
                   block("Conv2d, name: y, out_channels: 4, kernel_size: 3", "ReLU, name: x"))
            .at(0) == "model.layers: the order differs: b.x, b.y, f, fc -> b.y, b.x, f, fc");
  // An additional layer changes the input of the next layer, but not the order.
  CHECK(changes_of(with_layers(conv + kHead), with_layers(conv + relu + kHead)) ==
        Texts{"model.layers.f.from: [c] -> [r]", "model.layers.r.type: (absent) -> ReLU",
              "model.layers.r.name: (absent) -> r", "model.layers.r.from: (absent) -> [c]"});
}

TEST_CASE("inputs that are written and those that follow from the order are the same") {
  const auto branches = [](const std::string& first, const std::string& second,
                           const std::string& in) {
    return with_layers("    - {type: ReLU, name: stem}\n    - {type: ReLU, name: " + first + in +
                       "}\n    - {type: ReLU, name: " + second +
                       ", from: stem}\n    - {type: Add, name: sum, from: [a, b]}\n" + kHead);
  };
  CHECK(changes_of(branches("a", "b", ""), branches("a", "b", ", from: stem")).empty());
  CHECK(changes_of(with_layers(kHead), with_layers("    - {type: Flatten, name: f, from: input}\n"
                                                   "    - {type: Linear, name: fc, "
                                                   "out_features: 10, from: f}\n"))
            .empty());
  // The network computes the same function, but positions in the buffers and random draws differ.
  CHECK(changes_of(branches("a", "b", ""), branches("b", "a", "")) ==
        Texts{"model.layers: the order differs: stem, a, b, sum, ... -> stem, b, a, sum, ..."});
  std::string other = branches("a", "b", "");
  const std::string from = "from: [a, b]";
  other.replace(other.find(from), from.size(), "from: [b, a]");
  CHECK(changes_of(branches("a", "b", ""), other) ==
        Texts{"model.layers.sum.from: [a, b] -> [b, a]"});
}

TEST_CASE("a text as it was stored before inputs were compared is the same run still") {
  // The text has no `from`, and a block is stored as written.
  const std::string config =
      with_layers("    - {type: Sequential, name: b, repeat: 2, layers: [{type: ReLU}]}\n" +
                  std::string(kHead));
  const std::string stored = shown(good_spec(config));
  CHECK(stored.find("from") == std::string::npos);
  CHECK(
      refused_changes(small_catalog(), stored, "a", shown(with_explicit_layers(good_spec(config))))
          .empty());
}
