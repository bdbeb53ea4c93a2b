#include "engine/training/replica.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

namespace dpt {
namespace {

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

template <class T>
std::size_t bytes_of(std::span<const T> values) {
  return values.size() * sizeof(T);
}

}  // namespace

Replica::Replica(Backend& backend, Communicator& communicator, const Job& job)
    : backend_(backend), communicator_(communicator), job_(job) {
  params_ = allocate(float_bytes(job.plan.param_floats), "the parameters");
  for (const std::string& name : job.optimizer.state_names) {
    state_.push_back(allocate(float_bytes(job.plan.param_floats), "optimizer state " + name));
    backend_.zero(state_.back().ptr(), state_.back().bytes());
  }
  scalars_ = allocate(sizeof(StepScalars), "step scalars");
}

DeviceMemory Replica::allocate(std::size_t bytes, const std::string& what) {
  memory_bytes_ += bytes;
  return backend_.allocate(bytes, what);
}

void Replica::ensure(DeviceMemory& memory, std::size_t bytes, const std::string& what) {
  if (memory.bytes() >= bytes) return;
  memory_bytes_ -= memory.bytes();
  memory = DeviceMemory();
  memory = allocate(bytes, what);
}

void Replica::set_params(std::span<const float> params) {
  assert(static_cast<std::int64_t>(params.size()) == job_.plan.param_floats);
  backend_.upload(params_.ptr(), params.data(), params.size_bytes());
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
    host.emplace_back(job_.optimizer.state_names[i],
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
    ensure(arena_, slot->arena_bytes(), "activations");
  }
  return *slot;
}

const BatchCut& Replica::cut_for(std::int64_t global_batch) {
  const auto found = cuts_.find(global_batch);
  if (found != cuts_.end()) return found->second;
  BatchCut cut = cut_batch(global_batch, communicator_.size(), communicator_.rank(),
                           job_.spec.train.shards, job_.max_piece);
  need_gradient_buffers(std::max(cut.buffers, 1));
  for (const std::int64_t size : piece_sizes(cut)) executor(size, true);
  return cuts_.emplace(global_batch, std::move(cut)).first->second;
}

void Replica::need_gradient_buffers(int count) {
  while (static_cast<int>(gradients_.size()) < count) {
    gradients_.push_back(allocate(float_bytes(job_.plan.grad_floats()), "the gradients"));
    backend_.zero(gradients_.back().ptr(), gradients_.back().bytes());
  }
}

DeviceBatch Replica::place(const HostBatch& batch, const DataSource* source) {
  DeviceBatch placed;
  placed.scalars = scalars_.ptr();
  ensure(slots_, std::max<std::size_t>(bytes_of(batch.slots), 64), "batch indices");
  ensure(ids_, std::max<std::size_t>(bytes_of(batch.ids), 64), "batch indices");
  backend_.upload(slots_.ptr(), batch.slots.data(), bytes_of(batch.slots));
  backend_.upload(ids_.ptr(), batch.ids.data(), bytes_of(batch.ids));
  placed.slots = slots_.ptr();
  placed.ids = ids_.ptr();

  const auto resident = source->resident();
  if (resident && resident->pixels.data() == batch.pixels.data()) {
    auto copy = std::find_if(resident_.begin(), resident_.end(),
                             [&](const ResidentCopy& c) { return c.source == source; });
    if (copy == resident_.end()) {
      resident_.push_back({source, backend_.make_resident(resident->pixels, "the data set"),
                           backend_.make_resident(std::as_bytes(resident->labels), "the labels")});
      copy = resident_.end() - 1;
    }
    placed.raw = copy->pixels.ptr();
    placed.labels = copy->labels.ptr();
    return placed;
  }
  ensure(staged_pixels_, batch.pixels.size_bytes(), "a batch of samples");
  ensure(staged_labels_, batch.labels.size_bytes(), "a batch of labels");
  backend_.upload(staged_pixels_.ptr(), batch.pixels.data(), batch.pixels.size_bytes());
  backend_.upload(staged_labels_.ptr(), batch.labels.data(), batch.labels.size_bytes());
  placed.raw = staged_pixels_.ptr();
  placed.labels = staged_labels_.ptr();
  return placed;
}

void Replica::train_step(const StepPlan& plan, const HostBatch& batch) {
  // A slot of the ring is free once its result was taken: the host writes nothing that a queued
  // copy may still read.
  assert(results_pending() < kRing);
  Ring& ring = ring_[static_cast<std::size_t>(queued_ % kRing)];
  const BatchCut& cut = cut_for(plan.global_batch);

  ring.plan = plan;
  ring.scalars = StepScalars{};
  ring.scalars.epoch = plan.epoch;
  ring.scalars.inverse_count = 1.0F / static_cast<float>(plan.global_batch);
  ring.scalars.max_norm = static_cast<float>(job_.spec.train.grad_clip_norm.value_or(0.0));
  fill_optimizer_scalars(job_.optimizer, plan.lr, plan.step, ring.scalars);
  backend_.upload(scalars_.ptr(), &ring.scalars, sizeof(StepScalars));

  DeviceBatch placed;
  if (cut.samples.size() > 0) placed = place(batch, job_.splits.train.source.get());

  for (const CutAction& action : cut.actions) {
    const DevPtr grads = gradients_[static_cast<std::size_t>(action.buffer)].ptr();
    switch (action.kind) {
      case CutAction::Kind::zero:
        backend_.zero(grads, float_bytes(job_.plan.grad_floats()));
        break;
      case CutAction::Kind::add:
        backend_.add(grads, grads, gradients_[static_cast<std::size_t>(action.other)].ptr(),
                     job_.plan.grad_floats());
        break;
      case CutAction::Kind::train: {
        if (action.write == GradWrite::overwrite) {
          backend_.zero(metrics_of(grads),
                        float_bytes(job_.plan.grad_floats() - job_.plan.param_floats));
        }
        DeviceBatch piece = placed;
        const auto skip = static_cast<std::size_t>(action.samples.begin - cut.samples.begin);
        piece.slots = placed.slots + skip * sizeof(std::int32_t);
        piece.ids = placed.ids + skip * sizeof(std::int64_t);
        executor(action.samples.size(), true)
            .train({params_.ptr(), grads, arena_.ptr()}, piece, action.write);
        break;
      }
    }
  }

  parts_.clear();
  for (const BatchCut::Part& part : cut.parts) {
    parts_.push_back({part.node, gradients_[static_cast<std::size_t>(part.buffer)].ptr()});
  }
  if (plan.vote_stop && !parts_.empty()) {
    ring.vote = 1.0F;
    backend_.upload(metrics_of(parts_.front().data) + offsetof(StepMetrics, stop_votes), &ring.vote,
                    sizeof(float));
  }
  const DevPtr sum = gradients_.front().ptr();
  communicator_.all_reduce(cut.leaves, parts_, sum, job_.plan.grad_floats());

  const bool clip = job_.spec.train.grad_clip_norm.has_value();
  if (clip || plan.want_grad_norm) {
    backend_.grad_norm(sum, job_.plan.param_floats, scalars_.ptr());
  }
  OptimizerArgs args;
  args.params = params_.ptr();
  args.grads = sum;
  if (!state_.empty()) args.state1 = state_[0].ptr();
  if (state_.size() > 1) args.state2 = state_[1].ptr();
  if (state_.size() > 2) args.state3 = state_[2].ptr();
  args.scalars = scalars_.ptr();
  args.count = job_.plan.param_floats;
  backend_.optimizer_step(job_.optimizer.desc, args);

  backend_.download(&ring.metrics, metrics_of(sum), sizeof(StepMetrics));
  backend_.download(&ring.scalars_back, scalars_.ptr(), sizeof(StepScalars));
  ring.mark = backend_.record();
  ++queued_;
}

StepResult Replica::take_result() {
  assert(results_pending() > 0);
  Ring& ring = ring_[static_cast<std::size_t>(taken_ % kRing)];
  backend_.wait(ring.mark);
  ++taken_;
  StepResult result;
  result.step = ring.plan.step;
  result.metrics = ring.metrics;
  result.lr = ring.plan.lr;
  if (ring.plan.want_grad_norm) result.grad_norm = ring.scalars_back.grad_norm;
  return result;
}

SampleResults Replica::evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                                Loader& loader) {
  const auto n = static_cast<std::int64_t>(indices.size());
  // Pieces are cut by a rule that knows no ranks, so a sample's result never depends on how many
  // devices there are.
  const std::int64_t pieces = (n + job_.max_piece - 1) / job_.max_piece;
  const int ranks = communicator_.size();
  const Range mine = even_part(pieces, ranks, communicator_.rank());
  std::vector<SampleRange> ranges;
  for (std::int64_t i = mine.begin; i < mine.end; ++i) {
    const Range part = even_part(n, pieces, i);
    ranges.push_back({part.begin, part.end});
  }

  ensure(eval_loss_, float_bytes(job_.max_piece), "evaluation results");
  ensure(eval_prediction_, float_bytes(job_.max_piece), "evaluation results");
  ensure(eval_metrics_, sizeof(StepMetrics), "evaluation results");
  ring_[0].scalars = StepScalars{};
  backend_.upload(scalars_.ptr(), &ring_[0].scalars, sizeof(StepScalars));

  struct SampleResult {
    float loss;
    std::int32_t prediction, label;
  };
  std::vector<float> loss(static_cast<std::size_t>(job_.max_piece));
  std::vector<std::int32_t> prediction(loss.size());
  // Every rank sends a block of the same size: the samples of the longest run of pieces.
  const std::int64_t block = even_part(pieces, ranks, 0).size() * job_.max_piece;
  std::vector<SampleResult> own(static_cast<std::size_t>(block)),
      all(static_cast<std::size_t>(block * ranks));
  std::size_t filled = 0;
  loader.start(0, ranges);
  for (const SampleRange& range : ranges) {
    const HostBatch batch = loader.next();
    const DeviceBatch placed = place(batch, &source);
    executor(range.size(), false)
        .evaluate({params_.ptr(), DevPtr{}, arena_.ptr()}, placed,
                  {eval_loss_.ptr(), eval_prediction_.ptr(), eval_metrics_.ptr()});
    backend_.download(loss.data(), eval_loss_.ptr(), float_bytes(range.size()));
    backend_.download(prediction.data(), eval_prediction_.ptr(), float_bytes(range.size()));
    backend_.synchronize();
    for (std::size_t k = 0; k < static_cast<std::size_t>(range.size()); ++k) {
      own[filled++] = {loss[k], prediction[k],
                       batch.labels[static_cast<std::size_t>(batch.slots[k])]};
    }
  }
  communicator_.all_gather(std::as_bytes(std::span<const SampleResult>(own)),
                           std::as_writable_bytes(std::span<SampleResult>(all)));

  SampleResults results;
  results.loss.reserve(static_cast<std::size_t>(n));
  results.prediction.reserve(static_cast<std::size_t>(n));
  for (int rank = 0; rank < ranks; ++rank) {
    const Range theirs = even_part(pieces, ranks, rank);
    if (theirs.size() == 0) continue;
    const std::int64_t count =
        even_part(n, pieces, theirs.end - 1).end - even_part(n, pieces, theirs.begin).begin;
    for (std::int64_t k = 0; k < count; ++k) {
      const SampleResult& result = all[static_cast<std::size_t>(rank * block + k)];
      results.loss.push_back(result.loss);
      results.prediction.push_back(result.prediction);
      results.label.push_back(result.label);
    }
  }
  return results;
}

std::string Replica::first_non_finite() {
  const std::vector<float> host = params();
  for (const Param& param : job_.plan.params) {
    const auto begin = host.begin() + param.offset;
    if (std::any_of(begin, begin + param.count, [](float v) { return !std::isfinite(v); })) {
      return param.name;
    }
  }
  return {};
}

std::vector<std::string> Replica::implementations() const {
  for (const auto& [key, executor] : executors_) {
    if (key.second) return executor->implementations();
  }
  return {};
}

}  // namespace dpt
