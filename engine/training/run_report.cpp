#include "engine/training/run_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "engine/job/best.h"
#include "engine/schedules/plateau.h"
#include "kernels/base/text.h"

namespace dpt {

void add_values(Json& line, const NamedValues& values) {
  for (const auto& [name, value] : values) line[name] = value;
}

void add_values(Json& line, const EvalResult& result) {
  if (result.accuracy) line["accuracy"] = *result.accuracy;
  add_values(line, result.metrics);
  for (const auto& [metric, count] : result.left_out) line["left_out"][metric] = count;
  for (const auto& [metric, classes] : result.by_class) add_values(line[metric + "_of"], classes);
}

std::string evaluated_average(const Job& job, const RunState& state) {
  return job.spec.train.ema || state.averaged > 0 ? job.update.average : std::string();
}

const char* noun_of_samples(const Job& job) {
  const SampleShape& shape = job.model.plan.input.shape;
  return shape.h * shape.w > 1 ? "images" : "samples";
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

RunReport::RunReport(const Job& job, std::int64_t first_step, std::int64_t last_step,
                     Backend& backend, Replica& replica, Stepper& stepper, RunLog& log,
                     Progress& progress)
    : job_(job),
      first_step_(first_step),
      last_step_(last_step),
      backend_(backend),
      replica_(replica),
      stepper_(stepper),
      log_(log),
      progress_(progress) {}

void RunReport::begin() {
  begun_ = Clock::now();
  begin_interval();
}

void RunReport::begin_epoch() {
  epoch_begun_ = Clock::now();
  // After a rollback, the run may be at an earlier step.
  first_step_ = std::min(first_step_, stepper_.state().step);
  epoch_first_position_ = stepper_.state().position;
  epoch_saving_ = 0;
}

void RunReport::saved(double seconds) {
  epoch_saving_ += seconds;
  interval_saving_ += seconds;
  step_begun_ = Clock::now();
}

void RunReport::end_training_of_epoch() {
  const std::int64_t samples = stepper_.state().position - epoch_first_position_;
  const double waited = std::exchange(epoch_wait_, 0.0) + stepper_.take_wait_seconds();
  speed_.reset();
  if (samples <= 0) return;
  const double seconds = seconds_since(epoch_begun_) - epoch_saving_;
  speed_ =
      Speed{seconds, static_cast<double>(samples) / seconds, seconds > 0 ? waited / seconds : 0.0};
}

void RunReport::begin_interval() {
  interval_begun_ = step_begun_ = Clock::now();
  interval_samples_ = 0;
  interval_saving_ = 0;
}

bool RunReport::has_accuracy() const {
  return dpt::has_accuracy(job_.model.loss.targets.kind);
}

bool RunReport::is_logged(std::int64_t step) const {
  return step == 1 || step % job_.spec.log.every == 0 || step == job_.update.total_steps;
}

void RunReport::step(const StepResult& result) {
  const auto samples = result.metrics.count.count();
  interval_samples_ += samples;
  run_samples_ += samples;
  const double loss = result.metrics.mean_loss();
  replica_.measurements().take(result);
  show_status(result, loss);
  note_step(result, loss);
  if (!is_logged(result.step)) return;
  const double elapsed = seconds_since(interval_begun_) - interval_saving_;
  std::vector<double> sums;
  for (const SplitSum& sum : result.metrics.sums) sums.push_back(sum.value());
  Json line = {{"epoch", stepper_.state().epoch + 1}, {"step", result.step}, {"loss", loss}};
  add_values(line, job_.model.metrics.values({sums, result.metrics.labelled.value()}, false));
  line["lr"] = result.lr;
  line["grad_norm"] = result.grad_norm.value_or(0.0);
  replica_.measurements().log(line);
  line["images_per_s"] = std::round(interval_samples_ / elapsed);
  line["data_wait"] = wait_fraction(stepper_.take_wait_seconds(), elapsed);
  log_.event("step", line);
  begin_interval();
}

void RunReport::note_step(const StepResult& result, double loss) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - step_begun_).count();
  step_begun_ = now;
  const RunState& state = stepper_.state();
  log_.progress({state.epoch + 1, result.step, loss, result.lr, result.metrics.count.count(),
                 seconds, &state});
}

double RunReport::wait_fraction(double waited, double elapsed) {
  epoch_wait_ += waited;
  return elapsed > 0 ? std::round(1000 * waited / elapsed) / 1000 : 0.0;
}

