// Softmax with cross-entropy against the double-precision reference, on every backend.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/common/softmax.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

struct Outcome {
  std::vector<float> gradient, sample_loss, outputs;
  std::vector<std::int32_t> prediction;
  StepMetrics metrics;
};

/// Returns the results of a step: `value` in loss and weight, and `counts`, with 5 votes to stop.
StepMetrics metrics_of(float value, const std::vector<SplitSum>& counts) {
  StepMetrics metrics;
  metrics.loss_sum = metrics.weight = value;
  metrics.count = counts[0];
  metrics.labelled = counts[1];
  metrics.sums[0] = counts[2];
  metrics.stop_votes = 5;
  return metrics;
}

/// Runs the kernel on labels that are addressed through slots, as batches on a device are.
Outcome run(Backend& backend, const CrossEntropyDesc& d, const std::vector<float>& logits,
            const std::vector<std::int32_t>& labels, float inverse_count,
            const std::vector<float>& targets = {},
            const StepMetrics& start = metrics_of(NAN, {{NAN, NAN}, {NAN, NAN}, {NAN, NAN}}),
            GradWrite write = GradWrite::overwrite, bool in_place = false) {
  std::vector<std::int32_t> slots(labels.size()), resident(labels.size() * 2, -1);
  const std::size_t width = targets.size() / labels.size();
  std::vector<float> rows(targets.size() * 2, NAN);
  for (std::size_t k = 0; k < labels.size(); ++k) {
    slots[k] = static_cast<std::int32_t>(2 * (labels.size() - 1 - k) + 1);
    const auto slot = static_cast<std::size_t>(slots[k]);
    resident[slot] = labels[k];
    for (std::size_t i = 0; i < width; ++i) rows[slot * width + i] = targets[k * width + i];
  }
  const OnDevice<float> dense(backend, rows);
  const OnDevice<float> x(backend, logits), dx(backend, std::vector<float>(logits.size(), NAN));
  const OnDevice<float> loss(backend, std::vector<float>(labels.size(), NAN));
  const OnDevice<float> scale(backend, {inverse_count});
  const OnDevice<std::int32_t> places(backend, slots), all(backend, resident);
  const OnDevice<std::int32_t> prediction(backend, std::vector<std::int32_t>(labels.size(), -1));
  const OnDevice<StepMetrics> metrics(backend, {start});
  LossArgs args;
  args.logits = x.ptr();
  args.dlogits = in_place ? x.ptr() : dx.ptr();
  args.labels = all.ptr();
  if (width > 0) args.targets = dense.ptr();
  args.slots = places.ptr();
  args.metrics = metrics.ptr();
  args.sample_loss = loss.ptr();
  args.prediction = prediction.ptr();
  const OnDevice<float> outputs(backend, std::vector<float>(logits.size(), NAN));
  args.outputs = outputs.ptr();
  args.inverse_count = scale.ptr();
  args.write = write;
  backend.make_loss(d)->run(args);
  return {in_place ? x.get() : dx.get(), loss.get(), outputs.get(), prediction.get(),
          metrics.get()[0]};
}

std::vector<double> softmax_of(std::vector<double> logits, std::int64_t classes) {
  for (auto row = logits.begin(); row != logits.end(); row += classes) {
    const double largest = *std::max_element(row, row + classes);
    double sum = 0;
    for (auto at = row; at != row + classes; ++at) sum += * at = std::exp(*at - largest);
    for (auto at = row; at != row + classes; ++at) *at /= sum;
  }
  return logits;
}

