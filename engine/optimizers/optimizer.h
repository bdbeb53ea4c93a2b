// Optimizers on flat buffers. The formulas stand in kernels/common/optimizer_math.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/fields.h"
#include "kernels/backend.h"

namespace dpt {

/// What an optimizer is, without a device: its description and the names of its state tensors
/// ("momentum_buffer"; "exp_avg", "exp_avg_sq"), each a flat buffer like the parameters.
struct OptimizerSpec {
  OptimizerDesc desc;
  double lr = 0;
  std::vector<std::string> state_names;  ///< in the order of OptimizerArgs::state1, 2, 3
};

struct OptimizerKindEntry {
  const ObjectTable* table;
  OptimizerSpec (*make)(const Variant& options);
};

std::span<const OptimizerKindEntry> optimizer_kinds();
const VariantTable& optimizer_table();
OptimizerSpec make_optimizer(const Variant& options);

/// Fills the per-step scalars (lr, bias corrections, first_step) for update number `step`, counted
/// from 1.
void fill_optimizer_scalars(const OptimizerSpec& spec, double lr, std::int64_t step,
                            StepScalars& scalars);

}  // namespace dpt
