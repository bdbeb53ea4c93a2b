// Compares losses with PyTorch's (tests/golden/make_golden_losses.py), and checks that invalid
// combinations are refused.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/losses/loss.h"
#include "kernels/devices.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/json_variant.h"
#include "tests/support/loss_runner.h"
#include "tests/support/places.h"
#include "tests/support/text.h"

namespace dpt::testing {
namespace {

using Json = nlohmann::json;
using Counts = std::vector<std::int64_t>;

const Counts kCounts = {10, 30, 0, 20};
const std::vector<std::string> kNames = {"cat", "dog", "emu", "fox"};

Loss loss_of(const std::string& type, const Json& options, std::int64_t classes = 4,
             const Counts& counts = kCounts, const TargetShape& targets = {}) {
  return make_loss(json_variant(loss_kinds().table(), type, options),
                   {classes, kNames, [&] { return counts; }, targets});
}

std::string error_of(const Json& options, std::int64_t classes = 4, const TargetShape& targets = {},
                     const std::string& type = "cross_entropy") {
  try {
    loss_of(type, options, classes, kCounts, targets);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Returns the number of outputs that are ranked above the label's output.
int rank_of(const float* logits, std::int64_t classes, std::int32_t label) {
  int rank = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    rank += logits[c] > logits[label] || (logits[c] == logits[label] && c < label) ? 1 : 0;
  }
  return rank;
}

std::vector<float> to_floats(const Json& values) {
  return values.get<std::vector<float>>();
}

TargetKind kind_named(const std::string& name) {
  return name == "soft_labels" ? TargetKind::soft_labels
         : name == "multi_hot" ? TargetKind::multi_hot
         : name == "values"    ? TargetKind::values
                               : TargetKind::class_index;
}

/// Returns the shape of the targets of a golden case.
TargetShape shape_of(const Json& each) {
  const TargetKind kind = kind_named(each.value("kind", std::string()));
  const std::int64_t classes = each["classes"];
  return {kind, kind == TargetKind::class_index ? 0 : classes, each.contains("sample_weights")};
}

/// Returns the targets' rows, including the weights.
std::vector<float> rows_of(const Json& each, std::size_t batch) {
  const TargetShape shape = shape_of(each);
  const auto width = static_cast<std::size_t>(shape.values);
  std::vector<float> rows;
  for (std::size_t k = 0; k < batch; ++k) {
    for (std::size_t c = 0; c < width; ++c) {
      rows.push_back(each["targets"][k * width + c].get<float>());
    }
    if (shape.weighted) rows.push_back(each["sample_weights"][k].get<float>());
  }
  return rows;
}

}  // namespace

TEST_CASE("losses, weights and gradients are those of PyTorch") {
  std::ifstream file(source_dir() + "/tests/golden/losses.json");
  const Json golden = Json::parse(file);
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    for (const Json& each : golden["cases"]) {
      INFO(name, ": ", each["type"].dump(), " ", each["options"].dump());
      const std::vector<float> logits = to_floats(each["logits"]);
      const auto labels = each["labels"].get<std::vector<std::int32_t>>();
      const std::int64_t classes = each["classes"];
      const auto batch = static_cast<std::int64_t>(labels.size());
      const TargetShape shape = shape_of(each);
      const Loss loss = loss_of(each["type"], each["options"], classes, kCounts, shape);
      const bool labels_exist = has_labels(shape.kind);
      // If the targets have no labels, the values given here must not be read.
      const LossTargets targets(
          labels_exist ? labels : std::vector<std::int32_t>(labels.size(), 1 << 30),
          rows_of(each, labels.size()));
      const auto own = [&](std::size_t k) {
        return shape.weighted ? each["sample_weights"][k].get<double>() : 1.0;
      };

      std::vector<float> weights;
      double weight = 0;
      for (std::size_t k = 0; k < labels.size(); ++k) {
        weights.push_back(static_cast<float>(loss.weight_of(labels[k], own(k))));
        weight += loss.weight_of(labels[k], own(k));
      }
      CHECK(weights == to_floats(each["weights"]));

      // The scale of the gradient includes the divisor, unless the loss is weighted. The divisor of
      // a weighted loss is known only after the sum.
      const auto scale =
          loss.is_weighted() ? std::nullopt : std::optional(1.0F / static_cast<float>(batch));
      std::vector<MetricSum> sums = {{SampleSum::none}};
      const bool has_rank = labels_exist && classes > 1;
      if (has_rank) {
        sums.push_back({SampleSum::top_k, 2});
        sums.push_back({SampleSum::top_k, 1});
      }
      if (loss.has_errors) {
        sums.push_back({SampleSum::absolute_error});
        sums.push_back({SampleSum::squared_error});
        sums.push_back({SampleSum::matches});
      }
      const auto op = loss.compile(*backend, {batch, classes, DType::f32, true, sums});
      const LossResult got =
          run_loss(*backend, *op, logits, targets, scale, sums.size(), loss.has_errors);
      check_close("loss per sample", got.sample_loss, each["losses"].get<std::vector<double>>(),
                  1e-6);
      CHECK(static_cast<double>(got.metrics.weight) == doctest::Approx(weight));
      CHECK(got.metrics.count.value() == static_cast<double>(batch));
      CHECK(got.metrics.mean_loss() == doctest::Approx(each["mean"].get<double>()).epsilon(1e-6));
      std::vector<double> gradient = each["gradient"].get<std::vector<double>>();
      for (double& value : gradient) value *= scale ? 1.0 : weight;
      check_close("gradient", got.gradient, gradient, 1e-6);

      double labelled = 0;
      std::vector<double> want(sums.size(), 0.0), of_samples;
      for (std::size_t k = 0; k < labels.size(); ++k) {
        const bool counts = loss.counts(labels[k], own(k));
        labelled += counts ? 1 : 0;
        const auto rank =
            rank_of(logits.data() + k * static_cast<std::size_t>(classes), classes, labels[k]);
        std::vector<double> mine = {0.0};
        if (has_rank) mine.insert(mine.end(), {rank < 2 ? 1.0 : 0.0, rank < 1 ? 1.0 : 0.0});
        if (loss.has_errors) {
          for (const char* name_of_sum : {"absolute", "squared", "matches"}) {
            mine.push_back(each[name_of_sum][k].get<double>());
          }
        }
        for (std::size_t i = 0; i < mine.size(); ++i) {
          of_samples.push_back(counts ? mine[i] : 0.0);
          want[i] += of_samples.back();
        }
      }
      check_close("sums of a sample", got.sample_sums, of_samples, 1e-6);
      std::vector<float> got_sums;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        got_sums.push_back(static_cast<float>(got.metrics.sums[i].value()));
      }
      check_close("sums", got_sums, want, 1e-6);
      CHECK(got.metrics.labelled.value() == static_cast<double>(labelled));

      // An evaluation measures the same values and leaves the logits unchanged.
      const auto eval = loss.compile(*backend, {batch, classes, DType::f32, false, sums});
      const LossResult measured =
          run_loss(*backend, *eval, logits, targets, 0.25F, sums.size(), loss.has_errors);
      CHECK(measured.outputs == got.outputs);
      if (each["type"] == "mse") CHECK(measured.outputs == logits);
      CHECK(measured.sample_sums == got.sample_sums);
      CHECK(measured.sample_loss == got.sample_loss);
      CHECK(measured.prediction == got.prediction);
      CHECK(measured.metrics.mean_loss() == got.metrics.mean_loss());
      CHECK(measured.gradient == logits);
    }
  }
}

