#include "engine/replica/gradient_pass.h"

#include <algorithm>
#include <cassert>

#include "kernels/base/align.h"
#include "kernels/base/heartbeat.h"

namespace dpt {

GradientPass::GradientPass(Backend& backend, Communicator& communicator, const Job& job,
                           PassMemory& memory, Measurements& measurements)
    : backend_(backend),
      communicator_(communicator),
      job_(job),
      memory_(memory),
      lockstep_(backend, communicator, job.model.plan),
      measurements_(measurements) {}

int GradientPass::branches() const {
  int most = 1;
  for (const auto& [samples, partition] : partitions_) most = std::max(most, partition.branches);
  return most;
}

std::int64_t GradientPass::micro_batches(const WorkPartition& partition) {
  return std::count_if(
      partition.actions.begin(), partition.actions.end(),
      [](const WorkAction& action) { return action.kind == WorkAction::Kind::train; });
}

std::int64_t GradientPass::micro_batch() const {
  std::int64_t most = 0;
  for (const auto& [samples, partition] : partitions_) {
    const std::vector<std::int64_t> sizes = micro_batch_sizes(partition);
    if (!sizes.empty()) most = std::max(most, sizes.back());
  }
  return most;
}

WorkPartition GradientPass::cut(std::int64_t global_batch, ShardBuffers buffers,
                                std::int64_t most) const {
  return partition_batch(global_batch, job_.placement.device_weights, communicator_.rank(),
                         job_.spec.train.shards, {most, job_.spec.train.accumulate}, buffers);
}

/// Returns the maximum size of a micro-batch. In fast mode, the job's maximum is lowered to what
/// fits into the device's memory. In exact mode a micro-batch that does not fit is an error,
/// because the bits must not depend on other users of the device.
std::int64_t GradientPass::most_samples(std::int64_t global_batch) {
  std::int64_t most = job_.placement.max_micro_batches[communicator_.rank()];
  if (job_.spec.train.shards > 0) return most;
  while (true) {
    const WorkPartition partition = cut(global_batch, ShardBuffers::reused, most);
    const std::vector<std::int64_t> sizes = micro_batch_sizes(partition);
    if (sizes.empty()) return most;
    const std::int64_t fitting =
        memory_.fitting(sizes.back(), needed_beside(partition.samples.size()));
    if (fitting >= sizes.back() || fitting == 0) return most;
    most = fitting;
    short_of_memory_ = true;
  }
}

/// Returns the bytes that are allocated after the activations: two buffers of samples, the
/// gradients, and an eighth of the free memory for evaluations.
std::size_t GradientPass::needed_beside(std::int64_t samples) const {
  if (!backend_.info().queues) return 0;  // samples are read in place
  const DataSource& source = *job_.data.splits.train.source;
  const std::size_t sample =
      static_cast<std::size_t>(source.shape().elements()) * size_of(source.type()) +
      sizeof(std::int32_t);
  return 2 * static_cast<std::size_t>(samples) * sample + memory_.gradient_bytes() +
         backend_.free_bytes() / 8;
}

const WorkPartition& GradientPass::partition_for(std::int64_t global_batch) {
  const auto found = partitions_.find(global_batch);
  if (found != partitions_.end()) return found->second;
  const std::int64_t most = most_samples(global_batch);
  WorkPartition partition = cut(global_batch, ShardBuffers::one_each, most);
  for (const std::int64_t size : micro_batch_sizes(partition)) memory_.executor(size, true);
  partition.branches = lockstep_.couples_shards() ? 1 : branches_for(partition);
  // Reuse buffers, unless shards go through a pass together.
  if (partition.branches == 1 && !lockstep_.couples_shards()) {
    partition = cut(global_batch, ShardBuffers::reused, most);
  }
  memory_.need_kept(partition.branches, kept_bytes(partition));
  memory_.need_gradients(std::max(partition.buffers, 1));
  return partitions_.emplace(global_batch, std::move(partition)).first->second;
}

std::size_t GradientPass::kept_bytes(const WorkPartition& partition) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < partition.actions.size();) {
    const std::size_t end = i + together_from(partition, i);
    std::size_t bytes = 0;
    for (; i < end; ++i) {
      const WorkAction& action = partition.actions[i];
      if (action.kind != WorkAction::Kind::train) continue;
      bytes += aligned(memory_.executor(action.samples.size(), true).kept_bytes());
    }
    most = std::max(most, bytes);
  }
  return most;
}

int GradientPass::branches_for(const WorkPartition& partition) {
  // One kernel adds up to this many parts; more parts would take several additions.
  constexpr std::int64_t kMaxShards = 32;
  constexpr int kMaxBranches = 8;
  if (partition.buffers < 2 || partition.shards > kMaxShards) return 1;
  std::size_t arena = 0;
  for (const std::int64_t size : micro_batch_sizes(partition)) {
    arena = std::max(arena, memory_.executor(size, true).arena_bytes());
  }
  const std::size_t kept = kept_bytes(partition);
  const std::size_t gradients =
      static_cast<std::size_t>(partition.buffers) * memory_.gradient_bytes();
  int branches = backend_.make_branches(std::min(kMaxBranches, partition.buffers));
  // Use a small share, because other replicas and evaluations need memory too.
  const std::uint64_t room = backend_.free_bytes() / 16;
  while (branches > 1 &&
         gradients + static_cast<std::size_t>(branches - 1) * (arena + kept) > room) {
    --branches;
  }
  memory_.need_arenas(branches, arena);
  return branches;
}

