#include "engine/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "engine/training/run_ranks.h"
#include "engine/training/stepper.h"

namespace dpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// "val/accuracy" or "val/loss" -> its value, if there is a validation set.
std::optional<double> monitored(const std::string& name, const std::optional<EvalResult>& val) {
  if (!val) return std::nullopt;
  return name == "val/loss" ? val->loss : val->accuracy;
}

/// One rank's run. Only rank 0 has a folder to write to; all ranks decide alike, because they
/// decide from numbers that all of them have.
class RankTrainer {
 public:
  RankTrainer(const Job& job, const StartingPoint& start, const TrainLimits& limits,
              Backend& backend, Communicator& communicator, RunFolder& folder, RunLog& log,
              Progress& progress)
      : job_(job),
        limits_(limits),
        backend_(backend),
        communicator_(communicator),
        folder_(folder),
        log_(log),
        progress_(progress),
        writes_(communicator.rank() == 0),
        first_step_(start.state.step),
        replica_(backend, communicator, job),
        stepper_(job, replica_, communicator, start.state,
                 [this](const StepResult& r) { on_result(r); }) {
    replica_.set_params(start.params);
    if (!start.optimizer.empty()) replica_.set_optimizer_state(start.optimizer);
  }

  TrainOutcome run() {
    begun_ = Clock::now();
    begin_interval();
    while (stepper_.state().epoch < job_.spec.train.epochs && !stopping() &&
           !outcome_.early_stopped) {
      train_epoch();
      if (stopping() || !close_epoch()) break;
    }
    if (!stopping() && test_best()) outcome_.status = "ok";
    if (outcome_.status != "ok") save();
    outcome_.state = stepper_.state();
    outcome_.seconds = seconds_since(begun_);
    return std::move(outcome_);
  }

 private:
  bool stopping() const { return !outcome_.status.empty(); }

  void train_epoch() {
    epoch_begun_ = Clock::now();
    epoch_first_position_ = stepper_.state().position;
    while (!stepper_.epoch_done()) {
      const std::int64_t next = stepper_.state().step + 1;
      if (limits_.max_steps && next > *limits_.max_steps) {
        stepper_.drain();
        outcome_.status = "max_steps";
        return;
      }
      stepper_.step(wants_stop(), is_logged(next));
      log_device_weights();
      const std::int64_t every = job_.spec.checkpoint.every_steps;
      if (every > 0 && stepper_.state().step % every == 0) {
        stepper_.drain();
        // A vote that arrived with the drain stops the run below, which saves.
        if (!stop_voted_) save();
      }
      if (stop_voted_) {
        stepper_.drain();
        note_stopped();
        return;
      }
    }
    stepper_.drain();
  }

  void note_stopped() {
    outcome_.status = "stopped";
    // Another rank's clock may be ahead of this one's.
    outcome_.reason = wants_stop() ? reason_ : StopReason::time_is_up;
  }

  /// The vote travels with the gradients, so that every rank learns of it at the same step. Every
  /// rank votes, because one whose share of a batch is nothing has no gradients to send.
  bool wants_stop() {
    reason_ = limits_.stop_request();
    if (reason_ == StopReason::none && limits_.max_time &&
        seconds_since(limits_.begun) > static_cast<double>(limits_.max_time->count())) {
      reason_ = StopReason::time_is_up;
    }
    return reason_ != StopReason::none;
  }

  bool is_logged(std::int64_t step) const {
    return step == 1 || step % job_.spec.log.every == 0 || step == job_.total_steps;
  }

  void on_result(const StepResult& result) {
    if (result.metrics.stop_votes > 0) stop_voted_ = true;
    if (!writes_) return;
    interval_samples_ += static_cast<std::int64_t>(result.metrics.count);
    const double loss = static_cast<double>(result.metrics.loss_sum) / result.metrics.count;
    const double accuracy = static_cast<double>(result.metrics.correct) / result.metrics.count;
    draw_bar(result, loss);
    if (!is_logged(result.step)) return;
    const double elapsed = seconds_since(interval_begun_);
    log_.event("step", {{"epoch", stepper_.state().epoch + 1},
                        {"step", result.step},
                        {"loss", loss},
                        {"accuracy", accuracy},
                        {"lr", result.lr},
                        {"grad_norm", result.grad_norm.value_or(0.0)},
                        {"images_per_s", std::round(interval_samples_ / elapsed)},
                        {"data_wait", wait_fraction(stepper_.take_wait_seconds(), elapsed)}});
    begin_interval();
  }

