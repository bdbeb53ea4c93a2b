#include "engine/optimizers/param_groups.h"

#include <algorithm>
#include <cassert>

#include <fmt/ranges.h>

#include "engine/config/name_patterns.h"
#include "kernels/base/align.h"

namespace dpt {
namespace {

void check_patterns(const OptimizerSpec& spec, std::span<const ParamPlace> params) {
  std::vector<std::string> names;
  for (const ParamPlace& param : params) names.push_back(param.name);
  std::string problems;
  for (const ParamGroupSpec& group : spec.groups) {
    for (const std::string& pattern : group.match) {
      const std::string problem = problem_of_pattern(pattern, names);
      if (problem.empty()) continue;
      problems += fmt::format("{}{}optimizer.groups: match: {}", problems.empty() ? "" : "\n",
                              group.where.file.empty() ? "" : group.where.text() + ": ", problem);
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::usage, problems);
}

/// Returns the number of the first group that matches, counted from 1, or 0 if none does.
std::size_t group_of(const OptimizerSpec& spec, const std::string& name) {
  const auto found =
      std::find_if(spec.groups.begin(), spec.groups.end(),
                   [&](const ParamGroupSpec& each) { return matches_any(each.match, name); });
  return found == spec.groups.end() ? 0 : static_cast<std::size_t>(found - spec.groups.begin()) + 1;
}

/// Appends a range, or extends the last range if this one continues it.
void append(std::vector<UpdateRange>& ranges, const UpdateRange& range) {
  if (!ranges.empty() && ranges.back().group == range.group &&
      ranges.back().begin + ranges.back().count == range.begin) {
    ranges.back().count += range.count;
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

UpdatePlan plan_update(const OptimizerSpec& spec, std::span<const ParamPlace> params) {
  check_patterns(spec, params);
  UpdatePlan update;
  update.groups.push_back({{}, 1, spec.weight_decay});
  for (const ParamGroupSpec& group : spec.groups) {
    update.groups.push_back(
        {group.match, group.lr_scale, group.weight_decay.value_or(spec.weight_decay)});
  }
  for (const ParamPlace& param : params) {
    const std::int64_t padded = align_up(param.count, kAlignFloats);
    if (param.is_frozen) {
      append(update.frozen, {param.offset, padded, 0});
      continue;
    }
    const std::size_t index = group_of(spec, param.name);
    ParamGroup& group = update.groups[index];
    ++group.tensors;
    group.elements += param.count;
    // Groups with equal options share one group of the update, and so their ranges.
    const auto alike =
        std::find_if(update.groups.begin(), update.groups.end(), [&](const ParamGroup& each) {
          return each.lr_scale == group.lr_scale && each.weight_decay == group.weight_decay;
        });
    const int shared = static_cast<int>(alike - update.groups.begin());
    if (spec.is_layerwise) {
      update.ranges.push_back({param.offset, param.count, shared});
    } else {
      append(update.ranges, {param.offset, padded, shared});
    }
  }
  return update;
}

void UpdatePlan::fill_steps(const OptimizerSpec& spec, double lr, std::int64_t step,
                            std::span<UpdateStep> steps) const {
  assert(step >= 1 && steps.size() == groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    steps[g] = spec.update_step(lr * groups[g].lr_scale, groups[g].weight_decay, step);
  }
}

std::string groups_text(const UpdatePlan& update) {
  std::string text;
  if (update.groups.size() > 1) {
    text += "Parameter groups:\n";
    for (std::size_t g = 1; g <= update.groups.size(); ++g) {
      const ParamGroup& group = update.groups[g % update.groups.size()];
      text += fmt::format(
          "  {}: {} tensor{}, {} elements, learning rate x {:g}, weight decay {:g}\n",
          group.match.empty() ? "all others" : fmt::format("{}", fmt::join(group.match, ", ")),
          group.tensors, group.tensors == 1 ? "" : "s", group.elements, group.lr_scale,
          group.weight_decay);
    }
  }
  return text;
}

}  // namespace dpt
