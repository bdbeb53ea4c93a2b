// Optimizers on a CPU: the loops for any processor. They also handle the elements that the
// vectorised loops leave over.
#include "kernels/cpu/optimizer.h"

#include <cassert>

#include "kernels/common/update_outcome.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/simd/kernel_tables.h"
#include "kernels/cpu/simd/optimizer_loops.h"

namespace dpt {
namespace {

/// A single float, for any processor.
struct PackOf1 {
  static constexpr int kWidth = 1, kRound = 1;
  using Floats = float;
  class FiniteCheck {
   public:
    /// Checks a value without a branch, so that the loop has none.
    void look_at(float x) { bad_ |= is_finite(x) ? 0U : 1U; }
    bool all_finite() const { return bad_ == 0; }

   private:
    unsigned bad_ = 0;
  };

  static float load(const float* from) { return *from; }
  static void store(float* to, float x) { *to = x; }
  static void add_squares(float x, double* lane) {
    *lane += static_cast<double>(x) * static_cast<double>(x);
  }
};

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
        plain_(kOptimizerLoops<PackOf1>[desc.formula]),
        ratio_of_(ratio_of(desc.formula, OptimizerFormulas{})) {
    const FormulaLoops* wide = kernel_tables(CpuFeatures::detect()).optimizers;
    if (wide) wide_ = wide[desc.formula];
  }

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
  /// Returns true if all written values are finite.
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
  FormulaLoops plain_, wide_;
  RatioOf ratio_of_;  ///< null for elementwise formulas
};

}  // namespace

std::unique_ptr<OptimizerOp> make_cpu_optimizer(const OptimizerDesc& desc) {
  assert(desc.formula >= 0 && desc.formula < OptimizerFormulas::kCount);
  return std::make_unique<CpuOptimizer>(desc);
}

}  // namespace dpt
