#include "engine/training/replica_weights.h"

#include <cassert>
#include <cstddef>

namespace dpt {
namespace {

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

ReplicaWeights::ReplicaWeights(Backend& backend, const Job& job, ReplicaMemory& memory)
    : backend_(backend), job_(job) {
  const std::size_t bytes = float_bytes(job.plan.param_floats);
  params_ = memory.allocate(bytes, "the parameters");
  if (job.plan.type == DType::bf16) {
    params16_ =
        memory.allocate(static_cast<std::size_t>(job.plan.param_floats) * size_of(DType::bf16),
                        "the parameters in bf16");
  }
  for (const OptimizerState& state : job.optimizer.states) {
    state_.push_back(memory.allocate(bytes, "optimizer state " + state.name));
    backend_.zero(state_.back().ptr(), bytes);
    if (state.start != 0) {
      const std::vector<float> start(static_cast<std::size_t>(job.plan.param_floats), state.start);
      backend_.upload(state_.back().ptr(), start.data(), bytes);
      backend_.synchronize();  // for `start`
    }
  }
  optimizer_ = backend_.optimizer({job.optimizer.formula, job.update.ranges});
  guard_ = memory.allocate(sizeof(UpdateGuard), "the update guard");
  allow_updates();
}

void ReplicaWeights::set_params(std::span<const float> params) {
  assert(static_cast<std::int64_t>(params.size()) == job_.plan.param_floats);
  backend_.upload(params_.ptr(), params.data(), params.size_bytes());
  if (params16_.ptr()) {
    backend_.to_bf16(params16_.ptr(), params_.ptr(), job_.plan.param_floats);
  }
  backend_.synchronize();
}

std::vector<float> ReplicaWeights::params() {
  std::vector<float> host(static_cast<std::size_t>(job_.plan.param_floats));
  backend_.download(host.data(), params_.ptr(), float_bytes(job_.plan.param_floats));
  backend_.synchronize();
  return host;
}

void ReplicaWeights::set_optimizer_state(const NamedBuffers& state) {
  assert(state.size() == state_.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    backend_.upload(state_[i].ptr(), state[i].second.data(), state_[i].bytes());
  }
  backend_.synchronize();
}

NamedBuffers ReplicaWeights::optimizer_state() {
  NamedBuffers host;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    host.emplace_back(job_.optimizer.states[i].name,
                      std::vector<float>(static_cast<std::size_t>(job_.plan.param_floats)));
    backend_.download(host.back().second.data(), state_[i].ptr(), state_[i].bytes());
  }
  backend_.synchronize();
  return host;
}

void ReplicaWeights::update(DevPtr gradients, DevPtr metrics, const StagedBatch& staged,
                            bool norm) {
  if (job_.loss.is_weighted()) {
    backend_.divide_by_weight(gradients, job_.plan.trained_floats, metrics);
  }
  if (norm) {
    // The norm is that of what is trained; some frozen parameters have a gradient all the same.
    for (const UpdateRange& range : job_.update.frozen) {
      backend_.zero(gradients + float_bytes(range.begin), float_bytes(range.count));
    }
    backend_.grad_norm(gradients, job_.plan.trained_floats, staged.batch.scalars);
  }
  if (job_.spec.train.grad_clip_value) {
    backend_.clip_values(gradients, static_cast<float>(*job_.spec.train.grad_clip_value),
                         job_.plan.trained_floats);
  }
  OptimizerArgs args;
  args.params = params_.ptr();
  args.params16 = params16_.ptr();
  args.grads = gradients;
  for (std::size_t i = 0; i < state_.size(); ++i) args.states[i] = state_[i].ptr();
  args.scalars = staged.batch.scalars;
  args.steps = staged.update;
  args.metrics = metrics;
  args.guard = guard_.ptr();
  optimizer_->step(args);
  if (!job_.plan.running.empty()) {
    backend_.update_running(job_.plan.running, job_.plan.counters,
                            {params_.ptr(), gradients, args.metrics});
  }
}

}  // namespace dpt
