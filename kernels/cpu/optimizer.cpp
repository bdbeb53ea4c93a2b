// The loops for any processor, which also finish what the wide loops leave.
#include "kernels/cpu/optimizer.h"

#include <cassert>

#include "kernels/base/cpu_features.h"
#include "kernels/common/optimizers/formulas.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/optimizer_avx2.h"
#include "kernels/cpu/optimizer_loops.h"

namespace dpt {
namespace {

/// 1 for NaN and infinities. An integer, so that a loop over it has no branch.
unsigned not_finite(float x) {
  return is_finite(x) ? 0U : 1U;
}

template <class Formula>
std::int64_t prepare(const UpdateStep& block, float clip, const OptimizerBuffers& buffers,
                     std::int64_t count, LayerSums& sums, bool& finite) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * clip;
  unsigned bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    float state[kMostOptimizerStates] = {};
    for (int s = 0; s < Formula::kStates; ++s) state[s] = buffers.states[s][i];
    float a = 0, b = 0;
    Formula::prepare(step, buffers.params[i], buffers.grads[i] * scale, state, a, b);
    sums.a[i % LayerSums::kLanes] += static_cast<double>(a) * static_cast<double>(a);
    sums.b[i % LayerSums::kLanes] += static_cast<double>(b) * static_cast<double>(b);
    if (!Formula::kPreparesStates) continue;
    for (int s = 0; s < Formula::kStates; ++s) {
      buffers.states[s][i] = state[s];
      bad |= not_finite(state[s]);
    }
  }
  finite = finite && bad == 0;
  return count;
}

template <class Formula>
std::int64_t update(const UpdateStep& block, float clip, float ratio,
                    const OptimizerBuffers& buffers, std::int64_t count, bool& finite) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * clip;
  unsigned bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    float state[kMostOptimizerStates] = {};
    for (int s = 0; s < Formula::kStates; ++s) state[s] = buffers.states[s][i];
    apply_formula<Formula>(step, ratio, buffers.params[i], buffers.grads[i] * scale, state);
    bad |= not_finite(buffers.params[i]);
    if (!updates_states<Formula>()) continue;
    for (int s = 0; s < Formula::kStates; ++s) {
      buffers.states[s][i] = state[s];
      bad |= not_finite(state[s]);
    }
  }
  finite = finite && bad == 0;
  return count;
}

template <class Formula>
constexpr FormulaLoops loops() {
  if constexpr (LayerwiseFormula<Formula>) return {&prepare<Formula>, &update<Formula>};
  return {nullptr, &update<Formula>};
}
template <class... Formulas>
FormulaLoops plain_loops(int formula, FormulaList<Formulas...>) {
  constexpr FormulaLoops kLoops[] = {loops<Formulas>()...};
  return kLoops[formula];
}

double sum_of(double (&lanes)[LayerSums::kLanes]) {
  for (int half = LayerSums::kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

using RatioOf = float (*)(const UpdateStep& step, LayerSums& sums);
template <class Formula>
constexpr RatioOf ratio() {
  if constexpr (LayerwiseFormula<Formula>) {
    return [](const UpdateStep& block, LayerSums& sums) {
      const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
      return Formula::ratio(now.step, sum_of(sums.a), sum_of(sums.b));
    };
  }
  return nullptr;
}
template <class... Formulas>
RatioOf ratio_of(int formula, FormulaList<Formulas...>) {
  constexpr RatioOf kRatios[] = {ratio<Formulas>()...};
  return kRatios[formula];
}

class CpuOptimizer final : public OptimizerOp {
 public:
  explicit CpuOptimizer(const OptimizerDesc& desc)
      : ranges_(desc.ranges),
        wide_(CpuFeatures::detect().avx2 ? optimizer_avx2::loops_of(desc.formula) : FormulaLoops{}),
        plain_(plain_loops(desc.formula, OptimizerFormulas{})),
        ratio_of_(ratio_of(desc.formula, OptimizerFormulas{})) {}

  void step(const OptimizerArgs& args) override {
    const auto& now = *host<const StepScalars>(args.scalars);
    auto* metrics = host<StepMetrics>(args.metrics);
    auto* guard = host<UpdateGuard>(args.guard);
    UpdateOutcome outcome = guard ? decide_update(now, *metrics, *guard) : UpdateOutcome::applied;
    if (outcome == UpdateOutcome::applied && !update_all(args, now.clip)) {
      outcome = UpdateOutcome::broken;
    }
    if (guard && outcome != UpdateOutcome::applied) {
      report_outcome(outcome, now, *metrics, *guard);
    }
  }

 private:
  /// Whether all that was written is finite.
  bool update_all(const OptimizerArgs& args, float clip) const {
    bool finite = true;
    for (const UpdateRange& range : ranges_) {
      const UpdateStep& step = host<const UpdateStep>(args.steps)[range.group];
      const OptimizerBuffers all = from(args, range.begin);
      std::int64_t done = 0;
      float ratio = 1;
      if (ratio_of_) {
        LayerSums sums;
        if (wide_.prepare) done = wide_.prepare(step, clip, all, range.count, sums, finite);
        plain_.prepare(step, clip, from(args, range.begin + done), range.count - done, sums,
                       finite);
        ratio = ratio_of_(step, sums);
        done = 0;
      }
      if (wide_.update) done = wide_.update(step, clip, ratio, all, range.count, finite);
      plain_.update(step, clip, ratio, from(args, range.begin + done), range.count - done, finite);
      if (args.params16) {
        cpu_to_bf16(host<Bf16>(args.params16) + range.begin, all.params, range.count);
      }
    }
    return finite;
  }

  static OptimizerBuffers from(const OptimizerArgs& args, std::int64_t begin) {
    OptimizerBuffers buffers;
    buffers.params = host(args.params) + begin;
    buffers.grads = host(args.grads) + begin;
    for (std::size_t s = 0; s < args.states.size(); ++s) {
      if (args.states[s]) buffers.states[s] = host(args.states[s]) + begin;
    }
    return buffers;
  }

  std::vector<UpdateRange> ranges_;
  FormulaLoops wide_, plain_;
  RatioOf ratio_of_;  ///< null for formulas of single elements
};

}  // namespace

std::unique_ptr<OptimizerOp> make_cpu_optimizer(const OptimizerDesc& desc) {
  assert(desc.formula >= 0 && desc.formula < OptimizerFormulas::kCount);
  return std::make_unique<CpuOptimizer>(desc);
}

}  // namespace dpt
