#include "engine/processes/world_slurm.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/processes/environment.h"
#include "engine/processes/world_variables.h"
#include "kernels/base/error.h"

namespace dpt::launchers {
namespace {

/// First of Slurm's special step numbers, which srun does not use: those of the batch script and of
/// the shell of salloc.
constexpr std::int64_t kSlurmSpecialSteps = 0xfffffff0;

/// Returns the first host of a list in Slurm's notation, e.g. "node[01-04,7],x3"; empty if
/// malformed.
std::string first_host(std::string_view list) {
  std::string host;
  std::size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] != '[') {
      if (list[at] == ']') return {};
      host += list[at++];
      continue;
    }
    const std::size_t end = list.find(']', at);
    if (end == std::string_view::npos) return {};
    const std::string_view range = list.substr(at + 1, end - at - 1);
    const std::string_view first = range.substr(0, range.find_first_of(",-"));
    if (!number_in(first)) return {};
    host += first;
    at = end + 1;
  }
  return host;
}

/// Returns the number of tasks of a step on machine `node`, from Slurm's notation, e.g. "2(x3),1";
/// 0 if malformed or if there is no such machine.
int tasks_on_node(std::string_view list, int node) {
  std::int64_t before = 0;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    std::int64_t nodes = 1;
    if (const std::size_t times = item.find("(x"); times != std::string_view::npos) {
      if (item.back() != ')') return 0;
      const auto count = number_in(item.substr(times + 2, item.size() - times - 3));
      if (!count || *count > std::numeric_limits<int>::max()) return 0;
      nodes = *count;
      item = item.substr(0, times);
    }
    const std::optional<std::int64_t> tasks = number_in(item);
    if (!tasks || *tasks > std::numeric_limits<int>::max()) return 0;
    before += nodes;
    if (node < before) return static_cast<int>(*tasks);
  }
  return 0;
}

/// Returns true if srun started this process. A batch script and the shell of salloc have some of
/// the same variables.
bool is_in_slurm_step(const Environment& environment) {
  const std::optional<std::int64_t> step = number_in(env_text(environment, "SLURM_STEP_ID"));
  return is_set(environment, "SLURM_STEP_NUM_TASKS") && !(step && *step >= kSlurmSpecialSteps);
}

}  // namespace

std::optional<World> from_slurm(const Environment& environment) {
  constexpr const char* kWho = "Slurm";
  constexpr PlaceVariables kNames = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                     "SLURM_STEP_TASKS_PER_NODE"};
  if (!is_in_slurm_step(environment)) return std::nullopt;
  World world;
  world.launcher = kWho;
  world.size = env_number(environment, kWho, kNames.size, 1);
  // A step of one task may be a shell on a machine of the cluster, or a batch script started from
  // such a shell.
  if (world.alone()) return world;
  check_all_set(environment, kWho,
                {kNames.rank, kNames.size, kNames.local_rank, kNames.local_size, "SLURM_NODEID",
                 "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID"},
                "start dpt with srun, which sets them all, or unset what was found");
  read_place(world, environment, kWho, kNames);
  const std::string tasks = env_text(environment, kNames.local_size);
  const int node = env_number(environment, kWho, "SLURM_NODEID", 0);
  world.local_size = tasks_on_node(tasks, node);
  if (world.local_size == 0) {
    fail(ErrorKind::usage,
         "Slurm: {}='{}' gives no number of tasks for this machine (SLURM_NODEID={}): expected the "
         "number of tasks on each machine, e.g. 2(x3),1",
         kNames.local_size, tasks, node);
  }
  world.local_rank = env_number(environment, kWho, kNames.local_rank, 0);
  check_below(kWho, kNames.local_rank, world.local_rank, "tasks on this machine", world.local_size);
  check_local_size(kWho, kNames.local_size, world.local_size, kNames.size, world.size);
  world.job = fmt::format("{}.{}", env_text(environment, "SLURM_JOB_ID"),
                          env_text(environment, "SLURM_STEP_ID"));
  // A requeued job keeps its number, and the last tasks of its previous start may still exist.
  if (is_set(environment, "SLURM_RESTART_COUNT")) {
    world.job += "." + env_text(environment, "SLURM_RESTART_COUNT");
  }
  if (set_coordinator(world, environment)) return world;
  const std::string nodes = env_text(environment, "SLURM_STEP_NODELIST");
  world.coordinator = first_host(nodes);
  if (world.coordinator.empty()) {
    fail(ErrorKind::usage,
         "Slurm: expected names of machines, e.g. node[01-04,7],x3, in the variable "
         "SLURM_STEP_NODELIST, found '{}': correct it, or name the machine of rank 0 with "
         "DPT_COORDINATOR=HOST:PORT",
         nodes);
  }
  world.ports = ports_of(world);
  return world;
}

void check_slurm_batch(const Environment& environment) {
  // Without --ntasks, SLURM_NTASKS is not set.
  std::vector<const char*> names = {"SLURM_NTASKS"};
  if (!is_set(environment, "SLURM_NTASKS"))
    names = {"SLURM_NTASKS_PER_NODE", "SLURM_JOB_NUM_NODES"};
  std::int64_t tasks = 1;
  std::vector<std::string> found;
  for (const char* name : names) {
    if (!is_set(environment, name)) continue;
    tasks *= env_number(environment, "Slurm", name, 0);
    found.push_back(fmt::format("{}={}", name, env_text(environment, name)));
  }
  if (!is_set(environment, "SLURM_JOB_ID") || tasks <= 1) return;
  fail(ErrorKind::usage,
       "Slurm: this job has {} tasks ({}), but srun did not start this process: start all of them "
       "with `srun dpt train ...`, or N processes on this machine with `dpt train --nproc N ...`, "
       "or unset {} to use this process alone",
       tasks, fmt::join(found, ", "), fmt::join(names, " and "));
}

}  // namespace dpt::launchers
