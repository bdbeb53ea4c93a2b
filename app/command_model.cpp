// dpt model summary CONFIG: the plan as a table, without a device.
#include <algorithm>
#include <cstdio>

#include "app/catalog.h"
#include "app/commands.h"
#include "app/console.h"
#include "engine/graph/plan.h"
#include "engine/optimizers/optimizer.h"
#include "engine/spec/read_spec.h"
#include "kernels/devices.h"

namespace dpt {

namespace {

/// How many replicas the config asks for: of a list, as many as it names, whether they are here or
/// not.
int count_replicas(const TrainSpec& spec) {
  const bool is_list =
      std::none_of(spec.devices.begin(), spec.devices.end(),
                   [](const std::string& name) { return name == "auto" || name == "cuda"; });
  if (is_list) return static_cast<int>(spec.devices.size());
  if (spec.devices.front() == "cuda" && cuda_info().devices.empty()) {
    say("note: there is no GPU here: the summary is of one replica");
    return 1;
  }
  const std::int64_t shards = spec.train.shards;
  const std::int64_t most =
      shards > 0 ? std::min(spec.data.batch_size, shards) : spec.data.batch_size;
  return static_cast<int>(resolve_devices(spec.devices, most).size());
}

}  // namespace

int run_model_summary(const ModelOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const Plan plan = make_plan(spec);
  const int replicas = count_replicas(spec);
  const int buffers = static_cast<int>(make_optimizer(spec.optimizer).state_names.size());
  fmt::print("{}\n", options.json ? summary_json(spec, plan, replicas, buffers)
                                  : summary_text(spec, plan, replicas, buffers));
  return 0;
}

}  // namespace dpt