TEST_CASE("soft labels of one class give the bits of its label") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    for (const std::int64_t classes : {4, 11, 300}) {
      const std::int64_t batch = 5;
      std::vector<float> logits = random_values(batch * classes, 7);
      for (float& value : logits) value *= 5;
      const std::vector<std::int32_t> labels = some_labels(batch, classes);
      std::vector<float> rows(logits.size(), 0.0F);
      for (std::size_t k = 0; k < labels.size(); ++k) {
        rows[k * static_cast<std::size_t>(classes) + static_cast<std::size_t>(labels[k])] = 1.0F;
      }
      for (const char* type : {"cross_entropy", "mse", "bce_with_logits"}) {
        CAPTURE(type);
        const Loss plain = loss_of(type, Json::object(), classes);
        const Loss soft = loss_of(type, Json::object(), classes, kCounts,
                                  {TargetKind::soft_labels, classes, false});
        const LossShape shape = {batch, classes, DType::f32, true};
        const LossResult want = run_loss(*backend, *plain.compile(*backend, shape), logits, labels);
        const LossResult got =
            run_loss(*backend, *soft.compile(*backend, shape), logits, {labels, rows});
        CHECK(got.sample_loss == want.sample_loss);
        CHECK(got.gradient == want.gradient);
        CHECK(got.metrics.sums[0].value() == want.metrics.sums[0].value());
      }
    }
  }
}

