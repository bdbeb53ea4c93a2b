#include "engine/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/data/ahead_check.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/job/best.h"
#include "engine/job/run_ranks.h"
#include "engine/optimizers/average.h"
#include "engine/run/lineage.h"
#include "engine/run/run_saver.h"
#include "engine/self_check/self_check.h"
#include "engine/training/divergence.h"
#include "engine/training/plateau.h"
#include "engine/training/run_report.h"
#include "engine/training/stepper.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/user_cache.h"

namespace dpt {
namespace {

/// Reports the result of a save. Throws its error, unless the run may continue without it.
void report_save(const SaveResult& result, bool may_fail, RunLog& log, Progress& progress) {
  for (const std::string& text : result.warnings) progress.warn(text);
  if (!result.error) {
    log.event("checkpoint",
              {{"step", result.step}, {"path", result.path}, {"best", result.is_best}});
    return;
  }
  try {
    std::rethrow_exception(result.error);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    log.event("checkpoint_failed", {{"step", result.step}, {"reason", error.what()}});
    if (!may_fail || result.lost_folder) throw;
    progress.warn(fmt::format("{}; continuing (checkpoint.on_failure is continue)", error.what()));
  }
}

/// Reports a save after a failure. Does not throw, because the user should see the failure as the
/// error.
void report_save_quietly(const SaveResult& result, RunLog& log, Progress& progress) {
  try {
    report_save(result, false, log, progress);
  } catch (const std::exception& error) {
    progress.warn(error.what());
  }
}

/// One rank's run. Only rank 0 has a folder to write to. All ranks decide alike, because they
/// decide from numbers that all of them have.
class RankTrainer {
 public:
  RankTrainer(const Job& job, const StartingPoint& start, StartingPoint& last_good,
              const TrainLimits& limits, Backend& backend, Communicator& communicator,
              RunFolder& folder, RunSaver& saver, RunLog& log, Progress& progress)
      : job_(job),
        last_good_(last_good),
        limits_(limits),
        backend_(backend),
        communicator_(communicator),
        folder_(folder),
        saver_(saver),
        log_(log),
        progress_(progress),
        writes_(communicator.rank() == 0),
        continues_unsaved_(job.spec.checkpoint.on_failure == OnFailure::continue_run),
        replica_(backend, communicator, job),
        stepper_(
            job, replica_, communicator, start.state, [this](const StepResult& r) { on_result(r); },
            ledger()),
        divergence_(job, start, last_good, backend, communicator, replica_, stepper_, folder, log,
                    progress),
        report_(job, start.state.step,
                std::min(job.update.total_steps, limits.max_steps.value_or(job.update.total_steps)),
                backend, replica_, stepper_, log, progress) {
    stepper_.may_give_up([this] { return wants_stop() && reason_ != StopReason::time_is_up; });
    begin(start);
    if (start.state.rollback_candidate == start.state.step) divergence_.remember();
  }

  TrainOutcome run() {
    const auto begun = std::chrono::steady_clock::now();
    report_.begin();
    try {
      train_epochs();
    } catch (const Error& error) {
      if (leaves_whole_state(error)) save_what_is_left();
      throw;
    }
    outcome_.end = end_.value_or(RunEnd::complete);
    outcome_.state = stepper_.state();
    outcome_.seconds = seconds_since(begun);
    if (writes_) outcome_.ledger = ledger_.whole();
    return std::move(outcome_);
  }

 private:
  using StepAndEpoch = std::pair<std::int64_t, std::int64_t>;  ///< step and epoch
  /// Begins to train: a new run, a resumed one, or one that has rolled back.
  void begin(const StartingPoint& start) {
    stepper_.go_to(start.state);
    replica_.set_params(start.params);
    replica_.set_optimizer_state(start.optimizer);
    saved_ = start.is_saved ? step_and_epoch() : StepAndEpoch{-1, -1};
    if (start.state.step > 0) note_checkpoint();
    outcome_.early_stopped = has_stopped_early(job_.spec, start.state);
  }
  /// Returns the ledger of the rank that writes; the others keep none.
  Ledger* ledger() { return writes_ ? &ledger_ : nullptr; }
  StepAndEpoch step_and_epoch() { return {stepper_.state().step, stepper_.state().epoch}; }

