// Scores of classes and the calibration error, against values computed by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "engine/metrics/class_report.h"

namespace dpt::testing {
namespace {

using Ints = std::vector<std::int32_t>;

void check_scores(const ClassScores& got, const ClassScores& want) {
  CHECK(got.precision == doctest::Approx(want.precision).epsilon(1e-12));
  CHECK(got.recall == doctest::Approx(want.recall).epsilon(1e-12));
  CHECK(got.f1 == doctest::Approx(want.f1).epsilon(1e-12));
  CHECK(got.support == want.support);
  CHECK(got.predictions == want.predictions);
}

}  // namespace

TEST_CASE("scores of classes follow from the confusion matrix") {
  // Counts of predictions, a row per label: 2 1 0 0 0, 0 2 2 0 0, 1 0 1 0 0, 0 0 0 0 0, 0 0 0 1 0.
  const Ints labels = {0, 0, 0, 1, 1, 1, 1, 2, 2, 4};
  const Ints predictions = {0, 0, 1, 1, 1, 2, 2, 2, 0, 3};
  const ClassReport report = make_class_report(labels, predictions, 6);
  REQUIRE(report.classes.size() == 6);
  check_scores(report.classes[0], {2.0 / 3, 2.0 / 3, 2.0 / 3, 3, 3});
  check_scores(report.classes[1], {2.0 / 3, 1.0 / 2, 4.0 / 7, 4, 3});
  check_scores(report.classes[2], {1.0 / 3, 1.0 / 2, 2.0 / 5, 2, 3});
  check_scores(report.classes[3], {0, 0, 0, 0, 1});
  check_scores(report.classes[4], {0, 0, 0, 1, 0});
  check_scores(report.classes[5], {0, 0, 0, 0, 0});
  // The average is over the five classes that occur or were predicted.
  check_scores(report.macro, {5.0 / 15, 5.0 / 15, (2.0 / 3 + 4.0 / 7 + 2.0 / 5) / 5, 10, 10});
  const decltype(report.confusion) want = {{{0, 0}, 2}, {{0, 1}, 1}, {{1, 1}, 2}, {{1, 2}, 2},
                                           {{2, 0}, 1}, {{2, 2}, 1}, {{4, 3}, 1}};
  CHECK(report.confusion == want);
}

TEST_CASE("scores without samples are not numbers") {
  const ClassReport report = make_class_report({}, {}, 2);
  CHECK(std::isnan(report.macro.f1));
  CHECK(report.classes.size() == 2);
  CHECK(std::isnan(calibration_error({}, {}, {})));
}

TEST_CASE("the calibration error of bins of a fifteenth") {
  // The bins, with their right predictions and the sum of their probabilities: 2 of 3 and 2.9375 in
  // (14/15, 1]; 1 of 2 and 1 in (7/15, 8/15]; 0 of 1 and 0.25 in (3/15, 4/15]; 1 of 1 and 0.2, the
  // upper end, in (2/15, 3/15]; 0 of 2 and 0.0625 in [0, 1/15].
  const Ints labels = {0, 1, 0, 1, 1, 0, 2, 0, 0}, predictions = {0, 0, 0, 1, 0, 1, 2, 1, 1};
  const std::vector<float> probabilities = {0.9375F, 1, 1, 0.5F, 0.5F, 0.25F, 0.2F, 0, 0.0625F};
  const double want = (0.9375 + 0 + 0.25 + 0.8 + 0.0625) / 9;
  CHECK(calibration_error(labels, predictions, probabilities) ==
        doctest::Approx(want).epsilon(1e-7));
  // 0.2 and 0.25 fall into different bins; if 0.2 were in the higher bin, the sum would differ.
  const Ints more_labels = {2, 0}, more_predictions = {2, 1};
  const std::vector<float> more = {0.2F, 0.25F};
  CHECK(calibration_error(more_labels, more_predictions, more) ==
        doctest::Approx((0.8 + 0.25) / 2).epsilon(1e-7));
  // A sum of rounded exponentials may exceed 1 by one bit: it belongs to the last bin.
  const std::vector<float> above = {1, std::nextafter(1.0F, 2.0F)};
  CHECK(calibration_error(more_labels, Ints{2, 1}, above) == doctest::Approx(0.5).epsilon(1e-6));
  const std::vector<float> broken = {0.2F, NAN};
  CHECK(std::isnan(calibration_error(more_labels, more_predictions, broken)));
}

}  // namespace dpt::testing
