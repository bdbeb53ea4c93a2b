// The Plan that evaluations run: batch norms that use running statistics are folded into the
// convolution or Linear before them, which saves a pass over memory each.
#pragma once

#include <vector>

#include "engine/graph/plan.h"

namespace dpt {

struct EvaluationPlan {
  /// Nodes and values of its own; `params` are those of the training plan, then the folded ones.
  Plan plan;
  std::vector<NormFold> folds;     ///< origins of the folded parameters (FlatKernels::fold_norms)
  std::int64_t folded_floats = 0;  ///< size of their flat buffer, in floats
};

/// Makes the evaluation plan. A layer absorbs a batch norm that is the only reader of its output,
/// then the layers that can be fused after it.
EvaluationPlan make_evaluation_plan(const Plan& training);

}  // namespace dpt