bool RunReport::is_status_due() {
  const auto now = Clock::now();
  if (now - status_shown_ < std::chrono::milliseconds(100)) return false;
  status_shown_ = now;
  return true;
}

void RunReport::show_status(const StepResult& result, double loss) {
  if (!is_status_due()) return;
  const RunState& state = stepper_.state();
  const double per_step = seconds_since(begun_) / static_cast<double>(result.step - first_step_);
  const double rate = static_cast<double>(run_samples_) / seconds_since(begun_);
  const std::string epoch = fmt::format("epoch {}/{}", state.epoch + 1, job_.spec.train.epochs);
  // Results may arrive some steps after the end of their epoch.
  const std::int64_t in_epoch = std::clamp<std::int64_t>(
      result.step - state.epoch * job_.data.steps_per_epoch, 0, job_.data.steps_per_epoch);
  const std::string left =
      format_duration(per_step * static_cast<double>(last_step_ - result.step));
  std::vector<StatusPart> parts = {
      {{fmt::format("{} ({} %)", epoch, 100 * in_epoch / job_.data.steps_per_epoch), epoch}, 2},
      {{fmt::format("step {}/{}", result.step, last_step_)}, 4},
      {{fmt::format("loss {:.4f}", loss)}, 5}};
  if (state.val_accuracy) {
    parts.push_back({{fmt::format("val accuracy {:.4f}", *state.val_accuracy)}, 1});
  } else if (state.val_loss) {
    parts.push_back({{fmt::format("val loss {:.4f}", *state.val_loss)}, 1});
  }
  parts.push_back({{fmt::format("{} {}/s", format_rate(rate), noun_of_samples(job_)),
                    fmt::format("{}/s", format_rate(rate))},
                   3});
  parts.push_back({{left + " left", left}, 6});
  progress_.status(static_cast<double>(result.step) / static_cast<double>(last_step_), parts);
}

void RunReport::evaluating(const std::string& split, std::int64_t done, std::int64_t total) {
  if (!is_status_due()) return;
  progress_.status(static_cast<double>(done) / static_cast<double>(total),
                   {{{fmt::format("evaluating {}", split)}, 2},
                    {{fmt::format("{} of {} {}", done, total, noun_of_samples(job_)),
                      fmt::format("{} %", 100 * done / total)},
                     3}});
}

void RunReport::replica() {
  if (replica_logged_) return;
  replica_logged_ = true;
  const std::string launches = replica_.launches();
  log_.event("replica", {{"device", backend_.info().name},
                         {"memory_bytes", replica_.memory_bytes()},
                         {"micro_batch", replica_.micro_batch()},
                         {"launches", launches},
                         {"data", replica_.data_placement()},
                         {"sums", replica_.sums()},
                         {"implementations", replica_.implementations()}});
  if (replica_.is_short_of_memory()) {
    progress_.warn(
        fmt::format("{}: there is memory for {} samples at once, so each step accumulates the "
                    "gradient over micro-batches of up to that size. The rounding of sums depends "
                    "on the micro-batches; train.accumulate fixes their number",
                    backend_.info().name, replica_.micro_batch()));
  }
  if (backend_.info().queues && launches == "calls" && stepper_.state().step > first_step_ + 1) {
    progress_.info(
        fmt::format("{}: steps run as single calls, not as a graph", backend_.info().name));
  }
}

void RunReport::warn_of_undefined_monitors() {
  std::set<std::string> monitors = {job_.spec.checkpoint.keep_best.monitor, "val/loss"};
  if (const auto& early = job_.spec.train.early_stopping) monitors.insert(early->monitor);
  if (const auto* plateau = plateau_of(job_.spec)) monitors.insert(plateau->monitor);
  for (const std::string& monitor : monitors) {
    const std::optional<double> value = last_value(monitor, stepper_.state());
    if (!value || std::isfinite(*value) || !undefined_monitors_.insert(monitor).second) continue;
    progress_.warn(fmt::format(
        "{} is not a finite number after epoch {}, so it counts as no improvement{}", monitor,
        stepper_.state().epoch,
        monitor == "val/loss" ? "; dpt data check names samples with NaN or infinite values" : ""));
  }
}

