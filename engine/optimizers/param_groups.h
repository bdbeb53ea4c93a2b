// Parameter groups: which parts of the flat buffers an optimizer updates, and how.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/optimizers/optimizer.h"

namespace dpt {

/// A parameter's place in the flat buffers.
struct ParamPlace {
  std::string name;
  std::int64_t offset = 0, count = 0;
  bool is_frozen = false;
};

/// The parameters that a group of the config matched, or none of them.
struct ParamGroup {
  std::vector<std::string> match;  ///< empty: those that are in no group
  double lr_scale = 1;
  double weight_decay = 0;
  std::int64_t tensors = 0, elements = 0;
};

/// Update of a model's parameters by an optimizer.
struct UpdatePlan {
  std::vector<ParamGroup> groups;   ///< UpdateRange::group; the first one is the rest
  std::vector<UpdateRange> ranges;  ///< ranges of all parameters that are not frozen
  std::vector<UpdateRange> frozen;  ///< those that are; their group means nothing

  /// Writes what each group's update number `step` needs.
  void fill_steps(const OptimizerSpec& spec, double lr, std::int64_t step,
                  std::span<UpdateStep> steps) const;
};

/// `params` in the order of their offsets. Ranges also cover the padding after a parameter, but for
/// layer-wise optimizers, whose ranges are one parameter each. Throws
/// ErrorKind::usage for a pattern that matches nothing.
UpdatePlan plan_update(const OptimizerSpec& spec, std::span<const ParamPlace> params);

/// The groups as a table, and what is frozen; empty where there is nothing to say.
std::string groups_text(const UpdatePlan& update);

}  // namespace dpt
