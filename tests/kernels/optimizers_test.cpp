// The loops of every formula on every backend: they touch only their ranges, and all give the same
// bits. tests/engine/optimizers compares them with PyTorch.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "kernels/common/optimizers/formulas.h"
#include "kernels/devices.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

constexpr std::int64_t kCount = 101;
/// Ranges with unused elements before, between and after them.
const std::vector<UpdateRange> kRanges = {{1, 4, 1}, {16, 37, 0}, {64, 36, 1}};

/// Runs a formula's update with all constants set to `constant`. Returns the content of the memory.
template <class Formula>
std::vector<std::vector<float>> update(Backend& backend, float constant) {
  std::vector<UpdateStep> steps(2);
  for (std::size_t g = 0; g < steps.size(); ++g) {
    // The constants are floats and up to two flags, which these bits make false.
    const std::vector<float> values(sizeof(UpdateStep) / sizeof(float),
                                    constant / static_cast<float>(g + 1));
    std::memcpy(&steps[g], values.data(), sizeof(UpdateStep));
  }
  const OnDevice<UpdateStep> on_device(backend, steps);
  const OnDevice<StepScalars> scalars(backend, {StepScalars{}});
  const OnDevice<float> params(backend, random_values(kCount, 1));
  const OnDevice<float> grads(backend, random_values(kCount, 2));
  std::vector<OnDevice<float>> states;
  OptimizerArgs args;
  for (int s = 0; s < Formula::kStates; ++s) {
    states.emplace_back(backend, std::vector<float>(kCount, 0.5F));
    args.states[s] = states.back().ptr();
  }
  args.params = params.ptr();
  args.grads = grads.ptr();
  args.scalars = scalars.ptr();
  args.steps = on_device.ptr();
  backend.optimizer({formula_index<Formula>(), kRanges})->step(args);
  std::vector<std::vector<float>> result = {params.get()};
  for (const OnDevice<float>& state : states) result.push_back(state.get());
  return result;
}

template <class Formula>
void check_formula() {
  CAPTURE(formula_index<Formula>());
  const std::vector<float> before = random_values(kCount, 1);
  std::vector<std::vector<float>> on_cpu;
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    const std::vector<std::vector<float>> after = update<Formula>(*backend, 0.5F);
    if (on_cpu.empty()) on_cpu = after;
    for (std::size_t i = 0; i < after.size(); ++i) CHECK(same_bits(after[i], on_cpu[i]));
    std::int64_t changed = 0, inside = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      bool in_range = false;
      for (const UpdateRange& range : kRanges) {
        in_range = in_range || (i >= range.begin && i < range.begin + range.count);
      }
      if (in_range) {
        ++inside;
        changed += after[0][at] != before[at] ? 1 : 0;
      } else {
        CHECK(after[0][at] == before[at]);
        for (std::size_t s = 1; s < after.size(); ++s) CHECK(after[s][at] == 0.5F);
      }
    }
    CHECK(changed == inside);
  }
}

template <class... Formulas>
void check_all(FormulaList<Formulas...>) {
  (check_formula<Formulas>(), ...);
}

TEST_CASE("every formula updates its ranges alike on every backend, and nothing else") {
  check_all(OptimizerFormulas{});
}

}  // namespace
}  // namespace dpt::testing
