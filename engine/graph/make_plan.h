// Builds the Plan of a TrainSpec.
#pragma once

#include "engine/config/train_spec.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Builds the plan. Throws one ErrorKind::usage whose lines are "file:line:col: layer 'conv2' ...".
Plan make_plan(const TrainSpec& spec);

}  // namespace dpt