  double wait_fraction(double waited, double elapsed) {
    epoch_wait_ += waited;
    return elapsed > 0 ? std::round(1000 * waited / elapsed) / 1000 : 0.0;
  }

  void begin_interval() {
    interval_begun_ = Clock::now();
    interval_samples_ = 0;
  }

  void draw_bar(const StepResult& result, double loss) {
    const auto now = Clock::now();
    if (now - bar_drawn_ < std::chrono::milliseconds(100)) return;
    bar_drawn_ = now;
    const double per_step = seconds_since(begun_) / static_cast<double>(result.step - first_step_);
    const double rate = static_cast<double>(job_.spec.data.batch_size) / per_step;
    progress_.bar(static_cast<double>(result.step) / static_cast<double>(job_.total_steps),
                  fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {} images/s  {} left",
                              stepper_.state().epoch + 1, job_.spec.train.epochs, result.step,
                              job_.total_steps, loss, format_rate(rate),
                              format_duration(
                                  per_step * static_cast<double>(job_.total_steps - result.step))));
  }

  /// How the speeds of the first steps divide the work, once.
  void log_device_weights() {
    if (!writes_ || weights_logged_ || stepper_.seconds_per_sample().empty()) return;
    weights_logged_ = true;
    const DeviceWeights& device_weights = stepper_.state().device_weights;
    const double whole =
        static_cast<double>(std::accumulate(device_weights.begin(), device_weights.end(), 0LL));
    std::vector<std::string> devices, texts;
    for (std::size_t i = 0; i < device_weights.size(); ++i) {
      devices.push_back(job_.devices[i].text());
      texts.push_back(fmt::format("{} {:.4g} %", devices[i],
                                  100.0 * static_cast<double>(device_weights[i]) / whole));
    }
    log_.event("device_weights", {{"step", stepper_.state().step},
                                  {"devices", devices},
                                  {"seconds_per_sample", stepper_.seconds_per_sample()},
                                  {"device_weights", device_weights}});
    progress_.info(fmt::format("device_weights of the work, by the speed of the first steps: {}",
                               fmt::join(texts, ", ")));
  }

  /// What the first epoch has shown about how rank 0's device runs its steps.
  void log_replica() {
    if (!writes_ || replica_logged_) return;
    replica_logged_ = true;
    const std::string launches = replica_.launches();
    log_.event("replica", {{"device", backend_.info().name},
                           {"memory_bytes", replica_.memory_bytes()},
                           {"launches", launches},
                           {"data", replica_.data_placement()},
                           {"sums", replica_.sums()},
                           {"implementations", replica_.implementations()}});
    if (backend_.info().queues && launches == "calls" && stepper_.state().step > first_step_ + 1) {
      progress_.info(
          fmt::format("{}: steps run as single calls, not as a graph", backend_.info().name));
    }
  }

  /// An evaluation that a stop request ends; nothing then, on all ranks.
  std::optional<EvalResult> evaluate(const Split& split, const std::string& name) {
    auto result =
        evaluate_split_unless([this] { return wants_stop(); }, replica_, job_, split, name);
    if (!result) note_stopped();
    return result;
  }

  /// Evaluates, keeps what is best, decides whether to go on, saves. False when a stop request came
  /// during the evaluation: then the epoch is not closed, and the resumed run evaluates again.
  bool close_epoch() {
    log_replica();
    const RunState& state = stepper_.state();
    const double trained = static_cast<double>(job_.splits.train.size());
    outcome_.train_loss = state.epoch_loss_sum / trained;
    outcome_.train_accuracy = state.epoch_correct / trained;
    const double seconds = seconds_since(epoch_begun_);
    epoch_wait_ += stepper_.take_wait_seconds();
    const double rate = (trained - static_cast<double>(epoch_first_position_)) / seconds;
    const double wait = seconds > 0 ? epoch_wait_ / seconds : 0.0;
    epoch_wait_ = 0;

    outcome_.val.reset();
    if (job_.splits.val.size() > 0 && !(outcome_.val = evaluate(job_.splits.val, "val"))) {
      return false;
    }
    stepper_.finish_epoch();
    const bool improved = update_best();
    const std::int64_t epoch = state.epoch;
    if (writes_) {
      log_.event("epoch", {{"epoch", epoch},
                           {"step", state.step},
                           {"loss", outcome_.train_loss},
                           {"accuracy", outcome_.train_accuracy},
                           {"seconds", seconds},
                           {"images_per_s", std::round(rate)},
                           {"data_wait", std::round(1000 * wait) / 1000}});
      if (outcome_.val) log_eval(*outcome_.val, epoch);
      progress_.info(epoch_line(epoch, rate, wait, improved));
    }
    const bool last = epoch >= job_.spec.train.epochs || outcome_.early_stopped;
    if (last || improved || epoch % job_.spec.checkpoint.every == 0) save(improved);
    begin_interval();
    return true;
  }

  std::string epoch_line(std::int64_t epoch, double rate, double wait, bool improved) const {
    std::string line =
        fmt::format("epoch {}/{}: train loss {:.4f} accuracy {:.4f}", epoch, job_.spec.train.epochs,
                    outcome_.train_loss, outcome_.train_accuracy);
    if (outcome_.val) {
      line += fmt::format(", val loss {:.4f} accuracy {:.4f}{}", outcome_.val->loss,
                          outcome_.val->accuracy, improved ? " (best)" : "");
    }
    line += fmt::format(", {} images/s", format_rate(rate));
    if (wait >= 0.01) line += fmt::format(", waiting for data {:.0f} % of the time", 100 * wait);
    return line;
  }

  void log_eval(const EvalResult& result, std::int64_t epoch) {
    log_.event("eval", {{"epoch", epoch},
                        {"step", stepper_.state().step},
                        {"split", result.split},
                        {"n", result.n},
                        {"loss", result.loss},
                        {"accuracy", result.accuracy},
                        {"launches", result.samples.replayed ? "graph" : "calls"}});
  }

  /// Updates best-so-far and the patience of early stopping; true when this epoch is the best.
  bool update_best() {
    RunState& state = stepper_.state();
    const KeepBestSpec& keep = job_.spec.checkpoint.keep_best;
    bool improved = false;
    if (const auto value = monitored(keep.monitor, outcome_.val)) {
      improved = !state.best || (keep.mode == "max" ? *value > *state.best : *value < *state.best);
      if (improved) {
        state.best = *value;
        state.best_step = state.step;
      }
    }
    if (const auto& early = job_.spec.train.early_stopping) {
      if (const auto value = monitored(early->monitor, outcome_.val)) {
        const double gain = !state.early_best      ? INFINITY
                            : early->mode == "max" ? *value - *state.early_best
                                                   : *state.early_best - *value;
        if (gain > early->min_delta) {
          state.early_best = *value;
          state.bad_evaluations = 0;
        } else if (++state.bad_evaluations >= early->patience) {
          outcome_.early_stopped = true;
          if (writes_) {
            progress_.info(fmt::format("early stopping: {} has not improved in {} evaluations",
                                       early->monitor, early->patience));
          }
        }
      }
    }
    return improved;
  }

  /// Writes a checkpoint of the present state. REQUIRES: drained. Called by all ranks.
  void save(bool is_best = false) {
    // A rank whose device failed does not get here, and what it did not add is missing on the
    // others: nothing is kept before all have seen their work done.
    communicator_.barrier();
    const auto moment = std::pair(stepper_.state().step, stepper_.state().epoch);
    if (!writes_ || moment == saved_) return;
    Checkpoint checkpoint;
    checkpoint.state = stepper_.state();
    checkpoint.params = replica_.params();
    checkpoint.optimizer = replica_.optimizer_state();
    checkpoint.config = job_.resolved_config;
    checkpoint.classes = job_.splits.train.source->classes();
    checkpoint.dataset_fingerprint = job_.splits.train.source->fingerprint();
    checkpoint.shards = job_.spec.train.shards;
    for (const DeviceName& device : job_.devices) checkpoint.devices.push_back(device.text());
    checkpoint.made_by = made_by(job_);
    const std::string name = checkpoint_name(checkpoint.state.step);
    const std::string path = folder_.checkpoints() + "/" + name;
    try {
      save_checkpoint(path, job_.plan, checkpoint);
      if (is_best) publish_link(path, folder_.best());
      apply_retention(folder_.checkpoints(), job_.spec.checkpoint.keep_last);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data || job_.spec.checkpoint.on_failure != "continue") throw;
      progress_.warn(fmt::format("{}; going on (checkpoint.on_failure is continue)", error.what()));
      log_.event("checkpoint_failed", {{"step", checkpoint.state.step}, {"reason", error.what()}});
      return;
    }
    saved_ = moment;
    log_.event(
        "checkpoint",
        {{"step", checkpoint.state.step}, {"path", "checkpoints/" + name}, {"best", is_best}});
  }

  /// The test set, once, with the best weights where a best is kept, else the last ones. False when
  /// a stop request came in the meantime.
  bool test_best() {
    if (job_.splits.test.size() == 0) return true;
    const RunState& state = stepper_.state();
    std::vector<float> last;
    if (state.best && state.best_step != state.step) {
      last = replica_.params();
      std::vector<float> weights(static_cast<std::size_t>(job_.plan.param_floats));
      if (writes_) weights = load_checkpoint(folder_.best(), job_.plan).params;
      communicator_.broadcast(std::as_writable_bytes(std::span<float>(weights)), 0);
      replica_.set_params(weights);
    }
    outcome_.test = evaluate(job_.splits.test, "test");
    if (!outcome_.test) {
      if (!last.empty()) replica_.set_params(last);  // what follows saves them
      return false;
    }
    if (writes_) log_eval(*outcome_.test, state.epoch);
    return true;
  }

  const Job& job_;
  const TrainLimits& limits_;
  Backend& backend_;
  Communicator& communicator_;
  RunFolder& folder_;
  RunLog& log_;
  Progress& progress_;
  bool writes_;
  std::int64_t first_step_;  ///< updates done before this process
  Replica replica_;
  Stepper stepper_;
  TrainOutcome outcome_;
  StopReason reason_ = StopReason::none;
  bool replica_logged_ = false, weights_logged_ = false;
  bool stop_voted_ = false;
  std::pair<std::int64_t, std::int64_t> saved_{-1, -1};  ///< step and epoch of the last save
  std::int64_t interval_samples_ = 0, epoch_first_position_ = 0;
  double epoch_wait_ = 0;
  Clock::time_point begun_, interval_begun_, epoch_begun_, bar_drawn_{};
};

}  // namespace

