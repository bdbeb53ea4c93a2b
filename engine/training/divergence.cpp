#include "engine/training/divergence.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/best.h"
#include "engine/run/lineage.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Returns advice on how to continue. `lr_is_spent` is true if a rollback was refused because the
/// learning rate would become zero.
std::string how_to_go_on(DivergencePolicy policy, bool lr_is_spent) {
  std::string text = "To get past it, ";
  if (policy == DivergencePolicy::skip) text += "raise train.on_divergence.max_skips, or ";
  if (policy == DivergencePolicy::rollback) {
    text +=
        lr_is_spent
            ? "raise train.on_divergence.lr_factor, or "
            : "lower train.on_divergence.lr_factor, raise train.on_divergence.max_rollbacks, or ";
  }
  text += "add to the command ";
  if (policy != DivergencePolicy::rollback) {
    text +=
        "train.on_divergence.policy=rollback (returns to the last good regular checkpoint or the "
        "start, with the learning rate multiplied by train.on_divergence.lr_factor)";
  }
  if (policy == DivergencePolicy::halt) text += " or ";
  if (policy != DivergencePolicy::skip) {
    text += "train.on_divergence.policy=skip (continues without the update of that step)";
  }
  return text +
         "; or start a new run (--resume never) with a smaller optimizer.lr, a warm-up "
         "(lr_schedule.warmup) or train.grad_clip_norm";
}

bool is_power_of_ten(std::int64_t n) {
  while (n >= 10 && n % 10 == 0) n /= 10;
  return n == 1;
}

/// Returns the fields that every event about a bad step has.
Json event_fields(const Job& job, const BadStep& bad, const Diagnosis& diagnosis) {
  const StepResult& result = bad.result();
  Json fields = {{"epoch", bad.epoch() + 1}, {"step", result.step}, {"loss", bad.loss()}};
  // The norm is measured only in these cases: see Replica::train_step.
  if (result.grad_norm || always_measures_norm(job.spec)) {
    fields["grad_norm"] = static_cast<double>(result.metrics.bad_norm);
  }
  fields["lr"] = result.lr;
  fields["first"] = name_of(diagnosis.place);
  if (!diagnosis.layer.empty()) fields["layer"] = diagnosis.layer;
  if (!diagnosis.parameter.empty()) fields["parameter"] = diagnosis.parameter;
  fields["samples"] = diagnosis.samples;
  fields["batch_samples"] = diagnosis.batch;
  return fields;
}

}  // namespace

StartingPoint rollback_origin(const Job& job, const StartingPoint& start,
                              const std::function<void(const std::string&)>& warn) {
  const std::int64_t step = start.state.rollback_step;
  const bool rolls_back = job.spec.train.on_divergence.rolls_back();
  if (!rolls_back || step < 0 || step == start.state.step) return start;
  if (step == 0) return fresh_start(job);
  std::string path = start.folder + "/" + checkpoint_name(step);
  for (const auto& [other, file] : start.ancestors) {
    if (other == step) path = file.text();
  }
  StartingPoint origin;
  try {
    origin = start_from_checkpoint(job, path);
  } catch (const Error& error) {
    warn(fmt::format(
        "a rollback would go back to step {}, but {}; it will go back to step {} instead", step,
        error.what(), start.state.step));
    origin = start;
  }
  origin.state.rollback_step = origin.state.step;
  return origin;
}

Divergence::Divergence(const Job& job, const StartingPoint& start, StartingPoint& last_good,
                       Backend& backend, Communicator& communicator, Replica& replica,
                       Stepper& stepper, RunFolder& folder, RunLog& log, Progress& progress)
    : job_(job),
      start_(start),
      last_good_(last_good),
      backend_(backend),
      communicator_(communicator),
      replica_(replica),
      stepper_(stepper),
      folder_(folder),
      log_(log),
      progress_(progress),
      writes_(communicator.rank() == 0) {}

void Divergence::promote() {
  if (!candidate_ || candidate_->state.step != stepper_.state().rollback_step) return;
  last_good_ = std::move(*candidate_);
  last_good_.state.rollback_step = last_good_.state.step;
  candidate_.reset();
}

