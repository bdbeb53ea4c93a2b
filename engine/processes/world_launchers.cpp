#include "engine/processes/world_launchers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "engine/processes/world_variables.h"
#include "kernels/base/error.h"

namespace dpt::launchers {
namespace {

struct ProcessStat {
  pid_t parent = 0, session = 0;
};
/// Returns the parent and the session of a process; zeros if it does not exist or is not visible.
ProcessStat stat_of(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(in, text);
  // The name, in parentheses, may contain any character. State, parent, group and session follow.
  const std::size_t end = text.rfind(')');
  ProcessStat result;
  if (end == std::string::npos) return result;
  char state = 0;
  int parent = 0, group = 0, session = 0;
  if (std::sscanf(text.c_str() + end + 1, " %c %d %d %d", &state, &parent, &group, &session) == 4) {
    result = {parent, session};
  }
  return result;
}

/// Returns a name that all tasks of one MPICH job on this machine share: its launcher creates a
/// session for each task and is the parent of all sessions, even if a shell script starts dpt.
std::string job_of_parent() {
  const pid_t session = stat_of(getpid()).session;
  pid_t ancestor = getppid();
  while (ancestor > 1) {
    const ProcessStat next = stat_of(ancestor);
    if (next.session != session || next.parent == 0) break;
    ancestor = next.parent;
  }
  return fmt::format("user {}, process {}", getuid(), ancestor);
}

/// Sets the coordinator of processes that MPI started. Throws if they are on several machines and
/// no variable names it, because only MPI knows the address.
void set_mpi_coordinator(World& world, const Environment& environment, const char* example) {
  if (world.alone() || set_coordinator(world, environment)) return;
  fail(ErrorKind::usage,
       "{}: {} of the {} processes are on this machine, the others elsewhere, and nothing says "
       "where rank 0 is: name its machine and a free port on it, e.g. {}",
       world.launcher, world.local_size, world.size, example);
}

}  // namespace

std::optional<World> from_nproc(const Environment& environment) {
  if (!any_set(environment,
               {"DPT_RANK", "DPT_WORLD_SIZE", "DPT_LOCAL_RANK", "DPT_LOCAL_SIZE", "DPT_PORTS"})) {
    return std::nullopt;
  }
  constexpr const char* kWho = "dpt --nproc";
  constexpr PlaceVariables kNames = {"DPT_RANK", "DPT_WORLD_SIZE", "DPT_LOCAL_RANK",
                                     "DPT_LOCAL_SIZE"};
  check_all_set(environment, kWho,
                {kNames.rank, kNames.size, kNames.local_rank, kNames.local_size, "DPT_PORTS"},
                "dpt train --nproc N sets them all for its processes; unset what was found, or "
                "use --rank, --world-size and --coordinator");
  World world;
  world.launcher = kWho;
  read_place(world, environment, kWho, kNames);
  read_local_place(world, environment, kWho, kNames);
  world.coordinator = "127.0.0.1";
  const std::string ports = env_text(environment, "DPT_PORTS");
  for (std::size_t at = 0; at <= ports.size();) {
    const std::size_t end = std::min(ports.find(',', at), ports.size());
    const std::optional<std::int64_t> port = number_in(ports.substr(at, end - at));
    if (!port || *port < 1 || *port > kLastPort) {
      fail(ErrorKind::usage,
           "{}: expected ports from 1 to {} in the variable DPT_PORTS, found '{}'", kWho, kLastPort,
           ports);
    }
    world.ports.push_back(static_cast<int>(*port));
    at = end + 1;
  }
  world.job = env_text(environment, "DPT_JOB");
  return world;
}

std::optional<World> from_torchrun(const Environment& environment) {
  constexpr PlaceVariables kNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  // Batch scripts export MASTER_ADDR and MASTER_PORT for other programs: these alone prove nothing.
  if (!any_set(environment, {kNames.rank, kNames.size, kNames.local_rank, kNames.local_size})) {
    return std::nullopt;
  }
  const bool is_elastic = is_set(environment, "TORCHELASTIC_RUN_ID");
  const char* who = is_elastic ? "torchrun" : "RANK and WORLD_SIZE";
  std::vector<const char*> names = {kNames.rank, kNames.size};
  const bool has_local = is_elastic || any_set(environment, {kNames.local_rank, kNames.local_size});
  const bool is_pod =
      !has_local && is_set(environment, kNames.rank) && is_set(environment, kNames.size);
  if (!is_elastic && !is_pod && is_leftover_of_one(environment, kNames)) return std::nullopt;
  if (has_local) names.insert(names.end(), {kNames.local_rank, kNames.local_size});
  if (!is_set(environment, "DPT_COORDINATOR") && env_text(environment, kNames.size) != "1") {
    names.insert(names.end(), {"MASTER_ADDR", "MASTER_PORT"});
  }
  check_all_set(environment, who, names,
                "start dpt with `torchrun --no-python`, which sets them all, or unset what was "
                "found");
  World world;
  world.launcher = who;
  read_place(world, environment, who, kNames);
  // PyTorchJob of Kubernetes sets no local rank or size, because it runs one process in each pod.
  if (has_local) read_local_place(world, environment, who, kNames);
  world.job = env_text(environment, "TORCHELASTIC_RUN_ID");
  if (world.alone()) return world;

  if (is_set(environment, "DPT_COORDINATOR")) {
    set_coordinator(world, environment);
    return world;
  }
  const int master = env_number(environment, who, "MASTER_PORT", 1, kLastPort);
  world.coordinator =
      world.local_size == world.size ? "127.0.0.1" : env_text(environment, "MASTER_ADDR");
  if (world.coordinator.empty()) {
    fail(ErrorKind::usage,
         "{}: expected the machine of rank 0 in the variable MASTER_ADDR, found ''", who);
  }
  // torchrun's agent listens at MASTER_PORT itself.
  const int first = is_elastic ? 1 : 0;
  for (int i = first; i < first + kPortCount; ++i) {
    world.ports.push_back(master + i <= kLastPort ? master + i : master - i);
  }
  return world;
}

std::optional<World> from_open_mpi(const Environment& environment) {
  constexpr const char* kWho = "Open MPI";
  constexpr PlaceVariables kNames = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  if (!any_set(environment, {kNames.rank, kNames.size, kNames.local_rank, kNames.local_size})) {
    return std::nullopt;
  }
  if (is_leftover_of_one(environment, kNames)) return std::nullopt;
  check_all_set(environment, kWho, {kNames.rank, kNames.size, kNames.local_rank, kNames.local_size},
                "start dpt with mpirun, which sets them all, or unset what was found");
  World world;
  world.launcher = kWho;
  read_place(world, environment, kWho, kNames);
  read_local_place(world, environment, kWho, kNames);
  // Version 5 sets the first variable, version 4 the second; not every build of version 4 sets the
  // first.
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (world.job.empty()) world.job = env_text(environment, name);
  }
  if (world.job.empty()) world.job = job_of_parent();
  set_mpi_coordinator(world, environment, "mpirun -x DPT_COORDINATOR=host0:29400 ...");
  return world;
}

