#include "engine/training/replica.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>

#include "kernels/common/align.h"
#include "kernels/common/divide.h"
#include "kernels/heartbeat.h"
#include "kernels/text.h"

namespace dpt {
namespace {

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

Replica::Replica(Backend& backend, Communicator& communicator, const Job& job)
    : backend_(backend),
      communicator_(communicator),
      job_(job),
      lockstep_(backend, communicator, job.plan),
      staging_(backend),
      device_weights_(job.device_weights) {
  params_ = allocate(float_bytes(job.plan.param_floats), "the parameters");
  if (job.plan.type == DType::bf16) {
    params16_ = allocate(static_cast<std::size_t>(job.plan.param_floats) * size_of(DType::bf16),
                         "the parameters in bf16");
  }
  for (const OptimizerState& state : job.optimizer.states) {
    state_.push_back(allocate(float_bytes(job.plan.param_floats), "optimizer state " + state.name));
    backend_.zero(state_.back().ptr(), state_.back().bytes());
    if (state.start != 0) {
      const std::vector<float> start(static_cast<std::size_t>(job.plan.param_floats), state.start);
      backend_.upload(state_.back().ptr(), start.data(), state_.back().bytes());
      backend_.synchronize();  // for `start`
    }
  }
  optimizer_ = backend_.optimizer({job.optimizer.formula, job.update.ranges});
  update_steps_.resize(job.update.groups.size());
  guard_ = allocate(sizeof(UpdateGuard), "the update guard");
  backend_.zero(guard_.ptr(), guard_.bytes());
  for (Ring& ring : ring_) {
    ring.returned = backend_.allocate_host(sizeof(Returned), "results of a step");
  }
  set_up_sums();
}

void Replica::set_up_sums() {
  const std::int64_t bytes = job_.plan.grad_floats() * static_cast<std::int64_t>(sizeof(float));
  // All ranks decide alike: from the job, and then together.
  const bool all_overlap =
      std::all_of(job_.devices.begin(), job_.devices.end(),
                  [](const DeviceName& device) { return device.traits().overlaps_sums; });
  if (communicator_.size() == 1 || job_.spec.train.shards > 0 || !all_overlap ||
      bytes < job_.overlap_from_bytes) {
    return;
  }
  std::string why_not;
  if (communicator_.set_up_overlapped_sums(why_not)) {
    buckets_ = gradient_buckets(job_.plan, job_.bucket_bytes);
    sums_ = fmt::format("overlapped with backward, in {} bucket(s)", buckets_.size());
  } else {
    sums_ = fmt::format("tree ({})", why_not);
  }
}

void Replica::sum_bucket(const GradientBucket& bucket) {
  communicator_.sum_overlapped(
      gradients_.front().ptr() + static_cast<std::size_t>(bucket.begin) * sizeof(float),
      bucket.end - bucket.begin);
}

DeviceMemory Replica::allocate(std::size_t bytes, const std::string& what) {
  memory_bytes_ += bytes;
  return backend_.allocate(bytes, what);
}

void Replica::ensure(DeviceMemory& memory, std::size_t bytes, const std::string& what) {
  if (memory.bytes() >= bytes) return;
  memory_bytes_ -= memory.bytes();
  // Work that is queued may still use the old one.
  backend_.synchronize();
  memory = DeviceMemory();
  memory = allocate(bytes, what);
  forget_graphs();
}

void Replica::forget_graphs() {
  if (repeated_.empty()) return;
  backend_.synchronize();
  repeated_.clear();
}

void Replica::set_params(std::span<const float> params) {
  assert(static_cast<std::int64_t>(params.size()) == job_.plan.param_floats);
  backend_.upload(params_.ptr(), params.data(), params.size_bytes());
  if (params16_.ptr()) {
    backend_.to_bf16(params16_.ptr(), params_.ptr(), job_.plan.param_floats);
  }
  backend_.synchronize();
}

std::vector<float> Replica::params() {
  std::vector<float> host(static_cast<std::size_t>(job_.plan.param_floats));
  backend_.download(host.data(), params_.ptr(), float_bytes(job_.plan.param_floats));
  backend_.synchronize();
  return host;
}

void Replica::set_optimizer_state(
    const std::vector<std::pair<std::string, std::vector<float>>>& state) {
  assert(state.size() == state_.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    backend_.upload(state_[i].ptr(), state[i].second.data(), state_[i].bytes());
  }
  backend_.synchronize();
}

std::vector<std::pair<std::string, std::vector<float>>> Replica::optimizer_state() {
  std::vector<std::pair<std::string, std::vector<float>>> host;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    host.emplace_back(job_.optimizer.states[i].name,
                      std::vector<float>(static_cast<std::size_t>(job_.plan.param_floats)));
    backend_.download(host.back().second.data(), state_[i].ptr(), state_[i].bytes());
  }
  backend_.synchronize();
  return host;
}

Executor& Replica::executor(std::int64_t batch, bool training) {
  auto& slot = executors_[{batch, training}];
  if (!slot) {
    slot = std::make_unique<Executor>(
        backend_, job_.plan, training ? job_.train_input : job_.eval_input,
        static_cast<float>(job_.spec.loss.label_smoothing), batch, training);
    require_room(*slot, training);
    ensure(arena_, slot->arena_bytes(), "activations");
    // An evaluation is one piece.
    if (!training) need_kept(1, slot->kept_bytes());
  }
  return *slot;
}

void Replica::require_room(const Executor& executor, bool training) {
  const std::size_t bytes = executor.arena_bytes();
  if (bytes <= arena_.bytes()) return;
  const std::uint64_t free = backend_.free_bytes() + arena_.bytes();
  if (bytes <= free) return;
  const auto largest = std::max_element(
      job_.plan.rows.begin(), job_.plan.rows.end(),
      [](const LayerRow& a, const LayerRow& b) { return a.activation_bytes < b.activation_bytes; });
  // Activations grow with the batch in proportion.
  const auto fitting =
      static_cast<std::int64_t>(static_cast<double>(free) / static_cast<double>(bytes) *
                                static_cast<double>(executor.batch()));
  fail(ErrorKind::device,
       "{}: out of memory: {} samples at once need {} for activations{}, but {} are free; the "
       "largest layer is '{}'. {} fit: use batch_size {} or less for {} device(s), or more devices",
       backend_.info().name, executor.batch(), mebibytes(bytes),
       training ? " and their gradients" : "", mebibytes(free), largest->name, fitting,
       fitting * job_.ranks(), job_.ranks());
}

const WorkPartition& Replica::partition_for(std::int64_t global_batch) {
  const auto found = partitions_.find(global_batch);
  if (found != partitions_.end()) return found->second;
  const auto cut = [&](ShardBuffers buffers) {
    return partition_batch(
        global_batch, device_weights_, communicator_.rank(), job_.spec.train.shards,
        job_.max_micro_batches[static_cast<std::size_t>(communicator_.rank())], buffers);
  };
  WorkPartition partition = cut(ShardBuffers::one_each);
  for (const std::int64_t size : micro_batch_sizes(partition)) executor(size, true);
  partition.branches = lockstep_.couples_shards() ? 1 : branches_for(partition);
  // Shards that go through a pass together need a buffer each.
  if (partition.branches == 1 && !lockstep_.couples_shards()) {
    partition = cut(ShardBuffers::reused);
  }
  need_kept(partition.branches, kept_bytes(partition));
  need_gradient_buffers(std::max(partition.buffers, 1));
  return partitions_.emplace(global_batch, std::move(partition)).first->second;
}

std::size_t Replica::kept_bytes(const WorkPartition& partition) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < partition.actions.size();) {
    const std::size_t end = i + together_from(partition, i);
    std::size_t bytes = 0;
    for (; i < end; ++i) {
      const WorkAction& action = partition.actions[i];
      if (action.kind != WorkAction::Kind::train) continue;
      bytes += aligned(executor(action.samples.size(), true).kept_bytes());
    }
    most = std::max(most, bytes);
  }
  return most;
}