  void train_epochs() {
    begin_ahead_check();
    while (stepper_.state().epoch < job_.spec.train.epochs && !end_ && !outcome_.early_stopped) {
      try {
        train_epoch();
      } catch (const BadStep& bad) {
        recover(bad);
        continue;
      }
      if (end_) break;
      finish_ahead_check();
      if (!close_epoch()) break;
    }
    if (end_) note_waiting();
    // If nothing was trained, save nothing: the same command starts again and gives the same bits.
    if (end_ == RunEnd::stopped && step_and_epoch() == StepAndEpoch{0, 0}) return;
    save_last();
    if (!end_) test_best();
  }

  /// During the first epoch, starts to read all samples of the evaluations once, unless unreadable
  /// samples are left out. Each process reads its part.
  void begin_ahead_check() {
    const bool is_first = stepper_.state().epoch == 0;
    if (!is_first || job_.data.bad_samples || communicator_.rank() != job_.placement.first_rank())
      return;
    AheadCheck::Part part;
    if (job_.placement.processes)
      part = {job_.placement.processes->world().rank, job_.placement.processes->world().size};
    ahead_check_ = std::make_unique<AheadCheck>(job_.data.splits.test, job_.data.splits.val, part,
                                                job_.placement.decoders);
  }

  /// Waits until all test samples are read, unless the test set is evaluated right after this
  /// epoch.
  void finish_ahead_check() {
    if (!ahead_check_) return;
    reading_ = true;
    if (job_.spec.train.epochs > 1) ahead_check_->finish([this] { return wants_stop(); });
    reading_ = false;
    ahead_check_.reset();
  }

  /// Returns true if this rank still has the state of the last step that all ranks completed. This
  /// is so if a sample for the next step or an evaluation could not be read. It is also so if
  /// another rank is gone, except in a single process with several GPUs: the work that the failed
  /// rank has left in the others' queues is unknown there.
  bool leaves_whole_state(const Error& error) const {
    if (error.kind() == ErrorKind::data) return reading_;
    return error.kind() == ErrorKind::peer && (job_.placement.processes || !backend_.info().queues);
  }

  /// Saves the state before leaving after such a failure. Nothing was updated since the last step,
  /// so no step is lost. The exception are overlapped sums between GPUs that were aborted: the
  /// steps queued after them have updated the weights with partial sums.
  void save_what_is_left() noexcept {
    if (!writes_ || !got_on_) return;
    std::optional<ProcessGroup::Saving> saving;
    if (job_.placement.processes) saving.emplace(*job_.placement.processes);
    try {
      stepper_.drain();
      collect_save(saver_.wait());
      if (step_and_epoch() == saved_) return;
      if (best_failed_) best_before_.restore(stepper_.state());
      saver_.start({snapshot(), true, false, divergence_.best_steps(), false});
      collect_save(saver_.wait(), false);
      progress_.info(fmt::format("saved step {} before exiting", stepper_.state().step));
    } catch (const std::exception& error) {
      progress_.warn(
          fmt::format("step {} could not be saved before exiting: {}; the newest checkpoint is the "
                      "one to resume from",
                      stepper_.state().step, error.what()));
    }
  }

  void train_epoch() {
    report_.begin_epoch();
    while (!stepper_.epoch_done()) {
      const std::int64_t next = stepper_.state().step + 1;
      if (limits_.max_steps && next > *limits_.max_steps) {
        stepper_.drain();
        if (stepper_.has_given_up()) return note_stopped();
        end_ = RunEnd::max_steps;
        return;
      }
      reading_ = true;
      if (ahead_check_) ahead_check_->rethrow();
      stepper_.step(wants_stop(), report_.is_logged(next));
      reading_ = false;
      // Kernels are created and timed in the first step. After it, the ranks agree on the step at
      // which to stop.
      stop_request::is_starting = false;
      if (stepper_.has_given_up()) return note_stopped();
      got_on_ = true;
      if (writes_) collect_save(saver_.poll());
      // The last step of an epoch is saved later, with the epoch's results.
      if (is_step_to_save() && !stepper_.epoch_done()) {
        stepper_.drain();
        if (stepper_.has_given_up()) return note_stopped();
        const auto begun = std::chrono::steady_clock::now();
        divergence_.remember();
        // If a vote arrived during drain(), the code below stops the run, and the end of the run
        // saves.
        if (!stop_voted_) save();
        if (writes_) report_.saved(seconds_since(begun));
      }
      if (stop_voted_) {
        stepper_.drain();
        note_stopped();
        return;
      }
    }
    stepper_.drain();
    if (stepper_.has_given_up()) note_stopped();
  }

