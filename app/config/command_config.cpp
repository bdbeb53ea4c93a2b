// dpt config show|schema|reference|init.
#include "app/config/command_config.h"

#include <cstdio>

#include "app/base/catalog.h"
#include "app/config/editor_schema.h"
#include "app/config/starter_config.h"
#include "datasets/dataset.h"
#include "engine/config/read_spec.h"
#include "engine/config/reference.h"
#include "engine/config/schema.h"
#include "engine/config/show_spec.h"
#include "engine/data/data_sets.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/job.h"
#include "engine/job/objective.h"

namespace dpt {
namespace {

constexpr const char* kStarter =
    R"(# A small convolutional network for 8x8 handwritten digits. `dpt config reference` describes every
# field; `dpt config check` reports all errors of a file at once.
version: 1
seed: 1
data:
  dataset: digits               # needs no files; others: mnist, fashion_mnist, cifar10, image_folder
  val_split: 137                # held out of the training files
  batch_size: 32                # of all replicas together
  normalize: auto               # mean and deviation of the training samples, for all splits
  transforms: {train: [{type: RandomCrop, size: 8, padding: 1}]}  # shifts by up to a pixel
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
optimizer: {type: SGD, lr: 0.05, momentum: 0.9, weight_decay: 0.0005}
lr_schedule: {type: cosine, warmup: {epochs: 1}}
train: {epochs: 20}
devices: auto
)";

}  // namespace

int run_config_show(const ConfigOptions& options) {
  TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  // The monitored quantity depends on the targets, which only the data may know.
  if (dataset_kind(spec.data.dataset).any_targets) {
    const DataRequirements needs = data_requirements(spec, make_plan(spec));
    adopt_targets(spec, *open_dataset(spec.data.dataset, needs).train);
  }
  if (options.expand) spec = with_explicit_layers(spec);
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

int run_config_init(const ConfigInitOptions& options) {
  const std::string config =
      options.data.empty() ? kStarter : starter_config(options.data, options.zoo);
  fmt::print("{}{}", editor_schema_line(), config);
  return 0;
}

}  // namespace dpt
