// The Plan that evaluations run. Batch norms that use running statistics are folded into the
// convolution or Linear before them. Each fold saves a pass over memory.
#pragma once

#include <vector>

#include "engine/graph/plan.h"

namespace dpt {

struct EvaluationPlan {
  /// Copy of the training plan with its own nodes, and with the folded parameters after `params`.
  Plan plan;
  std::vector<NormFold> folds;     ///< origins of the folded parameters (FlatKernels::fold_norms)
  std::int64_t folded_floats = 0;  ///< size of the flat buffer of folded parameters
};

/// Makes the evaluation plan. A layer absorbs a batch norm that is the only reader of its output,
/// and then any layers that can be fused after the batch norm.
EvaluationPlan make_evaluation_plan(const Plan& training);

}  // namespace dpt
