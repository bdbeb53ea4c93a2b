// Metrics computed from sums over samples, their names, and invalid combinations.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/metrics/metric.h"
#include "tests/support/json_variant.h"

namespace dpt::testing {
namespace {

Variant metric(const std::string& type, const nlohmann::json& options = nlohmann::json::object()) {
  return json_variant(metric_kinds().table(), type, options);
}

const MetricContext kClasses = {3, "cross_entropy", false};
const MetricContext kValues = {3, "mse", true};
const MetricContext kHot = {3, "bce_with_logits", true, TargetKind::multi_hot};
const MetricContext kNumbers = {3, "mse", true, TargetKind::values};

}  // namespace

TEST_CASE("accuracy is the first metric; top_k, and sums in the order of the metrics") {
  const MetricSet set = make_metrics({metric("top_k", {{"k", 2}}), metric("accuracy"),
                                      metric("mean_absolute_error"), metric("top_k", {{"k", 2}})},
                                     kValues);
  REQUIRE(set.metrics.size() == 3);
  CHECK(set.sums == std::vector<MetricSum>{
                        {SampleSum::top_k, 1}, {SampleSum::top_k, 2}, {SampleSum::absolute_error}});
  const std::vector<double> sums = {2, 3, 1};
  const NamedValues want = {
      {"accuracy", 0.5}, {"accuracy_top2", 0.75}, {"mean_absolute_error", 0.25}};
  CHECK(set.values({sums, 4}, false) == want);
  // Without samples every metric is NaN.
  for (const auto& [name, value] : set.values({sums, 0}, false)) CHECK(std::isnan(value));
}

TEST_CASE("per_class_accuracy: of each class that occurs, and their mean") {
  const MetricSet set = make_metrics({metric("per_class_accuracy")}, kClasses);
  const std::vector<double> sums = {3};
  const std::vector<std::int32_t> labels = {0, 0, 0, 0, 2}, predictions = {0, 0, 1, 2, 2};
  const std::vector<std::string> names = {"cat", "dog", "emu"};
  const Measured measured = {sums, 5, labels, predictions, names, 3};
  const NamedValues want = {{"accuracy", 0.6}, {"per_class_accuracy", 0.75}};
  CHECK(set.values(measured, true) == want);
  const NamedValues classes = {{"cat", 0.5}, {"emu", 1.0}};
  CHECK(set.metrics[1].by_class(set.of(1, measured)) == classes);
  // In a training step the labels are not on the host.
  CHECK(set.values(measured, false).size() == 1);
}

TEST_CASE("r2 is scikit-learn's r2_score of the one-hot targets, variance_weighted") {
  const MetricSet set = make_metrics({metric("r2")}, kValues);
  // Predictions (0.5, 0.5, 0), (0, 1, 0), (0, 0, 0.5), (1, 0, 0).
  const std::vector<std::int32_t> labels = {0, 1, 2, 0}, predictions = {0, 1, 2, 0};
  const std::vector<double> sums = {4, (0.25 + 0.25) / 3 + 0.25 / 3};
  const NamedValues values = set.values({sums, 4, labels, predictions, {}, 3}, true);
  // Sum of squares about the means (0.5, 0.25, 0.25): 1 + 0.75 + 0.75.
  CHECK(values[1].second == doctest::Approx(1 - 0.75 / 2.5));
  const std::vector<std::int32_t> same = {1, 1, 1, 1};
  CHECK(std::isnan(set.values({sums, 4, same, predictions, {}, 3}, true)[1].second));
}

TEST_CASE("r2 of values: 1 - squared errors / squares about the mean") {
  const MetricSet set = make_metrics({metric("r2"), metric("mean_absolute_error")}, kNumbers);
  // The position of accuracy is reserved and stays empty.
  CHECK(set.sums == std::vector<MetricSum>{{SampleSum::none, 1},
                                           {SampleSum::squared_error, 1},
                                           {SampleSum::absolute_error, 1}});
  const std::vector<double> sums = {0, 0.5, 2};
  Measured measured = {sums, 4, {}, {}, {}, 3};
  measured.target_spread = [] { return 6.0; };
  const NamedValues want = {{"r2", 1 - 1.5 / 6}, {"mean_absolute_error", 0.5}};
  CHECK(set.values(measured, true) == want);
  measured.target_spread = [] { return 0.0; };
  CHECK(std::isnan(set.values(measured, true)[0].second));
}

TEST_CASE("accuracy: of multi-hot targets that of the outputs, of values none") {
  const MetricSet hot = make_metrics({metric("mean_absolute_error")}, kHot);
  CHECK(hot.sums ==
        std::vector<MetricSum>{{SampleSum::matches, 1}, {SampleSum::absolute_error, 1}});
  const std::vector<double> sums = {3, 1};
  NamedValues values = hot.values({sums, 4}, false);
  CHECK(take_accuracy(values) == 0.75);
  CHECK(values == NamedValues{{"mean_absolute_error", 0.25}});
  // Counting the right outputs needs only one division, so the result is the number nearest to
  // 0.95.
  const std::vector<double> counts = {171, 0};
  Measured counted = {counts, 60};
  counted.matches_per_sample = 3;
  CHECK(hot.values(counted, false)[0].second == 0.95);

  NamedValues none =
      make_metrics({metric("mean_absolute_error")}, kNumbers).values({sums, 4}, false);
  CHECK_FALSE(take_accuracy(none));
  CHECK(none.size() == 1);
  CHECK(make_metrics({}, kNumbers).metrics.empty());
  CHECK(has_accuracy(TargetKind::soft_labels));
  CHECK_FALSE(has_accuracy(TargetKind::values));
}

TEST_CASE("names of metrics, and which values are better") {
  CHECK(measured_names({metric("top_k"), metric("accuracy"), metric("r2")}) ==
        std::vector<std::string>{"loss", "accuracy", "accuracy_top5", "r2"});
  CHECK(better_direction("val/loss") == Direction::min);
  CHECK(better_direction("val/mean_absolute_error") == Direction::min);
  for (const char* up : {"accuracy", "accuracy_top5", "per_class_accuracy", "r2"}) {
    CHECK(better_direction(std::string("val/") + up) == Direction::max);
  }
  for (const char* wrong : {"val/acuracy", "val/accuracyx", "val/r2_score", "accuracy", "loss"}) {
    CAPTURE(wrong);
    CHECK_FALSE(better_direction(wrong));
  }
}

TEST_CASE("metrics that do not fit the model or the loss") {
  const auto error_of = [](const std::vector<Variant>& metrics,
                           const MetricContext& context = kClasses) -> std::string {
    try {
      make_metrics(metrics, context);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(error_of({metric("top_k", {{"k", 4}})}) ==
        "metrics: top_k: expected k from 1 to 3 (the model has 3 outputs), found 4");
  CHECK(error_of({metric("r2")}) ==
        "metrics: r2 is the distance of outputs from their targets: expected loss: mse, l1, "
        "smooth_l1 or bce_with_logits, found cross_entropy");
  CHECK(error_of({metric("top_k")}, kHot) ==
        "metrics: the data's targets are multi-hot targets (0 to 1 for each output): expected one "
        "of accuracy, mean_absolute_error, r2, f1, precision, recall, auroc, average_precision, "
        "found top_k, which is for class labels or soft labels (a probability for each class)");
  CHECK(error_of({metric("accuracy")}, kNumbers) ==
        "metrics: the data's targets are values (a number for each output): expected one of "
        "mean_absolute_error, r2, found accuracy, which is for class labels or soft labels (a "
        "probability for each class) or multi-hot targets (0 to 1 for each output)");
  CHECK(error_of({metric("per_class_accuracy")}, kNumbers).find("found per_class_accuracy") !=
        std::string::npos);
  std::vector<Variant> many;
  for (int k = 1; k <= 10; ++k) many.push_back(metric("top_k", {{"k", k}}));
  CHECK_THROWS_WITH_AS(
      make_metrics(many, {100, "cross_entropy", false}),
      "metrics: expected metrics with at most 9 sums in all, accuracy included, found 11", Error);
}

}  // namespace dpt::testing
