#include "engine/job/starting_point.h"

#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/ranges.h>

#include "engine/checkpoints/run_metadata.h"
#include "engine/graph/init.h"
#include "engine/job/best.h"
#include "engine/job/resume_checks.h"
#include "engine/processes/process_group.h"
#include "kernels/base/file_io.h"
#include "kernels/base/json_text.h"
#include "kernels/devices.h"

namespace dpt {

StartingPoint fresh_start(const Job& job) {
  StartingPoint start;
  start.params.resize(static_cast<std::size_t>(job.model.plan.param_floats));
  initialise_params(job.model.plan, static_cast<std::uint64_t>(job.spec.seed), start.params.data());
  start.state.rollback_step = 0;
  return start;
}

StartingPoint start_from_checkpoint(const Job& job, const std::string& path) {
  VerifiedCheckpoint file(path, job.model.plan);
  return start_from_checkpoint(job, file);
}

StartingPoint start_from_checkpoint(const Job& job, VerifiedCheckpoint& file) {
  const std::string& path = file.path();
  Checkpoint checkpoint = file.take();
  check_fits(path, checkpoint.state, job);
  std::vector<std::string> names;
  for (const auto& [name, values] : checkpoint.optimizer) names.push_back(name);
  if (names != job.update.state_names()) {
    fail(ErrorKind::data,
         "{} holds the optimizer state [{}], but the config's optimizer {} keeps [{}]: resume with "
         "the optimizer of the checkpoint, or start a new run from its weights with --weights",
         path, fmt::join(names, ", "), job.spec.optimizer.type,
         fmt::join(job.update.state_names(), ", "));
  }
  StartingPoint start;
  start.state = checkpoint.state;
  start.config = std::move(checkpoint.config);
  start.checksum = checkpoint.checksum;
  start.folder = folder_of(path);
  if (start.state.best && start.state.best_step == start.state.step &&
      start.state.best_checksum.empty()) {
    start.state.best_checksum = start.checksum;
  }
  adopt_early_stopping(job.spec, start.state);
  // Device weights that an earlier release measured apply only to the same devices. Weights in the
  // config override them.
  if (!job.spec.device_weights.empty() || checkpoint.devices != job.placement.device_names())
    start.state.device_weights.clear();
  start.devices = std::move(checkpoint.devices);
  start.made_by = std::move(checkpoint.made_by);
  start.params = std::move(checkpoint.params);
  start.optimizer = std::move(checkpoint.optimizer);
  return start;
}

StartingPoint share_start(const Job& job, const std::function<StartingPoint()>& make) {
  if (!job.placement.processes) return make();
  ProcessGroup& processes = *job.placement.processes;
  StartingPoint start;
  nlohmann::json text;
  if (job.placement.writes()) {
    start = make();
    text = {{"state", state_metadata(start.state)},
            {"has_states", !start.optimizer.empty()},
            {"config", start.config},
            {"devices", start.devices},
            {"made_by", start.made_by}};
  }
  const std::string said = processes.share("starting point", json_text(text));
  if (!job.placement.writes()) {
    read_said(0, "starting point", [&] {
      text = nlohmann::json::parse(said);
      start.state = parse_state_metadata(text.at("state").get<Metadata>());
      start.config = text.at("config").get<std::string>();
      start.devices = text.at("devices").get<std::vector<std::string>>();
      start.made_by = text.at("made_by").get<std::string>();
      const auto floats = static_cast<std::size_t>(job.model.plan.param_floats);
      start.params.resize(floats);
      if (text.at("has_states").get<bool>()) {
        for (const std::string& name : job.update.state_names()) {
          start.optimizer.emplace_back(name, std::vector<float>(floats));
        }
      }
    });
  }
  processes.share(std::as_writable_bytes(std::span<float>(start.params)), "sharing the weights");
  for (auto& [name, values] : start.optimizer) {
    processes.share(std::as_writable_bytes(std::span<float>(values)), "sharing optimizer state");
  }
  return start;
}

void adopt_device_weights(const RunState& state, Job& job) {
  if (!state.device_weights.empty()) job.placement.device_weights = state.device_weights;
}

std::string made_by(const Job& job) {
  const CpuInfo cpu = cpu_info();
  const std::string maker = cpu.maker.empty() ? std::string() : fmt::format(" ({})", cpu.maker);
  const DeviceName& device = job.placement.devices.front();
  std::string text = fmt::format("{}; {}{}; {} x {}", backends_built_in(), cpu.instruction_set,
                                 maker, job.placement.ranks(), device.text());
  if (device.kind == DeviceName::Kind::cuda) {
    text += fmt::format("; {}, {}", kind_of(device), cuda_arithmetic());
  }
  return text;
}

}  // namespace dpt
