#include "engine/metrics/class_report.h"

#include <cmath>

namespace dpt {
namespace {

double quotient(double of, double by) {
  return by == 0 ? 0 : of / by;
}

}  // namespace

ClassReport make_class_report(std::span<const std::int32_t> labels,
                              std::span<const std::int32_t> predictions, std::int64_t classes) {
  ClassReport report;
  report.classes.resize(static_cast<std::size_t>(classes));
  std::vector<double> right(report.classes.size(), 0.0);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    ++report.classes[label].support;
    ++report.classes[predictions[i]].predictions;
    right[label] += labels[i] == predictions[i] ? 1 : 0;
    ++report.confusion[{labels[i], predictions[i]}];
  }
  double count = 0;
  ClassScores& macro = report.macro;
  for (std::size_t c = 0; c < report.classes.size(); ++c) {
    ClassScores& scores = report.classes[c];
    const auto support = static_cast<double>(scores.support);
    const auto predicted = static_cast<double>(scores.predictions);
    scores.precision = quotient(right[c], predicted);
    scores.recall = quotient(right[c], support);
    scores.f1 = quotient(2 * right[c], predicted + support);
    macro.support += scores.support;
    macro.predictions += scores.predictions;
    if (support + predicted == 0) continue;
    count += 1;
    macro.precision += scores.precision;
    macro.recall += scores.recall;
    macro.f1 += scores.f1;
  }
  for (double* mean : {&macro.precision, &macro.recall, &macro.f1}) {
    *mean = count == 0 ? NAN : *mean / count;
  }
  return report;
}

std::vector<CalibrationBin> calibration_bins(std::span<const std::int32_t> labels,
                                             std::span<const std::int32_t> predictions,
                                             std::span<const float> probabilities) {
  std::vector<CalibrationBin> bins(kCalibrationBins);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(probabilities[i])) return {};
    // Bounds are in fp32, like the probabilities, so that 0.2 belongs to the bin that ends with
    // 0.2.
    std::size_t place = 0;
    while (place + 1 < bins.size() &&
           probabilities[i] > static_cast<float>(place + 1) / kCalibrationBins) {
      ++place;
    }
    CalibrationBin& bin = bins[place];
    ++bin.samples;
    bin.right += labels[i] == predictions[i] ? 1 : 0;
    bin.probability += static_cast<double>(probabilities[i]);
  }
  return bins;
}

double calibration_error(std::span<const std::int32_t> labels,
                         std::span<const std::int32_t> predictions,
                         std::span<const float> probabilities) {
  const std::vector<CalibrationBin> bins = calibration_bins(labels, predictions, probabilities);
  if (bins.empty() || labels.empty()) return NAN;
  // Each bin adds |accuracy - mean probability| times its fraction of all samples.
  double sum = 0;
  for (const CalibrationBin& bin : bins) {
    sum += std::abs(static_cast<double>(bin.right) - bin.probability);
  }
  return sum / static_cast<double>(labels.size());
}

}  // namespace dpt
