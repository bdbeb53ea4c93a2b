#include "engine/optimizers/average.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/optimizers/formulas.h"

namespace dpt {

OptimizerDesc average_desc(std::int64_t floats) {
  OptimizerDesc desc;
  desc.formula = formula_index<AverageFormula>();
  if (floats > 0) desc.ranges.push_back({0, floats, 0});
  return desc;
}

double average_decay(double decay, std::int64_t update) {
  const auto n = static_cast<double>(update);
  return std::min(decay, (1.0 + n) / (10.0 + n));
}

std::int64_t epochs_to_average(const SwaSpec& swa, std::int64_t epochs) {
  return epochs < swa.from_epoch ? 0 : (epochs - swa.from_epoch) / swa.every + 1;
}

UpdateStep average_step(double part) {
  FormulaStep<AverageFormula> now;
  now.step.part = static_cast<float>(part);
  UpdateStep block = {};
  std::memcpy(&block, &now, sizeof(now));
  return block;
}

}  // namespace dpt
