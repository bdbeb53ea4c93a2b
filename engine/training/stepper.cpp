#include "engine/training/stepper.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "engine/data/loader.h"
#include "kernels/base/divide.h"
#include "kernels/base/heartbeat.h"

namespace dpt {
namespace {

Loader::Options training_options(const Job& job) {
  Loader::Options options = loader_options(job);
  options.sampling = sampling_of(job.spec);
  return options;
}

/// Formats a number. Omits the sign of a NaN, which is meaningless.
std::string number(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:g}", value);
}

std::string describe(const StepResult& result) {
  if (result.metrics.is_weightless()) {
    return "none of its samples counts (their own weights, loss.class_weights, "
           "loss.ignore_index), so their mean loss is undefined";
  }
  const double loss = result.metrics.mean_loss();
  if (!std::isfinite(loss)) return fmt::format("the loss is {}", number(loss));
  if (!std::isfinite(result.metrics.weight)) {
    return "the sum of the weights of its samples (their own, loss.class_weights) is not finite";
  }
  if (result.metrics.bad_statistic != 0) {
    return fmt::format(
        "the loss is {:g}, but after the update some running statistics would not be finite", loss);
  }
  if (result.outcome == UpdateOutcome::broken) {
    return fmt::format(
        "the loss is {:g}, but after the update some weights or optimizer state are not finite",
        loss);
  }
  return fmt::format("the loss is {:g}, but the norm of the gradient is {}", loss,
                     number(static_cast<double>(result.metrics.bad_norm)));
}

}  // namespace

BadStep::BadStep(const StepResult& result, std::int64_t epoch, Range batch)
    : Error(result.metrics.is_weightless() ? ErrorKind::data : ErrorKind::diverged,
            fmt::format(
                "{} step {} (epoch {}): {}. The learning rate was {:g}",
                result.metrics.is_weightless() ? "training cannot use" : "training diverged at",
                result.step, epoch + 1, describe(result), result.lr)),
      result_(result),
      epoch_(epoch),
      batch_(batch) {}

double BadStep::loss() const {
  return result_.metrics.mean_loss();
}

std::string BadStep::what_is_wrong() const {
  return describe(result_);
}

Stepper::Stepper(const Job& job, Replica& replica, Communicator& communicator,
                 const RunState& start, OnResult on_result, Ledger* ledger)
    : job_(job),
      replica_(replica),
      communicator_(communicator),
      loader_(job.data.splits.train, training_options(job)),
      on_result_(std::move(on_result)),
      ledger_(ledger) {
  go_to(start);
  // This many waiting times suffice to show what the ranks wait for. They are exchanged once per
  // epoch.
  constexpr std::int64_t kMaxWaits = 4096;
  wait_stride_ = std::max<std::int64_t>(1, ceil_div(job.data.steps_per_epoch, kMaxWaits));
  waits_.resize(static_cast<std::size_t>(ceil_div(job.data.steps_per_epoch, wait_stride_)));
}

/// Takes over the state's sums of metrics. The state has none at the start of a run, or if an older
/// release began the run.
void Stepper::adopt_sums() {
  const std::size_t count = job_.model.metrics.sums.size() - 1;
  if (state_.epoch_sums.empty()) state_.epoch_sums.assign(count, 0.0);
  if (state_.epoch_sums.size() == count) return;
  fail(ErrorKind::data,
       "the checkpoint has {} sums of the epoch's metrics, but the metrics of the config have {}; "
       "expected a checkpoint of a run with these metrics",
       state_.epoch_sums.size(), count);
}

std::int64_t Stepper::step_at(std::int64_t position) const {
  return ceil_div(position, job_.spec.data.batch_size);
}

void Stepper::start_loader() {
  std::vector<Range> ranges;
  std::vector<std::int64_t> partners;
  for (std::int64_t i = next_step_; i < job_.data.steps_per_epoch; ++i) {
    const Range batch = job_.batch_range(i);
    const Range mine = replica_.rank_samples(batch.size());
    if (mine.size() == 0) continue;
    ranges.push_back({batch.begin + mine.begin, batch.begin + mine.end});
    // The partner is the previous sample in the batch of all ranks, cyclically.
    if (job_.data.draws.mixes()) {
      partners.push_back((mine.begin > 0 ? batch.begin + mine.begin : batch.end) - 1);
    }
  }
  loader_.start(state_.epoch, std::move(ranges), std::move(partners));
  started_ = true;
}

