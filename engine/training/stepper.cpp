#include "engine/training/stepper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/common/divide.h"
#include "kernels/heartbeat.h"

namespace dpt {
namespace {

/// Steps that are timed for the ranks' device_weights; the ones before them make kernels and
/// captured graphs.
constexpr std::size_t kWarmUpSteps = 3, kMeasuredSteps = 5;

Loader::Options training_options(const Job& job) {
  Loader::Options options = loader_options(job);
  options.seed = static_cast<std::uint64_t>(job.spec.seed);
  options.shuffle = job.spec.data.shuffle;
  options.max_batch = job.spec.data.batch_size;
  return options;
}

}  // namespace

Stepper::Stepper(const Job& job, Replica& replica, Communicator& communicator,
                 const RunState& start, OnResult on_result)
    : job_(job),
      replica_(replica),
      communicator_(communicator),
      loader_(job.splits.train, training_options(job)),
      state_(start),
      on_result_(std::move(on_result)),
      calibrating_(job.calibrate && start.device_weights.empty()) {
  if (!start.device_weights.empty()) set_device_weights(start.device_weights);
  next_step_ = ceil_div(start.position, job.spec.data.batch_size);
}

void Stepper::start_loader() {
  std::vector<Range> ranges;
  for (std::int64_t i = next_step_; i < job_.steps_per_epoch; ++i) {
    const Range batch = job_.batch_range(i);
    const Range mine = replica_.rank_samples(batch.size());
    if (mine.size() > 0) ranges.push_back({batch.begin + mine.begin, batch.begin + mine.end});
  }
  loader_.start(state_.epoch, std::move(ranges));
  started_ = true;
}

void Stepper::step(bool vote_stop, bool want_grad_norm) {
  if (const auto& heartbeat = heartbeat_of_thread()) heartbeat->set_step(state_.step + 1);
  beat("training");
  if (!started_) start_loader();
  const Range batch = job_.batch_range(next_step_);
  StepPlan plan;
  plan.step = state_.step + 1;
  plan.epoch = state_.epoch;
  plan.global_batch = batch.size();
  plan.lr = job_.schedule(state_.step);
  plan.vote_stop = vote_stop;
  plan.want_grad_norm = want_grad_norm;
  // Whole batches only: a ragged one is other work, made ready at another time.
  plan.measure = calibrating_ && batch.size() == job_.batch_range(0).size();

  HostBatch samples;
  const std::int64_t own = replica_.rank_samples(batch.size()).size();
  if (own > 0) {
    samples = loader_.next();
    wait_seconds_ += samples.wait_seconds;
  }
  replica_.train_step(plan, samples);
  ++state_.step;
  ++next_step_;
  state_.position = batch.end;
  if (replica_.results_pending() > job_.steps_ahead) take_one();
  if (plan.measure) note_own_seconds(own);
}

void Stepper::note_own_seconds(std::int64_t samples) {
  own_seconds_.push_back(replica_.own_seconds());
  if (own_seconds_.size() < kWarmUpSteps + kMeasuredSteps) return;
  calibrating_ = false;
  // The median: one step that something else held up does not count.
  const auto middle = own_seconds_.begin() + kWarmUpSteps + kMeasuredSteps / 2;
  std::nth_element(own_seconds_.begin() + kWarmUpSteps, middle, own_seconds_.end());
  const double mine = samples > 0 ? *middle / static_cast<double>(samples) : 0.0;
  seconds_per_sample_.resize(static_cast<std::size_t>(communicator_.size()));
  communicator_.all_gather(std::as_bytes(std::span<const double>(&mine, 1)),
                           std::as_writable_bytes(std::span<double>(seconds_per_sample_)));
  drain();
  set_device_weights(device_weights_for_speed(seconds_per_sample_));
}

void Stepper::set_device_weights(const DeviceWeights& device_weights) {
  state_.device_weights = device_weights;
  replica_.set_device_weights(device_weights);
  started_ = false;  // The loader reads ahead along the cut of before.
}

void Stepper::take_one() {
  const StepResult result = replica_.take_result();
  if (!std::isfinite(result.metrics.loss_sum)) {
    const std::string parameter = replica_.first_non_finite();
    fail(ErrorKind::diverged,
         "training diverged at step {} (epoch {}): the loss is {}. {} The learning rate was {:g}: "
         "try a smaller one, a warm-up (lr_schedule.warmup) or train.grad_clip_norm",
         result.step, state_.epoch + 1, result.metrics.loss_sum,
         parameter.empty()
             ? std::string("The weights are still finite: look at the data (dpt config check, "
                           "data.transforms).")
             : fmt::format("The first parameter with a non-finite value is {}.", parameter),
         result.lr);
  }
  state_.epoch_loss_sum += result.metrics.loss_sum;
  state_.epoch_correct += result.metrics.correct;
  on_result_(result);
}

void Stepper::drain() {
  while (replica_.results_pending() > 0) take_one();
}

void Stepper::finish_epoch() {
  ++state_.epoch;
  state_.position = 0;
  state_.epoch_loss_sum = 0;
  state_.epoch_correct = 0;
  next_step_ = 0;
  started_ = false;
}

double Stepper::take_wait_seconds() {
  return std::exchange(wait_seconds_, 0.0);
}

}  // namespace dpt
