#include "engine/processes/world.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "kernels/error.h"

namespace dpt {
namespace {

/// How many ports all processes try in turn.
constexpr int kPortCount = 8;
/// Ports that are chosen here are below those that systems hand out to connections (from 32768).
constexpr int kFirstPort = 20000, kPortBlocks = 1125;
constexpr int kLastPort = 65535;

/// Slurm's numbers of steps from here on are none that srun started: the batch script, the shell of
/// salloc.
constexpr std::int64_t kSlurmSpecialSteps = 0xfffffff0;

bool is_set(const Environment& environment, const char* name) {
  return environment(name) != nullptr;
}
std::string env_text(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value ? value : "";
}

/// Nothing where `text` is not a whole number, digits only.
std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// The number in a variable that is set. `who` names the launcher.
int env_number(const Environment& environment, const char* who, const char* name, int least,
               int most = std::numeric_limits<int>::max()) {
  const std::string text = env_text(environment, name);
  const std::optional<std::int64_t> value = number_in(text);
  if (!value || *value < least || *value > most) {
    fail(ErrorKind::usage, "{}: expected a whole number from {}{} in the variable {}, found '{}'",
         who, least, most < std::numeric_limits<int>::max() ? fmt::format(" to {}", most) : "",
         name, text);
  }
  return static_cast<int>(*value);
}

/// Throws if some of `names` are not set; `advice` says what to do.
void check_all_set(const Environment& environment, const char* who,
                   const std::vector<const char*>& names, const std::string& advice) {
  std::vector<std::string> found, missing;
  for (const char* name : names) {
    if (is_set(environment, name)) {
      found.push_back(fmt::format("{}={}", name, env_text(environment, name)));
    } else {
      missing.emplace_back(name);
    }
  }
  if (missing.empty()) return;
  fail(ErrorKind::usage, "{}: found {} in the environment, but not {}: {}", who,
       fmt::join(found, ", "), fmt::join(missing, ", "), advice);
}

bool any_set(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (is_set(environment, name)) return true;
  }
  return false;
}

/// The variables in which a launcher says which process of how many this one is.
struct PlaceVariables {
  const char *rank, *size, *local_rank, *local_size;
};

/// Returns true if only some of the variables are set, and they can only be those of a single
/// process: sizes of 1, indices of 0. A shell or a script left them. An index among all processes
/// says nothing without their number.
bool is_leftover_of_one(const Environment& environment, const PlaceVariables& names) {
  const auto is_unset_or = [&](const char* name, const char* value) {
    return !is_set(environment, name) || env_text(environment, name) == value;
  };
  const bool has_rank = is_set(environment, names.rank), has_size = is_set(environment, names.size);
  const bool is_complete = has_rank && has_size && is_set(environment, names.local_rank) &&
                           is_set(environment, names.local_size);
  return !is_complete && (has_size || !has_rank) && is_unset_or(names.rank, "0") &&
         is_unset_or(names.size, "1") && is_unset_or(names.local_rank, "0") &&
         is_unset_or(names.local_size, "1");
}

void check_below(const char* who, const char* index_name, int index, const char* size_name,
                 int size) {
  if (index < size) return;
  fail(ErrorKind::usage, "{}: {}={} is not below {}={}; they count from 0", who, index_name, index,
       size_name, size);
}

void check_local_size(const char* who, const char* local_name, int local_size,
                      const char* size_name, int size) {
  if (local_size <= size) return;
  fail(ErrorKind::usage, "{}: {}={} processes on this machine are more than {}={} in all", who,
       local_name, local_size, size_name, size);
}

void read_local_place(World& world, const Environment& environment, const char* who,
                      const PlaceVariables& names) {
  world.local_size = env_number(environment, who, names.local_size, 1);
  world.local_rank = env_number(environment, who, names.local_rank, 0);
  check_below(who, names.local_rank, world.local_rank, names.local_size, world.local_size);
  check_local_size(who, names.local_size, world.local_size, names.size, world.size);
}

void read_place(World& world, const Environment& environment, const char* who,
                const PlaceVariables& names) {
  world.size = env_number(environment, who, names.size, 1);
  world.rank = env_number(environment, who, names.rank, 0);
  check_below(who, names.rank, world.rank, names.size, world.size);
}

/// HOST:PORT, or [ADDRESS]:PORT for an IPv6 address. `option` names where it was found.
void read_coordinator(World& world, const char* option, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  const std::optional<std::int64_t> port =
      colon == std::string::npos ? std::nullopt : number_in(text.substr(colon + 1));
  if (!port || *port < 1 || *port > kLastPort || host.empty() ||
      host.find_first_of(" \t[]/") != std::string::npos ||
      (!in_brackets && host.find(':') != std::string::npos)) {
    fail(ErrorKind::usage,
         "{}: expected HOST:PORT, the machine of rank 0 and a free port from 1 to {} on it, e.g. "
         "node0:29400 or [fd00::1]:29400, found '{}'",
         option, kLastPort, text);
  }
  world.coordinator = host;
  world.ports = {static_cast<int>(*port)};
}

/// FNV-1a: the same on all machines, which std::hash need not be.
std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// Ports that all processes of a job choose alike. Jobs get the same block or a disjoint one.
std::vector<int> ports_of(const World& world) {
  const std::uint64_t hash = fnv1a(world.launcher + " " + world.job);
  const int block = static_cast<int>((hash ^ (hash >> 32)) % kPortBlocks);
  std::vector<int> ports;
  for (int i = 0; i < kPortCount; ++i) ports.push_back(kFirstPort + block * kPortCount + i);
  return ports;
}

/// DPT_COORDINATOR, or the loopback where all processes are on this machine; false if neither.
bool set_coordinator(World& world, const Environment& environment) {
  if (is_set(environment, "DPT_COORDINATOR")) {
    read_coordinator(world, "DPT_COORDINATOR", env_text(environment, "DPT_COORDINATOR"));
    return true;
  }
  if (world.local_size != world.size) return false;
  world.coordinator = "127.0.0.1";
  world.ports = ports_of(world);
  return true;
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// ---- flags -------------------------------------------------------------------------------------

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

// ---- dpt's own children ------------------------------------------------------------------------

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

// ---- torchrun, and what sets the same variables ------------------------------------------------

std::optional<World> from_torchrun(const Environment& environment) {
  constexpr PlaceVariables kNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  // Batch scripts export MASTER_ADDR and MASTER_PORT for other programs: these alone say nothing.
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
  // PyTorchJob of Kubernetes sets none of the two: one process in each pod.
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

// ---- MPI ---------------------------------------------------------------------------------------

struct ProcessStat {
  pid_t parent = 0, session = 0;
};
/// Zeros for a process that is not there, or not seen.
ProcessStat stat_of(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(in, text);
  // The name, in parentheses, may hold anything; then state, parent, group, session.
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

/// What all tasks of one MPICH job on this machine have in common: its launcher makes each task a
/// session of its own, and is the parent of these, even where a shell script starts dpt.
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

/// Where MPI's processes meet: on several machines, MPI itself would have to be asked.
void set_mpi_coordinator(World& world, const Environment& environment, const char* example) {
  if (world.alone() || set_coordinator(world, environment)) return;
  fail(ErrorKind::usage,
       "{}: {} of the {} processes are on this machine, the others elsewhere, and nothing says "
       "where rank 0 is: name its machine and a free port on it, e.g. {}",
       world.launcher, world.local_size, world.size, example);
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
  // Of version 5, and of 4 (whose PMIx is not seen in the environment of all builds).
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
  // `srun --mpi=pmi2` speaks MPI's protocol to its tasks: Slurm's own variables say more.
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

// ---- Slurm -------------------------------------------------------------------------------------

/// The first host of Slurm's notation, e.g. "node[01-04,7],x3"; empty where it is not that.
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

/// The number of tasks on machine `node` of a step in Slurm's notation, e.g. "2(x3),1"; 0 where it
/// is not that, or has no such machine.
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

/// Whether srun started this process: a batch script and the shell of salloc have some of its
/// variables too.
bool is_in_slurm_step(const Environment& environment) {
  const std::optional<std::int64_t> step = number_in(env_text(environment, "SLURM_STEP_ID"));
  return is_set(environment, "SLURM_STEP_NUM_TASKS") && !(step && *step >= kSlurmSpecialSteps);
}

std::optional<World> from_slurm(const Environment& environment) {
  constexpr const char* kWho = "Slurm";
  constexpr PlaceVariables kNames = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                     "SLURM_STEP_TASKS_PER_NODE"};
  if (!is_in_slurm_step(environment)) return std::nullopt;
  World world;
  world.launcher = kWho;
  world.size = env_number(environment, kWho, kNames.size, 1);
  // What a shell on a machine of the cluster, and a batch script started from it, have.
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
         "Slurm: expected the numbers of tasks on each machine, e.g. 2(x3),1, in the variable {}, "
         "with one for SLURM_NODEID={}, found '{}'",
         kNames.local_size, node, tasks);
  }
  world.local_rank = env_number(environment, kWho, kNames.local_rank, 0);
  check_below(kWho, kNames.local_rank, world.local_rank, "tasks on this machine", world.local_size);
  check_local_size(kWho, kNames.local_size, world.local_size, kNames.size, world.size);
  world.job = fmt::format("{}.{}", env_text(environment, "SLURM_JOB_ID"),
                          env_text(environment, "SLURM_STEP_ID"));
  // A requeued job keeps its number; its predecessor's last tasks may still be there.
  if (is_set(environment, "SLURM_RESTART_COUNT")) {
    world.job += "." + env_text(environment, "SLURM_RESTART_COUNT");
  }
  if (set_coordinator(world, environment)) return world;
  const std::string nodes = env_text(environment, "SLURM_STEP_NODELIST");
  world.coordinator = first_host(nodes);
  if (world.coordinator.empty()) {
    fail(ErrorKind::usage,
         "Slurm: expected names of machines, e.g. node[01-04,7],x3, in the variable "
         "SLURM_STEP_NODELIST, found '{}'; DPT_COORDINATOR=HOST:PORT names that of rank 0",
         nodes);
  }
  world.ports = ports_of(world);
  return world;
}

/// Throws in an allocation of several tasks.
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
       "with `srun dpt train ...`, or N on this machine with `dpt train --nproc N ...`, or unset "
       "{} to use this process alone",
       tasks, fmt::join(found, ", "), fmt::join(names, " and "));
}

