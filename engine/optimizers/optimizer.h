// The optimizer of a config, turned into the constants that the kernels read. The formulas are in
// kernels/common/optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "kernels/backend.h"

namespace dpt {

/// State of an optimizer: a flat buffer with the layout of the parameters.
struct OptimizerState {
  std::string name;  ///< PyTorch's name: "momentum_buffer", "exp_avg"
  float start = 0;   ///< value before the first update
};

/// Parameter group of a config. Its options replace those of the optimizer.
struct ParamGroupSpec {
  std::vector<std::string> match;  ///< patterns of parameter names
  std::optional<double> weight_decay;
  double lr_scale = 1.0;
  Where where;
};

/// An optimizer, independent of devices.
struct OptimizerSpec {
  int formula = 0;  ///< OptimizerDesc::formula
  double lr = 0;
  double weight_decay = 0;
  bool is_layerwise = false;           ///< true: each parameter has its own UpdateRange
  std::vector<OptimizerState> states;  ///< in the formula's order
  std::vector<ParamGroupSpec> groups;  ///< a parameter belongs to the first group that matches it
  /// Returns the constants of update number `step`, counted from 1. It is a pure function.
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
