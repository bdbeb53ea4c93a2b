// dpt train --smoke CONFIG: runs all stages of a run on a few synthetic samples, in a temporary
// folder. Tests if the parts of the config fit together, not if the model learns.
#include "app/train/command_smoke.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/export/export_facts.h"
#include "app/train/smoke_job.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/export/onnx.h"
#include "engine/export/torch_state.h"
#include "engine/job/starting_point.h"
#include "engine/processes/detect_world.h"
#include "engine/run/lineage.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/evaluator.h"
#include "engine/training/trainer.h"
#include "kernels/base/error.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/text.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Creates a folder for temporary files, which the caller must remove.
std::string make_smoke_folder() {
  std::error_code error;
  const char* named = std::getenv("TMPDIR");
  const bool is_empty = named && *named == '\0';  // other programs treat an empty TMPDIR as unset
  const std::string temporary = is_empty ? "/tmp" : fs::temp_directory_path(error).string();
  if (error) {
    fail(ErrorKind::data, "--smoke: {}: set TMPDIR to a folder for temporary files",
         error.message());
  }
  std::string form = temporary + "/dpt-smoke-XXXXXX";
  if (!::mkdtemp(form.data())) {
    fail(ErrorKind::data, "--smoke: cannot create a folder in {}: {}: set TMPDIR to another folder",
         temporary, std::strerror(errno));
  }
  return form;
}

class SmokeTest {
 public:
  SmokeTest(const TrainOptions& options, std::string folder)
      : options_(options), folder_(std::move(folder)) {}

  /// Runs the stages and prints a line after each. Throws the error of a stage.
  void run() {
    stage("data", [&] { return make_job(); });
    stage("train", [&] { return train_through(); });
    stage("resume", [&] { return stop_and_resume(); });
    stage("evaluate", [&] { return evaluate(); });
    stage("export", [&] { return export_it(); });
  }
  const std::string& stage_name() const { return stage_; }

 private:
  static constexpr std::int64_t kLastStep = 2 * kSmokeSteps;
  static constexpr std::int64_t kStopStep = kLastStep - 1;  ///< in the middle of an epoch

  void stage(const char* name, const std::function<std::string()>& work) {
    stage_ = name;
    const std::string result = work();
    if (requested_stop() != StopReason::none) throw StopRequested();
    fmt::print("{:<9} {}\n", name, result);
    std::fflush(stdout);
  }

  std::string make_job() {
    SmokeJob made = make_smoke_job(options_.config,
                                   with_devices(options_.overrides, options_.devices), folder_);
    for (const std::string& note : made.notes) say("note: " + note);
    job_ = std::move(made.job);
    return made.samples;
  }

  /// Trains from `start` until `last` steps are done. `from` is the file from which `start` was
  /// read, or empty.
  TrainOutcome train_to(const std::string& name, std::int64_t last, StartingPoint start,
                        const std::string& from) {
    RunFolder folder(folder_ + "/" + name);
    Progress progress(true);
    progress.also_to(folder.at("train.log"));
    take_place(job_, folder, from, false, start,
               [&](const std::string& text) { progress.info(text); });
    RunLog log(folder.at("metrics.jsonl"), [&](const std::string& text) { progress.warn(text); });
    TrainLimits limits;
    limits.max_steps = last;
    TrainOutcome outcome = train(job_, start, limits, folder, log, progress);
    if (outcome.end == RunEnd::stopped) throw StopRequested();
    if (outcome.state.step != last) {
      fail(ErrorKind::unexpected, "expected {} steps, but training ended after {}", last,
           outcome.state.step);
    }
    return outcome;
  }

  std::string checkpoint_of(const std::string& name, std::int64_t step) const {
    return folder_ + "/" + name + "/checkpoints/" + checkpoint_name(step);
  }

  std::string train_through() {
    const TrainOutcome outcome = train_to("through", kLastStep, fresh_start(job_), {});
    const RunState& state = outcome.state;
    std::string text = fmt::format(
        "{} parameters on {} ({}): {} of {} samples", job_.model.plan.param_count,
        counted(job_.placement.ranks(), "replica"), fmt::join(job_.placement.device_names(), ", "),
        counted(state.step, "step"), job_.spec.data.batch_size);
    if (state.train_loss) text += fmt::format(", loss {:.4g}", *state.train_loss);
    if (state.val_loss) text += fmt::format(", validation loss {:.4g}", *state.val_loss);
    return text + ", saved";
  }

