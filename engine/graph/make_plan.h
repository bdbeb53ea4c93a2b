// Builds the Plan of a TrainSpec.
#pragma once

#include "engine/config/train_spec.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Builds the plan. Throws a single ErrorKind::usage with lines such as "file:line:col: layer
/// 'conv2' ...".
Plan make_plan(const TrainSpec& spec);

}  // namespace dpt
