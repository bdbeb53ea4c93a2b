// The cases of tests/golden/optimizers.json (written by tests/golden/make_golden_optimizers.py),
// and a device that holds the memory that an optimizer updates.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/optimizers/optimizer.h"
#include "tests/engine/optimizers/support.h"
#include "tests/support/backends.h"
#include "tests/support/json_variant.h"
#include "tests/support/op_runner.h"
#include "tests/support/places.h"

namespace dpt::testing {

struct GoldenCase {
  std::string name;
  OptimizerSpec spec;
  double lr = 0;
  double error = 0;                 ///< largest error of PyTorch's float32 run
  std::vector<double> first, last;  ///< weights after updates 1 and 24
};

/// Generates the same numbers as make_golden_optimizers.py.
inline float golden_uniform(std::uint32_t step, std::uint32_t place) {
  std::uint64_t mixed = (place + 1ULL) * 2654435761ULL + (step + 1ULL) * 2246822519ULL;
  mixed = ((mixed ^ (mixed >> 15)) * 3266489917ULL) & 0xFFFFFFFFULL;
  return static_cast<float>(mixed >> 8) / 8388608.0F - 1.0F;
}
inline std::vector<float> golden_values(std::uint32_t step, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = golden_uniform(step, static_cast<std::uint32_t>(i));
  }
  return values;
}

inline const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases = [] {
    std::ifstream file(source_dir() + "/tests/golden/optimizers.json");
    const auto read = nlohmann::json::parse(file);
    std::vector<GoldenCase> made;
    for (const auto& each : read["cases"]) {
      GoldenCase golden;
      const std::string type = each["type"];
      golden.name = type + " " + each["options"].dump();
      golden.spec = make_optimizer(json_variant(optimizer_kinds().table(), type, each["options"]));
      golden.lr = each["lr"];
      golden.error = each["error"];
      golden.first = each["first"].get<std::vector<double>>();
      golden.last = each["last"].get<std::vector<double>>();
      made.push_back(std::move(golden));
    }
    return made;
  }();
  return cases;
}

/// Parameters with all states on a device, and their optimizer.
class Training {
 public:
  /// `states` replaces the initial values of the states that the optimizer defines.
  Training(Backend& backend, const OptimizerSpec& spec, std::vector<UpdateRange> ranges,
           const std::vector<float>& params, const std::vector<float>& states = {})
      : spec_(spec),
        op_(backend.optimizer({spec.formula, std::move(ranges)})),
        params_(backend, params),
        grads_(backend, params),
        params16_(backend, std::vector<std::uint16_t>(params.size())),
        scalars_(backend, {StepScalars{}}),
        steps_(backend, std::vector<UpdateStep>(4)),
        metrics_(backend, {StepMetrics{}}),
        guard_(backend, {UpdateGuard{}}) {
    for (std::size_t i = 0; i < spec.states.size(); ++i) {
      const float start = states.empty() ? spec.states[i].start : states[i];
      states_.emplace_back(backend, std::vector<float>(params.size(), start));
    }
  }
  /// Creates one range over all parameters.
  Training(Backend& backend, const OptimizerSpec& spec, const std::vector<float>& params,
           const std::vector<float>& states = {})
      : Training(backend, spec, {{0, static_cast<std::int64_t>(params.size()), 0}}, params,
                 states) {}

  /// Performs update number `t`. `groups` has the learning rate and weight decay of each group.
  void step(const std::vector<float>& grads, std::int64_t t,
            const std::vector<std::pair<double, double>>& groups, const StepScalars& now = {},
            bool guarded = false) {
    std::vector<UpdateStep> steps(4);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      steps[g] = spec_.update_step(groups[g].first, groups[g].second, t);
    }
    steps_.set(steps);
    grads_.set(grads);
    scalars_.set({now});
    OptimizerArgs args;
    args.params = params_.ptr();
    args.grads = grads_.ptr();
    for (std::size_t i = 0; i < states_.size(); ++i) args.states[i] = states_[i].ptr();
    args.params16 = params16_.ptr();
    args.scalars = scalars_.ptr();
    args.steps = steps_.ptr();
    if (guarded) {
      args.metrics = metrics_.ptr();
      args.guard = guard_.ptr();
    }
    op_->step(args);
  }
  void step(const std::vector<float>& grads, std::int64_t t, double lr, float clip = 1.0F) {
    StepScalars now;
    now.clip = clip;
    step(grads, t, {{lr, spec_.weight_decay}}, now);
  }
  void guarded_step(const std::vector<float>& grads, std::int64_t t, double lr,
                    const StepScalars& now, const StepMetrics& metrics) {
    metrics_.set({metrics});
    step(grads, t, {{lr, spec_.weight_decay}}, now, true);
  }

  void clear_guard() { guard_.set({UpdateGuard{}}); }
  StepMetrics metrics() const { return metrics_.get()[0]; }
  std::int64_t bad_step() const { return guard_.get()[0].bad_step; }
  std::vector<float> params() const { return params_.get(); }
  std::size_t state_count() const { return states_.size(); }
  std::vector<float> state(std::size_t which) const { return states_[which].get(); }
  std::vector<std::uint16_t> params16() const { return params16_.get(); }

 private:
  const OptimizerSpec& spec_;
  std::unique_ptr<OptimizerOp> op_;
  OnDevice<float> params_, grads_;
  std::vector<OnDevice<float>> states_;
  OnDevice<std::uint16_t> params16_;
  OnDevice<StepScalars> scalars_;
  OnDevice<UpdateStep> steps_;
  OnDevice<StepMetrics> metrics_;
  OnDevice<UpdateGuard> guard_;
};

}  // namespace dpt::testing
