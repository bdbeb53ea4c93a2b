#include "engine/training/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>

#include <fmt/ranges.h>

#include "engine/data/data_report.h"
#include "engine/data/loader.h"
#include "engine/data/wrapped_source.h"
#include "kernels/base/heartbeat.h"
#include "kernels/common/bf16.h"

namespace dpt {
namespace {

/// A source that hands out samples one at a time, even if the data set is resident: the replica
/// already keeps the data set on the device.
class OneByOne : public WrappedSource {
 public:
  explicit OneByOne(std::shared_ptr<const DataSource> source) : WrappedSource(std::move(source)) {}
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    source().read(index, pixels, label);
  }
  void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                     std::int32_t& label) const override {
    source().read_in_epoch(sample, pixels, label);
  }
};

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

/// Returns the first parameter, in the order of backward, that has a non-finite value in a flat
/// buffer. Null if all values are finite.
const Param* first_in_backward(const Plan& plan, std::span<const float> flat) {
  for (auto param = plan.params.rbegin(); param != plan.params.rend(); ++param) {
    if (!all_finite(flat.subspan(static_cast<std::size_t>(param->offset),
                                 static_cast<std::size_t>(param->count)))) {
      return &*param;
    }
  }
  return nullptr;
}

/// Runs single samples as in the step, with the same augmentation, dropout and scale of the
/// gradient. Does not mix samples: a mixture is non-finite only if one of its samples is.
class Probe {
 public:
  /// The first non-finite value of one sample. `order` grows along forward and then backward, so
  /// the sample with the lowest order failed first.
  struct Finding {
    Diagnosis::Place place = Diagnosis::Place::unknown;
    int order = 0;
    std::string layer, parameter;
  };

  Probe(Backend& backend, const Job& job, const BadStep& bad, std::span<const float> params)
      : backend_(backend),
        plan_(job.model.plan),
        source_(job.data.splits.train.source),
        draws_(job.data.draws),
        staging_(backend),
        executor_(backend, job.model.plan, job.data.train_input, job.model.loss, 1, true) {
    params_ = allocate(params.size_bytes());
    backend.upload(params_.ptr(), params.data(), params.size_bytes());
    if (plan_.type == DType::bf16) {
      params16_ = allocate(params.size() * size_of(DType::bf16));
      backend.to_bf16(params16_.ptr(), params_.ptr(), plan_.param_floats);
    }
    gradients_.resize(static_cast<std::size_t>(plan_.grad_floats()));
    grads_ = allocate(gradients_.size() * sizeof(float));
    arena_ = allocate(executor_.arena_bytes());
    kept_ = allocate(executor_.kept_bytes());
    loss_ = allocate(sizeof(float));
    scalars_.epoch = bad.epoch();
    scalars_.step = bad.result().step;
    scalars_.inverse_count = 1.0F / static_cast<float>(bad.batch().size());
    pixels_.resize(static_cast<std::size_t>(source_.shape().elements()) * size_of(source_.type()));
    targets_.resize(static_cast<std::size_t>(source_.targets().floats()));
  }

  /// Returns the finding for one sample; empty if all its values are finite.
  std::optional<Finding> look_at(std::int64_t id, std::int64_t key) {
    std::int32_t label = 0;
    const std::int32_t slot = 0;
    source_.read_in_epoch({scalars_.epoch, id, key}, pixels_, label);
    if (!targets_.empty()) source_.read_targets(id, targets_);
    HostBatch batch;
    batch.pixels = pixels_;
    batch.labels = {&label, 1};
    batch.targets = targets_;
    batch.slots = {&slot, 1};
    batch.ids = {&key, 1};
    const StagedBatch staged =
        staging_.stage(0, scalars_, StepMetrics{}, batch, source_, {}, &draws_);
    std::optional<Finding> finding = forward(staged.batch);
    if (!finding) finding = loss(staged.batch);
    if (!finding) finding = backward(staged.batch);
    staging_.release(staged);
    backend_.synchronize();
    return finding;
  }

 private:
  DeviceMemory allocate(std::size_t bytes) {
    return backend_.allocate(std::max<std::size_t>(bytes, 1), "diagnosing a diverged step");
  }
  ExecutorBuffers buffers() const {
    return {params_.ptr(), params16_.ptr(), grads_.ptr(), arena_.ptr(), kept_.ptr()};
  }

