// dpt model summary CONFIG: the plan as a table, without a device.
#include <cstdio>

#include "app/catalog.h"
#include "app/cli.h"
#include "engine/spec/read_spec.h"

namespace dpt {

void add_model_command(CLI::App& app, CommandBody& body) {
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* model = app.add_subcommand("model", "Look at a model without training it");
  model->require_subcommand(1);
  CLI::App* summary = model->add_subcommand(
      "summary", "Layers, output shapes, parameters, FLOPs, activation bytes, memory per replica");
  summary->add_option("config", options->config, "Config file (YAML)")->required();
  summary->add_option("overrides", options->overrides, "key=value: replaces a value of the config");
  summary->add_flag("--json", options->json, "One JSON object on stdout");
  summary->callback([options, &body] {
    body = [options] {
      const TrainSpec spec = load_spec(catalog(), options->config, options->overrides);
      const Plan plan = make_plan(spec);
      const int replicas =
          static_cast<int>(resolve_devices(spec.devices, spec.data.batch_size).size());
      const int buffers = static_cast<int>(make_optimizer(spec.optimizer).state_names.size());
      fmt::print("{}\n", options->json ? summary_json(spec, plan, replicas, buffers)
                                       : summary_text(spec, plan, replicas, buffers));
      return 0;
    };
  });
}

}  // namespace dpt
