#include "engine/replica/pass_memory.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/base/text.h"

namespace dpt {

PassMemory::PassMemory(Backend& backend, const Job& job, const Measurements& measurements,
                       ReplicaMemory& memory)
    : backend_(backend),
      job_(job),
      memory_(memory),
      part_floats_(measurements.part_floats()),
      gradient_begin_(first_gradient_of(job)),
      arenas_(1) {}

std::size_t PassMemory::gradient_bytes() const {
  return static_cast<std::size_t>(gradient_floats()) * sizeof(float);
}

std::size_t PassMemory::metrics_bytes() const {
  return static_cast<std::size_t>(job_.model.plan.grad_floats() - job_.model.plan.param_floats) *
         sizeof(float);
}

Executor& PassMemory::made(std::int64_t batch, bool training) {
  auto& slot = executors_[{batch, training}];
  if (!slot) {
    slot = training
               ? std::make_unique<Executor>(backend_, job_.model.plan, job_.data.mixed_input(),
                                            job_.model.train_loss(), batch, true)
               : std::make_unique<Executor>(backend_, job_.model.evaluation.plan,
                                            job_.data.eval_input, job_.model.loss, batch, false);
  }
  return *slot;
}

std::int64_t PassMemory::fitting_of(const Executor& executor, std::size_t reserved) {
  const std::size_t bytes = executor.arena_bytes(), have = arenas_.front().bytes();
  if (bytes <= have) return executor.batch();
  std::uint64_t free = backend_.free_bytes() + have;
  if (bytes + reserved <= free) return executor.batch();
  free -= std::min<std::uint64_t>(free, reserved);
  // The memory of activations is proportional to the batch.
  return static_cast<std::int64_t>(static_cast<double>(free) / static_cast<double>(bytes) *
                                   static_cast<double>(executor.batch()));
}

std::int64_t PassMemory::fitting(std::int64_t batch, std::size_t reserved) {
  const std::int64_t samples = fitting_of(made(batch, true), reserved);
  if (samples < batch) executors_.erase({batch, true});
  return samples;
}

Executor& PassMemory::executor(std::int64_t batch, bool training) {
  Executor& executor = made(batch, training);
  if (executor.arena_bytes() > arenas_.front().bytes()) {
    if (fitting_of(executor) < batch) fail_for_room(executor, training);
    memory_.grow(arenas_.front(), executor.arena_bytes(), "activations");
  }
  // An evaluation needs kept memory for one micro-batch only.
  if (!training) need_kept(1, executor.kept_bytes());
  return executor;
}

void PassMemory::fail_for_room(const Executor& executor, bool training) {
  const std::uint64_t free = backend_.free_bytes() + arenas_.front().bytes();
  const auto largest = std::max_element(
      job_.model.plan.rows.begin(), job_.model.plan.rows.end(),
      [](const LayerRow& a, const LayerRow& b) { return a.activation_bytes < b.activation_bytes; });
  const std::int64_t samples = fitting_of(executor);
  // In training, train.accumulate divides a shard; in an evaluation, the batch (Job::eval_batch).
  const std::int64_t shards =
      std::max<std::int64_t>(job_.spec.train.shards, job_.placement.ranks());
  const std::int64_t whole =
      training ? ceil_div(job_.spec.data.batch_size, shards) : job_.spec.data.batch_size;
  const std::string advice =
      samples > 0 ? fmt::format(
                        "{} fit{}: set train.accumulate to {} or more, which divides "
                        "a batch into micro-batches, or use more devices",
                        samples, samples == 1 ? "s" : "", ceil_div(whole, samples))
                  : "Not even one fits: use a smaller network or smaller images";
  fail(ErrorKind::device,
       "{}: out of memory: {} at once need{} {} for activations{}, but {} are free; the "
       "largest layer is '{}'. {}",
       backend_.info().name, counted(executor.batch(), "sample"), executor.batch() == 1 ? "s" : "",
       mebibytes(executor.arena_bytes()), training ? " and their gradients" : "", mebibytes(free),
       largest->name, advice);
}

void PassMemory::need_arenas(int branches, std::size_t bytes) {
  while (static_cast<int>(arenas_.size()) < branches) arenas_.emplace_back();
  for (int i = 1; i < branches; ++i) {
    memory_.grow(arenas_[i], bytes, "activations of another shard");
  }
}

void PassMemory::need_kept(int branches, std::size_t bytes) {
  if (bytes == 0) return;
  while (static_cast<int>(kept_.size()) < branches) kept_.emplace_back();
  for (int i = 0; i < branches; ++i) {
    memory_.grow(kept_[i], bytes, "activations of a whole shard");
  }
}

void PassMemory::need_gradients(int count) {
  while (static_cast<int>(gradients_.size()) < count) {
    gradients_.push_back(memory_.allocate(gradient_bytes(), "the gradients"));
    backend_.zero(gradients_.back().ptr(), gradients_.back().bytes());
  }
}

std::vector<std::string> PassMemory::implementations() const {
  for (const auto& [key, executor] : executors_) {
    if (key.second) return executor->implementations();
  }
  return {};
}

}  // namespace dpt
