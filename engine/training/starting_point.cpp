// Where runs start: initial weights, or a checkpoint.
#include <utility>

#include <fmt/ranges.h>

#include "engine/checkpoints/file_io.h"
#include "engine/training/best.h"
#include "engine/training/resume_checks.h"
#include "engine/training/trainer.h"

namespace dpt {

StartingPoint fresh_start(const Job& job) {
  StartingPoint start;
  start.params.resize(static_cast<std::size_t>(job.plan.param_floats));
  initialise_params(job.plan, static_cast<std::uint64_t>(job.spec.seed), start.params.data());
  start.state.rollback_step = 0;
  return start;
}

StartingPoint start_from_checkpoint(const Job& job, const std::string& path) {
  Checkpoint checkpoint = load_checkpoint(path, job.plan);
  check_fits(path, checkpoint.state, job);
  std::vector<std::string> names;
  for (const auto& [name, values] : checkpoint.optimizer) names.push_back(name);
  if (names != job.state_names()) {
    fail(ErrorKind::data,
         "{} holds the optimizer state [{}], but the config's optimizer {} keeps [{}]: resume with "
         "that optimizer, or start from its weights with --weights",
         path, fmt::join(names, ", "), job.spec.optimizer.type, fmt::join(job.state_names(), ", "));
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
  // Speeds that were measured on other devices say nothing, and device_weights that were given are
  // obeyed.
  if (!job.calibrate || checkpoint.devices != job.device_names())
    start.state.device_weights.clear();
  start.devices = std::move(checkpoint.devices);
  start.made_by = std::move(checkpoint.made_by);
  start.params = std::move(checkpoint.params);
  start.optimizer = std::move(checkpoint.optimizer);
  return start;
}

std::string made_by(const Job& job) {
  const CpuInfo cpu = cpu_info();
  const std::string maker = cpu.maker.empty() ? std::string() : fmt::format(" ({})", cpu.maker);
  return fmt::format("{}; {}{}; {} x {}", backends_built_in(), cpu.instruction_set, maker,
                     job.ranks(), job.devices.front().text());
}

}  // namespace dpt
