// The place where a step became non-finite: found in nets built for it, and reported in sentences.
#include "engine/training/diagnosis.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/common/augment.h"

#include "engine/job/starting_point.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

using Place = Diagnosis::Place;

/// Returns a job with 12 samples in one batch and a net of two linear layers.
Job two_layers(const std::string& optimizer = kSgdWithoutDecay) {
  return small_job(R"(
name: two
data: {dataset: synthetic, size: 12, test_size: 0, classes: 3, batch_size: 12}
model:
  input: [1, 4, 4]
  layers:
    - {type: Flatten}
    - {type: Linear, name: a, out_features: 5}
    - {type: ReLU}
    - {type: Linear, name: b, out_features: 3}
optimizer: )" + optimizer +
                       R"(
train: {epochs: 1}
)",
                   {cpus(1)});
}

/// A source in which every float has the same value.
class Constant : public Unresident {
 public:
  Constant(std::shared_ptr<const DataSource> source, float value)
      : Unresident(std::move(source)), value_(value) {}
  DType type() const override { return DType::f32; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    std::vector<std::byte> raw(pixels.size() / sizeof(float));
    Unresident::read(index, raw, label);
    const std::vector<float> values(raw.size(), value_);
    std::copy_n(std::as_bytes(std::span(values)).begin(), pixels.size(), pixels.begin());
  }

 private:
  float value_;
};

/// A source of ones, with one NaN in the upper left corner.
class BadCorner : public Constant {
 public:
  explicit BadCorner(std::shared_ptr<const DataSource> source) : Constant(std::move(source), 1) {}
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    Constant::read(index, pixels, label);
    std::copy_n(std::as_bytes(std::span(&kNaN, 1)).begin(), sizeof(kNaN), pixels.begin());
  }

 private:
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
};

void scale(const Job& job, std::vector<float>& params, const std::string& name, float factor) {
  for (const Param& param : job.model.plan.params) {
    if (param.name != name) continue;
    for (std::int64_t i = 0; i < param.count; ++i) {
      params[param.offset + i] *= factor;
    }
  }
}

Diagnosis look(const Job& job, const std::vector<float>& params,
               UpdateOutcome outcome = UpdateOutcome::refused,
               const std::vector<std::pair<std::string, std::vector<float>>>& optimizer = {},
               std::int64_t epoch = 0) {
  StepResult result;
  result.step = 1;
  result.metrics.count.add_count(12);
  result.metrics.weight = 12;
  result.outcome = outcome;
  const auto backend = make_backend(job.placement.devices[0], {});
  return diagnose(*backend, job, BadStep(result, epoch, {0, 12}), params, optimizer);
}

}  // namespace

TEST_CASE("a step that is finite for each sample alone arises in the sum") {
  const Job job = two_layers();
  const Diagnosis found = look(job, fresh_start(job).params);
  CHECK(found.place == Place::unknown);
  CHECK(found.samples.empty());
  CHECK(found.layer.empty());
  std::vector<std::int64_t> batch = found.batch;
  std::sort(batch.begin(), batch.end());
  std::vector<std::int64_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  CHECK(batch == all);
}

TEST_CASE("an output: the first layer in the order of forward") {
  const Job job = two_layers();
  std::vector<float> params = fresh_start(job).params;
  scale(job, params, "b.bias", INFINITY);
  Diagnosis found = look(job, params);
  CHECK(found.place == Place::output);
  CHECK(found.layer == "b");
  CHECK(found.samples.size() == 12);
  scale(job, params, "a.bias", NAN);
  found = look(job, params);
  CHECK(found.layer == "a");
  CHECK(found.parameter.empty());
}

TEST_CASE("a loss whose logits are finite") {
  const Job job = two_layers();
  std::vector<float> params = fresh_start(job).params;
  for (const Param& param : job.model.plan.params) {
    const auto at = static_cast<std::size_t>(param.offset);
    std::fill_n(params.begin() + param.offset, param.count, 0.0F);
    if (param.name == "b.bias") params[at] = 3e38F, params[at + 1] = params[at + 2] = -3e38F;
  }
  const Diagnosis found = look(job, params);
  CHECK(found.place == Place::loss);
  CHECK(found.layer.empty());
  // The samples of the two classes to which the net gives probability zero.
  CHECK(found.samples.size() > 0);
  CHECK(found.samples.size() < 12);
}

TEST_CASE("a gradient whose loss is finite: the last layer's parameter that has one") {
  Job job = two_layers();
  const auto source = std::make_shared<Constant>(job.data.splits.train.source, 1e38F);
  job.data.splits.train.source = source;
  job.data.train_input.raw_type = DType::f32;
  std::vector<float> params = fresh_start(job).params;
  // Some hidden units are active; in the first layer, their gradients are the input times a large
  // factor.
  scale(job, params, "a.weight", 1e-38F);
  scale(job, params, "b.weight", 1e3F);
  const Diagnosis found = look(job, params);
  CHECK(found.place == Place::gradient);
  CHECK(found.layer == "a");
  CHECK(found.parameter == "a.weight");
  CHECK(found.samples.size() > 0);
}