  /// Records that the run was stopped. Called by all ranks.
  void note_stopped() {
    end_ = RunEnd::stopped;
    wants_stop();
    outcome_.reason = agree_on_stop(communicator_, reason_);
  }

  /// Continues after a bad step as train.on_divergence says, or throws.
  void recover(const BadStep& bad) {
    reading_ = false;
    const bool halts = job_.spec.train.on_divergence.policy == DivergencePolicy::halt;
    if (!halts || bad.is_weightless()) settle_best();
    if (divergence_.handle(bad)) {
      begin(last_good_);
      communicator_.barrier();  // All ranks must have read last_good_ before rank 0 replaces it.
    } else if (is_step_to_save() && !stepper_.epoch_done()) {
      divergence_.remember();
      if (!stop_voted_) save();
    }
    report_.begin_interval();
  }

  bool is_step_to_save() {
    const std::int64_t every = job_.spec.checkpoint.every_steps;
    return every > 0 && stepper_.state().step % every == 0;
  }

  /// Returns this rank's vote to stop. The vote travels with the gradients, so that every rank
  /// learns of it at the same step. Every rank votes, even if it has no samples of a batch.
  bool wants_stop() {
    reason_ = limits_.stop_request();
    if (reason_ == StopReason::none && limits_.max_time &&
        seconds_since(limits_.begun) > static_cast<double>(limits_.max_time->count())) {
      reason_ = StopReason::time_is_up;
    }
    return reason_ != StopReason::none;
  }

  void on_result(const StepResult& result) {
    if (result.metrics.stop_votes > 0) stop_voted_ = true;
    if (job_.data.bad_samples) name_bad_samples();
    if (!writes_) return;
    const Ledger::Scope scope(&ledger_, LedgerPart::logging);
    report_.step(result);
  }

  /// Reports each bad sample of this process once.
  void name_bad_samples() {
    if (communicator_.rank() != job_.placement.first_rank()) return;
    for (const std::string& problem : job_.data.bad_samples->take_new()) {
      progress_.warn_always(fmt::format("left out: {}", problem));
      if (writes_) log_.event("bad_sample", {{"problem", problem}});
    }
  }

  /// Evaluates a split. Returns nothing, on all ranks, if a stop request ends the evaluation. The
  /// next process starts an interrupted evaluation from the beginning. Therefore --max-time waits
  /// for the evaluation if this process has done nothing else; otherwise a run with a short
  /// --max-time would never get past it.
  std::optional<EvalResult> evaluate(const Split& split, const std::string& name) {
    const auto wants_to_leave = [this] {
      return wants_stop() && (got_on_ || reason_ != StopReason::time_is_up);
    };
    const Ledger::Scope scope(ledger(), LedgerPart::evaluation);
    reading_ = true;
    EvaluationProgress show;
    if (writes_) {
      show = [&, begun = std::chrono::steady_clock::now()](std::int64_t done) {
        // The bar of the training steps stays visible during a short evaluation.
        constexpr double kShort = 0.5;
        if (seconds_since(begun) > kShort) report_.evaluating(name, done, split.size());
      };
    }
    auto result = evaluate_split_unless(wants_to_leave, replica_, job_, split, name, show);
    reading_ = false;
    if (job_.data.bad_samples) name_bad_samples();
    if (!result) note_stopped();
    return result;
  }

  /// Evaluates, records the best, decides whether to continue, and saves. Returns false if a stop
  /// request came during the evaluation. The epoch is then not closed, and the resumed run
  /// evaluates again.
  bool close_epoch() {
    if (writes_) {
      report_.replica();
      report_.end_training_of_epoch();
    }
    settle_best();
    average_epoch();
    std::optional<EvalResult> val;
    if (job_.data.splits.val.size() > 0 && !(val = evaluate(job_.data.splits.val, "val")))
      return false;
    note_results(val);
    stepper_.finish_epoch();
    got_on_ = true;
    RunState& state = stepper_.state();
    best_before_ = BestSoFar(state);
    const bool is_new = has_new_weights(state.epoch);
    const bool improved = is_new && note_epoch(job_.spec, state);
    outcome_.early_stopped = has_stopped_early(job_.spec, state);
    std::optional<LrReduction> reduction;
    if (is_new) {
      reduction =
          note_plateau(job_.spec, job_.update.optimizer.lr, job_.data.steps_per_epoch, state);
    }
    if (writes_) {
      const Ledger::Scope scope(&ledger_, LedgerPart::logging);
      report_.epoch(val, improved, outcome_.early_stopped);
      if (reduction) report_.lr_reduced(*reduction);
    }
    const CheckpointSpec& spec = job_.spec.checkpoint;
    const bool last = state.epoch >= job_.spec.train.epochs || outcome_.early_stopped;
    const bool keep = last || is_step_to_save() ||
                      (spec.every > 0 && (improved || state.epoch % spec.every == 0));
    if (keep) divergence_.remember();
    if (keep || improved) save(keep, improved);
    note_waiting();
    if (writes_) report_.ledger(ledger_.take_interval());
    report_.begin_interval();
    return true;
  }