TrainOutcome train(const Job& job, const StartingPoint& start, const TrainLimits& limits,
                   RunFolder& folder, RunLog& log, Progress& progress) {
  TrainOutcome outcome;
  run_ranks(
      job.devices, job.backend_options,
      [&](Backend& backend, Communicator& communicator) {
        RankTrainer trainer(job, start, limits, backend, communicator, folder, log, progress);
        TrainOutcome mine = trainer.run();
        if (communicator.rank() == 0) outcome = std::move(mine);
      },
      stall_timeout(job));
  progress.clear();
  return outcome;
}

StartingPoint fresh_start(const Job& job) {
  StartingPoint start;
  start.params.resize(static_cast<std::size_t>(job.plan.param_floats));
  initialise_params(job.plan, static_cast<std::uint64_t>(job.spec.seed), start.params.data());
  return start;
}

StartingPoint start_from_checkpoint(const Job& job, const std::string& path) {
  Checkpoint checkpoint = load_checkpoint(path, job.plan);
  std::vector<std::string> names;
  for (const auto& [name, values] : checkpoint.optimizer) names.push_back(name);
  if (names != job.optimizer.state_names) {
    fail(ErrorKind::data,
         "{} holds the optimizer state [{}], but the config's optimizer {} keeps [{}]: resume with "
         "the optimizer that made it, or start from its weights with --weights",
         path, fmt::join(names, ", "), job.spec.optimizer.type,
         fmt::join(job.optimizer.state_names, ", "));
  }
  StartingPoint start;
  start.state = checkpoint.state;
  // Speeds that were measured on other devices say nothing, and device_weights that were given are
  // obeyed.
  std::vector<std::string> devices;
  for (const DeviceName& device : job.devices) devices.push_back(device.text());
  if (!job.calibrate || checkpoint.devices != devices) start.state.device_weights.clear();
  start.params = std::move(checkpoint.params);
  start.optimizer = std::move(checkpoint.optimizer);
  return start;
}

std::string made_by(const Job& job) {
  return fmt::format("{}; {}; {} x {}", backends_built_in(), cpu_info().instruction_set,
                     job.ranks(), job.devices.front().text());
}

}  // namespace dpt