  std::optional<Finding> forward(const DeviceBatch& batch) {
    std::optional<Finding> finding;
    executor_.visit_outputs(buffers(), batch, [&](int node, DevPtr y, std::int64_t elements) {
      if (finding || is_finite(y, elements)) return;
      finding.emplace();
      finding->place = node < 0 ? Diagnosis::Place::input : Diagnosis::Place::output;
      finding->order = node;
      if (node >= 0) finding->layer = plan_.nodes[node].name;
    });
    return finding;
  }

  std::optional<Finding> loss(const DeviceBatch& batch) {
    executor_.evaluate(buffers(), batch, {loss_.ptr(), DevPtr{}, DevPtr{}, DevPtr{}});
    float value = 0;
    backend_.download(&value, loss_.ptr(), sizeof(value));
    backend_.synchronize();
    if (std::isfinite(value)) return std::nullopt;
    return Finding{Diagnosis::Place::loss, static_cast<int>(plan_.nodes.size()), {}, {}};
  }

  std::optional<Finding> backward(const DeviceBatch& batch) {
    backend_.zero(grads_.ptr(), grads_.bytes());
    executor_.train(buffers(), batch, GradWrite::overwrite);
    backend_.download(gradients_.data(), grads_.ptr(), grads_.bytes());
    backend_.synchronize();
    const Param* param = first_in_backward(plan_, gradients_);
    if (!param) return std::nullopt;
    const int nodes = static_cast<int>(plan_.nodes.size());
    return Finding{Diagnosis::Place::gradient, 2 * nodes - param->node,
                   plan_.nodes[param->node].name, param->name};
  }

  bool is_finite(DevPtr values, std::int64_t elements) {
    const auto count = static_cast<std::size_t>(elements);
    if (plan_.type == DType::bf16) {
      halves_.resize(count);
      backend_.download(halves_.data(), values, count * sizeof(Bf16));
      backend_.synchronize();
      return std::all_of(halves_.begin(), halves_.end(),
                         [](Bf16 v) { return std::isfinite(to_float(v)); });
    }
    floats_.resize(count);
    backend_.download(floats_.data(), values, count * sizeof(float));
    backend_.synchronize();
    return all_finite(floats_);
  }

  Backend& backend_;
  const Plan& plan_;
  const OneByOne source_;
  const InputDraws& draws_;
  InputStaging staging_;
  Executor executor_;
  DeviceMemory params_, params16_, grads_, arena_, kept_, loss_;
  StepScalars scalars_;
  std::vector<std::byte> pixels_;
  std::vector<float> gradients_, floats_, targets_;
  std::vector<Bf16> halves_;
};

/// Returns the samples of the step.
EpochOrder samples_of(const Job& job, const BadStep& bad) {
  const EpochOrder epoch =
      Sampling(job.data.splits.train, sampling_of(job.spec)).epoch(bad.epoch());
  const auto of_step = [&](const std::vector<std::int64_t>& all) {
    return std::vector<std::int64_t>(all.begin() + bad.batch().begin,
                                     all.begin() + bad.batch().end);
  };
  return {of_step(epoch.indices), of_step(epoch.draw_keys())};
}

void look_at_samples(Backend& backend, const Job& job, const BadStep& bad,
                     const EpochOrder& samples, std::span<const float> params,
                     Diagnosis& diagnosis) {
  Probe probe(backend, job, bad, params);
  std::optional<Probe::Finding> first;
  for (std::size_t i = 0; i < samples.indices.size(); ++i) {
    beat("diagnosing a diverged step");
    const std::int64_t id = samples.indices[i];
    const auto finding = probe.look_at(id, samples.keys[i]);
    if (!finding) continue;
    diagnosis.samples.push_back(id);
    if (!first || finding->order < first->order) first = finding;
  }
  if (!first) return;
  diagnosis.place = first->place;
  diagnosis.layer = first->layer;
  diagnosis.parameter = first->parameter;
}

/// Finds the first running statistic, in forward order, that the update would have broken.
void look_at_statistics(const Plan& plan, const StepMetrics& metrics, Diagnosis& diagnosis) {
  const std::int64_t place =
      plan.running.front().begin + (StepMetrics::kFirstStatistic - metrics.bad_statistic);
  const auto param = std::find_if(plan.params.begin(), plan.params.end(), [&](const Param& each) {
    return each.offset <= place && place < each.offset + each.count;
  });
  diagnosis.place = Diagnosis::Place::statistics;
  diagnosis.layer = plan.nodes[param->node].name;
  diagnosis.parameter = param->name;
}