  /// Adds the time that this rank has waited for the samples of other ranks to the ledger. Does
  /// nothing for a GPU: its thread runs ahead of it and does not take part in these waits. Called
  /// by all ranks.
  void note_waiting() {
    const double seconds = stepper_.take_wait_for_others();
    if (writes_ && !backend_.info().queues) ledger_.waited_for_data_of_others(seconds);
  }

  /// Adds the weights at the end of this epoch to their average (train.swa), unless an earlier
  /// process has done so before it was stopped.
  void average_epoch() {
    if (!job_.spec.train.swa) return;
    RunState& state = stepper_.state();
    if (epochs_to_average(*job_.spec.train.swa, state.epoch + 1) > state.averaged) {
      replica_.average_weights(state.averaged++);
    } else {
      keep_empty_average();
    }
  }

  /// Returns false if the average of train.swa has not taken in this epoch. An evaluation would
  /// then repeat the previous one, and does not count as a lack of improvement.
  bool has_new_weights(std::int64_t epochs) const {
    const auto& swa = job_.spec.train.swa;
    const std::int64_t averaged = swa ? epochs_to_average(*swa, epochs) : 0;
    return averaged == 0 || averaged > epochs_to_average(*swa, epochs - 1);
  }

  /// Sets the average to the weights while it contains no epoch.
  void keep_empty_average() {
    if (job_.spec.train.swa && stepper_.state().averaged == 0) replica_.average_weights(0);
  }

  /// Keeps the epoch's results in the state, and resets those that were not measured.
  void note_results(const std::optional<EvalResult>& val) {
    RunState& state = stepper_.state();
    state.train_loss.reset();
    state.train_accuracy.reset();
    if (state.epoch_weight > 0) state.train_loss = state.epoch_loss_sum / state.epoch_weight;
    state.train_metrics.clear();
    if (state.epoch_labelled > 0) {
      std::vector<double> sums = {state.epoch_correct};
      sums.insert(sums.end(), state.epoch_sums.begin(), state.epoch_sums.end());
      state.train_metrics = job_.model.metrics.values({sums, state.epoch_labelled}, false);
      state.train_accuracy = take_accuracy(state.train_metrics);
    }
    state.val_n = val ? val->n : 0;
    state.val_loss = val ? std::optional(val->loss) : std::nullopt;
    state.val_accuracy = val ? val->accuracy : std::nullopt;
    state.val_metrics = val ? val->metrics : NamedValues();
  }

  /// Begins to save the current state: in checkpoints/ (`keep`), as the best (`is_best`), or both.
  /// REQUIRES: drained. Called by all ranks.
  void save(bool keep, bool is_best) {
    const Ledger::Scope scope(ledger(), LedgerPart::saving);
    // Save nothing before all ranks have completed their work: a rank whose device failed does not
    // get here, and then its contribution is missing on the others.
    communicator_.barrier();
    if (!writes_) {
      if (keep) note_checkpoint();
      return;
    }
    collect_save(saver_.wait());
    if (best_failed_) best_before_.restore(stepper_.state());
    if (step_and_epoch() != saved_)
      saver_.start({snapshot(), keep, is_best, divergence_.best_steps()});
  }
  void save() { save(true, false); }

  /// Records that the run has a checkpoint. The error for a lost process mentions it. Ranks that do
  /// not write record this when they ask for the save.
  void note_checkpoint() const {
    if (job_.placement.processes) job_.placement.processes->set_has_checkpoint();
  }

