#include "engine/replica/replica_weights.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>

#include "engine/optimizers/average.h"

namespace dpt {
namespace {

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

ReplicaWeights::ReplicaWeights(Backend& backend, const Job& job, ReplicaMemory& memory)
    : backend_(backend), job_(job), gradient_begin_(first_gradient_of(job)) {
  const std::size_t bytes = float_bytes(job.model.plan.param_floats);
  params_ = memory.allocate(bytes, "the parameters");
  if (job.model.plan.type == DType::bf16) {
    params16_ = memory.allocate(
        static_cast<std::size_t>(job.model.plan.param_floats) * size_of(DType::bf16),
        "the parameters in bf16");
  }
  for (const OptimizerState& state : job.update.states) {
    const std::int64_t floats = job.model.plan.param_floats - begin_of_state(state_.size());
    state_.push_back(memory.allocate(float_bytes(floats), "optimizer state " + state.name));
  }
  set_optimizer_state({});
  optimizer_ = backend_.optimizer({job.update.optimizer.formula, job.update.plan.ranges});
  guard_ = memory.allocate(sizeof(UpdateGuard), "the update guard");
  allow_updates();
  if (!job.update.average.empty()) set_up_average(memory);
}

void ReplicaWeights::set_up_average(ReplicaMemory& memory) {
  averaging_ = backend_.optimizer(average_desc(job_.model.plan.counters.begin));
  if (job_.model.plan.type == DType::bf16) {
    average16_ = memory.allocate(
        static_cast<std::size_t>(job_.model.plan.param_floats) * size_of(DType::bf16),
        "the average of the weights in bf16");
  }
  average_scalars_ = memory.allocate(sizeof(StepScalars), "the average of the weights");
  average_metrics_ = memory.allocate(sizeof(StepMetrics), "the average of the weights");
  average_step_ = memory.allocate(sizeof(UpdateStep), "the average of the weights");
  // The average of the weights has constant scalars and metrics, because nothing is clipped. Its
  // step number is above all others, so that the guard also blocks the average after a step whose
  // update was refused or broke the weights.
  StepScalars scalars;
  scalars.step = std::numeric_limits<std::int64_t>::max();
  const StepMetrics metrics;
  backend_.upload(average_scalars_.ptr(), &scalars, sizeof(scalars));
  backend_.upload(average_metrics_.ptr(), &metrics, sizeof(metrics));
  backend_.synchronize();
}

void ReplicaWeights::update_average(DevPtr step) {
  OptimizerArgs args;
  args.params = average();
  args.grads = params_.ptr();
  args.scalars = average_scalars_.ptr();
  args.steps = step;
  args.metrics = average_metrics_.ptr();
  args.guard = guard_.ptr();
  averaging_->step(args);
}

void ReplicaWeights::average_weights(std::int64_t averaged) {
  const UpdateStep step = average_step(1.0 / static_cast<double>(averaged + 1));
  if (averaged == 0) {
    backend_.copy(average(), params_.ptr(), params_.bytes());
  } else {
    backend_.upload(average_step_.ptr(), &step, sizeof(step));
    update_average(average_step_.ptr());
  }
  backend_.synchronize();  // because the upload reads `step`
}

PassParams ReplicaWeights::for_evaluation() {
  if (!averaging_) return on_device();
  if (average16_.ptr()) backend_.to_bf16(average16_.ptr(), average(), job_.model.plan.param_floats);
  return {average(), average16_.ptr()};
}

void ReplicaWeights::set_params(std::span<const float> params) {
  assert(static_cast<std::int64_t>(params.size()) == job_.model.plan.param_floats);
  backend_.upload(params_.ptr(), params.data(), params.size_bytes());
  if (params16_.ptr()) {
    backend_.to_bf16(params16_.ptr(), params_.ptr(), job_.model.plan.param_floats);
  }
  if (averaging_) backend_.copy(average(), params_.ptr(), params.size_bytes());
  backend_.synchronize();
}

std::vector<float> ReplicaWeights::params() {
  std::vector<float> host(static_cast<std::size_t>(job_.model.plan.param_floats));
  backend_.download(host.data(), params_.ptr(), float_bytes(job_.model.plan.param_floats));
  backend_.synchronize();
  return host;
}

void ReplicaWeights::set_optimizer_state(const NamedBuffers& state) {
  assert(state.empty() || state.size() == state_.size());
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const DeviceMemory& memory = state_[i];
    if (!state.empty()) {
      backend_.upload(memory.ptr(), state[i].second.data() + begin_of_state(i), memory.bytes());
    } else if (job_.update.states[i].start != 0) {
      const std::vector<float> start(memory.bytes() / sizeof(float), job_.update.states[i].start);
      backend_.upload(memory.ptr(), start.data(), memory.bytes());
      backend_.synchronize();  // because the upload reads `start`
    } else if (!averaging_ || i + 1 < state_.size()) {
      backend_.zero(memory.ptr(), memory.bytes());
    }
  }
  backend_.synchronize();
}

NamedBuffers ReplicaWeights::optimizer_state() {
  NamedBuffers host;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    // State that is not on the device was never updated and has its initial value.
    host.emplace_back(job_.update.states[i].name,
                      std::vector<float>(static_cast<std::size_t>(job_.model.plan.param_floats)));
    std::vector<float>& values = host.back().second;
    std::fill_n(values.begin(), begin_of_state(i), job_.update.states[i].start);
    backend_.download(values.data() + begin_of_state(i), state_[i].ptr(), state_[i].bytes());
  }
  if (averaging_) {
    // An average of counters would be meaningless, so return their current values.
    const Range counters = job_.model.plan.counters;
    float* to = host.back().second.data() + counters.begin;
    backend_.download(to, params_.ptr() + float_bytes(counters.begin),
                      float_bytes(counters.size()));
  }
  backend_.synchronize();
  return host;
}

