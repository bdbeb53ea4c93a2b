#include "engine/processes/detect_world.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "engine/processes/world_launchers.h"
#include "engine/processes/world_slurm.h"
#include "engine/processes/world_variables.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

using launchers::any_set;
using launchers::check_all_set;
using launchers::check_below;
using launchers::check_slurm_batch;
using launchers::env_text;
using launchers::from_mpich;
using launchers::from_nproc;
using launchers::from_open_mpi;
using launchers::from_slurm;
using launchers::from_torchrun;
using launchers::is_set;
using launchers::is_this_machine;
using launchers::read_coordinator;
using launchers::read_local_place;
using launchers::set_coordinator;

std::optional<World> from_flags(const Environment& environment, const WorldFlags& flags) {
  if (flags.rank == -1 && flags.size == -1 && flags.coordinator.empty()) return std::nullopt;
  const bool has_coordinator = !flags.coordinator.empty() || is_set(environment, "DPT_COORDINATOR");
  std::vector<const char*> missing;
  if (flags.rank == -1) missing.push_back("--rank");
  if (flags.size == -1) missing.push_back("--world-size");
  if (!has_coordinator) missing.push_back("--coordinator");
  if (!missing.empty()) {
    fail(ErrorKind::usage, "--rank, --world-size and --coordinator belong together: {} not given",
         fmt::join(missing, " and "));
  }
  World world;
  world.launcher = "--rank";
  world.size = flags.size;
  world.rank = flags.rank;
  if (world.size < 1) fail(ErrorKind::usage, "--world-size {}: expected at least 1", world.size);
  if (world.rank < 0) fail(ErrorKind::usage, "--rank {}: expected at least 0", world.rank);
  check_below("flags", "--rank", world.rank, "--world-size", world.size);
  if (!flags.coordinator.empty()) {
    read_coordinator(world, "--coordinator", flags.coordinator);
  } else {
    set_coordinator(world, environment);
  }
  if (any_set(environment, {"DPT_LOCAL_RANK", "DPT_LOCAL_SIZE"})) {
    check_all_set(environment, "flags", {"DPT_LOCAL_RANK", "DPT_LOCAL_SIZE"},
                  "set both, or none where each machine has one process");
    read_local_place(world, environment, "flags",
                     {"--rank", "--world-size", "DPT_LOCAL_RANK", "DPT_LOCAL_SIZE"});
  } else if (is_this_machine(world.coordinator)) {
    world.local_rank = world.rank;
    world.local_size = world.size;
  }
  world.job = env_text(environment, "DPT_JOB");
  return world;
}

/// Returns the world that a launcher created, or nothing.
std::optional<World> from_launcher(const Environment& environment) {
  // If launchers are nested, the inner one created the processes: torchrun and mpirun run below
  // srun, never the other way round.
  for (const auto& look : {from_nproc, from_torchrun, from_open_mpi, from_mpich, from_slurm}) {
    if (std::optional<World> world = look(environment)) return world;
  }
  return std::nullopt;
}

std::string this_host() {
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

}  // namespace

World detect_world(const Environment& environment, const WorldFlags& flags) {
  std::optional<World> found = from_flags(environment, flags);
  if (!found) found = from_launcher(environment);
  World world = found.value_or(World());
  world.host = this_host();
  if (world.size > kMaxProcesses) {
    fail(ErrorKind::usage,
         "a world of {} processes ({}): expected at most {}. Start fewer processes, each with more "
         "devices or threads",
         world.size, world.launcher == "--rank" ? "--world-size" : world.launcher, kMaxProcesses);
  }
  if (is_set(environment, "DPT_TOKEN")) {
    world.token = env_text(environment, "DPT_TOKEN");
    if (world.token.empty()) {
      fail(ErrorKind::usage,
           "DPT_TOKEN is empty: expected a secret that is the same for all processes of the job; "
           "to use none, unset it");
    }
  }
  return world;
}

World detect_world(const WorldFlags& flags) {
  return detect_world([](const char* name) -> const char* { return std::getenv(name); }, flags);
}

void require_started_tasks(const Environment& environment, const World& world) {
  // An interactive shell in a Slurm job is a step of one task with the variables of the whole job.
  if (world.launcher.empty() || (world.alone() && world.launcher == "Slurm")) {
    check_slurm_batch(environment);
  }
}

void require_started_tasks(const World& world) {
  require_started_tasks([](const char* name) -> const char* { return std::getenv(name); }, world);
}

void refuse_nested_launch(const Environment& environment) {
  const std::optional<World> world = from_launcher(environment);
  if (!world || world->alone()) return;
  fail(ErrorKind::usage,
       "--nproc: this process is already rank {} of {} ({}): leave out --nproc; the launcher "
       "decides how many processes there are",
       world->rank, world->size, world->launcher);
}

void refuse_nested_launch() {
  refuse_nested_launch([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace dpt