void Replica::need_kept(int branches, std::size_t bytes) {
  if (bytes == 0) return;
  while (static_cast<int>(kept_.size()) < branches) kept_.emplace_back();
  for (int i = 0; i < branches; ++i) {
    ensure(kept_[static_cast<std::size_t>(i)], bytes, "activations of a whole shard");
  }
}

int Replica::branches_for(const WorkPartition& partition) {
  // More parts than one kernel adds would be added one after the other.
  constexpr std::int64_t kMostShards = 32;
  constexpr int kMostBranches = 8;
  if (partition.buffers < 2 || partition.shards > kMostShards) return 1;
  std::size_t arena = 0;
  for (const std::int64_t size : micro_batch_sizes(partition)) {
    arena = std::max(arena, executor(size, true).arena_bytes());
  }
  const std::size_t kept = kept_bytes(partition);
  const std::size_t gradients =
      static_cast<std::size_t>(partition.buffers) * float_bytes(job_.plan.grad_floats());
  int branches = backend_.make_branches(std::min(kMostBranches, partition.buffers));
  // Little, because other replicas and evaluations need memory too.
  const std::uint64_t room = backend_.free_bytes() / 16;
  while (branches > 1 &&
         gradients + static_cast<std::size_t>(branches - 1) * (arena + kept) > room) {
    --branches;
  }
  while (static_cast<int>(branch_arenas_.size()) < branches - 1) branch_arenas_.emplace_back();
  for (int i = 1; i < branches; ++i) {
    ensure(branch_arenas_[static_cast<std::size_t>(i - 1)], arena, "activations of another shard");
  }
  return branches;
}