void check(const CrossEntropyDesc& d, const std::vector<float>& logits,
           const std::vector<std::int32_t>& labels, const std::vector<float>& targets = {}) {
  const float scale = 0.25F;
  const auto want =
      reference::cross_entropy(d, to_double(logits), labels, 0.25, to_double(targets));
  for (const std::string& name : backend_names()) {
    INFO(name, ": ", d.classes, " classes, batch ", d.batch, ", smoothing ", d.label_smoothing);
    const auto backend = make_backend(parse_device(name));
    const Outcome got = run(*backend, d, logits, labels, scale, targets);
    check_close("gradient", got.gradient, want.gradient, 1e-6);
    check_close("loss per sample", got.sample_loss, want.sample_loss, 1e-6);
    check_close("outputs", got.outputs, softmax_of(to_double(logits), d.classes), 1e-6);
    CHECK(got.prediction == want.prediction);
    CHECK(static_cast<double>(got.metrics.loss_sum) ==
          doctest::Approx(want.loss_sum).epsilon(1e-6));
    CHECK(got.metrics.sums[0].value() == static_cast<double>(want.correct));
    CHECK(got.metrics.count.value() == static_cast<double>(d.batch));
    CHECK(static_cast<double>(got.metrics.weight) == doctest::Approx(want.weight).epsilon(1e-6));
    CHECK(got.metrics.labelled.value() == static_cast<double>(want.labelled));
    CHECK(got.metrics.stop_votes == 5);  // this kernel must not write it

    const Outcome in_place = run(*backend, d, logits, labels, scale, targets,
                                 metrics_of(1, {{0, 3}, {0, 4}, {0, 6}}), GradWrite::add, true);
    CHECK(in_place.gradient == got.gradient);
    CHECK(in_place.outputs == got.outputs);
    CHECK(static_cast<double>(in_place.metrics.loss_sum) ==
          doctest::Approx(want.loss_sum + 1).epsilon(1e-6));
    CHECK(in_place.metrics.sums[0].value() == static_cast<double>(want.correct + 6));
    CHECK(in_place.metrics.count.value() == static_cast<double>(d.batch + 3));
    CHECK(in_place.metrics.stop_votes == 5);

    CrossEntropyDesc inference = d;
    inference.training = false;
    const Outcome eval = run(*backend, inference, logits, labels, scale, targets);
    CHECK(eval.sample_loss == got.sample_loss);
    CHECK(eval.prediction == got.prediction);
    CHECK(std::isnan(eval.gradient[0]));
  }
}

std::vector<std::int32_t> some_labels(std::int64_t batch, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t k = 0; k < batch; ++k) {
    labels.push_back(static_cast<std::int32_t>((k * 7 + 3) % classes));
  }
  return labels;
}

TEST_CASE("cross-entropy agrees with the reference") {
  for (const std::int64_t classes : {1, 2, 10, 1000}) {
    for (const std::int64_t batch : {1, 7, 64}) {
      for (const float smoothing : {0.0F, 0.1F}) {
        CrossEntropyDesc d;
        d.batch = batch;
        d.classes = classes;
        d.label_smoothing = smoothing;
        std::vector<float> logits = random_values(batch * classes, 11);
        for (float& v : logits) v *= 6;
        check(d, logits, some_labels(batch, classes));
      }
    }
  }
}

TEST_CASE("cross-entropy of more rows than a kernel has blocks agrees with the reference") {
  CrossEntropyDesc d;
  d.batch = 513;
  d.classes = 2049;  // enough for teams of several warps
  check(d, random_values(d.batch * d.classes, 11), some_labels(d.batch, d.classes));
}

TEST_CASE("cross-entropy with class weights and an ignored label agrees with the reference") {
  for (const std::int64_t classes : {3, 10, 150, 2100}) {
    for (const float smoothing : {0.0F, 0.1F}) {
      CrossEntropyDesc d;
      d.batch = classes > 1000 ? 4 : 70;
      d.classes = classes;
      d.label_smoothing = smoothing;
      d.class_weights = random_values(classes, 17);
      for (float& v : d.class_weights) v = std::abs(v) + 0.1F;
      const std::vector<float> logits = random_values(d.batch * classes, 11);
      check(d, logits, some_labels(d.batch, classes));
      d.ignore_index = some_labels(2, classes)[1];
      check(d, logits, some_labels(d.batch, classes));
    }
  }
}

