// The loops for any processor, which also finish what the wide loops leave.
#include "kernels/cpu/optimizer.h"

#include <cassert>

#include "kernels/common/optimizers/formulas.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/optimizer_avx2.h"

namespace dpt {
namespace {

/// 1 for NaN and infinities. An integer, so that a loop over it has no branch.
unsigned not_finite(float x) {
  return is_finite(x) ? 0U : 1U;
}

template <class Formula>
std::int64_t update(const UpdateStep& block, float clip, const OptimizerBuffers& buffers,
                    std::int64_t count, bool& finite) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(&block);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * clip;
  unsigned bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    float state[kMostOptimizerStates] = {};
    for (int s = 0; s < Formula::kStates; ++s) state[s] = buffers.states[s][i];
    Formula::update(step, buffers.params[i], buffers.grads[i] * scale, state);
    bad |= not_finite(buffers.params[i]);
    for (int s = 0; s < Formula::kStates; ++s) {
      buffers.states[s][i] = state[s];
      bad |= not_finite(state[s]);
    }
  }
  finite = finite && bad == 0;
  return count;
}

template <class... Formulas>
UpdateLoop plain_loop(int formula, FormulaList<Formulas...>) {
  constexpr UpdateLoop kLoops[] = {&update<Formulas>...};
  return kLoops[formula];
}

class CpuOptimizer final : public OptimizerOp {
 public:
  explicit CpuOptimizer(const OptimizerDesc& desc)
      : ranges_(desc.ranges),
        wide_(CpuFeatures::detect().avx2 ? optimizer_avx2::update_loop(desc.formula) : nullptr),
        plain_(plain_loop(desc.formula, OptimizerFormulas{})) {}

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
      OptimizerBuffers buffers = from(args, range.begin);
      const std::int64_t done = wide_ ? wide_(step, clip, buffers, range.count, finite) : 0;
      plain_(step, clip, from(args, range.begin + done), range.count - done, finite);
      if (args.params16) {
        cpu_to_bf16(host<Bf16>(args.params16) + range.begin, buffers.params, range.count);
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
  UpdateLoop wide_, plain_;
};

}  // namespace

std::unique_ptr<OptimizerOp> make_cpu_optimizer(const OptimizerDesc& desc) {
  assert(desc.formula >= 0 && desc.formula < OptimizerFormulas::kCount);
  return std::make_unique<CpuOptimizer>(desc);
}

}  // namespace dpt
