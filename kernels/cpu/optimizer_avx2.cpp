// AVX2 loops of the optimizers. This file instantiates no template for plain floats: such a copy,
// made of AVX2 instructions, could be the one that the linker keeps for everyone.
#include "kernels/cpu/optimizer_avx2.h"

#include "kernels/common/optimizers/formulas.h"
#include "kernels/cpu/simd_avx2.h"

namespace dpt::optimizer_avx2 {
namespace {

constexpr int kWidth = 8;

/// Adds the squares of eight values to eight of a LayerSums' lanes.
inline void add_squares(Floats x, double* lanes) {
  // The square of a float is exact in double: fused or not, the sum has the same bits.
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
  _mm256_storeu_pd(lanes, _mm256_fmadd_pd(low, low, _mm256_loadu_pd(lanes)));
  _mm256_storeu_pd(lanes + 4, _mm256_fmadd_pd(high, high, _mm256_loadu_pd(lanes + 4)));
}

template <class Formula>
std::int64_t prepare(const UpdateStep& block, float clip, const OptimizerBuffers& buffers,
                     std::int64_t count, LayerSums& sums, bool& finite) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * clip;
  const OptimizerBuffers all = buffers;
  FiniteCheck check;
  std::int64_t i = 0;
  // Whole rounds of the lanes, so that the rest begins with the first lane.
  for (const std::int64_t end = count - count % LayerSums::kLanes; i < end; i += kWidth) {
    Floats state[kMostOptimizerStates];
    for (int s = 0; s < Formula::kStates; ++s) state[s] = load(all.states[s] + i);
    Floats a, b;
    Formula::prepare(step, load(all.params + i), load(all.grads + i) * scale, state, a, b);
    add_squares(a, sums.a + i % LayerSums::kLanes);
    add_squares(b, sums.b + i % LayerSums::kLanes);
    if (!Formula::kPreparesStates) continue;
    for (int s = 0; s < Formula::kStates; ++s) {
      store(all.states[s] + i, state[s]);
      check.look_at(state[s]);
    }
  }
  finite = finite && check.all_finite();
  return i;
}

template <class Formula>
std::int64_t update(const UpdateStep& block, float clip, float ratio,
                    const OptimizerBuffers& buffers, std::int64_t count, bool& finite) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * clip;
  // A copy that no store of this loop can change.
  const OptimizerBuffers all = buffers;
  FiniteCheck check;
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Floats param = load(all.params + i);
    Floats state[kMostOptimizerStates];
    for (int s = 0; s < Formula::kStates; ++s) state[s] = load(all.states[s] + i);
    apply_formula<Formula>(step, ratio, param, load(all.grads + i) * scale, state);
    store(all.params + i, param);
    check.look_at(param);
    if (!updates_states<Formula>()) continue;
    for (int s = 0; s < Formula::kStates; ++s) {
      store(all.states[s] + i, state[s]);
      check.look_at(state[s]);
    }
  }
  finite = finite && check.all_finite();
  return i;
}

template <class Formula>
constexpr FormulaLoops loops() {
  if constexpr (LayerwiseFormula<Formula>) return {&prepare<Formula>, &update<Formula>};
  return {nullptr, &update<Formula>};
}
template <class... Formulas>
FormulaLoops loop_of(int formula, FormulaList<Formulas...>) {
  constexpr FormulaLoops kLoops[] = {loops<Formulas>()...};
  return kLoops[formula];
}

}  // namespace

FormulaLoops loops_of(int formula) {
  return loop_of(formula, OptimizerFormulas{});
}

}  // namespace dpt::optimizer_avx2