TEST_CASE("a sample with the weight 0 is in no sum, whatever its outputs are") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    for (const TargetShape& shape : {TargetShape{TargetKind::class_index, 0, true},
                                     {TargetKind::soft_labels, 4, true},
                                     {TargetKind::multi_hot, 4, true},
                                     {TargetKind::values, 4, true}}) {
      const bool labelled = has_labels(shape.kind);
      const Loss loss =
          loss_of(labelled ? "cross_entropy" : "mse", Json::object(), 4, kCounts, shape);
      CHECK(loss.is_weighted());
      std::vector<float> rows;
      for (const float weight : {0.5F, 0.0F, 2.0F}) {
        if (shape.values > 0) rows.insert(rows.end(), {1, 0, 0, 0});
        rows.push_back(weight);
      }
      const SampleSum sum = labelled ? SampleSum::top_k : SampleSum::matches;
      const auto op = loss.compile(*backend, {3, 4, DType::f32, true, {{sum}}});
      const LossResult got = run_loss<float>(*backend, *op, {4, 0, 0, 0, NAN, 0, 9, 0, 0, 4, 0, 0},
                                             {{0, 0, 0}, rows}, std::nullopt);
      CHECK(got.metrics.count.value() == 3);
      CHECK(got.metrics.labelled.value() == 2);
      CHECK(got.metrics.weight == 2.5F);
      CHECK(got.metrics.sums[0].value() == (labelled ? 1.0 : 1.5));
      CHECK(std::isfinite(got.metrics.loss_sum));
      CHECK(got.sample_loss[1] == 0);
      CHECK(std::vector(got.gradient.begin() + 4, got.gradient.begin() + 8) ==
            std::vector<float>(4, 0.0F));
      CHECK(got.gradient[8] != 0);
    }
  }
}

TEST_CASE("the least loss of soft labels and of multi-hot targets") {
  const std::vector<float> soft = {0.5F, 0.25F, 0.25F, 0.0F}, hot = {1.0F, 0.0F, 0.5F, 1.0F};
  const TargetShape of_soft = {TargetKind::soft_labels, 4, false};
  const Loss plain = loss_of("cross_entropy", Json::object(), 4, kCounts, of_soft);
  CHECK(plain.least(soft) == doctest::Approx(1.5 * std::log(2.0)));
  // The logits that minimise the loss give its minimum and a gradient of 0.
  const Loss weighted =
      loss_of("cross_entropy", {{"class_weights", {1.0, 2.0, 4.0, 1.0}}}, 4, kCounts, of_soft);
  const auto backend = make_backend(parse_device("cpu"));
  const LossResult got =
      run_loss<float>(*backend, *weighted.compile(*backend, {1, 4, DType::f32, true}),
                      {std::log(0.5F), std::log(0.5F), std::log(1.0F), -200.0F}, {{0}, soft}, 1.0F);
  CHECK(weighted.least(soft) ==
        doctest::Approx(static_cast<double>(got.sample_loss[0])).epsilon(1e-6));
  for (const float value : got.gradient) CHECK(std::abs(value) < 1e-6F);
  const Loss bce =
      loss_of("bce_with_logits", Json::object(), 4, kCounts, {TargetKind::multi_hot, 4, false});
  CHECK(bce.least(hot) == doctest::Approx(std::log(2.0) / 4));
  const Loss positive = loss_of("bce_with_logits", {{"pos_weight", {1.0, 1.0, 3.0, 1.0}}}, 4,
                                kCounts, {TargetKind::multi_hot, 4, false});
  CHECK(positive.least(hot) == doctest::Approx((-1.5 * std::log(0.75) - 0.5 * std::log(0.25)) / 4));
  CHECK(!loss_of("mse", Json::object(), 4, kCounts, of_soft).least);
  CHECK(!loss_of("cross_entropy", Json::object()).least);
}