/// Finds the weights that the update broke or, if all are finite, the optimizer state.
void look_at_weights(const Plan& plan, std::span<const float> params,
                     std::span<const std::pair<std::string, std::vector<float>>> optimizer,
                     Diagnosis& diagnosis) {
  const Param* param = first_in_backward(plan, params);
  std::string state;
  for (auto each = optimizer.begin(); !param && each != optimizer.end(); ++each) {
    param = first_in_backward(plan, each->second);
    state = each->first;
  }
  if (!param) return;
  diagnosis.place = Diagnosis::Place::weights;
  diagnosis.layer = plan.nodes[param->node].name;
  diagnosis.parameter = state.empty() ? param->name : fmt::format("{} of {}", state, param->name);
}

/// Returns the list of samples as text: "3 (train-images, sample 3), 17 (...) and 5 more".
std::string list(const std::vector<std::int64_t>& ids, const DataSource& source) {
  constexpr std::size_t kMax = 8;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(ids.size(), kMax); ++i) {
    texts.push_back(fmt::format("{} ({})", ids[i], source.describe(ids[i])));
  }
  std::string text = fmt::format("{}", fmt::join(texts, ", "));
  if (ids.size() > kMax) text += fmt::format(" and {} more", ids.size() - kMax);
  return text;
}

/// Returns a sentence that lists the samples of a batch, without its full stop.
std::string batch_text(const std::vector<std::int64_t>& batch, const DataSource& source) {
  return batch.size() == 1
             ? "The batch's only sample is " + list(batch, source)
             : fmt::format("The batch's {} samples are {}", batch.size(), list(batch, source));
}

}  // namespace

const char* name_of(Diagnosis::Place place) {
  switch (place) {
    case Diagnosis::Place::unknown:
      return "batch sum";
    case Diagnosis::Place::input:
      return "input";
    case Diagnosis::Place::output:
      return "output";
    case Diagnosis::Place::loss:
      return "loss";
    case Diagnosis::Place::gradient:
      return "gradient";
    case Diagnosis::Place::statistics:
      return "running statistics";
    case Diagnosis::Place::weights:
      return "weights";
    case Diagnosis::Place::no_sample:
      return "no sample";
    case Diagnosis::Place::not_found:
      break;
  }
  return "not found";
}

std::string Diagnosis::text(const DataSource& source) const {
  std::string where;
  switch (place) {
    case Place::unknown:
      return fmt::format(
          "No sample has non-finite values on its own: they arise in the sum over the batch. {}",
          batch_text(batch, source));
    case Place::not_found:
      return fmt::format("The layer could not be found ({}). {}", failure,
                         batch_text(batch, source));
    case Place::no_sample:
      return batch_text(batch, source);
    case Place::statistics:
      return fmt::format(
          "The first non-finite values, in the order of forward, are in layer '{}' ({}). {}", layer,
          parameter, batch_text(batch, source));
    case Place::weights:
      return fmt::format(
          "The first non-finite values, in the order of backward, are in layer '{}' ({}). {}",
          layer, parameter, batch_text(batch, source));
    case Place::input:
      where = "The model's input is not finite after the transforms";
      break;
    case Place::output:
      where = fmt::format("The first layer with a non-finite output is '{}'", layer);
      break;
    case Place::loss:
      where = "The outputs of all layers are finite, but the loss of some samples is not";
      break;
    case Place::gradient:
      where = fmt::format(
          "The first layer with a non-finite gradient, in the order of backward, is '{}' ({})",
          layer, parameter);
      break;
  }
  return fmt::format("{}. Affected samples ({} of the batch's {}): {}", where, samples.size(),
                     batch.size(), list(samples, source));
}

Diagnosis diagnose(Backend& backend, const Job& job, const BadStep& bad,
                   std::span<const float> params,
                   std::span<const std::pair<std::string, std::vector<float>>> optimizer) {
  Diagnosis diagnosis;
  const EpochOrder samples = samples_of(job, bad);
  diagnosis.batch = samples.indices;
  if (bad.is_weightless()) {
    diagnosis.place = Diagnosis::Place::no_sample;
    return diagnosis;
  }
  try {
    const StepMetrics& metrics = bad.result().metrics;
    if (std::isfinite(bad.loss()) && metrics.bad_statistic != 0) {
      look_at_statistics(job.model.plan, metrics, diagnosis);
    } else if (bad.result().outcome == UpdateOutcome::broken) {
      look_at_weights(job.model.plan, params, optimizer, diagnosis);
    } else {
      look_at_samples(backend, job, bad, samples, params, diagnosis);
    }
  } catch (const Error& error) {
    diagnosis.place = Diagnosis::Place::not_found;
    diagnosis.samples.clear();
    diagnosis.failure = error.what();
  }
  return diagnosis;
}

}  // namespace dpt
