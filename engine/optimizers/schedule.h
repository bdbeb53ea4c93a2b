// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/spec/train_spec.h"

namespace dpt {

/// The learning rate of update `step` (counted from 0) of a run of total_steps.
using LrSchedule = std::function<double(std::int64_t step)>;

/// `base_lr` is the optimizer's. Schedules step per epoch as torch.optim.lr_scheduler's do when
/// stepped once an epoch (`step`, `multistep`), or per step (`cosine`). Warm-up is linear from
/// start_factor * lr and multiplies the schedule; the cosine runs over the steps after warm-up.
LrSchedule make_lr_schedule(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch);

const VariantTable& schedule_table();

}  // namespace dpt
