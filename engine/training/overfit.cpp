#include "engine/training/overfit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/data/split.h"
#include "engine/data/target_rows.h"
#include "engine/job/run_ranks.h"
#include "engine/job/starting_point.h"
#include "engine/training/stepper.h"

namespace dpt {
namespace {

/// Returns the minimum mean loss of the job's training samples. For targets that are probabilities,
/// it is their entropy.
double least_loss(const Job& job) {
  if (!job.model.loss.least) return 0;
  TargetRows targets(job.data.splits.train);
  double loss = 0, weight = 0;
  for (std::size_t i = 0; i < job.data.splits.train.indices.size(); ++i) {
    const double own = targets.weight(i);
    loss += own * job.model.loss.least(targets.values(i));
    weight += own;
  }
  return weight > 0 ? loss / weight : 0;
}

/// Returns the value to which the loss must fall, given the first loss.
double target_of(const Job& job, double first_loss, double least) {
  const double above = std::max(first_loss - least, 0.0);
  return least + (job.model.loss.near_zero ? job.model.loss.near_zero(above) : 0.02 * above);
}

}  // namespace

Job overfit_job(Job job, std::int64_t batches) {
  if (batches > job.data.steps_per_epoch) {
    fail(ErrorKind::usage,
         "--overfit {}: an epoch has {} batch{} ({} samples in batches of {}). Give at most that "
         "many",
         batches, job.data.steps_per_epoch, job.data.steps_per_epoch == 1 ? "" : "es",
         job.data.splits.train.size(), job.spec.data.batch_size);
  }
  // Take the order of the first epoch: in its own order, a data set sorted by class would begin
  // with a single class.
  Split& split = job.data.splits.train;
  std::vector<std::int64_t> order = Sampling(split, sampling_of(job.spec)).epoch(0).indices;
  order.resize(static_cast<std::size_t>(job.batch_range(batches - 1).end));
  split.indices = std::move(order);
  job.spec.data.shuffle = false;
  job.spec.data.sampler = Sampler::uniform;
  // No loss comes near zero if its labels are smoothed.
  if (job.model.loss.compile_unsmoothed) job.model.loss.compile = job.model.loss.compile_unsmoothed;
  split.source = job.data.evaluated_substitutes ? job.data.evaluated_substitutes
                                                : job.data.evaluated_train.source;
  job.data.train_input = job.data.eval_input;
  job.data.draws = {};
  job.model.mixed_loss.reset();
  job.data.steps_per_epoch = batches;
  job.update.schedule = [lr = job.update.optimizer.lr](std::int64_t) { return lr; };
  return job;
}

OverfitResult overfit(const Job& job, const StartingPoint& start, std::int64_t max_steps,
                      const std::function<StopReason()>& stop_request,
                      const std::function<void(const OverfitResult&)>& on_round) {
  OverfitResult result;
  const double least = least_loss(job);
  const auto body = [&](Backend& backend, Communicator& communicator) {
    Replica replica(backend, communicator, job);
    bool stop_voted = false;
    OverfitResult mine;
    Stepper stepper(job, replica, communicator, start.state, [&](const StepResult& step) {
      stop_voted = stop_voted || step.metrics.stop_votes > 0;
      if (step.step == start.state.step + 1) mine.first_loss = step.metrics.mean_loss();
    });
    replica.set_params(start.params);
    mine.least = least;
    for (bool is_first = true; !stop_voted; is_first = false) {
      while (!stepper.epoch_done()) {
        stepper.step(stop_request() != StopReason::none, false);
      }
      stepper.drain();
      const RunState& state = stepper.state();
      mine.steps = state.step;
      mine.loss = state.epoch_loss_sum / state.epoch_weight;
      if (has_accuracy(job.model.loss.targets.kind)) {
        mine.accuracy = state.epoch_correct / state.epoch_labelled;
      }
      if (is_first) mine.first_round = mine.loss;
      mine.target = target_of(job, mine.first_loss, least);
      if (communicator.rank() == 0) on_round(mine);
      if (mine.has_fallen() || mine.steps >= max_steps) break;
      stepper.finish_epoch();
    }
    if (stop_voted) mine.stop = agree_on_stop(communicator, stop_request());
    if (communicator.rank() == job.placement.first_rank()) result = mine;
  };
  run_ranks(job, body);
  return result;
}

std::string overfit_advice(const Job& job, const OverfitResult& result) {
  const double lr = job.update.optimizer.lr;
  if (result.loss > result.first_round) {
    return fmt::format("It has grown: try a lower optimizer.lr than {:g}", lr);
  }
  if (result.loss > 0.9 * result.first_round) {
    return fmt::format(
        "It has hardly changed: the learning rate ({:g}) may be too low or too high, or the layers "
        "that matter may be frozen or dead",
        lr);
  }
  return fmt::format(
      "It does fall: more steps (--max-steps), another optimizer.lr than {:g}, less dropout or "
      "less weight decay may help; equal samples with different labels cannot be learned",
      lr);
}

}  // namespace dpt
