// dpt model summary CONFIG: the plan as a table, without a device.
#include <cstdio>

#include "app/catalog.h"
#include "app/commands.h"
#include "engine/graph/plan.h"
#include "engine/optimizers/optimizer.h"
#include "engine/spec/read_spec.h"
#include "kernels/devices.h"

namespace dpt {

int run_model_summary(const ModelOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const Plan plan = make_plan(spec);
  const int replicas = static_cast<int>(resolve_devices(spec.devices, spec.data.batch_size).size());
  const int buffers = static_cast<int>(make_optimizer(spec.optimizer).state_names.size());
  fmt::print("{}\n", options.json ? summary_json(spec, plan, replicas, buffers)
                                  : summary_text(spec, plan, replicas, buffers));
  return 0;
}

}  // namespace dpt