  /// Returns the state in host memory. Later steps may run while it is written.
  Checkpoint snapshot() {
    keep_empty_average();
    Checkpoint checkpoint;
    checkpoint.state = stepper_.state();
    // A rollback restores the state, but not the schedule.
    checkpoint.state.schedule_segments = job_.update.schedule_segments;
    checkpoint.params = replica_.params();
    checkpoint.optimizer = replica_.optimizer_state();
    checkpoint.config = job_.resolved_config;
    checkpoint.classes = job_.data.splits.train.source->classes();
    checkpoint.targets = job_.model.loss.targets.kind;
    checkpoint.features = job_.data.splits.train.source->features();
    checkpoint.sample_type = job_.data.splits.train.source->type();
    checkpoint.dataset_fingerprint = job_.data.splits.train.source->fingerprint();
    checkpoint.train_samples = job_.data.splits.train.size();
    if (job_.data.splits.test.size() > 0) {
      checkpoint.test_fingerprint = job_.data.splits.test.source->fingerprint();
    }
    checkpoint.val_fingerprint = validation_fingerprint(job_.data.splits);
    checkpoint.shards = job_.spec.train.shards;
    checkpoint.devices = job_.placement.device_names();
    checkpoint.made_by = made_by(job_);
    return checkpoint;
  }

  /// Records the result of a save, if one has ended.
  void collect_save(const std::optional<SaveResult>& result, bool may_fail = true) {
    if (!result) return;
    const Ledger::Scope scope(ledger(), LedgerPart::saving);
    if (!result->error && result->keep) {
      saved_ = {result->step, result->epoch};
      note_checkpoint();
    }
    RunState& state = stepper_.state();
    if (result->best_moved && state.best_step == result->step) {
      state.best_checksum = result->checksum;
    }
    best_failed_ = best_failed_ || (result->is_best && !result->best_moved);
    report_save(*result, may_fail && continues_unsaved_, log_, progress_);
  }

  /// Saves the last state of the run, or throws. Called by all ranks.
  void save_last() {
    const Ledger::Scope scope(ledger(), LedgerPart::saving);
    communicator_.barrier();
    if (writes_) {
      collect_save(saver_.wait());
      if (step_and_epoch() != saved_) {
        const RunState& state = stepper_.state();
        const bool is_best = best_failed_ && state.best && state.best_step == state.step;
        saver_.start({snapshot(), true, is_best, divergence_.best_steps(), !end_});
        best_failed_ = best_failed_ && !is_best;
        collect_save(saver_.wait(), false);
      }
    }
    settle_best();
  }

  /// Tells all ranks whether the best could be saved. A result whose save failed does not become
  /// the best.
  void settle_best() {
    const Ledger::Scope scope(ledger(), LedgerPart::saving);
    if (writes_) collect_save(saver_.wait());
    std::byte failed{best_failed_};
    communicator_.broadcast(std::span(&failed, 1), 0);
    if (failed != std::byte{0}) best_before_.restore(stepper_.state());
    best_failed_ = false;
  }

  /// Evaluates the test set once, with the best weights if they are kept, otherwise with the last
  /// ones. Runs after the last save. If a stop request ends the evaluation, the resumed run
  /// evaluates again.
  void test_best() {
    if (job_.data.splits.test.size() == 0) return;
    const RunState& state = stepper_.state();
    std::string evaluated = evaluated_average(job_, state);
    if (state.best && state.best_step != state.step) {
      std::vector<float> weights(static_cast<std::size_t>(job_.model.plan.param_floats));
      if (writes_) {
        const auto notify = [this](const std::string& text) { progress_.info(text); };
        const Checkpoint best = load_checkpoint(find_best(folder_, state, notify), job_.model.plan);
        const auto* average = average_of(best);
        weights = average ? average->second : best.params;
        evaluated = average ? job_.update.average : std::string();
      }
      communicator_.broadcast(std::as_writable_bytes(std::span<float>(weights)), 0);
      replica_.set_params(weights);
    }
    outcome_.test = evaluate(job_.data.splits.test, "test");
    if (writes_ && outcome_.test) report_.eval(*outcome_.test, evaluated);
  }

  /// The best recorded in a RunState.
  struct BestSoFar {
    std::optional<double> value;
    std::int64_t step = 0;
    std::string monitor, checksum;

    BestSoFar() = default;
    explicit BestSoFar(const RunState& s)
        : value(s.best), step(s.best_step), monitor(s.best_monitor), checksum(s.best_checksum) {}
    void restore(RunState& s) const {
      s.best = value;
      s.best_step = step;
      s.best_monitor = monitor;
      s.best_checksum = checksum;
    }
  };