std::size_t GradientPass::together_from(const WorkPartition& partition, std::size_t first) const {
  const std::vector<WorkAction>& actions = partition.actions;
  const auto joins = [&](const WorkAction& action) {
    if (lockstep_.couples_shards()) return action.kind != WorkAction::Kind::add;
    return action.kind == WorkAction::Kind::train && action.shard == actions[first].shard;
  };
  std::size_t end = first + 1;
  if (actions[first].kind == WorkAction::Kind::add || !lockstep_.couples_pieces()) return 1;
  while (end < actions.size() && joins(actions[end])) ++end;
  return end - first;
}

void GradientPass::begin_buffer(const WorkPartition& partition, const WorkAction& action,
                                const StagedBatch& staged) {
  if (action.kind == WorkAction::Kind::add || action.write != GradWrite::overwrite) return;
  const DevPtr metrics = memory_.metrics(action.buffer);
  if (action.kind == WorkAction::Kind::zero) {
    backend_.zero(memory_.first_gradient(action.buffer), memory_.gradient_bytes());
  } else if (measurements_.measures_parts()) {
    backend_.zero(memory_.part_floats(action.buffer),
                  static_cast<std::size_t>(measurements_.part_floats()) * sizeof(float));
  }
  if (action.buffer == partition.parts.front().buffer) {
    // The metrics of the rank's first part carry its vote into the sum.
    backend_.copy(metrics, staged.metrics, memory_.metrics_bytes());
  } else {
    backend_.zero(metrics, memory_.metrics_bytes());
  }
}

bool GradientPass::compute(const WorkPartition& partition, const StagedBatch& staged,
                           const PassParams& params, DevPtr times,
                           const std::function<void(int node)>& after_node,
                           const StopQuestion* gives_up) {
  static const std::function<void(int)> kNothing;
  if (partition.branches > 1) backend_.fork(partition.branches);
  const std::vector<WorkAction>& actions = partition.actions;
  if (micro_batches(partition) < 2) gives_up = nullptr;
  bool continues = true;
  for (std::size_t i = 0; i < actions.size() && continues;) {
    const std::size_t first = i, end = i + together_from(partition, i);
    if (gives_up && first > 0 && (*gives_up)()) return false;
    // All micro-batches of a shard run in one branch, because they add to the same buffer.
    const int branch = actions[i].buffer % partition.branches;
    if (partition.branches > 1) backend_.select_branch(branch);
    std::size_t kept = 0;
    pieces_.clear();
    for (; i < end; ++i) {
      const WorkAction& action = actions[i];
      const DevPtr grads = memory_.gradients(action.buffer);
      begin_buffer(partition, action, staged);
      if (action.kind == WorkAction::Kind::add) {
        const DevPtr sum = memory_.first_gradient(action.buffer);
        backend_.add(sum, sum, memory_.first_gradient(action.other), memory_.gradient_floats());
      }
      if (action.kind != WorkAction::Kind::train) continue;
      beat("computing gradients");
      Piece& piece = pieces_.emplace_back();
      piece.executor = &memory_.executor(action.samples.size(), true);
      piece.batch = staged.batch;
      const auto skip = static_cast<std::size_t>(action.samples.begin - partition.samples.begin);
      piece.batch.slots = staged.batch.slots + skip * sizeof(std::int32_t);
      piece.batch.ids = staged.batch.ids + skip * sizeof(std::int64_t);
      if (staged.batch.boxes) piece.batch.boxes = staged.batch.boxes + skip * sizeof(InputBox);
      if (staged.batch.target_slots) {
        piece.batch.target_slots = staged.batch.target_slots + skip * sizeof(std::int32_t);
      }
      piece.buffers = {params.fp32, params.bf16, grads, memory_.arena(branch), {}};
      if (piece.executor->kept_bytes() > 0) piece.buffers.kept = memory_.kept(branch) + kept;
      if (branch == 0) piece.buffers.times = times;
      piece.buffers.may_fork = partition.branches == 1;
      kept += aligned(piece.executor->kept_bytes());
      piece.write = action.write;
      piece.shard = action.shard;
    }
    continues = train_pieces(partition, i == actions.size() ? after_node : kNothing, gives_up);
    // If sums overlap with backward (`after_node` is set), each bucket is measured during the pass
    // that completes it instead.
    if (partition.branches == 1 && !after_node) measure_parts(partition, first, end - first);
  }
  // A rank without samples still takes part in the sums of statistics.
  if (actions.empty() && lockstep_.couples_shards()) {
    pieces_.clear();
    train_pieces(partition, kNothing, nullptr);
  }
  if (partition.branches > 1) {
    backend_.join();
    // Each shard has a buffer of its own, and nothing has been added to it yet.
    if (!after_node) measure_parts(partition, 0, actions.size());
  }
  if (times) backend_.end_phase(times, StepPhase::backward);
  return continues;
}

void GradientPass::measure_parts(const WorkPartition& partition, std::size_t first,
                                 std::size_t count) {
  if (!measurements_.measures_parts()) return;
  for (const std::size_t end : part_ends(partition, lockstep_.couples_pieces())) {
    if (end < first || end >= first + count) continue;
    const WorkAction& action = partition.actions[end];
    measurements_.measure_part(memory_.part_gradient(action.shard, action.buffer));
  }
}

bool GradientPass::train_pieces(const WorkPartition& partition,
                                const std::function<void(int)>& after_node,
                                const StopQuestion* gives_up) {
  if (lockstep_.couples_pieces()) {
    if (pieces_.empty() && !lockstep_.couples_shards()) return true;
    // Do not give up while sums overlap: a rank that gives up tells the others so in the metrics,
    // which are in the first bucket.
    return lockstep_.train(pieces_, partition.shard_sizes, after_node,
                           after_node ? nullptr : gives_up);
  }
  for (const Piece& piece : pieces_) {
    piece.executor->train(piece.buffers, piece.batch, piece.write, after_node);
  }
  return true;
}

}  // namespace dpt