TEST_CASE("cross-entropy of soft labels and of weighted samples agrees with the reference") {
  for (const std::int64_t classes : {1, 3, 10, 150, 2100}) {
    for (const float smoothing : {0.0F, 0.1F}) {
      for (const bool weighted : {false, true}) {
        CrossEntropyDesc d;
        d.batch = classes > 1000 ? 4 : 70;
        d.classes = classes;
        d.label_smoothing = smoothing;
        d.targets = {TargetKind::soft_labels, classes, weighted};
        std::vector<std::int32_t> labels;
        std::vector<float> rows, weights;
        for (std::int64_t k = 0; k < d.batch; ++k) {
          std::vector<float> row = random_values(classes, 100 + static_cast<std::uint64_t>(k));
          float sum = 0;
          for (float& v : row) sum += v = std::max(v, 0.0F);  // half of them are 0
          row[0] += sum == 0 ? 1.0F : 0.0F;
          for (const float v : row) rows.push_back(v / std::max(sum, row[0]));
          labels.push_back(
              static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
          weights.push_back(static_cast<float>(k % 4) / 2);
          if (weighted) rows.push_back(weights.back());
        }
        const std::vector<float> logits = random_values(d.batch * classes, 11);
        check(d, logits, labels, rows);
        d.class_weights = random_values(classes, 17);
        for (float& v : d.class_weights) v = std::abs(v) + 0.1F;
        check(d, logits, labels, rows);
        if (!weighted) continue;
        d.targets = {TargetKind::class_index, 0, true};
        check(d, logits, labels, weights);
      }
    }
  }
}

TEST_CASE("losses refuse targets that they are not made for") {
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    CrossEntropyDesc d;
    d.batch = 2;
    d.classes = 3;
    d.targets = {TargetKind::values, 3, false};
    CHECK_THROWS_AS(backend->make_loss(d), Error);
    d.targets = {TargetKind::soft_labels, 2, false};
    CHECK_THROWS_AS(backend->make_loss(d), Error);
    ElementLossDesc e;
    e.batch = 2;
    e.classes = 3;
    e.targets = {TargetKind::values, 3, false};
    CHECK_THROWS_WITH_AS(backend->make_loss(e),
                         doctest::Contains("targets without labels have no accuracy"), Error);
  }
}

TEST_CASE("class weights of 1 give the bits of none") {
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    for (const float smoothing : {0.0F, 0.1F}) {
      CrossEntropyDesc d;
      d.batch = 9;
      d.classes = 10;
      d.label_smoothing = smoothing;
      const std::vector<float> logits = random_values(d.batch * d.classes, 11);
      const Outcome plain = run(*backend, d, logits, some_labels(9, 10), 0.25F);
      d.class_weights.assign(10, 1.0F);
      const Outcome weighted = run(*backend, d, logits, some_labels(9, 10), 0.25F);
      CHECK(weighted.gradient == plain.gradient);
      CHECK(weighted.sample_loss == plain.sample_loss);
    }
  }
}

TEST_CASE("cross-entropy of huge logits neither overflows nor loses the gradient") {
  CrossEntropyDesc d;
  d.batch = 4;
  d.classes = 3;
  check(d, {1e30F, -1e30F, 0, 88, 89, 90, -500, -501, -502, 3e38F, 3e38F, -3e38F}, {0, 2, 1, 1});
}

TEST_CASE("the first of equal logits is the prediction") {
  CrossEntropyDesc d;
  d.batch = 2;
  d.classes = 4;
  check(d, {1, 3, 3, 2, 0, 0, 0, 0}, {2, 0});
}

TEST_CASE("a logit that is not a number makes the loss not a number") {
  CrossEntropyDesc d;
  d.batch = 3;
  d.classes = 3;
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    const Outcome got = run(*backend, d, {NAN, 0, 1, 0, NAN, 1, 0, inf, 1}, {1, 1, 1}, 1);
    for (const float loss : got.sample_loss) CHECK(std::isnan(loss));
    for (const float g : got.gradient) CHECK(std::isnan(g));
    CHECK(std::isnan(got.metrics.loss_sum));
  }
}

TEST_CASE("our exponential errs by less than 2^-22, and not at 0") {
  CHECK(exp_nonpositive(0.0F) == 1.0F);
  CHECK(exp_nonpositive(-0.0F) == 1.0F);
  CHECK(exp_nonpositive(-88.0F) == 0.0F);
  CHECK(exp_nonpositive(-std::numeric_limits<float>::infinity()) == 0.0F);
  CHECK(std::isnan(exp_nonpositive(NAN)));
  double worst = 0;
  for (float x = 0.0F; x > -87.0F; x -= 0.0007F) {
    const double want = std::exp(static_cast<double>(x));
    const double got = static_cast<double>(exp_nonpositive(x));
    worst = std::max(worst, std::abs(got / want - 1));
  }
  CHECK(worst < std::ldexp(1.0, -22));
}

}  // namespace
}  // namespace dpt::testing
