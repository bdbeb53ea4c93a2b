#include "engine/job/job_update.h"

#include <utility>

#include "engine/checkpoints/checkpoint.h"

namespace dpt {

std::vector<std::string> JobUpdate::state_names() const {
  std::vector<std::string> names;
  for (const OptimizerState& state : states) names.push_back(state.name);
  return names;
}

std::vector<ParamPlace> param_places(const Plan& plan) {
  std::vector<ParamPlace> places;
  for (const Param& param : plan.params) {
    if (!param.is_trained()) continue;
    places.push_back({param.name, param.offset, param.count, param.is_frozen});
  }
  return places;
}

JobUpdate make_job_update(const TrainSpec& spec, const Plan& plan, std::int64_t steps_per_epoch) {
  JobUpdate update;
  update.optimizer = make_optimizer(spec.optimizer);
  update.plan = plan_update(update.optimizer, param_places(plan));
  update.states = update.optimizer.states;
  if (spec.train.ema) update.average = kEma;
  if (spec.train.swa) update.average = kSwa;
  if (!update.average.empty()) update.states.push_back({update.average});
  update.total_steps = steps_per_epoch * spec.train.epochs;
  update.schedule = make_lr_schedule(spec, update.optimizer.lr, steps_per_epoch);
  return update;
}

bool always_measures_norm(const TrainSpec& spec) {
  const TrainSection& train = spec.train;
  // A non-finite gradient must be found before the update changes anything. In addition, clipping
  // each value would hide an infinite one.
  return train.grad_clip_norm || train.grad_clip_value ||
         train.on_divergence.policy == DivergencePolicy::skip;
}

}  // namespace dpt
