#include "engine/job/job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/data/data_sets.h"
#include "engine/job/objective.h"
#include "engine/metrics/metric.h"
#include "kernels/base/divide.h"

namespace dpt {

Range Job::batch_range(std::int64_t index) const {
  const std::int64_t begin = index * spec.data.batch_size;
  return {begin, std::min(begin + spec.data.batch_size, data.splits.train.size())};
}

std::int64_t Job::eval_batch() const {
  const std::vector<Node>& nodes = model.plan.nodes;
  const bool couples = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.coupling && node.coupling->in_evaluation;
  });
  if (couples) return spec.data.batch_size;
  const std::int64_t limit = placement.max_micro_batch;
  if (spec.train.accumulate <= 1) return limit;
  // Evaluate no more samples at once than training does with gradient accumulation: a larger batch
  // would not fit.
  return std::min(limit, ceil_div(spec.data.batch_size, spec.train.accumulate));
}

Loader::Options loader_options(const Job& job) {
  Loader::Options options;
  options.decoders = job.placement.decoders;
  options.prefetch = static_cast<int>(job.spec.data.prefetch);
  return options;
}

std::chrono::milliseconds stall_timeout(const TrainSpec& spec) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::lround(1000 * spec.train.stall_timeout)));
}

void measure_top5(Job& job) {
  constexpr std::int64_t kTop = 5;
  if (!has_labels(job.model.loss.targets.kind) || job.model.plan.classes <= kTop) return;
  if (job.model.metrics.sums.size() == kMaxMetricSums) return;
  // Use the default k of top_k, which is 5.
  job.spec.metrics.push_back(metric_kinds().with_defaults("top_k"));
  job.model.metrics =
      make_metrics(job.spec.metrics, {job.model.plan.classes, job.spec.loss.type,
                                      job.model.loss.has_errors, job.model.loss.targets.kind});
  job.model.loss.sums = job.model.metrics.sums;
}

Job make_job(TrainSpec spec, Plan plan, const DataSets& sets, std::string resolved_config,
             ProcessGroup* processes) {
  Job job;
  job.model.plan = std::move(plan);
  job.model.evaluation = make_evaluation_plan(job.model.plan);
  job.data = make_job_data(spec, job.model.plan, sets);
  Objective objective = make_objective(spec, job.model.plan.classes, job.data.splits);
  job.model.loss = std::move(objective.loss);
  job.model.mixed_loss = std::move(objective.mixed_loss);
  job.model.metrics = std::move(objective.metrics);
  const SampleShape input = data_requirements(spec, job.model.plan).input;
  job.data.draws = InputDraws(spec.data.transforms, input, static_cast<std::uint64_t>(spec.seed),
                              job.model.train_loss().targets);
  job.update = make_job_update(spec, job.model.plan, job.data.steps_per_epoch);
  job.placement = make_placement(spec, job.model.plan, job.data.splits.train.size(), processes);
  job.resolved_config = std::move(resolved_config);
  job.spec = std::move(spec);
  return job;
}

}  // namespace dpt
