// AVX2 loops of the optimizers. This file instantiates no template for plain floats: such a copy,
// made of AVX2 instructions, could be the one that the linker keeps for everyone.
#include "kernels/cpu/optimizer_avx2.h"

#include "kernels/common/optimizers/formulas.h"
#include "kernels/cpu/simd_avx2.h"

namespace dpt::optimizer_avx2 {
namespace {

template <class Formula>
std::int64_t update(const UpdateStep& block, float clip, const OptimizerBuffers& buffers,
                    std::int64_t count, bool& finite) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * clip;
  // Copies that no store of this loop can change.
  float* const params = buffers.params;
  const float* const grads = buffers.grads;
  float* states[kMostOptimizerStates];
  for (int s = 0; s < Formula::kStates; ++s) states[s] = buffers.states[s];
  FiniteCheck check;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Floats param = load(params + i);
    Floats state[kMostOptimizerStates];
    for (int s = 0; s < Formula::kStates; ++s) state[s] = load(states[s] + i);
    Formula::update(step, param, load(grads + i) * scale, state);
    store(params + i, param);
    check.look_at(param);
    for (int s = 0; s < Formula::kStates; ++s) {
      store(states[s] + i, state[s]);
      check.look_at(state[s]);
    }
  }
  finite = finite && check.all_finite();
  return i;
}

template <class... Formulas>
UpdateLoop loop_of(int formula, FormulaList<Formulas...>) {
  constexpr UpdateLoop kLoops[] = {&update<Formulas>...};
  return kLoops[formula];
}

}  // namespace

UpdateLoop update_loop(int formula) {
  return loop_of(formula, OptimizerFormulas{});
}

}  // namespace dpt::optimizer_avx2
