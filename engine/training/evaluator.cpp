#include "engine/training/evaluator.h"

#include <cmath>

namespace dpt {
namespace {

/// Means and metrics from the results of the samples, added up in double, in their order.
void measure(const Job& job, const DataSource& source, EvalResult& result) {
  if (result.n == 0) return;
  const SampleResults& samples = result.samples;
  const std::size_t sum_count = job.metrics.sums.size();
  std::vector<double> sums(sum_count, 0.0);
  std::vector<std::int32_t> labels, predictions;
  double loss = 0, weight = 0;
  for (std::size_t i = 0; i < samples.loss.size(); ++i) {
    const std::int32_t label = samples.label[i];
    loss += static_cast<double>(samples.loss[i]);
    weight += job.loss.weight_of(label);
    if (!job.loss.counts(label)) continue;
    for (std::size_t k = 0; k < sum_count; ++k) {
      sums[k] += static_cast<double>(samples.sums[i * sum_count + k]);
    }
    labels.push_back(label);
    predictions.push_back(samples.prediction[i]);
  }
  // Of a split without a sample that counts, a mean is not a number, as in PyTorch. (0 / 0 would be
  // one with a sign.)
  result.loss = weight == 0 ? NAN : loss / weight;
  Measured measured;
  measured.sums = sums;
  measured.samples = static_cast<double>(labels.size());
  measured.labels = labels;
  measured.predictions = predictions;
  measured.class_names = source.classes();
  measured.classes = job.plan.classes;
  result.metrics = job.metrics.values(measured, true);
  result.accuracy = take_accuracy(result.metrics);
  for (std::size_t i = 0; i < job.metrics.metrics.size(); ++i) {
    const Metric& metric = job.metrics.metrics[i];
    if (!metric.by_class) continue;
    result.by_class.emplace_back(metric.name, metric.by_class(job.metrics.of(i, measured)));
  }
}

}  // namespace

std::optional<EvalResult> evaluate_split_unless(const StopQuestion& wants_stop, Replica& replica,
                                                const Job& job, const Split& split,
                                                const std::string& name) {
  Loader::Options options = loader_options(job);
  options.shuffle = false;
  Loader loader(split, options);

  EvalResult result;
  result.split = name;
  result.n = split.size();
  result.samples = replica.evaluate(*split.source, split.indices, loader, wants_stop);
  if (result.samples.interrupted) return std::nullopt;
  measure(job, *split.source, result);
  return result;
}

EvalResult evaluate_split(Replica& replica, const Job& job, const Split& split,
                          const std::string& name) {
  return *evaluate_split_unless({}, replica, job, split, name);
}

const Split& split_by_name(const Splits& splits, const std::string& name) {
  const Split* split = name == "train"  ? &splits.train
                       : name == "val"  ? &splits.val
                       : name == "test" ? &splits.test
                                        : nullptr;
  if (!split) {
    fail(ErrorKind::usage, "unknown split '{}': expected train, val or test", name);
  }
  if (split->size() == 0) {
    fail(ErrorKind::usage, "the {} split is empty: {}", name,
         name == "val" ? "data.val_split is 0; set it to the number of samples to hold out"
                       : "the data set has no such files");
  }
  return *split;
}

}  // namespace dpt
