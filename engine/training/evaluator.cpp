#include "engine/training/evaluator.h"

#include <cmath>
#include <span>

#include "engine/data/loader.h"
#include "engine/data/split.h"
#include "engine/data/target_rows.h"
#include "engine/job/run_ranks.h"
#include "kernels/common/sample_sums.h"

namespace dpt {
namespace {

/// Returns Measured::target_spread for the samples at these positions.
double target_spread(const Split& split, const std::vector<std::size_t>& positions) {
  TargetRows rows(split);
  std::vector<double> means(static_cast<std::size_t>(split.source->targets().values), 0.0);
  for (const std::size_t position : positions) {
    const std::span<const float> row = rows.values(position);
    for (std::size_t c = 0; c < means.size(); ++c) means[c] += static_cast<double>(row[c]);
  }
  for (double& mean : means) mean /= static_cast<double>(positions.size());
  double sum = 0;
  for (const std::size_t position : positions) {
    const std::span<const float> row = rows.values(position);
    for (std::size_t c = 0; c < means.size(); ++c) {
      const double off = static_cast<double>(row[c]) - means[c];
      sum += off * off;
    }
  }
  return sum;
}

/// Returns true if an evaluation of the split leaves out unreadable samples.
bool leaves_out(const Job& job, const Split& split) {
  return job.data.bad_samples && !split.source->resident() && split.source->targets().floats() == 0;
}

/// Counts the samples that were left out and gives them the label that their data has.
void count_left_out(const Split& split, EvalResult& result) {
  SampleResults& samples = result.samples;
  for (std::size_t i = 0; i < samples.left_out.size(); ++i) {
    if (!samples.left_out[i]) continue;
    ++result.unreadable;
    samples.label[i] = split.source->label(split.indices[i]);
  }
  result.n -= result.unreadable;
}

/// Values that metrics of the outputs need in addition to the sums.
struct OutputsOfSamples {
  std::span<const float> outputs;
  std::vector<float> chosen;  ///< the rows of `outputs` that count, unless all do
  std::vector<std::uint8_t> hot;
};

OutputsOfSamples outputs_of(const Job& job, const Split& split, const SampleResults& samples,
                            const std::vector<std::size_t>& positions) {
  OutputsOfSamples of;
  if (!job.model.metrics.needs_outputs()) return of;
  of.outputs = samples.outputs;
  if (positions.size() < samples.loss.size()) {
    of.chosen =
        rows_of(samples.outputs, positions, static_cast<std::size_t>(job.model.plan.classes));
    of.outputs = of.chosen;
  }
  if (job.model.loss.targets.kind == TargetKind::multi_hot) of.hot = hot_targets(split, positions);
  return of;
}

/// Computes means and metrics from the results of the samples, summed in double in sample order.
void measure(const Job& job, const Split& split, EvalResult& result) {
  if (result.n == 0) return;
  const SampleResults& samples = result.samples;
  TargetRows rows(split);
  const std::size_t sum_count = job.model.metrics.sums.size();
  const auto outputs = static_cast<double>(job.model.plan.classes);
  std::vector<double> sums(sum_count, 0.0);
  std::vector<std::int32_t> labels, predictions;
  std::vector<std::size_t> counting;
  double loss = 0, weight = 0;
  for (std::size_t i = 0; i < samples.loss.size(); ++i) {
    if (samples.left_out[i]) continue;
    const std::int32_t label = samples.label[i];
    const double own = rows.weight(i);
    loss += static_cast<double>(samples.loss[i]);
    weight += job.model.loss.weight_of(label, own);
    if (!job.model.loss.counts(label, own)) continue;
    counting.push_back(i);
    for (std::size_t k = 0; k < sum_count; ++k) {
      const auto value = static_cast<double>(samples.sums[i * sum_count + k]);
      const bool is_share = job.model.metrics.sums[k].kind == SampleSum::matches;
      // Devices return the rounded fraction of correct outputs. Add up the exact number of correct
      // outputs instead.
      sums[k] += is_share ? std::round(value * outputs) : value;
    }
    labels.push_back(label);
    predictions.push_back(samples.prediction[i]);
  }
  // The mean of a split in which no sample counts is NaN, as in PyTorch. (0 / 0 would have a sign.)
  result.loss = weight == 0 ? NAN : loss / weight;
  Measured measured;
  measured.sums = sums;
  measured.samples = static_cast<double>(labels.size());
  measured.matches_per_sample = outputs;
  measured.labels = labels;
  measured.predictions = predictions;
  measured.class_names = split.source->classes();
  measured.classes = job.model.plan.classes;
  if (split.source->targets().values > 0) {
    measured.target_spread = [&] { return target_spread(split, counting); };
  }
  const OutputsOfSamples of_samples = outputs_of(job, split, samples, counting);
  measured.outputs = of_samples.outputs;
  measured.hot = of_samples.hot;
  result.metrics = job.model.metrics.values(measured, true);
  result.accuracy = take_accuracy(result.metrics);
  for (std::size_t i = 0; i < job.model.metrics.metrics.size(); ++i) {
    const Metric& metric = job.model.metrics.metrics[i];
    const std::int64_t left_out = metric.left_out ? metric.left_out(measured) : 0;
    if (left_out > 0) result.left_out.emplace_back(metric.name, left_out);
    if (!metric.by_class) continue;
    result.by_class.emplace_back(metric.name, metric.by_class(job.model.metrics.of(i, measured)));
  }
}

}  // namespace

std::vector<std::uint8_t> hot_targets(const Split& split,
                                      const std::vector<std::size_t>& positions) {
  TargetRows rows(split);
  std::vector<std::uint8_t> hot;
  hot.reserve(positions.size() * static_cast<std::size_t>(split.source->targets().values));
  for (const std::size_t position : positions) {
    for (const float target : rows.values(position)) hot.push_back(is_hot(target) ? 1 : 0);
  }
  return hot;
}

std::vector<float> rows_of(const std::vector<float>& outputs,
                           const std::vector<std::size_t>& positions, std::size_t width) {
  std::vector<float> rows;
  rows.reserve(positions.size() * width);
  for (const std::size_t position : positions) {
    const auto row = outputs.begin() + static_cast<std::ptrdiff_t>(position * width);
    rows.insert(rows.end(), row, row + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

std::optional<EvalResult> evaluate_split_unless(const StopQuestion& wants_stop, Replica& replica,
                                                const Job& job, const Split& split,
                                                const std::string& name,
                                                const EvaluationProgress& progress) {
  Loader::Options options = loader_options(job);
  options.sampling.shuffle = false;
  Split readable = split;
  std::shared_ptr<LeftOutSamples> left_out;
  if (leaves_out(job, split)) {
    left_out = std::make_shared<LeftOutSamples>();
    readable.source = with_substitutes(split.source, split.indices, job.data.bad_samples, left_out);
  }
  Loader loader(readable, options);

  EvalResult result;
  result.split = name;
  result.n = split.size();
  result.samples = replica.evaluate(*readable.source, split.indices, loader, wants_stop,
                                    left_out.get(), progress);
  if (result.samples.interrupted) return std::nullopt;
  count_left_out(split, result);
  measure(job, split, result);
  return result;
}

EvalResult evaluate_split(Replica& replica, const Job& job, const Split& split,
                          const std::string& name, const EvaluationProgress& progress) {
  return *evaluate_split_unless({}, replica, job, split, name, progress);
}

EvalResult evaluate_on_ranks(const Job& job, const Split& split, const std::string& name,
                             const std::vector<float>& params, const EvaluationProgress& progress) {
  EvalResult result;
  run_ranks(job, [&](Backend& backend, Communicator& communicator) {
    Replica replica(backend, communicator, job);
    replica.set_params(params);
    EvalResult mine = evaluate_split(replica, job, split, name, progress);
    if (communicator.rank() == job.placement.first_rank()) result = std::move(mine);
  });
  return result;
}

const Split& split_by_name(const Job& job, const std::string& name) {
  const Split* split = name == "train"  ? &job.data.evaluated_train
                       : name == "val"  ? &job.data.splits.val
                       : name == "test" ? &job.data.splits.test
                                        : nullptr;
  if (!split) {
    fail(ErrorKind::usage, "unknown split '{}': expected train, val or test", name);
  }
  if (split->size() == 0) {
    std::string why = "the data set has no files for it";
    if (name == "val") {
      why =
          "data.val_split is 0; set it to the number of samples to hold out, or give the data set "
          "a validation set";
    } else if (job.data.splits.has_own_val && job.spec.data.dataset.type == "image_folder") {
      why +=
          "; its folder val, which was the test set in earlier releases, is the validation set: "
          "ask for val, or make it the test set with data.test=val";
    }
    fail(ErrorKind::data, "the {} split is empty: {}", name, why);
  }
  return *split;
}

}  // namespace dpt