TEST_CASE("targets that a loss is not of, or that do not fit the model") {
  CHECK(error_of({}, 4, {TargetKind::values, 4, false}) ==
        "loss: the data's targets are values (a number for each output): expected one of mse, l1, "
        "smooth_l1, found cross_entropy, which is for class labels or soft labels (a probability "
        "for each class) (data.target says what the targets are)");
  check_contains(
      error_of({}, 4, {TargetKind::multi_hot, 4, false}),
      "loss: the data's targets are multi-hot targets (0 to 1 for each output): expected "
      "one of bce_with_logits, mse, l1, smooth_l1, found cross_entropy");
  CHECK(error_of({}, 4, {TargetKind::values, 3, false}, "mse") ==
        "model: the data has 3 target values per sample: expected the last layer to have as many "
        "outputs, found 4");
  CHECK(error_of({{"ignore_index", 2}}, 4, {TargetKind::soft_labels, 4, false}) ==
        "loss.ignore_index: soft labels have no label to ignore: expected no ignore_index, found "
        "2; to ignore a sample, give it the weight 0");
  check_contains(error_of(Json::object(), 4, {TargetKind::values, 4, false}, "bce_with_logits"),
                 "expected one of mse, l1, smooth_l1, found bce_with_logits");
}

TEST_CASE("gradients are divided by the weight that the sums hold") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    StepMetrics metrics;
    metrics.weight = 0.3F;
    const OnDevice<StepMetrics> on_device(*backend, {metrics});
    const std::vector<float> values = random_values(37, 5);
    const OnDevice<float> grads(*backend, values);
    backend->divide_by_weight(grads.ptr(), 35, on_device.ptr());
    std::vector<float> want = values;
    for (std::size_t i = 0; i < 35; ++i) want[i] *= 1.0F / metrics.weight;
    CHECK(grads.get() == want);

    // If the sum of the weights is 0, zeros stay zeros.
    const OnDevice<StepMetrics> weightless(*backend, {StepMetrics{}});
    const OnDevice<float> zeros(*backend, std::vector<float>(37, 0.0F));
    backend->divide_by_weight(zeros.ptr(), 37, weightless.ptr());
    CHECK(zeros.get() == std::vector<float>(37, 0.0F));
  }
}

TEST_CASE("samples are counted exactly beyond what fp32 counts") {
  constexpr std::int64_t kMany = (std::int64_t{1} << 30) - 1;
  const Loss loss = loss_of("cross_entropy", {{"ignore_index", 3}});
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    const auto op =
        loss.compile(*backend, {3,
                                4,
                                DType::f32,
                                false,
                                {{SampleSum::top_k, 1}, {SampleSum::none}, {SampleSum::top_k, 2}}});
    StepMetrics before;
    for (SplitSum* sum : {&before.count, &before.labelled, &before.sums[0], &before.sums[2]}) {
      sum->add_count(kMany);
    }
    const OnDevice<StepMetrics> metrics(*backend, {before});
    // One sample is right, one is right among the top two, one has an ignored label.
    const OnDevice<float> logits(*backend, {9, 1, 0, 0, 9, 1, 0, 0, 9, 0, 0, 0});
    const OnDevice<std::int32_t> labels(*backend, {0, 1, 3}), slots(*backend, {0, 1, 2});
    LossArgs args;
    args.logits = logits.ptr();
    args.labels = labels.ptr();
    args.slots = slots.ptr();
    args.metrics = metrics.ptr();
    args.write = GradWrite::add;
    op->run(args);
    const StepMetrics got = metrics.get()[0];
    CHECK(got.count.count() == kMany + 3);
    CHECK(got.labelled.count() == kMany + 2);
    CHECK(got.sums[0].count() == kMany + 1);
    CHECK(got.sums[1].value() == 0);
    CHECK(got.sums[2].value() == static_cast<double>(kMany + 2));
  }
}