void ReplicaWeights::complete(DevPtr gradients, DevPtr metrics, const StagedBatch& staged,
                              bool norm) {
  // The gradient of the first parameter that has one.
  const DevPtr first = gradients + float_bytes(gradient_begin_);
  const std::int64_t count = job_.model.plan.trained_floats - gradient_begin_;
  if (job_.model.train_loss().is_weighted()) {
    backend_.divide_by_weight(first, count, metrics);
  }
  if (norm) {
    // Leave frozen parameters, some of which have a gradient, out of the norm.
    for (const UpdateRange& range : job_.update.plan.frozen) {
      const std::int64_t begin = std::max(range.begin, gradient_begin_);
      const std::int64_t end = range.begin + range.count;
      if (begin < end) backend_.zero(gradients + float_bytes(begin), float_bytes(end - begin));
    }
    backend_.grad_norm(first, count, staged.batch.scalars);
  }
}

void ReplicaWeights::update(DevPtr gradients, DevPtr metrics, const StagedBatch& staged) {
  if (job_.spec.train.grad_clip_value) {
    backend_.clip_values(gradients + float_bytes(gradient_begin_),
                         static_cast<float>(*job_.spec.train.grad_clip_value),
                         job_.model.plan.trained_floats - gradient_begin_);
  }
  OptimizerArgs args;
  args.params = params_.ptr();
  args.params16 = params16_.ptr();
  args.grads = gradients;
  for (std::size_t i = 0; i < job_.update.optimizer.states.size(); ++i) {
    args.states[i] = flat_base(state_[i], begin_of_state(i));
  }
  args.scalars = staged.batch.scalars;
  args.steps = staged.update;
  args.metrics = metrics;
  args.guard = guard_.ptr();
  const RunningArgs running = {params_.ptr(), gradients, metrics};
  if (!job_.model.plan.running.empty()) backend_.check_running(job_.model.plan.running, running);
  optimizer_->step(args);
  if (!job_.model.plan.running.empty()) {
    backend_.update_running(job_.model.plan.running, job_.model.plan.counters, running);
  }
  if (job_.spec.train.ema) {
    update_average(staged.update + job_.update.plan.groups.size() * sizeof(UpdateStep));
  }
}

}  // namespace dpt
