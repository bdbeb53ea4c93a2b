#include "app/train/train_announcement.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/train/misfits.h"
#include "app/train/train_report.h"
#include "engine/config/read_spec.h"
#include "engine/job/resume_checks.h"
#include "engine/job/starting_point.h"
#include "engine/job/statistics_checks.h"
#include "engine/processes/process_devices.h"
#include "engine/processes/process_group.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Returns the reasons why the bits of an exact run depend on its devices or change on resume.
std::vector<std::string> reasons_for_other_bits(const Job& job, const TrainStart& start) {
  std::vector<std::string> reasons = {inexact_devices(job, start.point.devices),
                                      inexact_makers(job, start.point.made_by, made_by(job))};
  std::erase(reasons, std::string());
  return reasons;
}

/// Writes the event run_start.
void log_run_start(const Job& job, const TrainStart& start,
                   const std::vector<std::string>& other_bits, RunLog& log) {
  const RunState& state = start.point.state;
  Json fields = {{"run", job.spec.name},
                 {"devices", job.placement.device_names()},
                 {"params", job.model.plan.param_count},
                 {"train_samples", job.data.splits.train.size()},
                 {"val_samples", job.data.splits.val.size()},
                 {"test_samples", job.data.splits.test.size()},
                 {"batch_size", job.spec.data.batch_size},
                 {"steps_per_epoch", job.data.steps_per_epoch},
                 {"epochs", job.spec.train.epochs},
                 {"shards", job.spec.train.shards},
                 {"device_weights", job.placement.device_weights},
                 {"resumed_from", start.checkpoint},
                 {"step", state.step}};
  if (!start.other_data.empty()) fields["other_data"] = start.other_data;
  if (!other_bits.empty()) fields["other_bits"] = other_bits;
  if (!start.weights.url.empty()) {
    fields["weights"] = {
        {"file", start.weights_file}, {"url", start.weights.url}, {"sha256", start.weights.sha256}};
  }
  log.event("run_start", fields);
}

/// Warns of settings that may make this run slow or its result unexpected.
void warn_at_start(const Job& job, const TrainStart& start,
                   const std::vector<std::string>& other_bits, Progress& progress) {
  for (const std::string& reason : other_bits) progress.warn(reason);
  const std::vector<std::string> variables = variables_of_cuda_arithmetic();
  if (!variables.empty() &&
      std::any_of(job.placement.devices.begin(), job.placement.devices.end(),
                  [](const DeviceName& d) { return d.kind == DeviceName::Kind::cuda; })) {
    progress.warn(fmt::format(
        "{} changes the arithmetic of NVIDIA's libraries, whatever train.precision is: unset it, "
        "unless that is intended",
        fmt::join(variables, ", ")));
  }
  if (has_unlike_kinds(job.placement.devices) && job.spec.device_weights.empty() &&
      start.point.state.device_weights.empty()) {
    progress.warn(
        "devices of different kinds get equal parts of each batch, so the fast ones wait for the "
        "slow ones: `dpt bench` with this config prints device_weights that balance them");
  }
  if (const std::string small = small_shards(job); !small.empty()) progress.warn(small);
  if (const std::string cores = why_cores_are_short(job); !cores.empty()) progress.warn(cores);
  for (const std::string& text : misfits_of(job, start)) progress.warn(text);
  const auto is_cpu = [](const DeviceName& device) { return device.kind == DeviceName::Kind::cpu; };
  if (job.model.plan.type == DType::bf16 && !cpu_info().bf16_is_faster &&
      std::any_of(job.placement.devices.begin(), job.placement.devices.end(), is_cpu)) {
    progress.warn(kSlowBf16);
  }
}

/// Prints a line if evaluations use averaged weights, and one if there are no validation samples.
void announce_evaluation(const Job& job, Progress& progress) {
  if (job.spec.train.ema) {
    progress.info(
        fmt::format("validation, keep_best, early stopping and the test use the moving average of "
                    "the weights (train.ema, decay {:g})",
                    job.spec.train.ema->decay));
  }
  if (const auto& swa = job.spec.train.swa) {
    progress.info(fmt::format(
        "from epoch {} on, validation, keep_best, early stopping and the test use the average of "
        "the weights after {} (train.swa)",
        swa->from_epoch,
        swa->every == 1 ? std::string("every epoch") : fmt::format("every {} epochs", swa->every)));
  }
  if (job.data.splits.val.size() == 0) {
    progress.info("no validation samples (data.val_split is 0, and the data set has none)");
  }
}

}  // namespace

void announce_processes(const Job& job, RunLog& log, Progress& progress) {
  if (!job.placement.processes) return;
  progress.info(describe(job.placement.processes->world()));
  Json list = Json::array();
  int rank = 0;
  for (const ProcessGroup::Member& member : job.placement.processes->members()) {
    const std::vector<std::string> devices = names_of(member.devices);
    progress.info(fmt::format("rank {}: {} ({}), process {}: {}", rank, member.host, member.address,
                              member.pid, fmt::join(devices, ", ")));
    list.push_back({{"rank", rank++},
                    {"host", member.host},
                    {"address", member.address},
                    {"pid", member.pid},
                    {"local_rank", member.local_rank},
                    {"devices", devices}});
  }
  const bool has_token = !job.placement.processes->world().token.empty();
  if (!has_token) {
    progress.info(
        "DPT_TOKEN is not set: connections are authenticated with a random token from rank 0, "
        "which keeps out accidental connections, but not an attacker");
  }
  log.event("processes", {{"launcher", job.placement.processes->world().launcher},
                          {"token", has_token ? "DPT_TOKEN" : "drawn by rank 0"},
                          {"processes", list}});
}

void announce(const Job& job, const RunFolder& folder, const TrainStart& start, RunLog& log,
              Progress& progress) {
  const std::vector<std::string> other_bits = reasons_for_other_bits(job, start);
  log_run_start(job, start, other_bits, log);
  progress.info(fmt::format("run folder {}", folder.path()));
  progress.info(fmt::format("{} parameters, {} training samples, batch {} on {} ({})",
                            job.model.plan.param_count, job.data.splits.train.size(),
                            job.spec.data.batch_size, counted(job.placement.ranks(), "replica"),
                            fmt::join(job.placement.device_names(), ", ")));
  if (!start.checkpoint.empty()) {
    const RunState& state = start.point.state;
    progress.info(
        fmt::format("resuming {} at step {} (epoch {})", start.checkpoint, state.step,
                    std::min(state.epoch + 1, std::max(state.epoch, job.spec.train.epochs))));
    const TrainSpec before = load_stored_spec(catalog(), start.point.config, start.checkpoint);
    const std::string change = learning_rate_change(job, before, start.point.state);
    if (!change.empty()) progress.warn(change);
  }
  warn_at_start(job, start, other_bits, progress);
  announce_evaluation(job, progress);
}

}  // namespace dpt
