// dpt config check|show|schema|reference|init.
#include <cstdio>

#include "app/catalog.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "engine/graph/plan.h"
#include "engine/spec/read_spec.h"

namespace dpt {
namespace {

/// Of a data set whose files are read one by one while it trains: lists all and reads some, and
/// says what was found. Other formats are read whole when they are opened: that is left to
/// `dpt train --dry-run`, so that a config can be checked quickly.
std::string check_listed_data(const TrainSpec& spec, const Plan& plan) {
  for (const DatasetKind& kind : dataset_kinds()) {
    if (kind.table != spec.data.dataset.table || !kind.lists_only) continue;
    const DataSets sets = open_dataset(spec.data.dataset, data_requirements(spec, plan));
    std::size_t tried = 0;
    std::string counts = fmt::format("{} training samples", sets.train->size());
    for (const DataSource* source : {sets.train.get(), sets.test.get()}) {
      if (!source) continue;
      try_samples(source);
      tried += source->samples_to_try().size();
    }
    if (sets.test) counts += fmt::format(", {} test samples", sets.test->size());
    return fmt::format("; {} ({} files read, from every class)", counts, tried);
  }
  return {};
}

constexpr const char* kStarter =
    R"(# A small convolutional network for 8x8 handwritten digits. `dpt config reference` describes every
# field; `dpt config check` reports all errors of a file at once.
version: 1
name: my-first-run
seed: 1
data:
  dataset: digits               # needs no files; others: mnist, fashion_mnist, cifar10, image_folder
  val_split: 137                # held out of the training files
  batch_size: 32                # of all replicas together
  transforms:
    train: [{type: Normalize, mean: [0.305], std: [0.375]}]
    eval: [{type: Normalize, mean: [0.305], std: [0.375]}]
model:
  input: [1, 8, 8]              # channels, height, width
  layers:
    - {type: Conv2d, name: conv1, out_channels: 16, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Conv2d, name: conv2, out_channels: 32, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 64}
    - {type: ReLU}
    - {type: Linear, name: fc2, out_features: 10}
optimizer: {type: SGD, lr: 0.05, momentum: 0.9}
lr_schedule: {type: cosine, warmup: {epochs: 1}}
train: {epochs: 20}
devices: auto
)";

}  // namespace

int run_config_check(const ConfigOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const Plan plan = make_plan(spec);
  const std::string data = check_listed_data(spec, plan);
  fmt::print("{}: ok: {} layers, {} parameters{}\n", options.config, spec.model.layers.size(),
             plan.param_count, data);
  return 0;
}

int run_config_show(const ConfigOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  fmt::print("{}", show_spec(catalog(), spec, options.origins));
  return 0;
}

int run_config_schema() {
  fmt::print("{}\n", config_schema(catalog()));
  return 0;
}

int run_config_reference() {
  fmt::print("{}", config_reference(catalog()));
  return 0;
}

int run_config_init() {
  fmt::print("{}", kStarter);
  return 0;
}

}  // namespace dpt
