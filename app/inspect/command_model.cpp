// dpt model summary CONFIG: prints the plan as a table. Uses no device.
#include "app/inspect/command_model.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/base/catalog.h"
#include "app/base/console.h"
#include "engine/config/read_spec.h"
#include "engine/config/replica_checks.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/graph/summary.h"
#include "engine/job/job.h"
#include "engine/optimizers/optimizer.h"
#include "kernels/base/json_text.h"
#include "kernels/devices.h"

namespace dpt {

namespace {

/// Returns the devices of the config's replicas. Listed devices need not exist on this machine.
std::vector<DeviceName> devices_of(const TrainSpec& spec) {
  const bool is_list =
      std::none_of(spec.devices.begin(), spec.devices.end(),
                   [](const std::string& name) { return name == "auto" || name == "cuda"; });
  std::vector<DeviceName> devices;
  if (is_list) {
    for (const std::string& name : spec.devices) devices.push_back(parse_device(name));
    return devices;
  }
  if (spec.devices.front() == "cuda" && cuda_info().devices.empty()) {
    say("note: no GPU is available here: the summary is for one replica");
    return {parse_device("cuda:0")};
  }
  // The number of samples is unknown here: assume one batch.
  return resolve_devices(spec.devices, most_replicas(spec, spec.data.batch_size));
}

}  // namespace

int run_model_summary(const ModelOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const Plan plan = make_plan(spec);
  const std::vector<DeviceName> devices = devices_of(spec);
  const int replicas = static_cast<int>(devices.size());
  std::int64_t limit = 1;
  for (const DeviceName& device : devices) {
    limit = std::max(limit, micro_batch_limit(plan, device.traits()));
  }
  const StepSize step = step_size(spec, replicas, spec.data.batch_size, limit);
  const OptimizerSpec optimizer = make_optimizer(spec.optimizer);
  const UpdatePlan update = plan_update(optimizer, param_places(plan));
  const int buffers =
      static_cast<int>(optimizer.states.size()) + (spec.train.ema || spec.train.swa ? 1 : 0);
  if (options.json) {
    auto summary = nlohmann::ordered_json::parse(summary_json(spec, plan, replicas, buffers, step));
    for (const ParamGroup& group : update.groups) {
      summary["parameter_groups"].push_back({{"match", group.match},
                                             {"tensors", group.tensors},
                                             {"parameters", group.elements},
                                             {"lr_scale", group.lr_scale},
                                             {"weight_decay", group.weight_decay}});
    }
    fmt::print("{}\n", json_text(summary, 2));
  } else {
    fmt::print("{}{}\n", summary_text(spec, plan, replicas, buffers, step), groups_text(update));
  }
  return 0;
}

}  // namespace dpt