void Divergence::remember() {
  promote();
  RunState& state = stepper_.state();
  // A remembered good state stays good; this may be the second call for the end of an epoch.
  if (state.rollback_step == state.step) return;
  state.rollback_candidate = state.step;
  if (!writes_ || !job_.spec.train.on_divergence.rolls_back()) return;
  candidate_.emplace();
  candidate_->state = state;
  candidate_->params = replica_.params();
  candidate_->optimizer = replica_.optimizer_state();
}

std::vector<std::int64_t> Divergence::best_steps() const {
  std::vector<std::int64_t> steps;
  if (!job_.spec.train.on_divergence.rolls_back()) return steps;
  const auto add = [&](const RunState& state) {
    if (state.best) steps.push_back(state.best_step);
  };
  add(last_good_.state);
  if (candidate_) add(candidate_->state);
  return steps;
}

Diagnosis Divergence::look(const BadStep& bad) {
  if (!writes_) return {};
  return diagnose(backend_, job_, bad, replica_.params(), replica_.optimizer_state());
}

void Divergence::check_that_some_count(const BadStep& bad) {
  const bool ends_epoch = bad.batch().end == job_.data.splits.train.size();
  const bool some_count = stepper_.state().epoch_weight > 0 || counted_in_ == bad.epoch();
  if (!ends_epoch || some_count) return;
  // Only rank 0 throws this error, as in halt. The others wait here until rank 0's exception stops
  // them.
  if (!writes_) communicator_.barrier();
  fail(ErrorKind::data,
       "epoch {}: expected at least one batch with a sample that counts in the loss, found none in "
       "the {} training samples: check loss.ignore_index, loss.class_weights and the "
       "weights of the samples",
       bad.epoch() + 1, job_.data.splits.train.size());
}

bool Divergence::handle(const BadStep& bad) {
  const OnDivergenceSpec& spec = job_.spec.train.on_divergence;
  const RunState& state = stepper_.state();
  if (bad.is_weightless()) {
    check_that_some_count(bad);
    skip(bad);
    return false;
  }
  counted_in_ = bad.epoch();
  switch (spec.policy) {
    case DivergencePolicy::halt:
      break;
    case DivergencePolicy::skip:
      if (bad.result().outcome == UpdateOutcome::broken) {
        halt(bad, "train.on_divergence.policy is skip, but this update has already been written");
      }
      if (state.skipped_in_row >= spec.max_skips) {
        halt(bad,
             fmt::format("The {} before it {} skipped, and "
                         "train.on_divergence.max_skips allows no more in a row",
                         state.skipped_in_row == 1 ? std::string("step")
                                                   : fmt::format("{} steps", state.skipped_in_row),
                         state.skipped_in_row == 1 ? "was" : "were"));
      }
      skip(bad);
      return false;
    case DivergencePolicy::rollback:
      if (state.rollbacks >= spec.max_rollbacks) {
        halt(bad, fmt::format("The run has rolled back {}, the learning rate is down to "
                              "{:.3g} of the schedule's, and train.on_divergence.max_rollbacks "
                              "allows no more",
                              counted(state.rollbacks, "time"), state.lr_scale));
      }
      if (!std::isnormal(state.lr_scale * spec.lr_factor)) {
        halt(bad,
             fmt::format("The learning rate is down to {:.3g} of the schedule's, and "
                         "train.on_divergence.lr_factor ({:g}) would make it zero",
                         state.lr_scale, spec.lr_factor),
             true);
      }
      // Each process receives the state in the same way as at the start of the run.
      if (communicator_.rank() == job_.placement.first_rank()) {
        last_good_ = share_start(job_, [&] { return go_back(bad); });
      }
      communicator_.barrier();
      return true;
  }
  halt(bad, {});
}