TEST_CASE("losses in bf16 are those of the rounded outputs") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    for (const char* type : {"mse", "bce_with_logits"}) {
      const Loss loss = loss_of(type, Json::object(), 5);
      std::vector<Bf16> halves;
      std::vector<float> floats;
      for (const float value : random_values(20, 3)) {
        halves.push_back(to_bf16(value));
        floats.push_back(to_float(halves.back()));
      }
      const std::vector<std::int32_t> labels = {4, 0, 1, 2};
      const auto half = loss.compile(*backend, {4, 5, DType::bf16, true});
      const auto full = loss.compile(*backend, {4, 5, DType::f32, true});
      const LossResult got = run_loss(*backend, *half, halves, labels);
      const LossResult want = run_loss(*backend, *full, floats, labels);
      CHECK(got.sample_loss == want.sample_loss);
      for (std::size_t i = 0; i < floats.size(); ++i) {
        CHECK(got.gradient[i] == to_float(to_bf16(want.gradient[i])));
      }
    }
  }
}

TEST_CASE("elementwise losses: weights that do not fit, and NaN") {
  CHECK_THROWS_WITH_AS(
      loss_of("bce_with_logits", {{"pos_weight", {1.0, 2.0}}}),
      "loss.pos_weight: expected 4 weights, one for each output of the model, found 2", Error);
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    for (const char* type : {"mse", "l1", "smooth_l1", "bce_with_logits"}) {
      CAPTURE(type);
      const auto op = loss_of(type, Json::object()).compile(*backend, {1, 4, DType::f32, true});
      const LossResult got = run_loss<float>(*backend, *op, {0, NAN, 1e30F, -1e30F}, {2});
      CHECK(std::isnan(got.metrics.loss_sum));
      CHECK(std::isnan(got.gradient[1]));
      CHECK(std::isfinite(got.gradient[3]));
    }
  }
}

TEST_CASE("cross_entropy: labels that do not count are in no sum") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    const Loss loss = loss_of("cross_entropy", {{"ignore_index", 2}});
    const auto op = loss.compile(*backend, {3, 4, DType::f32, true});
    // The prediction of the ignored second sample is right, and its logits are arbitrary.
    const LossResult got = run_loss<float>(*backend, *op, {4, 0, 0, 0, NAN, 0, 9, 0, 0, 4, 0, 0},
                                           {0, 2, 0}, std::nullopt);
    CHECK(got.metrics.count.value() == 3);
    CHECK(got.metrics.labelled.value() == 2);
    CHECK(got.metrics.weight == 2);
    CHECK(got.metrics.sums[0].value() == 1);
    CHECK(std::isfinite(got.metrics.loss_sum));
    CHECK(got.sample_loss[1] == 0);
    CHECK(std::vector(got.gradient.begin() + 4, got.gradient.begin() + 8) ==
          std::vector<float>(4, 0.0F));
    const LossResult none = run_loss(*backend, *op, std::vector<float>(12, 1.0F), {2, 2, 2});
    CHECK(none.metrics.is_weightless());
  }
}

TEST_CASE("cross_entropy: balanced weights follow the training samples") {
  const Loss loss =
      loss_of("cross_entropy", {{"class_weights", Json::array()}}, 4, {10, 30, 5, 15});
  CHECK(loss.class_weights == std::vector<float>{1.5F, 0.5F, 3.0F, 1.0F});
  const Loss some =
      loss_of("cross_entropy", {{"class_weights", Json::array()}, {"ignore_index", 2}});
  CHECK(some.class_weights == std::vector<float>{2.0F, 60.0F / 90.0F, 0.0F, 1.0F});
  CHECK_FALSE(some.counts(2));
  CHECK_FALSE(loss_of("cross_entropy", {}).is_weighted());
}

TEST_CASE("cross_entropy: options that do not fit the model or the data") {
  CHECK(error_of({{"class_weights", {1.0, 2.0}}}) ==
        "loss.class_weights: expected 4 weights, one for each output of the model, found 2");
  CHECK(error_of({{"ignore_index", 4}}) ==
        "loss.ignore_index: expected a label from 0 to 3 (the model has 4 outputs), found 4");
  CHECK(error_of({{"class_weights", Json::array()}}) ==
        "loss.class_weights: balanced gives no weight to class 2 (emu), which has no training "
        "samples; write the weights as a list, one for each of the 4 classes");
  const Variant zeros =
      json_variant(loss_kinds().table(), "cross_entropy", {{"class_weights", {0.0, 0.0}}});
  CHECK(zeros.table->check(zeros.options.get()) ==
        "class_weights: expected a weight above 0, found none");
}

}  // namespace dpt::testing