int Replica::branches() const {
  int most = 1;
  for (const auto& [samples, partition] : partitions_) most = std::max(most, partition.branches);
  return most;
}

void Replica::set_device_weights(const DeviceWeights& device_weights) {
  assert(results_pending() == 0 && device_weights.size() == device_weights_.size());
  device_weights_ = device_weights;
  partitions_.clear();
  forget_graphs();
}

void Replica::need_gradient_buffers(int count) {
  while (static_cast<int>(gradients_.size()) < count) {
    gradients_.push_back(allocate(float_bytes(job_.plan.grad_floats()), "the gradients"));
    backend_.zero(gradients_.back().ptr(), gradients_.back().bytes());
  }
}

StagedBatch Replica::stage(int slot, const StepScalars& scalars, const StepMetrics& metrics,
                           const HostBatch& batch, const DataSource& source,
                           std::span<const UpdateStep> update) {
  const StagedBatch staged = staging_.stage(slot, scalars, metrics, batch, source, update);
  if (staging_moves_ != staging_.moves()) forget_graphs();
  staging_moves_ = staging_.moves();
  return staged;
}

/// `work` as calls, as a graph being captured, or as a replay, whatever its turn is. True when
/// it ran as one launch.
template <class Work>
bool Replica::repeat(const RepeatedKey& key, const Work& work) {
  Repeated& repeated = repeated_[key];
  using State = Repeated::State;
  if (repeated.state == State::seen) {
    repeated.graph = backend_.capture(std::cref(work));
    repeated.state = repeated.graph ? State::recorded : State::calls;
  }
  if (repeated.state == State::recorded) {
    backend_.replay(*repeated.graph);
    return true;
  }
  work();
  if (repeated.state == State::fresh) repeated.state = State::seen;
  return false;
}

std::string Replica::launches() const {
  const auto recorded = [&](Part part) {
    return std::any_of(repeated_.begin(), repeated_.end(), [&](const auto& each) {
      return each.first.part == part && each.second.graph;
    });
  };
  if (recorded(Part::whole)) return "graph";
  return recorded(Part::gradients) ? "graphs" : "calls";
}

void Replica::begin_buffer(const WorkPartition& partition, const WorkAction& action,
                           const StagedBatch& staged) {
  if (action.kind == WorkAction::Kind::add || action.write != GradWrite::overwrite) return;
  const DevPtr grads = gradients_[static_cast<std::size_t>(action.buffer)].ptr();
  if (action.kind == WorkAction::Kind::zero) {
    backend_.zero(grads, float_bytes(job_.plan.grad_floats()));
  }
  if (action.buffer == partition.parts.front().buffer) {
    // The rank's vote is in the metrics of its first part, and therefore in their sum.
    backend_.copy(metrics_of(grads), staged.metrics, metrics_bytes());
  } else {
    backend_.zero(metrics_of(grads), metrics_bytes());
  }
}

