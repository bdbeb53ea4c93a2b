// Optimizers on flat buffers: what a config says about them, made into what the kernels read. The
// formulas stand in kernels/common/optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "kernels/backend.h"

namespace dpt {

/// A state tensor of an optimizer: a flat buffer like the parameters.
struct OptimizerState {
  std::string name;  ///< PyTorch's name: "momentum_buffer", "exp_avg"
  float start = 0;   ///< value before the first update
};

/// A parameter group as the config writes it; its options stand for the optimizer's own.
struct ParamGroupSpec {
  std::vector<std::string> match;  ///< patterns over parameters' names
  std::optional<double> weight_decay;
  double lr_scale = 1.0;
  Where where;
};

/// An optimizer without a device.
struct OptimizerSpec {
  int formula = 0;  ///< OptimizerDesc::formula
  double lr = 0;
  double weight_decay = 0;
  bool is_layerwise = false;           ///< each parameter has a range of its own
  std::vector<OptimizerState> states;  ///< in the formula's order
  std::vector<ParamGroupSpec> groups;  ///< the first one that matches a parameter is its group
  /// The constants of update number `step`, counted from 1. A pure function.
  std::function<UpdateStep(double lr, double weight_decay, std::int64_t step)> update_step;

  std::vector<std::string> state_names() const;
};

struct OptimizerKind {
  const ObjectTable* table;
  OptimizerSpec (*make)(const Variant& options);
};

const Registry<OptimizerKind>& optimizer_kinds();
OptimizerSpec make_optimizer(const Variant& options);
/// Returns the field table of ParamGroupSpec.
const ObjectTable& param_group_table();

}  // namespace dpt