void Divergence::halt(const BadStep& bad, const std::string& limit, bool lr_is_spent) {
  // Only rank 0 reports. The others wait here until rank 0's exception stops them.
  if (!writes_) communicator_.barrier();
  const Diagnosis diagnosis = look(bad);
  const RunState& state = stepper_.state();
  const bool rolls_back = job_.spec.train.on_divergence.rolls_back();
  const bool is_saved = !(rolls_back ? last_good_ : start_).folder.empty() ||
                        state.rollback_step > 0 || state.rollback_candidate > 0;
  log_.event("diverged", event_fields(job_, bad, diagnosis));
  throw Error(
      ErrorKind::diverged,
      fmt::format(
          "{}. {}. {}{}{} ends at this step again, with the same bits. {}", bad.what(),
          diagnosis.text(*job_.data.splits.train.source), limit, limit.empty() ? "" : ". ",
          is_saved
              ? "The last checkpoint is good; running the same command again resumes from it and"
              : "There is no checkpoint yet; running the same command again starts from the "
                "beginning and",
          how_to_go_on(job_.spec.train.on_divergence.policy, lr_is_spent)));
}

void Divergence::skip(const BadStep& bad) {
  const Diagnosis diagnosis = look(bad);
  stepper_.skip_step(!bad.is_weightless());
  if (writes_) {
    Json fields = event_fields(job_, bad, diagnosis);
    fields["in_row"] = stepper_.state().skipped_in_row;
    log_.event("skipped_step", fields);
    const std::string text =
        fmt::format("step {} (epoch {}) is skipped: {}. {}", bad.result().step, bad.epoch() + 1,
                    bad.what_is_wrong(), diagnosis.text(*job_.data.splits.train.source));
    if (!bad.is_weightless()) {
      progress_.warn(text);
    } else if (is_power_of_ten(++weightless_)) {
      progress_.warn(weightless_ == 1
                         ? text +
                               ". Another warning follows after 10, 100, ... steps skipped for "
                               "this reason; the log has a line for each"
                         : fmt::format("{}. Steps skipped for this reason: {}", text, weightless_));
    }
  }
  communicator_.barrier();
}

void Divergence::settle_folder(RunState& to) {
  const RunState& now = stepper_.state();
  const auto notify = [this](const std::string& text) { progress_.info(text); };
  leave_later(folder_, to, notify);
  log_.reopen();
  if (!to.best) return;
  if (to.best == now.best && to.best_step == now.best_step) {
    to.best_checksum = now.best_checksum;
    return;
  }
  // best.safetensors belongs to a later step that is no longer part of the run.
  try {
    const HeldPath best = find_best(folder_, to, notify, start_.ancestors);
    to.best_checksum = read_checkpoint_header(best).checksum;
  } catch (const Error&) {
    forget_best(to);
    progress_.info(
        fmt::format("the best checkpoint from before step {} is missing; the next validation "
                    "gives the first candidate for a new best",
                    to.step));
  }
}

StartingPoint Divergence::go_back(const BadStep& bad) {
  promote();
  const RunState& now = stepper_.state();
  if (bad.result().outcome == UpdateOutcome::refused && now.step == last_good_.state.step) {
    halt(bad,
         "A rollback would go back to right before this step, where a lower learning rate changes "
         "nothing");
  }
  const Diagnosis diagnosis = look(bad);
  StartingPoint to = std::move(last_good_);
  to.is_saved = false;
  RunState& state = to.state;
  state.rollback_candidate = -1;
  state.rollbacks = now.rollbacks + 1;
  state.lr_scale = now.lr_scale * job_.spec.train.on_divergence.lr_factor;
  candidate_.reset();
  settle_folder(state);
  // The event's `step` is the step after which it appears in the log.
  Json fields = event_fields(job_, bad, diagnosis);
  fields["bad_step"] = fields["step"];
  fields["step"] = state.step;
  fields["rollbacks"] = state.rollbacks;
  fields["lr_scale"] = state.lr_scale;
  log_.event("rollback", fields);
  progress_.warn(fmt::format(
      "step {} (epoch {}) diverged: {}. {}. Going back to step {}, with the learning rate at "
      "{:.3g} of the schedule's (rollback {} of at most {})",
      bad.result().step, bad.epoch() + 1, bad.what_is_wrong(),
      diagnosis.text(*job_.data.splits.train.source), state.step, state.lr_scale, state.rollbacks,
      job_.spec.train.on_divergence.max_rollbacks));
  return to;
}

}  // namespace dpt