std::size_t Replica::together_from(const WorkPartition& partition, std::size_t first) const {
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

void Replica::compute_gradients(const WorkPartition& partition, const StagedBatch& staged) {
  if (partition.branches > 1) backend_.fork(partition.branches);
  const std::vector<WorkAction>& actions = partition.actions;
  // The last pass completes the gradients, layer by layer.
  std::size_t next_bucket = 0;
  const auto after_node = [&](int node) {
    while (next_bucket < buckets_.size() && buckets_[next_bucket].node == node) {
      sum_bucket(buckets_[next_bucket++]);
    }
  };
  for (std::size_t i = 0; i < actions.size();) {
    const std::size_t end = i + together_from(partition, i);
    // All of a shard in one branch: its micro-batches add to what is there.
    const auto branch = static_cast<std::size_t>(actions[i].buffer % partition.branches);
    if (partition.branches > 1) backend_.select_branch(static_cast<int>(branch));
    const DevPtr arena = branch == 0 ? arena_.ptr() : branch_arenas_[branch - 1].ptr();
    std::size_t kept = 0;
    pieces_.clear();
    for (; i < end; ++i) {
      const WorkAction& action = actions[i];
      const DevPtr grads = gradients_[static_cast<std::size_t>(action.buffer)].ptr();
      begin_buffer(partition, action, staged);
      if (action.kind == WorkAction::Kind::add) {
        backend_.add(grads, grads, gradients_[static_cast<std::size_t>(action.other)].ptr(),
                     job_.plan.grad_floats());
      }
      if (action.kind != WorkAction::Kind::train) continue;
      beat("computing gradients");
      Piece& piece = pieces_.emplace_back();
      piece.executor = &executor(action.samples.size(), true);
      piece.batch = staged.batch;
      const auto skip = static_cast<std::size_t>(action.samples.begin - partition.samples.begin);
      piece.batch.slots = staged.batch.slots + skip * sizeof(std::int32_t);
      piece.batch.ids = staged.batch.ids + skip * sizeof(std::int64_t);
      piece.buffers = {params_.ptr(), params16_.ptr(), grads, arena, {}};
      if (piece.executor->kept_bytes() > 0) piece.buffers.kept = kept_[branch].ptr() + kept;
      kept += aligned(piece.executor->kept_bytes());
      piece.write = action.write;
      piece.shard = action.shard;
    }
    const bool completes = !buckets_.empty() && i == actions.size();
    train(partition,
          completes ? std::function<void(int)>(std::cref(after_node)) : std::function<void(int)>());
  }
  // A rank without samples takes part with nothing.
  if (actions.empty() && lockstep_.couples_shards()) {
    pieces_.clear();
    train(partition, {});
  }
  if (partition.branches > 1) backend_.join();
  // A rank without samples takes part with zeros.
  while (next_bucket < buckets_.size()) sum_bucket(buckets_[next_bucket++]);
}

/// Trains on pieces_.
void Replica::train(const WorkPartition& partition, const std::function<void(int)>& after_node) {
  if (lockstep_.couples_pieces()) {
    if (!pieces_.empty() || lockstep_.couples_shards()) {
      lockstep_.train(pieces_, partition.shard_sizes, after_node);
    }
    return;
  }
  for (const Piece& piece : pieces_) {
    piece.executor->train(piece.buffers, piece.batch, piece.write, after_node);
  }
}

void Replica::sum_gradients(const WorkPartition& partition) {
  if (!buckets_.empty()) {
    communicator_.finish_sums();
    return;
  }
  parts_.clear();
  for (const WorkPartition::Part& part : partition.parts) {
    parts_.push_back({part.node, gradients_[static_cast<std::size_t>(part.buffer)].ptr()});
  }
  communicator_.all_reduce(partition.shards, parts_, gradients_.front().ptr(),
                           job_.plan.grad_floats());
}

void Replica::update_params(const StagedBatch& staged, bool norm) {
  const DevPtr sum = gradients_.front().ptr();
  if (norm) {
    // The norm is that of what is trained; some frozen parameters have a gradient all the same.
    for (const UpdateRange& range : job_.update.frozen) {
      backend_.zero(sum + static_cast<std::size_t>(range.begin) * sizeof(float),
                    float_bytes(range.count));
    }
    backend_.grad_norm(sum, job_.plan.trained_floats, staged.batch.scalars);
  }
  if (job_.spec.train.grad_clip_value) {
    backend_.clip_values(sum, static_cast<float>(*job_.spec.train.grad_clip_value),
                         job_.plan.trained_floats);
  }
  OptimizerArgs args;
  args.params = params_.ptr();
  args.params16 = params16_.ptr();
  args.grads = sum;
  for (std::size_t i = 0; i < state_.size(); ++i) args.states[i] = state_[i].ptr();
  args.scalars = staged.batch.scalars;
  args.steps = staged.update;
  args.metrics = metrics_of(gradients_.front().ptr());
  args.guard = guard_.ptr();
  optimizer_->step(args);
  if (!job_.plan.running.empty()) {
    backend_.update_running(job_.plan.running, job_.plan.counters,
                            {params_.ptr(), sum, args.metrics});
  }
}

void Replica::train_step(const StepPlan& plan, const HostBatch& batch) {
  // A slot of the ring is free once its result was taken: the host writes nothing that a queued
  // copy may still read.
  assert(results_pending() <= kMostPending);
  const auto slot = static_cast<int>(queued_ % InputStaging::kSlots);
  Ring& ring = ring_[static_cast<std::size_t>(slot)];
  const WorkPartition& partition = partition_for(plan.global_batch);
  using Clock = std::chrono::steady_clock;
  if (plan.measure) {
    backend_.synchronize();
    lockstep_.take_sum_seconds();
  }
  const Clock::time_point begun = Clock::now();

  ring.plan = plan;
  StepScalars scalars;
  scalars.epoch = plan.epoch;
  scalars.step = plan.step;
  scalars.inverse_count = 1.0F / static_cast<float>(plan.global_batch);
  scalars.max_norm = static_cast<float>(job_.spec.train.grad_clip_norm.value_or(0.0));
  scalars.lr = static_cast<float>(plan.lr);
  job_.update.fill_steps(job_.optimizer, plan.lr, plan.step - plan.skipped, update_steps_);
  StepMetrics metrics;
  metrics.stop_votes = plan.vote_stop ? 1.0F : 0.0F;
  const StagedBatch staged =
      stage(slot, scalars, metrics, batch, *job_.splits.train.source, update_steps_);
  const std::uintptr_t pixels = staged.batch.raw.address;

  const bool norm = plan.want_grad_norm || job_.always_measures_norm();
  // Where statistics cross ranks, sums over ranks stand in the midst of the pass.
  const bool gradients_can_be_recorded =
      buckets_.empty() && (communicator_.can_be_recorded() || !lockstep_.couples_shards());
  if (communicator_.can_be_recorded() && !plan.measure) {
    repeat({Part::whole, plan.global_batch, pixels, norm}, [&] {
      compute_gradients(partition, staged);
      sum_gradients(partition);
      update_params(staged, norm);
    });
    staging_.release(staged);
  } else {
    if (gradients_can_be_recorded) {
      repeat({Part::gradients, plan.global_batch, pixels, false},
             [&] { compute_gradients(partition, staged); });
    } else {
      compute_gradients(partition, staged);  // with sums between the calls, which no graph holds
    }
    staging_.release(staged);
    if (plan.measure) {
      backend_.synchronize();
      own_seconds_ = std::chrono::duration<double>(Clock::now() - begun).count() -
                     lockstep_.take_sum_seconds();
    }
    sum_gradients(partition);
    repeat({Part::update, 0, 0, norm}, [&] { update_params(staged, norm); });
  }

  auto* returned = reinterpret_cast<Returned*>(ring.returned.get());
  backend_.download(&returned->metrics, metrics_of(gradients_.front().ptr()), sizeof(StepMetrics));
  if (plan.want_grad_norm) {
    backend_.download(&returned->scalars, staged.batch.scalars, sizeof(StepScalars));
  }
  ring.mark = backend_.record();
  ++queued_;
}

StepResult Replica::take_result() {
  assert(results_pending() > 0);
  const Ring& ring = ring_[static_cast<std::size_t>(taken_ % InputStaging::kSlots)];
  backend_.wait(ring.mark);
  const auto* returned = reinterpret_cast<const Returned*>(ring.returned.get());
  ++taken_;
  StepResult result;
  result.step = ring.plan.step;
  result.metrics = returned->metrics;
  result.lr = ring.plan.lr;
  if (ring.plan.want_grad_norm) result.grad_norm = returned->scalars.grad_norm;
  result.outcome = static_cast<UpdateOutcome>(static_cast<int>(returned->metrics.outcome));
  // A step without parameters to update has no update that could be refused.
  if (result.outcome == UpdateOutcome::applied && !std::isfinite(result.metrics.loss_sum)) {
    result.outcome = UpdateOutcome::refused;
  }
  return result;
}

void Replica::drop_results() {
  backend_.synchronize();
  taken_ = queued_;
  backend_.zero(guard_.ptr(), guard_.bytes());
}

SampleResults Replica::evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                                Loader& loader, const StopQuestion& wants_stop) {
  const auto n = static_cast<std::int64_t>(indices.size());
  const std::int64_t eval_batch = job_.eval_batch();
  // Micro-batches follow a rule that does not depend on ranks, so a sample's result never
  // depends on how many devices there are.
  const std::int64_t micro_batches = ceil_div(n, eval_batch);
  const int ranks = communicator_.size();
  const std::vector<Range> parts = proportional_parts(micro_batches, device_weights_);
  const Range mine = parts[static_cast<std::size_t>(communicator_.rank())];
  std::vector<Range> ranges;
  for (std::int64_t i = mine.begin; i < mine.end; ++i) {
    const Range part = even_part(n, micro_batches, i);
    ranges.push_back({part.begin, part.end});
  }

  ensure(eval_loss_, float_bytes(eval_batch), "evaluation results");
  ensure(eval_prediction_, float_bytes(eval_batch), "evaluation results");
  ensure(eval_metrics_, sizeof(StepMetrics), "evaluation results");
  assert(results_pending() == 0);

  struct SampleResult {
    float loss;
    std::int32_t prediction, label;
  };
  std::vector<float> loss(static_cast<std::size_t>(eval_batch));
  std::vector<std::int32_t> prediction(loss.size());
  // Every rank sends a block of the same size: the samples of the longest run of micro-batches.
  std::int64_t block = 0;
  for (const Range& part : parts) block = std::max(block, part.size() * eval_batch);
  std::vector<SampleResult> own(static_cast<std::size_t>(block)),
      all(static_cast<std::size_t>(block * ranks));
  std::size_t filled = 0;
  bool replayed = !ranges.empty();
  loader.start(0, ranges);
  std::uint8_t leaves = 0;
  for (const Range& range : ranges) {
    beat("evaluating");
    if (wants_stop && wants_stop()) {
      leaves = 1;
      break;
    }
    const HostBatch batch = loader.next();
    const StagedBatch staged = stage(0, StepScalars{}, StepMetrics{}, batch, source);
    Executor& pass = executor(range.size(), false);
    const bool whole =
        repeat({Part::evaluation, range.size(), staged.batch.raw.address, false}, [&] {
          pass.evaluate({params_.ptr(), params16_.ptr(), DevPtr{}, arena_.ptr(),
                         kept_.empty() ? DevPtr{} : kept_.front().ptr()},
                        staged.batch,
                        {eval_loss_.ptr(), eval_prediction_.ptr(), eval_metrics_.ptr()});
        });
    replayed = replayed && whole;
    staging_.release(staged);
    backend_.download(loss.data(), eval_loss_.ptr(), float_bytes(range.size()));
    backend_.download(prediction.data(), eval_prediction_.ptr(), float_bytes(range.size()));
    backend_.synchronize();
    for (std::size_t k = 0; k < static_cast<std::size_t>(range.size()); ++k) {
      own[filled++] = {loss[k], prediction[k],
                       batch.labels[static_cast<std::size_t>(batch.slots[k])]};
    }
  }
  if (wants_stop) {
    // Ranks learn of a request at different micro-batches, or only some of them do.
    std::vector<std::uint8_t> leaving(static_cast<std::size_t>(ranks));
    communicator_.all_gather(std::as_bytes(std::span<const std::uint8_t>(&leaves, 1)),
                             std::as_writable_bytes(std::span<std::uint8_t>(leaving)));
    if (std::find(leaving.begin(), leaving.end(), 1) != leaving.end()) {
      SampleResults none;
      none.interrupted = true;
      return none;
    }
  }
  communicator_.all_gather(std::as_bytes(std::span<const SampleResult>(own)),
                           std::as_writable_bytes(std::span<SampleResult>(all)));

  SampleResults results;
  results.replayed = replayed;
  results.loss.reserve(static_cast<std::size_t>(n));
  results.prediction.reserve(static_cast<std::size_t>(n));
  for (int rank = 0; rank < ranks; ++rank) {
    const Range theirs = parts[static_cast<std::size_t>(rank)];
    if (theirs.size() == 0) continue;
    const std::int64_t count = even_part(n, micro_batches, theirs.end - 1).end -
                               even_part(n, micro_batches, theirs.begin).begin;
    for (std::int64_t k = 0; k < count; ++k) {
      const SampleResult& result = all[static_cast<std::size_t>(rank * block + k)];
      results.loss.push_back(result.loss);
      results.prediction.push_back(result.prediction);
      results.label.push_back(result.label);
    }
  }
  return results;
}

std::vector<std::string> Replica::implementations() const {
  for (const auto& [key, executor] : executors_) {
    if (key.second) return executor->implementations();
  }
  return {};
}

}  // namespace dpt