  std::string stop_and_resume() {
    train_to("resumed", kStopStep, fresh_start(job_), {});
    const std::string from = checkpoint_of("resumed", kStopStep);
    train_to("resumed", kLastStep, start_from_checkpoint(job_, from), from);
    const Checkpoint through =
        load_checkpoint(checkpoint_of("through", kLastStep), job_.model.plan);
    const Checkpoint resumed =
        load_checkpoint(checkpoint_of("resumed", kLastStep), job_.model.plan);
    check_same("weights", through.params, resumed.params);
    for (const auto& state : through.optimizer) {
      const auto same = std::find_if(resumed.optimizer.begin(), resumed.optimizer.end(),
                                     [&](const auto& each) { return each.first == state.first; });
      check_same(state.first, state.second,
                 same == resumed.optimizer.end() ? std::vector<float>() : same->second);
    }
    return fmt::format(
        "stopped after step {} and resumed: weights{} equal those of a run that was "
        "not stopped, bit by bit",
        kStopStep, through.optimizer.empty() ? "" : " and optimizer state");
  }

  void check_same(const std::string& what, const std::vector<float>& through,
                  const std::vector<float>& resumed) const {
    if (through.size() == resumed.size() &&
        std::memcmp(through.data(), resumed.data(), through.size() * sizeof(float)) == 0) {
      return;
    }
    const std::string sizes =
        through.size() == resumed.size()
            ? std::string()
            : fmt::format(" ({} values instead of {})", resumed.size(), through.size());
    fail(ErrorKind::unexpected,
         "expected the resumed run to end with the same bits as the run that was not stopped, "
         "found different {}{}",
         what, sizes);
  }

  std::string evaluate() {
    load_last();
    const EvalResult result = evaluate_on_ranks(job_, job_.data.splits.test, "test", weights());
    if (!std::isfinite(result.loss)) {
      fail(ErrorKind::diverged, "expected a finite loss of the test samples, found {}",
           result.loss);
    }
    std::string text = fmt::format("{} test samples: loss {:.4g}", result.n, result.loss);
    if (result.accuracy) text += fmt::format(", accuracy {:.4f}", *result.accuracy);
    for (const auto& [metric, value] : result.metrics) {
      text += fmt::format(", {} {:.4g}", metric, value);
    }
    return text;
  }

  std::string export_it() {
    const std::string path = checkpoint_of("through", kLastStep);
    const auto* average = average_of(last_);
    const ExportFacts facts =
        export_facts_of(job_.spec, read_checkpoint_header(path), average ? average->first : "raw",
                        job_.data.splits.train.source->type());
    const std::string torch = folder_ + "/model.safetensors", onnx = folder_ + "/model.onnx";
    write_torch_state(torch, job_.model.plan, weights(), facts);
    const std::string model = onnx_model(job_.spec, job_.model.plan, weights(), facts);
    write_results(onnx, std::as_bytes(std::span(model)));
    return fmt::format("ONNX {} bytes, state_dict of PyTorch {} bytes", fs::file_size(onnx),
                       fs::file_size(torch));
  }

  void load_last() {
    last_ = load_checkpoint(checkpoint_of("through", kLastStep), job_.model.plan);
  }
  /// Returns the weights that dpt eval and dpt export use.
  const std::vector<float>& weights() const {
    const auto* average = average_of(last_);
    return average ? average->second : last_.params;
  }

  const TrainOptions& options_;
  std::string folder_, stage_;
  Job job_;
  Checkpoint last_;
};

void remove_smoke_folder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) say(fmt::format("warning: cannot remove {}: {}", folder, error.message()));
}

}  // namespace

int run_smoke(const TrainOptions& options) {
  if (!detect_world(options.processes.flags).alone()) {
    fail(ErrorKind::usage,
         "--smoke: expected one process, found a launcher that has started several: run it "
         "without the launcher");
  }
  stop_request::is_starting = true;  // until the first step, a stop request ends the work
  const auto begun = std::chrono::steady_clock::now();
  const std::string folder = make_smoke_folder();
  SmokeTest test(options, folder);
  try {
    test.run();
  } catch (const StopRequested&) {
    remove_smoke_folder(folder);
    say(fmt::format("smoke test stopped ({})", name_of(requested_stop())));
    return exit_code_of(requested_stop());
  } catch (const std::exception& error) {
    fmt::print("smoke test failed: {}\n", test.stage_name());
    std::fflush(stdout);
    std::error_code ignored;
    if (fs::is_empty(folder, ignored)) {
      remove_smoke_folder(folder);
    } else {
      say(fmt::format("the files of the smoke test are in {}", folder));
    }
    throw;
  }
  remove_smoke_folder(folder);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  fmt::print("smoke test passed in {:.1f} s\n", took.count());
  return 0;
}

}  // namespace dpt
