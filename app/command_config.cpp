// dpt config check|show|schema|reference|init.
#include <cstdio>
#include <string>

#include "app/catalog.h"
#include "app/cli.h"
#include "engine/spec/read_spec.h"

namespace dpt {
namespace {

struct ConfigOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool origins = false;
};

constexpr const char* kStarter =
    R"(# A small convolutional net for 8x8 handwritten digits. Every field is described in docs/config.md
# and by `dpt config schema`; `dpt config check` finds all errors of a file at once.
version: 1
name: my-first-run
seed: 1
data:
  dataset: digits               # needs no files; others: mnist, fashion_mnist, cifar10, image_folder
  val_split: 137                # held out of the training files
  batch_size: 32                # global, whatever the devices
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

void add_config_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* config = app.add_subcommand("config", "Check, show and describe configs");
  config->require_subcommand(1);

  const auto add = [&](const char* name, const char* doc, bool takes_file, auto run) {
    CLI::App* command = config->add_subcommand(name, doc);
    if (takes_file) {
      command->add_option("config", options->config, "Config file (YAML)")->required();
      command->add_option("overrides", options->overrides,
                          "key=value: replaces a value of the config, e.g. train.epochs=3");
    }
    command->callback([options, &body, run] { body = [options, run] { return run(*options); }; });
    return command;
  };

  add("check", "Read a config strictly and report every error in it, shapes included", true,
      [](const ConfigOptions& o) {
        const TrainSpec spec = load_spec(catalog(), o.config, o.overrides);
        const Plan plan = make_plan(spec);
        fmt::print("{}: ok: {} layers, {} parameters\n", o.config, spec.model.layers.size(),
                   plan.param_count);
        return 0;
      });
  add("show", "Print the resolved config; it runs again as it is", true,
      [](const ConfigOptions& o) {
        fmt::print("{}",
                   show_spec(catalog(), load_spec(catalog(), o.config, o.overrides), o.origins));
        return 0;
      })
      ->add_flag("--origins", options->origins, "Say where each value came from");
  add("schema", "Print the JSON Schema (2020-12) of config files", false, [](const ConfigOptions&) {
    fmt::print("{}\n", config_schema(catalog()));
    return 0;
  });
  add("reference", "Print the reference page of all fields (Markdown)", false,
      [](const ConfigOptions&) {
        fmt::print("{}", config_reference(catalog()));
        return 0;
      });
  add("init", "Print a commented config to start from", false, [](const ConfigOptions&) {
    fmt::print("{}", kStarter);
    return 0;
  });
}

}  // namespace dpt
