// The updates of a Job: the optimizer, its buffers, and the learning rate of each step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/graph/plan.h"
#include "engine/optimizers/optimizer.h"
#include "engine/optimizers/param_groups.h"
#include "engine/schedules/schedule.h"

namespace dpt {

struct JobUpdate {
  OptimizerSpec optimizer;
  UpdatePlan plan;
  /// Flat training buffers other than the parameters: first the optimizer's, then the average of
  /// the weights.
  std::vector<OptimizerState> states;
  std::string average;  ///< name of the average, kEma or kSwa; empty without one
  LrSchedule schedule;
  ScheduleSegments schedule_segments;  ///< segments of `schedule`
  std::int64_t total_steps = 0;

  std::vector<std::string> state_names() const;
};

/// Makes the updates of a job. Throws ErrorKind::usage for a schedule that does not fit the run.
JobUpdate make_job_update(const TrainSpec& spec, const Plan& plan, std::int64_t steps_per_epoch);

/// Returns the parameters of a plan in the form that plan_update takes.
std::vector<ParamPlace> param_places(const Plan& plan);

/// Returns true if every update needs the norm of its gradient, not only the updates of logged
/// steps.
bool always_measures_norm(const TrainSpec& spec);

}  // namespace dpt
