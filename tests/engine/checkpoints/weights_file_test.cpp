// Weights files as the start of a run: names, shapes, averages, the rows of a head.
#include "engine/checkpoints/weights_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/tensor_view.h"
#include "engine/checkpoints/weights_advice.h"
#include "engine/graph/layouts.h"
#include "engine/layers/param_spec.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/rewrite.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using Names = std::vector<std::string>;

/// A file "w", the small plan and a flat buffer whose values are all 9.
struct Loading {
  TempDir folder;
  Plan plan = small_plan();
  WeightsSpec spec = weights_of(folder.file("w"));
  Names classes = {"a", "b", "c"};
  std::vector<float> flat = std::vector<float>(static_cast<std::size_t>(plan.param_floats), 9.0F);
  WeightsReport report;

  void load(bool knows_classes = true) {
    report = load_weights(spec, plan, knows_classes ? &classes : nullptr, flat.data());
  }
  std::string error() {
    return error_of([&] { load(); }, spec.file);
  }
  float at(int param, int i) const {
    const Param& of = plan.params[param];
    return flat[of.offset + i];
  }
  /// Returns the values of a parameter in the file's layout.
  std::vector<float> tensor(int param) const {
    const Param& of = plan.params[param];
    std::vector<float> values(static_cast<std::size_t>(of.count));
    to_file_layout(of, flat.data() + of.offset, values.data());
    return values;
  }
  /// Writes tensors with the shapes of the convolution's parameters, named with a prefix.
  void write_conv(const std::string& prefix, std::vector<TensorView> more = {}) {
    static const std::vector<float> values(24, 0.5F);
    more.push_back({prefix + "weight", "F32", {2, 3, 2, 2}, values.data()});
    more.push_back({prefix + "bias", "F32", {2}, values.data()});
    write_safetensors(spec.file, {}, more);
  }
};

TEST_CASE(
    "weights: files that are known may have other shapes, with the values in the same order") {
  Loading l;
  std::vector<float> weight(24);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i);
  const float bias[2] = {5, 6};
  l.spec.expect_missing = {"fc1.*"};
  const auto write = [&](const std::vector<std::int64_t>& shape) {
    write_safetensors(
        l.spec.file, {},
        {{"conv1.weight", "F32", shape, weight.data()}, {"conv1.bias", "F32", {2, 1, 1}, bias}});
  };
  write({2, 12});
  check_contains(l.error(), "expected the shape [2, 3, 2, 2] of the config's model, found [2, 12]");
  l.spec.takes_other_shapes = true;
  l.load();
  CHECK(l.report.loaded == Names{"conv1.weight", "conv1.bias"});
  CHECK(l.tensor(0) == weight);
  CHECK(l.at(1, 1) == 6);
  for (const auto& shape : {std::vector<std::int64_t>{3, 8}, std::vector<std::int64_t>{24}}) {
    write(shape);
    check_contains(l.error(), "expected the shape [2, 3, 2, 2]");
  }
}

