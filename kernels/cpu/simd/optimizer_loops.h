// The loops of an optimizer over flat buffers: templates over a pack of floats, compiled for any
// processor (optimizer.cpp) and for each instruction set.
#pragma once

#include <cstdint>

#include "kernels/common/optimizers/formulas.h"
#include "kernels/flat.h"

namespace dpt {

/// Buffers that an optimizer's loop works on, all in host memory.
struct OptimizerBuffers {
  float* params = nullptr;
  const float* grads = nullptr;
  float* states[kMaxOptimizerStates] = {};
};

/// Sums of the squares of the values that a layer-wise formula prepares. Element i goes to sum i %
/// 16, so that vectors of any width do the same additions in the same order.
struct LayerSums {
  static constexpr int kLanes = 16;
  double a[kLanes] = {}, b[kLanes] = {};
};

/// Passes of a formula over as many of the first elements of `buffers` as fill whole vectors. They
/// return the number of elements processed, at most `count`, and set `finite` to false if they
/// wrote a non-finite value.
struct FormulaLoops {
  /// Runs `prepare`; null unless the formula is layer-wise.
  std::int64_t (*prepare)(const UpdateStep& step, float clip, const OptimizerBuffers& buffers,
                          std::int64_t count, LayerSums& sums, bool& finite) = nullptr;
  /// Runs `update`; `ratio` is used by layer-wise formulas only.
  std::int64_t (*update)(const UpdateStep& step, float clip, float ratio,
                         const OptimizerBuffers& buffers, std::int64_t count,
                         bool& finite) = nullptr;
};
/// Loops of every formula, in the order of OptimizerFormulas.
extern const FormulaLoops* const kOptimizerLoopsAvx2;

/// Loops of a formula that process one pack of floats at a time. `Pack` has the types Floats and
/// FiniteCheck, kWidth, load, store and add_squares; `prepare` processes multiples of Pack::kRound
/// elements.
template <class Pack, class Formula>
struct PackLoops {
  using Floats = typename Pack::Floats;

  static std::int64_t prepare(const UpdateStep& block, float clip, const OptimizerBuffers& buffers,
                              std::int64_t count, LayerSums& sums, bool& finite) {
    const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
    const typename Formula::Step step = now.step;
    const float scale = now.gradient_sign * clip;
    const OptimizerBuffers all = buffers;
    typename Pack::FiniteCheck check;
    std::int64_t i = 0;
    // Process whole rounds of the lanes, so that the remaining elements begin at the first lane.
    for (const std::int64_t end = count - count % Pack::kRound; i < end; i += Pack::kWidth) {
      Floats state[kMaxOptimizerStates] = {};
      for (int s = 0; s < Formula::kStates; ++s) state[s] = Pack::load(all.states[s] + i);
      Floats a = {}, b = {};
      Formula::prepare(step, Pack::load(all.params + i), Pack::load(all.grads + i) * scale, state,
                       a, b);
      Pack::add_squares(a, sums.a + i % LayerSums::kLanes);
      Pack::add_squares(b, sums.b + i % LayerSums::kLanes);
      if (!Formula::kPreparesStates) continue;
      for (int s = 0; s < Formula::kStates; ++s) {
        Pack::store(all.states[s] + i, state[s]);
        check.look_at(state[s]);
      }
    }
    finite = finite && check.all_finite();
    return i;
  }

  static std::int64_t update(const UpdateStep& block, float clip, float ratio,
                             const OptimizerBuffers& buffers, std::int64_t count, bool& finite) {
    const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
    const typename Formula::Step step = now.step;
    const float scale = now.gradient_sign * clip;
    // Copy the pointers, because the compiler must assume that stores change `buffers`.
    const OptimizerBuffers all = buffers;
    typename Pack::FiniteCheck check;
    std::int64_t i = 0;
    for (; i + Pack::kWidth <= count; i += Pack::kWidth) {
      Floats param = Pack::load(all.params + i);
      Floats state[kMaxOptimizerStates] = {};
      for (int s = 0; s < Formula::kStates; ++s) state[s] = Pack::load(all.states[s] + i);
      apply_formula<Formula>(step, ratio, param, Pack::load(all.grads + i) * scale, state);
      Pack::store(all.params + i, param);
      check.look_at(param);
      if (!updates_states<Formula>()) continue;
      for (int s = 0; s < Formula::kStates; ++s) {
        Pack::store(all.states[s] + i, state[s]);
        check.look_at(state[s]);
      }
    }
    finite = finite && check.all_finite();
    return i;
  }

  static constexpr FormulaLoops both() {
    if constexpr (LayerwiseFormula<Formula>) return {&prepare, &update};
    return {nullptr, &update};
  }
};

template <class Pack, class Formulas>
struct LoopsOf;
template <class Pack, class... Formulas>
struct LoopsOf<Pack, FormulaList<Formulas...>> {
  static constexpr FormulaLoops kLoops[] = {PackLoops<Pack, Formulas>::both()...};
};
/// Loops of every formula over packs of type `Pack`.
template <class Pack>
constexpr const FormulaLoops* kOptimizerLoops = LoopsOf<Pack, OptimizerFormulas>::kLoops;

}  // namespace dpt
