#include "engine/graph/param_places.h"

#include <algorithm>

#include "engine/layers/param_spec.h"
#include "kernels/base/align.h"

namespace dpt {
namespace {

/// Adds a running statistic to Plan::running. Extends an adjacent range with the same update rule.
void add_running(Plan& plan, const Param& param) {
  RunningRange range{param.offset, param.offset + align_up(param.count, kAlignFloats),
                     param.spec.momentum, plan.counters.begin};
  for (const int index : plan.nodes[param.node].params) {
    const Param& other = plan.params[index];
    if (other.spec.role == ParamRole::counter) range.counter = other.offset;
  }
  if (!plan.running.empty()) {
    RunningRange& last = plan.running.back();
    const bool same_rule =
        last.momentum == range.momentum && (range.momentum >= 0 || last.counter == range.counter);
    if (last.end == range.begin && same_rule) {
      last.end = range.end;
      return;
    }
  }
  plan.running.push_back(range);
}

}  // namespace

// Parameters are in the order of the nodes, so the ones that backward reaches come last.
std::int64_t gradient_begin(const Plan& plan) {
  std::int64_t first = plan.trained_floats;
  for (const Node& node : plan.nodes) {
    if (!plan.values[node.output].needs_gradient) continue;
    for (const int index : node.params) {
      const Param& param = plan.params[index];
      if (param.is_trained()) first = std::min(first, param.offset);
    }
  }
  return first;
}

void place_params(Plan& plan) {
  std::int64_t end = 0;
  const auto place = [&](ParamRole role, std::int64_t align, const auto& belongs) {
    for (Param& param : plan.params) {
      if (param.spec.role != role || !belongs(param)) continue;
      param.offset = end;
      end += align_up(param.count, align);
    }
    return end;
  };
  const auto any = [](const Param&) { return true; };
  plan.trained_floats = place(ParamRole::trained, kAlignFloats, any);
  plan.counters.begin = place(ParamRole::running, kAlignFloats, any);
  // Frozen counters come after this range, because training does not increment them.
  plan.counters.end = place(ParamRole::counter, 1, [](const Param& p) { return !p.is_frozen; });
  place(ParamRole::counter, 1, [](const Param& p) { return p.is_frozen; });
  plan.param_floats = align_up(end, kAlignFloats);
  for (const Param& param : plan.params) {
    if (param.is_trained()) plan.param_count += param.count;
    if (param.spec.role == ParamRole::running && !param.is_frozen) add_running(plan, param);
  }
}

}  // namespace dpt