void Stepper::step(bool vote_stop, bool want_grad_norm) {
  if (const auto& heartbeat = heartbeat_of_thread()) heartbeat->set_step(state_.step + 1);
  beat("training");
  if (!started_) start_loader();
  const Range batch = job_.batch_range(next_step_);
  StepPlan plan;
  plan.step = state_.step + 1;
  plan.skipped = state_.skipped_steps;
  plan.epoch = state_.epoch;
  plan.global_batch = batch.size();
  plan.lr = job_.update.schedule(state_.step) * state_.plateau_scale * state_.lr_scale;
  plan.vote_stop = vote_stop;
  if (gives_up_) plan.gives_up = &gives_up_;
  plan.want_grad_norm = want_grad_norm;
  plan.time_phases = ledger_ != nullptr;

  HostBatch samples;
  if (replica_.rank_samples(batch.size()).size() > 0) {
    const Ledger::Scope scope(ledger_, LedgerPart::data);
    samples = loader_.next();
    if (job_.data.draws.mixes()) samples.mix = job_.data.draws.mix(state_.epoch, next_step_);
    wait_seconds_ += samples.wait_seconds;
    if (next_step_ % wait_stride_ == 0) {
      waits_[next_step_ / wait_stride_] += static_cast<float>(samples.wait_seconds);
    }
  }
  replica_.train_step(plan, samples, ledger_);
  ++state_.step;
  ++next_step_;
  state_.position = batch.end;
  if (replica_.results_pending() > job_.placement.steps_ahead) take_one();
}

void Stepper::take_one() {
  const std::int64_t index = next_step_ - replica_.results_pending();
  StepResult result;
  try {
    const Ledger::DeviceScope scope(ledger_);
    communicator_.wait_for_sums([&] { result = replica_.take_result(); });
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::peer) why_lost_ = error.what();
    throw;
  }
  if (ledger_ && result.phases) ledger_->phases(*result.phases);
  if (result.outcome != UpdateOutcome::applied) {
    // Steps queued after this one have changed nothing.
    replica_.drop_results();
    const Range batch = job_.batch_range(index);
    next_step_ = index;
    state_.step = result.step - 1;
    state_.position = batch.begin;
    started_ = false;
    has_given_up_ = result.is_given_up();
    if (has_given_up_) return;
    throw BadStep(result, state_.epoch, batch);
  }
  state_.skipped_in_row = 0;
  if (state_.rollback_candidate >= 0 && result.step > state_.rollback_candidate) {
    state_.rollback_step = std::exchange(state_.rollback_candidate, -1);
  }
  state_.epoch_loss_sum += result.metrics.loss_sum;
  state_.epoch_correct += result.metrics.sums[0].value();
  for (std::size_t i = 0; i < state_.epoch_sums.size(); ++i) {
    state_.epoch_sums[i] += result.metrics.sums[i + 1].value();
  }
  state_.epoch_weight += result.metrics.weight;
  state_.epoch_labelled += result.metrics.labelled.value();
  on_result_(result);
}

void Stepper::skip_step(bool is_counted) {
  const Range batch = job_.batch_range(next_step_);
  ++next_step_;
  ++state_.step;
  ++state_.skipped_steps;
  if (is_counted) ++state_.skipped_in_row;
  state_.epoch_skipped += batch.size();
  state_.position = batch.end;
}

void Stepper::go_to(const RunState& state) {
  assert(replica_.results_pending() == 0);
  state_ = state;
  next_step_ = step_at(state.position);
  started_ = false;
  adopt_sums();
}

void Stepper::drain() {
  if (!why_lost_.empty()) throw Error(ErrorKind::peer, why_lost_);
  while (replica_.results_pending() > 0) take_one();
}

void Stepper::finish_epoch() {
  ++state_.epoch;
  state_.position = 0;
  state_.epoch_loss_sum = 0;
  state_.epoch_correct = 0;
  state_.epoch_weight = 0;
  state_.epoch_labelled = 0;
  state_.epoch_sums.clear();
  adopt_sums();
  state_.epoch_skipped = 0;
  next_step_ = 0;
  started_ = false;
}

double Stepper::take_wait_seconds() {
  return std::exchange(wait_seconds_, 0.0);
}

double Stepper::take_wait_for_others() {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  if (ranks == 1) return 0;
  std::vector<float> all(ranks * waits_.size());
  communicator_.all_gather(std::as_bytes(std::span<const float>(waits_)),
                           std::as_writable_bytes(std::span<float>(all)));
  double seconds = 0;
  for (std::size_t i = 0; i < waits_.size(); ++i) {
    float longest = waits_[i];
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      longest = std::max(longest, all[rank * waits_.size() + i]);
    }
    seconds += static_cast<double>(longest - waits_[i]);
  }
  std::fill(waits_.begin(), waits_.end(), 0.0F);
  return seconds * static_cast<double>(wait_stride_);
}

}  // namespace dpt
