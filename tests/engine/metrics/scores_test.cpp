// F1, precision, recall, AUROC and average precision equal scikit-learn's.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/metrics/label_counts.h"
#include "engine/metrics/metric.h"
#include "engine/metrics/ranking.h"
#include "tests/support/json_variant.h"
#include "tests/support/places.h"

namespace dpt::testing {
namespace {

using Json = nlohmann::json;

constexpr float kSteps = 16;

/// A case of the golden file, in the form that metrics receive from an evaluation.
struct Case {
  explicit Case(const Json& json) : classes(json["classes"]) {
    for (const float output : json["outputs"].get<std::vector<float>>()) {
      outputs.push_back(output / kSteps);
    }
    const std::size_t samples = outputs.size() / static_cast<std::size_t>(classes);
    labels.resize(samples);
    predictions.resize(samples);
    is_hot = json.contains("hot");
    if (is_hot) {
      hot = json["hot"].get<std::vector<std::uint8_t>>();
      for (const double threshold : json["threshold"].get<std::vector<double>>()) {
        thresholds.push_back(threshold / static_cast<double>(kSteps));
      }
    } else {
      labels = json["labels"].get<std::vector<std::int32_t>>();
      predictions = json["predictions"].get<std::vector<std::int32_t>>();
    }
    for (std::int64_t c = 0; c < classes; ++c) names.push_back(std::to_string(c));
  }

  Measured measured() const {
    Measured of;
    of.sums = sums;
    of.samples = static_cast<double>(labels.size());
    of.labels = labels;
    of.predictions = predictions;
    of.class_names = names;
    of.classes = classes;
    of.outputs = outputs;
    of.hot = hot;
    return of;
  }

  Metric metric(const std::string& type, const std::string& average) const {
    Json options = {{"average", average}};
    if (is_hot && type != "auroc" && type != "average_precision") options["threshold"] = thresholds;
    const MetricContext context = {classes, is_hot ? "bce_with_logits" : "cross_entropy", is_hot,
                                   is_hot ? TargetKind::multi_hot : TargetKind::class_index};
    MetricSet set = make_metrics({json_variant(metric_kinds().table(), type, options)}, context);
    CHECK(set.metrics[1].name == average + "_" + type);
    CHECK_FALSE(set.metrics[1].in_training);
    return set.metrics[1];
  }

  std::int64_t classes;
  bool is_hot = false;
  std::vector<float> outputs;
  std::vector<std::uint8_t> hot;
  std::vector<std::int32_t> labels, predictions;
  std::vector<double> thresholds, sums = {0};
  std::vector<std::string> names;
};

std::vector<Json> cases() {
  std::ifstream file(source_dir() + "/tests/golden/scores.json");
  return Json::parse(file).get<std::vector<Json>>();
}

void check_near(double got, const Json& want) {
  if (want.is_null()) {
    CHECK(std::isnan(got));
  } else {
    CHECK(std::abs(got - want.get<double>()) < 1e-6);
  }
}

}  // namespace

TEST_CASE("scores of classes and labels are those of scikit-learn") {
  const std::vector<Json> all = cases();
  REQUIRE(all.size() == 200);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Case each(all[i]);
    for (const auto& [type, averages] : all[i]["values"].items()) {
      INFO("case ", i, ": ", type);
      for (const char* average : {"macro", "micro"}) {
        check_near(each.metric(type, average).value(each.measured()), averages[average]);
      }
      const Metric metric = each.metric(type, "per_class");
      check_near(metric.value(each.measured()), averages["macro"]);
      NamedValues want;
      std::int64_t left_out = 0;
      for (std::size_t c = 0; c < averages["per_class"].size(); ++c) {
        const Json& value = averages["per_class"][c];
        if (value.is_null()) ++left_out;
        if (!value.is_null()) want.emplace_back(std::to_string(c), value.get<double>());
      }
      const NamedValues got = metric.by_class(each.measured());
      REQUIRE(got.size() == want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        CHECK(got[k].first == want[k].first);
        CHECK(std::abs(got[k].second - want[k].second) < 1e-6);
      }
      if (type == "auroc") CHECK(metric.left_out(each.measured()) == left_out);
    }
  }
}

