#include "tests/engine/config/small_catalog.h"
#include "engine/config/issue.h"
#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"

#include <stdexcept>

namespace dpt::testing {
namespace {

struct Empty {};
struct Linear {
  std::int64_t out_features = 0;
};
struct Step {
  std::int64_t step_size = 1;
  std::vector<double> levels = {1};
};
struct Normalize {
  std::vector<double> mean, std;
};
struct Synthetic {
  std::int64_t samples = 100;
  std::int64_t classes = 10;
};

template <class S>
const ObjectTable* empty_table(const char* name) {
  static const ObjectTable table = object_table<S>(name, "Has no options.", {});
  return &table;
}

struct Relu {};
const ObjectTable* relu_table() {
  static const ObjectTable table = activation_table(*empty_table<Relu>("ReLU"));
  return &table;
}

const ObjectTable* conv_table() {
  using S = SmallConv;
  static const ObjectTable table = object_table<S>(
      "Conv2d", "2-D convolution.",
      {field("out_channels", &S::out_channels, "Number of output channels.")
           .required()
           .range(1, 65536),
       field("kernel_size", &S::kernel_size, "Height and width.").required().range(1, 1024),
       field("stride", &S::stride, "Step of the window.")
           .range(1, 1024)
           .formerly("hop")
           .or_word("whole"),
       field("bias", &S::bias, "Add a learnable bias."),
       field("dilations", &S::dilations, "For the test of lists.").range(1, 9)});
  return &table;
}

const ObjectTable* linear_table() {
  static const ObjectTable table = object_table<Linear>(
      "Linear", "Fully connected.",
      {field("out_features", &Linear::out_features, "Width.").required().at_least(1)});
  return &table;
}

const ObjectTable* sgd_table() {
  using S = SmallSgd;
  static const ObjectTable table =
      object_table<S>("SGD", "Stochastic gradient descent.",
                      {field("lr", &S::lr, "Learning rate.").required().above(0),
                       field("momentum", &S::momentum, "Momentum.").range(0, 1).formerly("mu"),
                       field("nesterov", &S::nesterov, "Look ahead.")},
                      [](const S& s) -> std::string {
                        if (s.nesterov && s.momentum == 0)
                          return "expected momentum above 0 with nesterov, found 0";
                        return {};
                      });
  return &table;
}

const ObjectTable* adam_table() {
  using S = SmallSgd;
  static const ObjectTable table =
      object_table<S>("Adam", "Adam.", {field("lr", &S::lr, "Learning rate.").required().above(0)});
  return &table;
}

const ObjectTable* step_table() {
  static const ObjectTable table = object_table<Step>(
      "step", "Falls now and then.",
      {field("step_size", &Step::step_size, "Epochs between falls.").required().at_least(1),
       field("levels", &Step::levels, "For the test of lists of one.")
           .range(0, 1)
           .items(1, 2)
           .or_one()});
  return &table;
}

const ObjectTable* images_table() {
  using S = SmallImages;
  static const ObjectTable table =
      object_table<S>("images", "Files in folders.",
                      {path_field("root", &S::root, "Folder of the files."),
                       field("classes", &S::classes, "Names of the classes.").formerly("labels")});
  return &table;
}

const ObjectTable* synthetic_table() {
  using S = Synthetic;
  static const ObjectTable table =
      object_table<S>("synthetic", "Made up.",
                      {field("samples", &S::samples, "How many.").range(1, 1e9),
                       field("classes", &S::classes, "How many.").range(2, 1000)});
  return &table;
}

const ObjectTable* normalize_table() {
  using S = Normalize;
  static const ObjectTable table = object_table<S>(
      "Normalize", "(x - mean) / std.",
      {field("mean", &S::mean, "Per channel.").required(),
       field("std", &S::std, "Per channel.").required().above(0).formerly("sigma")});
  return &table;
}

struct SmallLoss {
  double label_smoothing = 0;
};
const ObjectTable* cross_entropy_table() {
  using S = SmallLoss;
  static const ObjectTable table = object_table<S>(
      "cross_entropy", "Of the softmax.",
      {field("label_smoothing", &S::label_smoothing, "For the test of defaults.").range(0, 1)});
  return &table;
}

struct SmallMetric {};
const ObjectTable* top_table() {
  return empty_table<SmallMetric>("top");
}

std::vector<std::string> small_measured_names(const std::vector<Variant>& metrics) {
  std::vector<std::string> names = {"loss", "accuracy"};
  for (const Variant& metric : metrics) names.push_back(metric.type);
  return names;
}
std::optional<Direction> small_better_direction(const std::string& monitor) {
  if (monitor == "val/loss") return Direction::min;
  return monitor.ends_with("acuracy") ? std::nullopt : std::optional(Direction::max);
}

struct TinyNet {
  std::int64_t classes = 0;
  std::int64_t width = 4;
};
const ObjectTable* tiny_table(const char* name) {
  using S = TinyNet;
  static const ObjectTable table =
      object_table<S>("tiny", "A network.",
                      {field("classes", &S::classes, "Outputs.").required().range(2, 100),
                       field("width", &S::width, "Channels.").range(1, 100)});
  static const ObjectTable other = [] {
    ObjectTable renamed = table;
    renamed.name = "tinier";
    return renamed;
  }();
  return table.name == name ? &table : &other;
}

std::string tiny_layers(const Variant& net) {
  const auto& options = net.as<TinyNet>();
  return fmt::format(
      "[{{type: Conv2d, name: conv1, out_channels: {0}, kernel_size: 3}}, {{type: Residual, name: "
      "layer1, repeat: 2, layers: [{{type: Conv2d, name: conv1, out_channels: {0}, kernel_size: "
      "3}}, {{type: ReLU}}]}}, {{type: Flatten}}, {{type: Linear, name: fc, out_features: {1}}}]",
      options.width, options.classes);
}

Catalog make_catalog() {
  struct Flip {};
  struct Flatten {};
  struct Add {};
  struct Constant {};
  struct Mix {};
  Catalog all;
  all.layers = {"layer",
                "type",
                {conv_table(), relu_table(), empty_table<Flatten>("Flatten"), linear_table(),
                 empty_table<Add>("Add")},
                {{"Conv2D", "Conv2d"}, {"Dense", "Linear"}, {"Pooling", "a pooling layer"}}};
  all.losses = {"loss", "type", {cross_entropy_table()}, {}};
  all.metrics = {"metric", "type", {top_table()}, {}};
  all.measured_names = &small_measured_names;
  all.better_direction = &small_better_direction;
  all.optimizers = {"optimizer", "type", {sgd_table(), adam_table()}, {}};
  all.schedules = {"lr_schedule", "type", {empty_table<Constant>("constant"), step_table()}, {}};
  all.datasets = {"data set", "dataset", {images_table(), synthetic_table()}, {}};
  all.transforms = {
      "transform", "type", {normalize_table(), empty_table<Flip>("RandomHorizontalFlip")}, {}};
  all.batch_transforms = {"batch transform", "type", {empty_table<Mix>("MixUp")}, {}};
  all.zoo = {"network", "zoo", {tiny_table("tiny"), tiny_table("tinier")}, {}};
  all.zoo_layers = &tiny_layers;
  all.measurements = {{"layers", "Log norms."}, {"noise_scale", "Log the noise."}};
  return all;
}

}  // namespace

const Catalog& small_catalog() {
  static const Catalog catalog = make_catalog();
  return catalog;
}

const std::string kGoodConfig = R"(version: 1
name: small
seed: 7
data:
  dataset: images
  root: images
  batch_size: 64
  val_split: 100
  transforms:
    train: [{type: RandomHorizontalFlip}, {type: Normalize, mean: [0.5], std: [0.25]}]
    eval: [{type: Normalize, mean: [0.5], std: [0.25]}]
model:
  input: [1, 28, 28]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 20, kernel_size: 3}
    - {type: ReLU}
    - {type: Flatten, from: conv1}
    - {type: Linear, name: fc1, out_features: 10}
loss: {type: cross_entropy}
optimizer: {type: SGD, lr: 0.2}
lr_schedule: {type: step, step_size: 3, warmup: {epochs: 1}}
train: {epochs: 10, shards: auto, grad_clip_norm: 5.0}
checkpoint: {every: 1, keep_last: 2}
log: {every: 10}
devices: [cpu, "cpu:2"]
)";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGoodConfig;
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("no such text in the config: " + from);
  return text.replace(at, from.size(), to);
}

std::vector<std::string> issues_of(const std::string& text,
                                   const std::vector<std::string>& overrides) {
  std::vector<std::string> out;
  for (const ConfigIssue& issue :
       read_spec_text(small_catalog(), text, "test.yaml", overrides).issues) {
    std::string where = issue.where.text();
    if (where.starts_with("test.yaml:")) where = where.substr(10);
    out.push_back(where + ": " + issue.text);
  }
  return out;
}

std::string shown(const TrainSpec& spec) {
  return show_spec(small_catalog(), spec);
}

TrainSpec good_spec(const std::string& text, const std::vector<std::string>& overrides) {
  return load_spec_text(small_catalog(), text, "test.yaml", overrides);
}

}  // namespace dpt::testing