/// The world that a launcher made; nothing where there is none.
std::optional<World> from_launcher(const Environment& environment) {
  // Where one launcher runs below another, the inner one has made the processes: torchrun and
  // mpirun run below srun, never the other way round.
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
  if (is_set(environment, "DPT_TOKEN")) {
    world.token = env_text(environment, "DPT_TOKEN");
    if (world.token.empty()) {
      fail(ErrorKind::usage,
           "DPT_TOKEN is empty: expected a secret of the job's processes, the "
           "same for all; without any, unset it");
    }
  }
  return world;
}

World detect_world(const WorldFlags& flags) {
  return detect_world([](const char* name) -> const char* { return std::getenv(name); }, flags);
}

void require_started_tasks(const Environment& environment, const World& world) {
  // A shell on a cluster is a step of one task, with the variables of the job around it.
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
       "decides "
       "how many processes there are",
       world->rank, world->size, world->launcher);
}

void refuse_nested_launch() {
  refuse_nested_launch([](const char* name) -> const char* { return std::getenv(name); });
}

std::string describe(const World& world) {
  const std::string launcher =
      world.launcher.empty() ? std::string() : fmt::format(" ({})", world.launcher);
  if (world.alone()) return fmt::format("one process{} on host {}", launcher, world.host);
  const bool is_ipv6 = world.coordinator.find(':') != std::string::npos;
  return fmt::format("rank {} of {}{}, local rank {} of {} on host {}, rank 0 at {}{}{}:{}",
                     world.rank, world.size, launcher, world.local_rank, world.local_size,
                     world.host, is_ipv6 ? "[" : "", world.coordinator, is_ipv6 ? "]" : "",
                     world.ports.empty() ? 0 : world.ports[0]);
}

}  // namespace dpt