TEST_CASE("the best threshold of a label has the largest F1 of all") {
  for (const Json& json : cases()) {
    if (!json.contains("hot")) continue;
    const Case each(json);
    const auto classes = static_cast<std::size_t>(each.classes);
    std::vector<double> thresholds(classes, 0.5);
    for (std::size_t c = 0; c < classes; ++c) {
      std::vector<float> positives;
      for (std::size_t at = c; at < each.hot.size(); at += classes) {
        if (each.hot[at] != 0) positives.push_back(each.outputs[at]);
      }
      Ranking ranking(std::move(positives));
      for (std::size_t at = c; at < each.hot.size(); at += classes) {
        if (each.hot[at] == 0) ranking.add_negative(each.outputs[at]);
      }
      const Ranking::Threshold best = ranking.best_threshold();
      check_near(best.f1, json["best_f1"][c]);
      if (!std::isnan(best.f1)) thresholds[c] = best.threshold;
    }
    const std::vector<LabelCounts> counts = count_labels(each.measured(), thresholds);
    for (std::size_t c = 0; c < classes; ++c) {
      if (!json["best_f1"][c].is_null()) check_near(counts[c].f1(), json["best_f1"][c]);
    }
  }
}

TEST_CASE("a threshold lies between neighbouring scores, also where fp32 has none between") {
  const auto best = [](const std::vector<float>& positives, const std::vector<float>& negatives) {
    Ranking ranking(positives);
    for (const float score : negatives) ranking.add_negative(score);
    return ranking.best_threshold();
  };
  CHECK(best({0.75F, 0.5F}, {0.25F}).threshold == 0.375);
  CHECK(best({0.75F, 0.5F}, {}).threshold == 0.25);
  CHECK(best({0.0F}, {}).threshold < 0);
  const float above = std::nextafter(0.5F, 1.0F);
  CHECK(static_cast<float>(best({above}, {0.5F}).threshold) == 0.5F);
  CHECK(best({above}, {0.5F}).f1 == 1);
  // {1} and all four scores have the same F1: the higher threshold is chosen.
  CHECK(best({1.0F, 0.125F}, {0.5F, 0.25F}).threshold == 0.75);
}

TEST_CASE("a ranking of scores that are not numbers, or of nothing, is not a number") {
  Ranking nan({std::numeric_limits<float>::quiet_NaN()});
  nan.add_negative(0);
  CHECK(std::isnan(nan.area()));
  CHECK(std::isnan(nan.average_precision()));
  CHECK(std::isnan(nan.best_threshold().f1));
  Ranking negative({0.5F});
  negative.add_negative(std::numeric_limits<float>::quiet_NaN());
  CHECK(std::isnan(negative.area()));
  CHECK(std::isnan(Ranking({0.5F}).area()));
  CHECK(std::isnan(Ranking({}).area()));
  CHECK(Ranking({}).average_precision() == 0);
}

TEST_CASE("names of averaged metrics, and options that do not fit") {
  const auto metric = [](const std::string& type, const Json& options) {
    return json_variant(metric_kinds().table(), type, options);
  };
  const MetricContext classes = {3, "cross_entropy", false, TargetKind::class_index};
  const MetricContext hot = {3, "bce_with_logits", true, TargetKind::multi_hot};
  const auto error_of = [](const std::vector<Variant>& metrics, const MetricContext& context) {
    try {
      make_metrics(metrics, context);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK(measured_names({metric("f1", Json::object()), metric("auroc", {{"average", "micro"}}),
                        metric("average_precision", {{"average", "per_class"}})}) ==
        std::vector<std::string>{"loss", "accuracy", "macro_f1", "micro_auroc",
                                 "per_class_average_precision"});
  for (const char* up : {"macro_f1", "per_class_precision", "micro_recall", "macro_auroc",
                         "macro_average_precision"}) {
    CHECK(better_direction(std::string("val/") + up) == Direction::max);
  }
  for (const char* wrong : {"val/f1", "val/macro_accuracy", "val/macro_", "val/micro_f1x"}) {
    CAPTURE(wrong);
    CHECK_FALSE(better_direction(wrong));
  }
  CHECK(error_of({metric("f1", {{"threshold", {0.5}}})}, classes)
            .find("expected no threshold, found 0.5") != std::string::npos);
  CHECK(error_of({metric("f1", {{"threshold", {0.5, 0.25}}})}, hot)
            .find("expected one number, or 3, one for each output of the model, found 2") !=
        std::string::npos);
  CHECK(error_of({metric("f1", {{"threshold", {0.5}}}), metric("f1", {{"threshold", {0.25}}})}, hot)
            .find("found two with the name macro_f1") != std::string::npos);
  CHECK(error_of({metric("f1", {{"threshold", {0.25}}}), metric("recall", {{"threshold", {0.5}}})},
                 hot)
            .empty());
  CHECK(thresholds_of({metric("auroc", Json::object()), metric("f1", {{"threshold", {0.25}}})}) ==
        std::vector<double>{0.25});
  // An evaluation gathers the outputs only for metrics that need them.
  CHECK_FALSE(make_metrics({metric("f1", Json::object())}, classes).needs_outputs());
  CHECK(make_metrics({metric("f1", Json::object())}, hot).needs_outputs());
  CHECK(make_metrics({metric("auroc", Json::object())}, classes).needs_outputs());
}

}  // namespace dpt::testing
