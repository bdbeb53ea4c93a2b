#include "app/report/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "app/base/command_support.h"
#include "app/evaluate/checkpoint_choice.h"
#include "app/evaluate/model_changes.h"
#include "app/evaluate/predictions.h"
#include "app/evaluate/run_evaluation.h"
#include "app/inspect/contact_sheet.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/config/secrets.h"
#include "engine/data/split.h"
#include "engine/data/target_rows.h"
#include "engine/training/evaluator.h"
#include "kernels/base/error.h"
#include "kernels/image/encode_png.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToReport{"eval", "evaluate", "evaluated"};

/// Returns the `most` positions with the largest keys, the largest first. Positions with equal keys
/// are in ascending order. NaN counts as `nan_as`.
std::vector<std::size_t> positions_of_largest(std::vector<std::size_t> positions,
                                              std::span<const float> keys, float nan_as,
                                              std::int64_t most) {
  const auto key = [&](std::size_t position) {
    return std::isnan(keys[position]) ? nan_as : keys[position];
  };
  const auto count = std::min(static_cast<std::size_t>(most), positions.size());
  const auto end = positions.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(positions.begin(), end, positions.end(), [&](std::size_t a, std::size_t b) {
    return key(a) != key(b) ? key(a) > key(b) : a < b;
  });
  positions.resize(count);
  return positions;
}

/// Returns the first values of a row: "0.25, 1, -3, ...".
std::string values_text(std::span<const float> values) {
  constexpr std::size_t kMax = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMax, values.size()); ++i) {
    text += fmt::format("{}{:.4g}", i == 0 ? "" : ", ", values[i]);
  }
  return values.size() > kMax ? text + ", ..." : text;
}

/// Returns the predictions of the first outputs of a regression for evenly spread samples.
std::vector<ReportedScatter> scatters_of(const Split& split, const SampleResults& samples) {
  constexpr std::size_t kMaxOutputs = 4, kMaxPoints = 1500;
  const auto width = static_cast<std::size_t>(split.source->targets().values);
  std::vector<ReportedScatter> scatters(std::min(width, kMaxOutputs));
  TargetRows targets(split);
  const std::size_t n = samples.loss.size(), count = std::min(n, kMaxPoints);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t position = i * n / count;
    const std::span<const float> target = targets.values(position);
    for (std::size_t c = 0; c < scatters.size(); ++c) {
      const float output = samples.outputs[position * width + c];
      scatters[c].output = c;
      if (std::isfinite(output)) scatters[c].points.emplace_back(target[c], output);
    }
  }
  return scatters;
}

/// Chooses the reported samples of an evaluated split.
class SampleChoice {
 public:
  SampleChoice(const Job& job, const Split& split, const SampleResults& samples)
      : job_(job),
        split_(split),
        samples_(samples),
        targets_(split),
        labelled_(has_labels(job.model.loss.targets.kind)) {}

  void choose(std::int64_t most, ReportedEvaluation& to) {
    std::vector<std::size_t> counted, wrong;
    for (std::size_t i = 0; i < samples_.loss.size(); ++i) {
      if (samples_.left_out[i]) continue;
      if (labelled_ && !job_.model.loss.counts(samples_.label[i], targets_.weight(i))) continue;
      counted.push_back(i);
      if (labelled_ && samples_.label[i] != samples_.prediction[i]) wrong.push_back(i);
    }
    to.wrong = static_cast<std::int64_t>(wrong.size());
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    to.worst = described(positions_of_largest(counted, samples_.loss, kInfinity, most));
    if (!labelled_) return;
    to.most_certain = described(positions_of_largest(wrong, samples_.confidence, -kInfinity, most));
  }

 private:
  std::vector<ReportedSample> described(const std::vector<std::size_t>& positions) {
    std::vector<ReportedSample> chosen;
    for (const std::size_t position : positions) {
      ReportedSample& sample = chosen.emplace_back();
      sample.index = split_.indices[position];
      sample.file = hide_secrets(split_.source->describe(sample.index));
      sample.loss = static_cast<double>(samples_.loss[position]);
      if (labelled_) {
        const std::vector<std::string>& names = split_.source->classes();
        sample.truth = name_of(names, static_cast<std::size_t>(samples_.label[position]));
        sample.prediction = name_of(names, static_cast<std::size_t>(samples_.prediction[position]));
        sample.confidence = static_cast<double>(samples_.confidence[position]);
      } else {
        const auto width = static_cast<std::size_t>(split_.source->targets().values);
        sample.truth = values_text(targets_.values(position));
        sample.prediction =
            values_text(std::span(samples_.outputs).subspan(position * width, width));
      }
    }
    add_images(chosen);
    return chosen;
  }

  void add_images(std::vector<ReportedSample>& chosen) const {
    const SampleShape shape = job_.data.eval_input.out;
    if ((shape.c != 1 && shape.c != 3) || shape.h * shape.w < 2) return;
    std::vector<SheetImage> images;
    for (const ReportedSample& sample : chosen)
      images.push_back({sample.index, 0, sample.index, 0, {}});
    double low = 0, high = 1;
    draw_samples(*split_.source, job_.data.eval_input, {}, images, low, high);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      chosen[i].png = encode_png(images[i].image);
      chosen[i].side = std::max(shape.h, shape.w);
    }
  }

  const Job& job_;
  const Split& split_;
  const SampleResults& samples_;
  TargetRows targets_;
  bool labelled_;
};

}  // namespace

ReportedEvaluation evaluate_for_report(const std::string& folder,
                                       const ReportedEvaluationOptions& options) {
  ReportedEvaluation report;
  report.checkpoint = find_checkpoint(folder, kToReport);
  const CheckpointHeader header = read_checkpoint_header(report.checkpoint);
  EvaluationSpec config =
      spec_for_evaluation(header, report.checkpoint, options.overrides, options.devices);
  check_model_changes(report.checkpoint, config.changes, "report", false, "");
  EvaluationJob evaluation = load_evaluation(std::move(config.spec), header, "", false);
  Job& job = evaluation.job;
  report.split = evaluation.split;
  const Split& split = split_by_name(job, report.split);
  const std::string difference = difference_from_run(report.checkpoint, header, evaluation);
  if (!difference.empty()) fail(ErrorKind::data, "{}: {}", report.checkpoint, difference);
  measure_top5(job);
  job.model.keeps_confidence = has_labels(job.model.loss.targets.kind);
  job.model.keeps_outputs = !job.model.keeps_confidence;
  const Checkpoint checkpoint = load_checkpoint(report.checkpoint, job.model.plan);
  const WeightsChoice chosen = choose_weights(checkpoint, "", job.spec, report.checkpoint);
  const EvalResult result = evaluate_with_progress(job, split, report.split, *chosen.params);
  report.weights = chosen.words();
  report.step = header.state.step;
  report.n = result.n;
  report.loss = result.loss;
  report.accuracy = result.accuracy;
  report.metrics.assign(result.metrics.begin(), result.metrics.end());
  report.outputs = name_of_outputs(job.spec.loss.type);
  report.classes = evaluate_classes(job, split, result);
  report.labels = evaluate_labels(job, split, result);
  if (job.model.loss.targets.kind == TargetKind::values) {
    report.scatters = scatters_of(split, result.samples);
  }
  SampleChoice(job, split, result.samples).choose(options.samples, report);
  return report;
}

}  // namespace dpt