TEST_CASE("the gradient of a sample is scaled as in the step, by the size of the batch") {
  Job job = two_layers();
  job.data.splits.train.source = std::make_shared<Constant>(job.data.splits.train.source, 1e36F);
  job.data.train_input.raw_type = DType::f32;
  std::vector<float> params = fresh_start(job).params;
  scale(job, params, "a.weight", 1e-36F);
  // Gradients in the first layer reach 3e38: 2 / 12 from the loss, times weights up to 0.45, times
  // 4000, times the input of 1e36.
  scale(job, params, "b.weight", 4000);
  CHECK(look(job, params).place == Place::unknown);
  // The gradients are 12 times as large, as if they were not divided by the size of the batch.
  scale(job, params, "b.weight", 12);
  CHECK(look(job, params).place == Place::gradient);
}

TEST_CASE("a sample is looked at as its epoch has drawn it") {
  Job job = two_layers();
  job.data.splits.train.source = std::make_shared<BadCorner>(job.data.splits.train.source);
  job.data.train_input.raw_type = DType::f32;
  job.data.train_input.crop = true;
  job.data.train_input.crop_padding = 2;
  const std::vector<float> params = fresh_start(job).params;
  std::set<std::vector<std::int64_t>> different;
  for (const std::int64_t epoch : {0, 1, 2}) {
    CAPTURE(epoch);
    const Diagnosis found = look(job, params, UpdateOutcome::refused, {}, epoch);
    CHECK(found.place == Place::input);
    // The samples whose 4 x 4 crop begins at the corner, or above and left of it.
    std::vector<std::int64_t> expected;
    for (const std::int64_t id : found.batch) {
      const auto drawn = augment::draw(job.data.train_input.seed, epoch, id, 5, 5, 0);
      if (drawn.top <= 2 && drawn.left <= 2) expected.push_back(id);
    }
    CHECK(found.samples == expected);
    std::sort(expected.begin(), expected.end());
    different.insert(expected);
  }
  CHECK(different.size() == 3);
}

TEST_CASE("after an update: the weights, else the optimizer's state") {
  const Job job = two_layers("{type: Adam, lr: 0.1}");
  std::vector<float> params = fresh_start(job).params;
  const std::vector<float> zeros(params.size());
  std::vector<std::pair<std::string, std::vector<float>>> optimizer = {{"exp_avg", zeros},
                                                                       {"exp_avg_sq", zeros}};
  const Param& first = job.model.plan.params.at(0);
  const Param& third = job.model.plan.params.at(2);
  optimizer[1].second[third.offset] = INFINITY;
  Diagnosis found = look(job, params, UpdateOutcome::broken, optimizer);
  CHECK(found.place == Place::weights);
  CHECK(found.layer == "b");
  CHECK(found.parameter == "exp_avg_sq of b.weight");
  // The last element of a parameter is checked too. If several parameters are bad, the first one in
  // the order of backward is reported.
  params[first.offset + first.count - 1] = NAN;
  found = look(job, params, UpdateOutcome::broken, optimizer);
  CHECK(found.layer == "a");
  CHECK(found.parameter == "a.weight");
  params[third.offset] = NAN;
  CHECK(look(job, params, UpdateOutcome::broken, optimizer).parameter == "b.weight");
  CHECK(found.batch.size() == 12);
}

TEST_CASE("each place has a name for the log and a sentence for people") {
  const Job job = two_layers();
  const DataSource& source = *job.data.splits.train.source;
  Diagnosis d;
  d.layer = "conv";
  d.parameter = "conv.bias";
  d.samples = {3, 1};
  d.batch = {3, 1, 2};
  d.failure = "no memory";
  const auto told = [&](Place place) {
    d.place = place;
    return std::string(name_of(place)) + ": " + d.text(source);
  };
  const auto list = [&](std::vector<std::int64_t> ids) {
    std::string text;
    for (const std::int64_t id : ids) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", id, source.describe(id));
    }
    return text;
  };
  const std::string all = list({3, 1, 2});
  const std::string shown = ". Affected samples (2 of the batch's 3): " + list({3, 1});
  CHECK(told(Place::unknown) ==
        "batch sum: No sample has non-finite values on its own: they arise in the sum over the "
        "batch. The batch's 3 samples are " +
            all);
  CHECK(told(Place::not_found) ==
        "not found: The layer could not be found (no memory). The batch's 3 samples are " + all);
  CHECK(told(Place::weights) ==
        "weights: The first non-finite values, in the order of backward, are in layer 'conv' "
        "(conv.bias). The batch's 3 samples are " +
            all);
  CHECK(told(Place::input) ==
        "input: The model's input is not finite after the transforms" + shown);
  CHECK(told(Place::output) ==
        "output: The first layer with a non-finite output is 'conv'" + shown);
  CHECK(told(Place::loss) ==
        "loss: The outputs of all layers are finite, but the loss of some samples is not" + shown);
  CHECK(told(Place::gradient) ==
        "gradient: The first layer with a non-finite gradient, in the order of backward, is 'conv' "
        "(conv.bias)" +
            shown);
  // Eight samples are listed, the others counted.
  d.samples = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(d.text(source).ends_with(list(d.samples)));
  d.samples.push_back(8);
  CHECK(d.text(source).ends_with(list({0, 1, 2, 3, 4, 5, 6, 7}) + " and 1 more"));
}
