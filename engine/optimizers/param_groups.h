// Parameter groups: the parts of the flat buffers that an optimizer updates with the same options.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/optimizers/optimizer.h"

namespace dpt {

/// Place of a parameter in the flat buffers.
struct ParamPlace {
  std::string name;
  std::int64_t offset = 0, count = 0;
  bool is_frozen = false;
};

/// Parameters of one group of the config, or the parameters in no group.
struct ParamGroup {
  std::vector<std::string> match;  ///< empty: the parameters in no group
  double lr_scale = 1;
  double weight_decay = 0;
  std::int64_t tensors = 0, elements = 0;
};

/// Update of a model's parameters by an optimizer.
struct UpdatePlan {
  std::vector<ParamGroup> groups;   ///< indexed by UpdateRange::group; 0: parameters in no group
  std::vector<UpdateRange> ranges;  ///< ranges of all parameters that are not frozen
  std::vector<UpdateRange> frozen;  ///< ranges of frozen parameters; their group is not used

  /// Writes the constants of update number `step` for each group.
  void fill_steps(const OptimizerSpec& spec, double lr, std::int64_t step,
                  std::span<UpdateStep> steps) const;
};

/// Makes the plan for `params`, which are in the order of their offsets. Ranges also cover the
/// padding after a parameter. Layer-wise optimizers are an exception, with one range per parameter.
/// Throws ErrorKind::usage for a pattern that matches nothing.
UpdatePlan plan_update(const OptimizerSpec& spec, std::span<const ParamPlace> params);

/// Returns a table of the groups; empty if the config has none.
std::string groups_text(const UpdatePlan& update);

}  // namespace dpt