std::optional<World> from_mpich(const Environment& environment) {
  constexpr const char* kWho = "MPICH";
  constexpr PlaceVariables kNames = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  const bool has_local = any_set(environment, {kNames.local_rank, kNames.local_size});
  if (!has_local && !any_set(environment, {kNames.rank, kNames.size})) return std::nullopt;
  if (is_leftover_of_one(environment, kNames)) return std::nullopt;
  // `srun --mpi=pmi2` speaks MPI's protocol to its tasks, but Slurm's own variables are more
  // complete.
  if (!has_local && is_set(environment, "SLURM_STEP_NUM_TASKS") &&
      env_text(environment, "SLURM_PROCID") == env_text(environment, kNames.rank) &&
      env_text(environment, "SLURM_STEP_NUM_TASKS") == env_text(environment, kNames.size)) {
    return std::nullopt;
  }
  check_all_set(environment, kWho, {kNames.rank, kNames.size, kNames.local_rank, kNames.local_size},
                "start dpt with the mpiexec of MPICH or Intel MPI (without -pmi-port), which sets "
                "them all; with another launcher, use --rank, --world-size and --coordinator");
  World world;
  world.launcher = kWho;
  read_place(world, environment, kWho, kNames);
  read_local_place(world, environment, kWho, kNames);
  world.job = job_of_parent();
  set_mpi_coordinator(world, environment, "mpiexec -genv DPT_COORDINATOR host0:29400 ...");
  return world;
}

}  // namespace dpt::launchers
