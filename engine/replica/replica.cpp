#include "engine/replica/replica.h"

#include <cassert>

#include "engine/data/loader.h"
#include "engine/optimizers/average.h"

namespace dpt {

Replica::Replica(Backend& backend, Communicator& communicator, const Job& job)
    : backend_(backend),
      communicator_(communicator),
      job_(job),
      memory_(backend),
      weights_(backend, job, memory_),
      measurements_(backend, job, memory_, communicator.rank() == 0),
      passes_(backend, job, measurements_, memory_),
      gradients_(backend, communicator, job, passes_, measurements_),
      sums_(communicator, job, passes_, measurements_),
      staging_(backend),
      results_(backend, communicator.rank() == 0 ? measurements_.part_floats() : 0,
               measurements_.batch_floats()),
      repeated_(backend),
      evaluation_(backend, communicator, job, memory_, passes_, staging_, repeated_),
      update_steps_(job.update.plan.groups.size() + (job.spec.train.ema ? 1 : 0)) {}

void Replica::train_step(const StepPlan& plan, const HostBatch& batch, Ledger* ledger) {
  gradients_.partition_for(plan.global_batch);  // allocates the memory that it needs
  const auto staged = [&] {
    const Ledger::Scope scope(ledger, LedgerPart::upload);
    return stage(plan, batch);
  }();
  if (backend_.info().queues) {
    const Ledger::Scope scope(ledger, LedgerPart::launching);
    run_step(plan, staged);
  } else {
    const Ledger::DeviceScope scope(ledger);
    run_step(plan, staged);
  }
}

void Replica::run_step(const StepPlan& plan, const StagedBatch& staged) {
  const WorkPartition& partition = gradients_.partition_for(plan.global_batch);
  const std::uintptr_t pixels = staged.batch.raw.address;
  const bool norm =
      plan.want_grad_norm || measurements_.measures_parts() || always_measures_norm(job_.spec);
  const bool measured = plan.want_grad_norm && measurements_.measures_batch();
  const DevPtr times = times_of(plan);
  const bool timed = static_cast<bool>(times);

  const auto gradients = [&] {
    if (timed) backend_.begin_phases(times);
    if (gradients_.compute(partition, staged, weights_.on_device(), times, sums_.during_backward(),
                           backend_.info().queues ? nullptr : plan.gives_up)) {
      return;
    }
    const StepMetrics metrics = given_up_metrics();
    backend_.upload(passes_.metrics(partition.parts.front().buffer), &metrics, sizeof metrics);
  };
  const auto sum = [&] {
    sums_.sum(partition);
    end_phase(times, StepPhase::sum);
  };
  const auto update = [&] {
    weights_.complete(passes_.gradients(0), passes_.metrics(0), staged, norm);
    if (measured) measurements_.measure_batch(weights_.on_device().fp32, passes_.gradients(0));
    weights_.update(passes_.gradients(0), passes_.metrics(0), staged);
    end_phase(times, StepPhase::update);
  };
  using Part = RepeatedCalls::Part;
  if (communicator_.can_be_recorded()) {
    repeat({Part::whole, plan.global_batch, pixels, norm, measured, timed}, [&] {
      gradients();
      sum();
      update();
    });
    staging_.release(staged);
  } else {
    if (sums_.overlap() || (gradients_.sums_over_ranks() && !communicator_.can_be_recorded())) {
      gradients();  // sums between the calls cannot be captured in a graph
    } else {
      repeat({Part::gradients, plan.global_batch, pixels, false, false, timed}, gradients);
    }
    staging_.release(staged);
    sum();
    repeat({Part::update, 0, 0, norm, measured, timed}, update);
  }
  results_.queue(plan, passes_.metrics(0), passes_.part_floats(0), staged.batch.scalars, measured,
                 times);
}

DevPtr Replica::times_of(const StepPlan& plan) {
  if (!plan.time_phases || (backend_.info().queues && !plan.want_grad_norm)) return {};
  if (times_.bytes() == 0) times_ = backend_.allocate(sizeof(PhaseTimes), "times of a step");
  return times_.ptr();
}

StagedBatch Replica::stage(const StepPlan& plan, const HostBatch& batch) {
  StepScalars scalars;
  scalars.epoch = plan.epoch;
  scalars.step = plan.step;
  scalars.inverse_count = 1.0F / static_cast<float>(plan.global_batch);
  scalars.max_norm = static_cast<float>(job_.spec.train.grad_clip_norm.value_or(0.0));
  const std::int64_t update = plan.step - plan.skipped;
  const std::size_t groups = job_.update.plan.groups.size();
  job_.update.plan.fill_steps(job_.update.optimizer, plan.lr, update,
                              std::span(update_steps_).first(groups));
  if (job_.spec.train.ema) {
    update_steps_[groups] = average_step(1.0 - average_decay(job_.spec.train.ema->decay, update));
  }
  StepMetrics metrics;
  metrics.stop_votes = plan.vote_stop ? 1.0F : 0.0F;
  return staging_.stage(results_.next_slot(), scalars, metrics, batch,
                        *job_.data.splits.train.source, update_steps_, &job_.data.draws);
}

void Replica::drop_results() {
  backend_.synchronize();
  results_.drop();
  weights_.allow_updates();
}

SampleResults Replica::evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                                Loader& loader, const StopQuestion& wants_stop,
                                const LeftOutSamples* left_out,
                                const EvaluationProgress& progress) {
  assert(results_pending() == 0);
  return evaluation_.run(weights_.for_evaluation(), source, indices, loader, left_out, wants_stop,
                         progress);
}

}  // namespace dpt