void RunReport::epoch(const std::optional<EvalResult>& val, bool improved, bool early_stopped) {
  const RunState& state = stepper_.state();
  Json line = {
      {"epoch", state.epoch}, {"step", state.step}, {"loss", state.train_loss.value_or(NAN)}};
  // The accuracy of an epoch in which no sample counts is NaN.
  if (has_accuracy()) line["accuracy"] = state.train_accuracy.value_or(NAN);
  add_values(line, state.train_metrics);
  if (speed_) {
    line["seconds"] = speed_->seconds;
    line["images_per_s"] = std::round(speed_->rate);
    line["data_wait"] = std::round(1000 * speed_->wait) / 1000;
  }
  log_.event("epoch", line);
  if (val) eval(*val, evaluated_average(job_, state));
  log_.progress({state.epoch, state.step, NAN, NAN, 0, 0, &state});
  if (val) warn_of_undefined_monitors();
  progress_.info(epoch_line(improved));
  if (early_stopped) {
    const EarlyStoppingSpec& early = *job_.spec.train.early_stopping;
    progress_.info(fmt::format("early stopping: {} has not improved in {}", early.monitor,
                               counted(early.patience, "evaluation")));
  }
}

std::string RunReport::epoch_line(bool improved) const {
  const RunState& state = stepper_.state();
  const auto measured = [&](std::optional<double> accuracy, const NamedValues& metrics) {
    std::string text =
        has_accuracy() ? fmt::format(" accuracy {:.4f}", accuracy.value_or(NAN)) : std::string();
    for (const auto& [name, value] : metrics) text += fmt::format(" {} {:.4f}", name, value);
    return text;
  };
  std::string line = fmt::format("epoch {}/{}: train loss {:.4f}{}", state.epoch,
                                 job_.spec.train.epochs, state.train_loss.value_or(NAN),
                                 measured(state.train_accuracy, state.train_metrics));
  if (state.val_loss) {
    line += fmt::format(", val loss {:.4f}{}{}", *state.val_loss,
                        measured(state.val_accuracy, state.val_metrics), improved ? " (best)" : "");
    const std::int64_t unreadable = job_.data.splits.val.size() - state.val_n;
    if (unreadable > 0) line += fmt::format(" ({} unreadable)", unreadable);
  }
  // Round the speed as the log does before formatting it, so that both agree: 25,649.6 becomes
  // 25650 in the log and 25.7k here.
  if (speed_) {
    line += fmt::format(", {} {}/s ({})", format_rate(std::round(speed_->rate)),
                        noun_of_samples(job_), format_duration(speed_->seconds));
  }
  if (speed_ && speed_->wait >= 0.01) {
    line += fmt::format(", waiting for data {:.0f} % of the time", 100 * speed_->wait);
  }
  return line;
}

void RunReport::lr_reduced(const LrReduction& reduction) {
  const RunState& state = stepper_.state();
  const std::string& monitor = plateau_of(job_.spec)->monitor;
  const double from = reduction.from * state.lr_scale, to = reduction.to * state.lr_scale;
  Json line = {{"epoch", state.epoch},
               {"step", state.step},
               {"monitor", monitor},
               {"value", reduction.value},
               {"evaluations", reduction.evaluations},
               {"from", from},
               {"lr", to}};
  if (reduction.best) line["best"] = *reduction.best;
  log_.event("lr_reduced", line);
  progress_.info(
      fmt::format("{} has not improved in {}: the learning rate is lowered from {:.6g} to {:.6g}",
                  monitor, counted(reduction.evaluations, "evaluation"), from, to));
}

void RunReport::ledger(const LedgerTotals& totals) {
  const RunState& state = stepper_.state();
  Json line = {{"epoch", state.epoch}, {"step", state.step}};
  line.update(ledger_json(totals, job_));
  line.erase("advice");  // the summary states it once
  log_.event("ledger", line);
}

void RunReport::eval(const EvalResult& result, const std::string& weights) {
  Json line = {{"epoch", stepper_.state().epoch},
               {"step", stepper_.state().step},
               {"split", result.split},
               {"n", result.n},
               {"loss", result.loss}};
  if (result.unreadable > 0) line["unreadable"] = result.unreadable;
  add_values(line, result);
  if (!weights.empty()) line["weights"] = weights;
  line["launches"] = result.samples.replayed ? "graph" : "calls";
  log_.event("eval", line);
}

}  // namespace dpt