  const Job& job_;
  StartingPoint& last_good_;  ///< start of a rollback; shared by the ranks of a process
  const TrainLimits& limits_;
  Backend& backend_;
  Communicator& communicator_;
  RunFolder& folder_;
  RunSaver& saver_;
  RunLog& log_;
  Progress& progress_;
  bool writes_;
  bool continues_unsaved_;  ///< checkpoint.on_failure: continue
  Ledger ledger_;
  std::unique_ptr<AheadCheck> ahead_check_;  ///< during the first epoch, on one rank of a process
  Replica replica_;
  Stepper stepper_;
  Divergence divergence_;
  RunReport report_;
  TrainOutcome outcome_;
  std::optional<RunEnd> end_;
  StopReason reason_ = StopReason::none;
  bool stop_voted_ = false;
  bool reading_ = false;        ///< true in a step or an evaluation, which read samples
  bool got_on_ = false;         ///< this process has trained a step or closed an epoch
  StepAndEpoch saved_{-1, -1};  ///< step and epoch of the last save
  BestSoFar best_before_;       ///< the best before the last evaluation
  bool best_failed_ = false;    ///< the last best could not be saved; known to rank 0
};

/// Logs a self check, on the rank that writes.
void report_check(const SelfCheckResult& check, int rank, RunLog& log, Progress& progress) {
  if (rank != 0 || check.checked == 0) return;
  nlohmann::ordered_json fields = {
      {"operations", check.operations}, {"checked", check.checked}, {"seconds", check.seconds}};
  // One warning for each kernel, with its first case and the number of cases.
  std::map<std::string, std::pair<const ReplacedKernel*, int>> warnings;
  for (const ReplacedKernel& each : check.replaced) {
    fields["replaced"].push_back({{"kernel", each.kernel},
                                  {"device", each.device},
                                  {"operation", each.operation},
                                  {"problem", each.problem}});
    ++warnings.try_emplace(each.kernel, &each, 0).first->second.second;
  }
  for (const auto& [kernel, first] : warnings) {
    const auto& [example, count] = first;
    progress.warn(fmt::format(
        "the self check found that the kernel {} computes wrong values on {}: {}: {}{}. This run "
        "uses other kernels in its place, on all devices; they passed the check. Please report "
        "these lines, and test the device with `dpt devices --check`",
        kernel, example->device, example->operation, example->problem,
        count > 1 ? fmt::format(" (and {} more in the log)", count - 1) : ""));
  }
  log.event("self_check", fields);
  if (const std::string note = ignored_cache_home_text(); !note.empty()) progress.info(note);
  if (check.cache_problem.empty()) return;
  progress.info(fmt::format(
      "the self check passed, but each run repeats it, because its result cannot be saved: {}",
      check.cache_problem));
}

}  // namespace

TrainOutcome train(const Job& job, const StartingPoint& start, const TrainLimits& limits,
                   RunFolder& folder, RunLog& log, Progress& progress) {
  TrainOutcome outcome;
  const bool rolls_back = job.spec.train.on_divergence.rolls_back();
  const auto warn = [&](const std::string& text) { progress.warn(text); };
  StartingPoint last_good;
  if (rolls_back && job.placement.writes()) last_good = rollback_origin(job, start, warn);
  RunSaver saver(folder, job.model.plan, job.spec.checkpoint.keep_last,
                 start.keep_forever ? start.state.step : -1, rolls_back);
  saver.carry(start.ancestors);
  std::optional<StopWatch> watch;
  if (job.placement.writes()) {
    watch.emplace(std::chrono::milliseconds(0),
                  [&](StopReason reason) { progress.info(acknowledgement_of(reason)); });
  }
  try {
    run_ranks(job, [&](Backend& backend, Communicator& communicator) {
      check_stop();
      const auto note = [&](const std::string& text) {
        if (communicator.rank() == 0) progress.info(text);
      };
      report_check(check_kernels(job, backend, communicator, note), communicator.rank(), log,
                   progress);
      communicator.barrier();  // on one GPU, a replica must not count memory that a check uses
      RankTrainer trainer(job, start, last_good, limits, backend, communicator, folder, saver, log,
                          progress);
      TrainOutcome mine = trainer.run();
      if (communicator.rank() == job.placement.first_rank()) outcome = std::move(mine);
    });
  } catch (...) {
    // The save under way began before the failure, and its checkpoint is good.
    if (const auto result = saver.wait()) report_save_quietly(*result, log, progress);
    throw;
  }
  progress.clear();
  return outcome;
}

const char* name_of(RunEnd end) {
  switch (end) {
    case RunEnd::complete:
      return "ok";
    case RunEnd::max_steps:
      return "max_steps";
    case RunEnd::stopped:
      return "stopped";
  }
  return "?";
}

}  // namespace dpt