TEST_CASE("weights only: loaded, missing, left over, other types, wrong shapes") {
  Loading l;
  const std::string& path = l.spec.file;
  const std::vector<std::uint16_t> bias = {0x3C00, 0xC000};  // 1, -2 in F16
  std::vector<float> weight(24, 0.5F);
  const float other = 0;
  write_safetensors(path, {},
                    {{"conv1.weight", "F32", {2, 3, 2, 2}, weight.data()},
                     {"conv1.bias", "F16", {2}, bias.data()},
                     {"head.weight", "F32", {1}, &other},
                     {"optim.exp_avg.conv1.bias", "F32", {1}, &other}});
  l.load();
  CHECK(l.report.loaded == Names{"conv1.weight", "conv1.bias"});
  CHECK(l.report.missing == Names{"fc1.weight"});
  CHECK(l.report.left_over == Names{"head.weight"});
  CHECK_FALSE(l.report.use);
  CHECK_FALSE(l.report.head);
  CHECK(l.at(0, 5) == 0.5F);
  CHECK(l.at(1, 0) == 1.0F);
  CHECK(l.at(1, 1) == -2.0F);
  CHECK(l.at(2, 0) == 9.0F);  // a missing tensor keeps its values

  save_checkpoint(path, l.plan, small_checkpoint(l.plan));
  l.load();
  CHECK(l.report.loaded.size() == 3);
  CHECK(l.report.missing.empty());
  CHECK(l.report.left_over.empty());
  CHECK(l.at(2, 3) ==
        small_checkpoint(l.plan).params[static_cast<std::size_t>(l.plan.params[2].offset) + 3]);

  write_safetensors(path, {}, {{"conv1.bias", "F32", {1}, &other}});
  CHECK(l.error() ==
        "F: tensor 'conv1.bias': expected the shape [2] of the config's model, found [1]. To keep "
        "the initial values instead, add to the config's `weights`:\n  expect_missing: "
        "[\"conv1.*\"]\n  expect_left_over: [\"conv1.*\"]");
  std::string bytes = read_all(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_all_text(path, bytes);
  CHECK(l.error() == "F: the file is damaged: its bytes do not match its checksum");
}

TEST_CASE("weights.map: the longest prefix is replaced, once") {
  Loading l;
  const float other = 0;
  l.spec.map = {{"module.", "x."}, {"module.old.", "conv1."}, {"x.", "y."}};
  l.write_conv("module.old.", {{"module.z", "F32", {1}, &other}, {"x.z", "F32", {1}, &other}});
  l.load();
  CHECK(l.report.loaded == Names{"conv1.weight", "conv1.bias"});
  // Leftover tensors are reported by their names in the file.
  CHECK(l.report.left_over == Names{"module.z", "x.z"});
  CHECK(l.at(1, 1) == 0.5F);

  l.spec.map = {{"", "conv1."}};
  l.write_conv("");
  l.load();
  CHECK(l.report.loaded.size() == 2);

  l.spec.map = {{"old.", "conv1."}};
  l.write_conv("old.", {{"conv1.bias", "F32", {1}, &other}});
  CHECK(l.error() ==
        "F: weights.map gives one name, 'conv1.bias', to two tensors: 'conv1.bias' and 'old.bias'");
  l.spec.map = {{"old.", "conv1."}, {"new.", ""}};
  l.write_conv("old.", {{"dpt.new", "F32", {1}, &other}});
  CHECK(l.error() ==
        "F: weights.map: the entry 'new.: ' has no effect: no tensor's name begins with 'new.'. "
        "The file has old.weight (mapped to conv1.weight), old.bias (mapped to conv1.bias); the "
        "model has conv1.weight, conv1.bias, fc1.weight. Correct or remove the entry");
  // The map does not apply to dpt's own tensors (dpt.*).
  l.spec.map = {{"dpt.", ""}};
  testing::check_contains(l.error(), "no tensor's name begins with 'dpt.'");
}

TEST_CASE("weights that are not finite, and variances below 0, are errors that say where") {
  Loading l;
  std::vector<float> weight(24, 0.5F), bias = {1, 2};
  const auto write = [&] {
    write_safetensors(l.spec.file, {},
                      {{"conv1.weight", "F32", {2, 3, 2, 2}, weight.data()},
                       {"conv1.bias", "F32", {2}, bias.data()},
                       {"unused", "F32", {2}, bias.data()}});
  };
  weight[12 + 2 * 4 + 1] = -NAN;
  weight[23] = INFINITY;
  write();
  CHECK(l.error() ==
        "F: tensor 'conv1.weight': expected finite numbers, found nan at [1, 2, 0, 1] (2 of 24 "
        "values): these are the weights of a failed training run; start from earlier ones");
  weight[12 + 2 * 4 + 1] = weight[23] = 0;
  bias[1] = -INFINITY;
  write();
  testing::check_contains(l.error(),
                          "'conv1.bias': expected finite numbers, found -inf at [1] (1 of 2");
  // Values that are not taken from the file may be non-finite.
  l.plan.params[1].name = "conv1.other";
  l.load();
  CHECK(l.report.left_over == Names{"conv1.bias", "unused"});

  bias[1] = -0.5F;
  l.plan.params[1].name = "conv1.bias";
  write();
  l.load();
  CHECK(l.at(1, 1) == -0.5F);
  l.plan.params[1].spec.role = ParamRole::running;
  l.load();
  l.plan.params[1].name = "bn.running_var";
  l.spec.map = {{"conv1.bias", "bn.running_var"}};
  CHECK(l.error() ==
        "F: tensor 'conv1.bias': expected finite variances, not below 0, found -0.5 at [1] (1 of 2 "
        "values): these are the weights of a failed training run; start from earlier ones");
  bias[1] = 0;
  write();
  l.load();
  CHECK(l.report.missing == Names{"fc1.weight"});
}

TEST_CASE("weights.use: the average where the file has one, or what is asked for") {
  Loading l;
  l.plan.params[1].spec.role = ParamRole::counter;
  l.plan.params[1].spec.file_shape = {2};
  Checkpoint checkpoint = small_checkpoint(l.plan);
  const auto use = [&](std::optional<WeightsUse> wanted) {
    l.flat.assign(l.flat.size(), 0);  // the padding is 0
    l.spec.use = wanted;
    l.load();
    return l.report.use;
  };
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  CHECK(use(std::nullopt) == std::nullopt);
  CHECK(use(WeightsUse::raw) == std::nullopt);
  CHECK(l.flat == checkpoint.params);
  l.spec.use = WeightsUse::ema;
  CHECK(l.error() ==
        "F: weights.use: ema: expected an average of the weights (tensors optim.ema.*), found "
        "none: the file is not a checkpoint of a run with train.ema");

  std::vector<float> average = counting(l.plan, 1000);
  checkpoint.optimizer.emplace_back("ema", average);
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  // Counters are not averaged.
  const auto from = static_cast<std::ptrdiff_t>(l.plan.params[1].offset);
  std::copy_n(checkpoint.params.begin() + from, 2, average.begin() + from);
  CHECK(use(std::nullopt) == WeightsUse::ema);
  CHECK(l.flat == average);
  CHECK(use(WeightsUse::raw) == WeightsUse::raw);
  CHECK(l.flat == checkpoint.params);
  CHECK(use(WeightsUse::ema) == WeightsUse::ema);
  CHECK(l.flat == average);
  CHECK(l.report.loaded.size() == 3);
  CHECK(l.report.left_over.empty());
  l.spec.use = WeightsUse::swa;
  CHECK(
      l.error().starts_with("F: weights.use: swa: expected an average of the weights (tensors "
                            "optim.swa.*), found none"));

  checkpoint.optimizer.back().first = "swa";
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  for (const auto wanted : {std::optional<WeightsUse>(), std::optional(WeightsUse::swa)}) {
    CHECK(use(wanted) == WeightsUse::swa);
    CHECK(l.flat == average);
  }
  CHECK(use(WeightsUse::raw) == WeightsUse::raw);
  CHECK(l.flat == checkpoint.params);
  l.spec.use = WeightsUse::ema;
  CHECK(l.error().starts_with("F: weights.use: ema: expected an average"));
}

TEST_CASE("weights.head: the rows of classes that both have, by name") {
  Loading l;
  Checkpoint checkpoint = small_checkpoint(l.plan);
  checkpoint.classes = {"x", "c", "a"};
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  l.load();
  const std::vector<float> theirs = l.tensor(2);  // in the file's order
  l.flat.assign(l.flat.size(), 9.0F);
  l.spec.head = HeadRows::by_class_name;
  l.load();
  const std::vector<float> rows = l.tensor(2);
  CHECK(std::equal(rows.begin(), rows.begin() + 12, theirs.begin() + 24));  // class a
  CHECK(std::all_of(rows.begin() + 12, rows.begin() + 24, [](float v) { return v == 9.0F; }));
  CHECK(std::equal(rows.begin() + 24, rows.end(), theirs.begin() + 12));  // class c
  CHECK(l.report.loaded.size() == 3);
  REQUIRE(l.report.head);
  CHECK(l.report.head->layer == "fc1");
  CHECK(l.report.head->copied == Names{"a", "c"});
  CHECK(l.report.head->fresh == Names{"b"});

  // The data has fewer classes than the file. load(false) does not know their names yet.
  Loading wide;
  wide.plan = small_plan();
  wide.plan.params[2].spec.file_shape[0] = 1;
  wide.plan.params[2].count = 12;
  wide.spec = l.spec;
  wide.classes = {"c"};
  wide.load();
  const std::vector<float> one = wide.tensor(2);
  CHECK(std::equal(one.begin(), one.end(), theirs.begin() + 12));
  wide.flat.assign(wide.flat.size(), 9.0F);
  wide.load(false);
  CHECK(wide.at(2, 0) == 9.0F);
  CHECK(wide.report.head->copied.empty());
  wide.classes = {"c", "d"};
  CHECK(wide.error() ==
        "weights.head: by_class_name: expected a row of 'fc1.weight' for each of the 2 classes of "
        "the data, found 1");

  l.classes = {"d", "e"};
  CHECK(l.error() ==
        "F: weights.head: by_class_name: none of its classes (x, c, a) is a class of the data (d, "
        "e). To keep the layer's initial values, set weights.head: new");
  l.classes = {"a", "b", "c"};
  checkpoint.classes = {"a", "b"};
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  CHECK(
      l.error() ==
      "F: tensor 'fc1.weight': weights.head: by_class_name: expected the shape [2, 12], a row for "
      "each class of the file, found [3, 12]");
  l.write_conv("conv1.");
  CHECK(l.error() ==
        "F: weights.head: by_class_name: expected a checkpoint of dpt, which holds the names of "
        "its classes ('dpt.classes'), found none. To keep the layer's initial values, set "
        "weights.head: new");
}

TEST_CASE("weights.head: the layer that it is") {
  Loading l;
  Checkpoint checkpoint = small_checkpoint(l.plan);
  checkpoint.classes = l.classes;
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  l.spec.head = HeadRows::by_class_name;
  const auto head_with = [&](const char* type, const char* shares) {
    Plan plan = small_plan();
    LayerRow& row = plan.rows.emplace_back();
    row.name = "last";
    row.type = type;
    row.shares = shares;
    row.params = 3;
    row.out.shape = {1, 1, 3};
    return load_weights(l.spec, plan, &l.classes, l.flat.data()).head->layer;
  };
  CHECK(head_with("Linear", "") == "last");
  CHECK(head_with("Conv2d", "") == "last");
  CHECK(head_with("Linear", "fc1") == "fc1");
  // The rows of these layers do not correspond to the classes.
  for (const char* type : {"BatchNorm1d", "ConvTranspose2d"}) {
    CHECK(error_of([&] { head_with(type, ""); }, l.spec.file) ==
          "F: weights.head: by_class_name: expected a model whose last layer with parameters is a "
          "Linear or Conv2d with 3 outputs, one for each class");
  }
}

TEST_CASE("weights.head: the rows of the average, where that is taken") {
  Loading l;
  Checkpoint checkpoint = small_checkpoint(l.plan);
  checkpoint.classes = l.classes;
  const std::vector<float> average = counting(l.plan, 1000);
  checkpoint.optimizer.emplace_back("ema", average);
  save_checkpoint(l.spec.file, l.plan, checkpoint);
  l.spec.head = HeadRows::by_class_name;
  l.flat.assign(l.flat.size(), 0);  // the padding is 0
  l.load();
  CHECK(l.flat == average);
}

TEST_CASE("weights of another shape: refused, or set aside where both lists name them") {
  Loading l;
  const std::vector<float> values(60, 1.0F);
  l.write_conv("conv1.", {{"fc1.weight", "F32", {5, 12}, values.data()}});
  CHECK(l.error().starts_with(
      "F: tensor 'fc1.weight': expected the shape [3, 12] of the config's model, found [5, 12]. To "
      "keep this layer's initial values, add to the config's `weights`:\n  head: new"));
  l.spec.expect_missing = {"fc1.*"};
  CHECK(l.error().starts_with("F: tensor 'fc1.weight': expected the shape"));
  l.spec.expect_left_over = {"*.weight"};
  l.spec.expect_missing = {"conv1.*"};
  CHECK(l.error().starts_with("F: tensor 'fc1.weight': expected the shape"));
  l.spec.expect_missing = {"fc1.*"};
  l.load();
  CHECK(l.report.missing == Names{"fc1.weight"});
  CHECK(l.report.left_over == Names{"fc1.weight"});
  CHECK(l.at(2, 0) == 9.0F);
  CHECK(l.at(1, 0) == 0.5F);
  // A tensor that fits is loaded even if expect_missing names it.
  l.spec.expect_missing = {"*"};
  l.load();
  CHECK(l.report.missing == Names{"fc1.weight"});
}

TEST_CASE("weights.head: new: the last layer keeps its initial values, whatever the file has") {
  Loading l;
  const std::vector<float> values(60, 1.0F);
  l.spec.head = HeadRows::fresh;
  const auto check_head = [&](const Names& skipped) {
    l.load(false);
    CHECK(l.report.loaded == Names{"conv1.weight", "conv1.bias"});
    CHECK(l.report.missing.empty());
    CHECK(l.report.left_over.empty());
    REQUIRE(l.report.head);
    CHECK(l.report.head->layer == "fc1");
    CHECK(l.report.head->is_new);
    CHECK(l.report.head->skipped == skipped);
    CHECK(l.at(2, 0) == 9.0F);
    CHECK(l.at(1, 0) == 0.5F);
  };
  l.write_conv("conv1.", {{"fc1.weight", "F32", {5, 12}, values.data()}});
  check_head({"fc1.weight"});
  l.write_conv("conv1.", {{"fc1.weight", "F32", {3, 12}, values.data()}});
  check_head({"fc1.weight"});
  l.write_conv("conv1.");
  check_head({});
  l.spec.map = {{"module.", ""}};
  l.write_conv("module.conv1.", {{"module.fc1.weight", "F32", {5, 12}, values.data()}});
  check_head({"module.fc1.weight"});
  // Any layer with parameters may be the last.
  l.plan.rows[1].type = "BatchNorm1d";
  check_head({"module.fc1.weight"});
}

TEST_CASE("a counter that the file lacks is 0, and a pattern may name it") {
  Loading l;
  Param& counter = l.plan.params[2];
  counter.name = "bn1.num_batches_tracked";
  counter.spec.role = ParamRole::counter;
  l.write_conv("conv1.");
  l.load();
  CHECK(l.report.missing.empty());
  CHECK(l.report.zeroed == Names{"bn1.num_batches_tracked"});
  CHECK(l.at(2, 0) == 0);
  // Older configs list the counter, because a missing counter used to be an error.
  l.spec.expect_missing = {"bn1.*"};
  l.load();
  CHECK(l.report.missing == Names{"bn1.num_batches_tracked"});
  CHECK(l.report.zeroed.empty());
}

TEST_CASE("a first convolution that reads images of other channels is called that") {
  Loading l;
  const std::vector<float> values(24, 1.0F);
  write_safetensors(l.spec.file, {}, {{"conv1.weight", "F32", {2, 1, 2, 2}, values.data()}});
  CHECK(
      l.error() ==
      "F: tensor 'conv1.weight': expected the shape [2, 3, 2, 2] of the config's model, found [2, "
      "1, 2, 2]; 'conv1' reads images of 3 channels (model.input), but the file's layer reads 1: "
      "dpt does not adapt the channels of a file's weights");
  l.plan.nodes[0].inputs = {1};  // no longer the first
  CHECK(l.error().find("reads images of") == std::string::npos);
}

TEST_CASE("advice: a pattern for each layer, and the prefix that would make names equal") {
  CHECK(patterns_for({"a.b.weight", "a.b.bias", "c", "a.weight"}, {"d.weight"}) ==
        R"(["a.b.*", "c", "a.*"])");
  // The patterns must not match any loaded name.
  CHECK(patterns_for({"a.b.weight", "a.weight"}, {"a.b.bias"}) == R"(["a.b.weight", "a.weight"])");
  const Names counters = {"bn1.num_batches_tracked", "a.bn2.num_batches_tracked"};
  CHECK(patterns_for(counters, {"bn1.weight", "a.bn2.weight"}) == R"(["*.num_batches_tracked"])");
  CHECK(patterns_for(counters, {"bn1.weight", "a.bn2.weight", "bn3.num_batches_tracked"}) ==
        R"(["bn1.num_batches_tracked", "a.bn2.num_batches_tracked"])");
  CHECK(pattern_for_layer("module.fc.weight") == R"(["module.fc.*"])");
  const Names model = {"conv1.weight", "layer1.0.bias"};
  CHECK(map_entry_for(model, {"module.conv1.weight", "module.layer1.0.bias", "x.y"}) ==
        R"({"module.": ""})");
  CHECK(map_entry_for({"net.a.weight", "net.a.bias"}, {"a.weight", "a.bias"}) == R"({"": "net."})");
  CHECK(map_entry_for({"head.weight"}, {"fc.weight"}).empty());
  // A single common name may be an accident.
  CHECK(map_entry_for({"weight"}, {"fc.weight"}).empty());
}

TEST_CASE("weights: a file of 200,000 other tensors, a long map, and many classes take no time") {
  // Searching all names for each of them would take many minutes.
  Loading l;
  std::vector<std::string> names;
  std::vector<TensorView> tensors;
  constexpr int kTensors = 200'000;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back({fmt::format("block.{}.experts.{}.weight", i % 100, i), "F32", {0}, nullptr});
    if (i % 4 == 0) l.spec.map.emplace_back(tensors.back().name, fmt::format("renamed.{}", i));
  }
  l.write_conv("conv1.", tensors);
  l.load();
  CHECK(l.report.loaded == Names{"conv1.weight", "conv1.bias"});
  REQUIRE(l.report.left_over.size() == kTensors);
  CHECK(l.report.left_over[1] == "block.1.experts.1.weight");  // in the order of the file
  CHECK(l.report.left_over.back() == tensors.back().name);
  const std::string patterns = patterns_for(l.report.left_over, l.report.used);
  CHECK(patterns.size() < 20'000);
  testing::check_contains(patterns, "\"block.0.experts.0.*\", \"block.1.experts.1.*\"");
  CHECK(patterns.ends_with(fmt::format(", and {} more]", kTensors - 10)));
}

}  // namespace
}  // namespace dpt
