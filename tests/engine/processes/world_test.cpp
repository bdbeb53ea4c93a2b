// Detection of a process's rank and world size: the variables of each launcher, as observed in real
// runs, and invalid combinations.
#include "engine/processes/world.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <array>
#include <map>
#include <set>

#include "engine/processes/detect_world.h"
#include "engine/processes/environment.h"
#include "kernels/base/error.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using testing::check_contains;

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

World detect(const Variables& variables, const WorldFlags& flags = {}) {
  return detect_world(environment_of(variables), flags);
}

/// Returns the usage error that training ends with; empty if there is none.
std::string refusal(const Variables& variables, const WorldFlags& flags = {}) {
  try {
    require_started_tasks(environment_of(variables), detect(variables, flags));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return {};
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  REQUIRE(variables.erase(name) == 1);
  return variables;
}

void check_place(const World& world, int rank, int size, int local_rank, int local_size) {
  CHECK(world.rank == rank);
  CHECK(world.size == size);
  CHECK(world.local_rank == local_rank);
  CHECK(world.local_size == local_size);
}

/// Checks that there are eight consecutive ports below those that the system hands out.
void check_chosen_ports(const World& world) {
  REQUIRE(world.ports.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) CHECK(world.ports[i] == world.ports[0] + static_cast<int>(i));
  CHECK(world.ports[0] >= 20000);
  CHECK(world.ports[7] < 29000);
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "lenet"}};
const Variables kOpenMpi4 = {{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"OMPI_MCA_ess_base_jobid", "2018902017"}};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_STEP_NODELIST", "node[01-03,7]"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"}};
const Variables kNproc = {{"DPT_RANK", "1"},
                          {"DPT_WORLD_SIZE", "3"},
                          {"DPT_LOCAL_RANK", "1"},
                          {"DPT_LOCAL_SIZE", "3"},
                          {"DPT_PORTS", "40001,40017,40009"},
                          {"DPT_JOB", "a1"},
                          {"DPT_TOKEN", "secret"}};

TEST_CASE("without a launcher: a world of one") {
  const World world = detect({});
  check_place(world, 0, 1, 0, 1);
  CHECK(world.alone());
  CHECK(world.launcher.empty());
  CHECK(world.token.empty());
  std::array<char, 256> name = {};
  REQUIRE(gethostname(name.data(), name.size() - 1) == 0);
  CHECK(world.host == name.data());
  CHECK(describe(world) == "one process on host " + world.host);
  // Scripts export these variables for other programs.
  CHECK(detect({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}, {"SLURM_NTASKS", "4"}}).alone());
}

TEST_CASE("torchrun: its agent holds MASTER_PORT, so the ports after it") {
  World world = detect(kTorchrun);
  check_place(world, 5, 8, 1, 4);
  CHECK(world.launcher == "torchrun");
  CHECK(world.coordinator == "node0");
  CHECK(world.ports == std::vector<int>{29501, 29502, 29503, 29504, 29505, 29506, 29507, 29508});
  CHECK(world.job == "lenet");
  world.host = "b";
  CHECK(describe(world) ==
        "rank 5 of 8 (torchrun), local rank 1 of 4 on host b, rank 0 at node0:29501");

  SUBCASE("near the last port: those before it") {
    const World last = detect(with(kTorchrun, {{"MASTER_PORT", "65532"}}));
    CHECK(last.ports == std::vector<int>{65533, 65534, 65535, 65528, 65527, 65526, 65525, 65524});
  }
  SUBCASE("on one machine: the loopback, whatever the machine calls itself") {
    const World one = detect(with(kTorchrun, {{"WORLD_SIZE", "4"}, {"RANK", "1"}}));
    CHECK(one.coordinator == "127.0.0.1");
    CHECK(one.ports[0] == 29501);
  }
  SUBCASE("DPT_COORDINATOR comes first, and needs no MASTER_ADDR") {
    const World other =
        detect(with(without(kTorchrun, "MASTER_ADDR"), {{"DPT_COORDINATOR", "[fd00::1]:30000"}}));
    CHECK(other.coordinator == "fd00::1");
    CHECK(other.ports == std::vector<int>{30000});
    check_contains(describe(other), "rank 0 at [fd00::1]:30000");
  }
}

TEST_CASE("PyTorchJob of Kubernetes: one process in each pod, MASTER_PORT is free") {
  const Variables pod = {{"RANK", "1"},
                         {"WORLD_SIZE", "3"},
                         {"MASTER_ADDR", "job-master-0"},
                         {"MASTER_PORT", "23456"}};
  const World world = detect(pod);
  check_place(world, 1, 3, 0, 1);
  CHECK(world.coordinator == "job-master-0");
  CHECK(world.ports == std::vector<int>{23456, 23457, 23458, 23459, 23460, 23461, 23462, 23463});
  CHECK(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).alone());
  const std::string half = refusal(without(pod, "MASTER_ADDR"));
  check_contains(half,
                 "found RANK=1, WORLD_SIZE=3, MASTER_PORT=23456 in the environment, but not "
                 "MASTER_ADDR");
}

TEST_CASE("Open MPI 4 and 5, on one machine: the loopback, ports by the job") {
  const World world = detect(kOpenMpi4);
  check_place(world, 1, 2, 1, 2);
  CHECK(world.launcher == "Open MPI");
  CHECK(world.coordinator == "127.0.0.1");
  CHECK(world.job == "2018902017");
  check_chosen_ports(world);
  const World first =
      detect(with(kOpenMpi4, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
  CHECK(first.ports == world.ports);

  const World five = detect(with(without(kOpenMpi4, "OMPI_MCA_ess_base_jobid"),
                                 {{"PMIX_NAMESPACE", "prterun-host-1234@1"}}));
  CHECK(five.job == "prterun-host-1234@1");
  CHECK(five.ports != world.ports);
}

TEST_CASE("MPI on several machines needs DPT_COORDINATOR") {
  const Variables two = with(kOpenMpi4, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  const std::string text = refusal(two);
  check_contains(text, "2 of the 4 processes are on this machine");
  check_contains(text, "mpirun -x DPT_COORDINATOR=host0:29400");
  const World world = detect(with(two, {{"DPT_COORDINATOR", "host0:29400"}}));
  CHECK(world.coordinator == "host0");
  CHECK(world.ports == std::vector<int>{29400});
  check_contains(refusal(with(kMpich, {{"PMI_SIZE", "3"}})),
                 "mpiexec -genv DPT_COORDINATOR host0:29400");
}

TEST_CASE("MPICH: all processes of one launcher find the same ports") {
  const World world = detect(kMpich);
  check_place(world, 1, 2, 1, 2);
  CHECK(world.launcher == "MPICH");
  CHECK(world.coordinator == "127.0.0.1");
  check_chosen_ports(world);
  const World first = detect(with(kMpich, {{"PMI_RANK", "0"}, {"MPI_LOCALRANKID", "0"}}));
  CHECK(first.ports == world.ports);
  CHECK(first.job == world.job);
}

TEST_CASE("Slurm: the first machine of the step, ports by job and step") {
  const World world = detect(kSlurm);
  check_place(world, 5, 7, 1, 2);
  CHECK(world.launcher == "Slurm");
  CHECK(world.coordinator == "node01");
  CHECK(world.job == "4711.0");
  check_chosen_ports(world);
  CHECK(detect(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).ports != world.ports);
  CHECK(detect(with(kSlurm, {{"SLURM_RESTART_COUNT", "2"}})).job == "4711.0.2");
  check_place(
      detect(with(kSlurm, {{"SLURM_PROCID", "6"}, {"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}})),
      6, 7, 0, 1);
  CHECK(detect(with(kSlurm, {{"DPT_COORDINATOR", "ib0:1234"}})).coordinator == "ib0");

  SUBCASE("on one machine: the loopback") {
    const World one = detect(
        with(kSlurm,
             {{"SLURM_STEP_TASKS_PER_NODE", "7"}, {"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "5"}}));
    check_place(one, 5, 7, 5, 7);
    CHECK(one.coordinator == "127.0.0.1");
    check_chosen_ports(one);
  }
  SUBCASE("names of machines") {
    const std::map<std::string, std::string> lists = {{"a,b", "a"},
                                                      {"n[7,9-12]", "n7"},
                                                      {"r[1-2]n[03-04]x,b", "r1n03x"},
                                                      {"x3,node[1-2]", "x3"},
                                                      {"n[001]-ib", "n001-ib"}};
    for (const auto& [list, first] : lists) {
      CHECK(detect(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})).coordinator == first);
    }
    for (const char* list : {"", ",a", "a[1-2", "a]b", "a[]", "a[x-y]"}) {
      check_contains(refusal(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})),
                     fmt::format("SLURM_STEP_NODELIST, found '{}'", list));
    }
  }
  SUBCASE("tasks of machines") {
    for (const char* list : {"", "2", "2(x2", "x", "2(x2)", "2(3)", "0(x9)", "2(x2),,1"}) {
      check_contains(
          refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", list}})),
          fmt::format("SLURM_STEP_TASKS_PER_NODE='{}' gives no number of tasks for this machine "
                      "(SLURM_NODEID=2)",
                      list));
    }
  }
}

TEST_CASE("Slurm without srun: training for several tasks is refused, one is a world of one") {
  // The variables of a batch script, which is process 0 but belongs to no step.
  const Variables batch = {{"SLURM_JOB_ID", "9"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "0"}};
  const std::string text = refusal(batch);
  check_contains(text,
                 "this job has 4 tasks (SLURM_NTASKS=4), but srun did not start this process");
  check_contains(text, "srun dpt train");
  check_contains(text, "dpt train --nproc N");
  // Commands that need no other tasks work: eval, predict, bench.
  CHECK(detect(batch).alone());
  CHECK(detect(with(batch, {{"SLURM_NTASKS", "1"}})).alone());
  CHECK(detect(without(batch, "SLURM_NTASKS")).alone());
  // The shell of salloc as a separate step (use_interactive_step), and a batch script that inherits
  // the variables of such a shell.
  const Variables shell =
      with(batch, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967290"}});
  check_contains(refusal(shell), "this job has 4 tasks");
  check_contains(refusal(with(shell, {{"SLURM_STEP_ID", "0"}})), "this job has 4 tasks");
  // The batch script as a separate step.
  check_contains(
      refusal(with(batch, {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "4294967291"}})),
      "this job has 4 tasks");
  CHECK(detect(with(shell, {{"SLURM_NTASKS", "1"}})).alone());
  CHECK(detect(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "1"}})).alone());
  check_contains(
      refusal(
          {{"SLURM_JOB_ID", "9"}, {"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_JOB_NUM_NODES", "3"}}),
      "6 tasks (SLURM_NTASKS_PER_NODE=2, SLURM_JOB_NUM_NODES=3)");
  // --nproc is one of the suggested solutions.
  CHECK_NOTHROW(refuse_nested_launch(environment_of(batch)));
  CHECK(detect(with(batch, kNproc)).size == 3);
}

TEST_CASE("the inner one of nested launchers counts") {
  CHECK(detect(with(kSlurm, kTorchrun)).launcher == "torchrun");
  CHECK(detect(with(kSlurm, kOpenMpi4)).launcher == "Open MPI");
  CHECK(detect(with(kSlurm, kMpich)).launcher == "MPICH");
  CHECK(detect(with(kTorchrun, kNproc)).launcher == "dpt --nproc");
  // `srun --mpi=pmi2` sets these two variables, but is not an MPI launcher.
  const World pmi2 = detect(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}}));
  CHECK(pmi2.launcher == "Slurm");
  check_contains(refusal(with(kSlurm, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})),
                 "MPICH: found PMI_RANK=2, PMI_SIZE=4 in the environment, but not MPI_LOCALRANKID, "
                 "MPI_LOCALNRANKS");
  const World flags = detect(kTorchrun, {1, 2, "h:1"});
  CHECK(flags.launcher == "--rank");
  check_place(flags, 1, 2, 0, 1);
}

TEST_CASE("processes of dpt --nproc") {
  const World world = detect(kNproc);
  check_place(world, 1, 3, 1, 3);
  CHECK(world.coordinator == "127.0.0.1");
  CHECK(world.ports == std::vector<int>{40001, 40017, 40009});
  CHECK(world.job == "a1");
  CHECK(world.token == "secret");
  // A user's DPT_COORDINATOR applies to other launchers only.
  CHECK(detect(with(kNproc, {{"DPT_COORDINATOR", "h:1"}})).coordinator == "127.0.0.1");
  for (const char* ports : {"", "x", "1,,2", "1,", "0", "65536", "-1"}) {
    check_contains(refusal(with(kNproc, {{"DPT_PORTS", ports}})),
                   fmt::format("DPT_PORTS, found '{}'", ports));
  }
  check_contains(refusal({{"DPT_TOKEN", ""}}), "DPT_TOKEN is empty");
}

TEST_CASE("a world has a largest size, and it names who asked for a larger one") {
  const WorldFlags flags{0, 2147483647, "127.0.0.1:29400"};
  check_contains(refusal({}, flags),
                 "a world of 2147483647 processes (--world-size): expected at most 65536");
  check_contains(refusal(with(kNproc, {{"DPT_WORLD_SIZE", "65537"}})),
                 "a world of 65537 processes (dpt --nproc): expected at most 65536");
  CHECK(detect({}, {0, 65536, "127.0.0.1:29400"}).size == 65536);
}

TEST_CASE("half a set of variables: the found and the missing ones are named") {
  const std::map<const Variables*, std::set<std::string>> needed = {
      {&kTorchrun,
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {&kOpenMpi4,
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {&kMpich, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
      {&kSlurm,
       {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
      {&kNproc, {"DPT_RANK", "DPT_WORLD_SIZE", "DPT_LOCAL_RANK", "DPT_LOCAL_SIZE", "DPT_PORTS"}}};
  for (const auto& [variables, names] : needed) {
    for (const std::string& missing : names) {
      const std::string text = refusal(without(*variables, missing));
      check_contains(text, "in the environment, but not " + missing + ": ");
      for (const std::string& name : names) {
        if (name != missing) check_contains(text, name + "=" + variables->at(name));
      }
    }
  }
}

TEST_CASE("half a set that can only mean one process does not come from a launcher") {
  for (const Variables& variables :
       {Variables{{"LOCAL_RANK", "0"}}, Variables{{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}},
        Variables{{"WORLD_SIZE", "1"}}, Variables{{"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}},
        Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, Variables{{"PMI_SIZE", "1"}},
        Variables{{"MPI_LOCALRANKID", "0"}}, Variables{{"OMPI_COMM_WORLD_SIZE", "1"}}}) {
    CAPTURE(variables.begin()->first);
    CHECK(refusal(variables).empty());
    CHECK(detect(variables).alone());
    // The launcher that started this process takes precedence.
    CHECK(detect(with(kSlurm, variables)).launcher == "Slurm");
    CHECK_NOTHROW(refuse_nested_launch(environment_of(variables)));
  }
  const std::vector<std::pair<Variables, std::string>> contradictions = {
      {{{"LOCAL_RANK", "1"}}, "found LOCAL_RANK=1 in the environment, but not RANK, WORLD_SIZE"},
      {{{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}, "but not RANK, WORLD_SIZE"},
      {{{"RANK", "0"}}, "found RANK=0 in the environment, but not WORLD_SIZE"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "1"}}, "RANK=1 is not below WORLD_SIZE=1"},
      {{{"PMI_RANK", "0"}}, "found PMI_RANK=0 in the environment, but not PMI_SIZE"},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "1"}}, "but not MPI_LOCALRANKID, MPI_LOCALNRANKS"},
      {{{"PMI_SIZE", "2"}}, "but not PMI_RANK"},
      {{{"LOCAL_RANK", ""}}, "but not RANK, WORLD_SIZE"}};
  for (const auto& [variables, part] : contradictions) check_contains(refusal(variables), part);
  // A complete set comes from a launcher, even for a single process.
  CHECK(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).launcher == "RANK and WORLD_SIZE");
}

TEST_CASE("values that cannot be: the variable and its value") {
  const auto check = [](const Variables& variables, const std::string& name,
                        const std::string& value, const std::string& part) {
    CAPTURE(name);
    CAPTURE(value);
    check_contains(refusal(with(variables, {{name, value}})), part);
  };
  for (const char* value :
       {"-1", "x", "", "1.5", " 1", "0x1", "99999999999999999999", "2147483648"}) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
      check(kTorchrun, name, value, fmt::format("in the variable {}, found '{}'", name, value));
    }
    check(kSlurm, "SLURM_PROCID", value,
          fmt::format("in the variable SLURM_PROCID, found '{}'", value));
    check(kMpich, "PMI_RANK", value, fmt::format("in the variable PMI_RANK, found '{}'", value));
  }
  check(kTorchrun, "RANK", "8", "RANK=8 is not below WORLD_SIZE=8");
  check(kTorchrun, "LOCAL_RANK", "4", "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4");
  check(kTorchrun, "LOCAL_WORLD_SIZE", "9",
        "LOCAL_WORLD_SIZE=9 (processes on this machine) is more");
  check(kTorchrun, "WORLD_SIZE", "0", "WORLD_SIZE, found '0'");
  check(kTorchrun, "MASTER_PORT", "65536", "from 1 to 65535 in the variable MASTER_PORT");
  check(with(kTorchrun, {{"WORLD_SIZE", "16"}}), "MASTER_ADDR", "", "MASTER_ADDR, found ''");
  check(kOpenMpi4, "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_RANK=2 is not below");
  check(kMpich, "MPI_LOCALRANKID", "2", "MPI_LOCALRANKID=2 is not below MPI_LOCALNRANKS=2");
  check(kSlurm, "SLURM_PROCID", "7", "SLURM_PROCID=7 is not below SLURM_STEP_NUM_TASKS=7");
  check(kSlurm, "SLURM_LOCALID", "2", "SLURM_LOCALID=2 is not below tasks on this machine=2");
  for (const char* place : {"", "host", "host:", ":1", "host:0", "host:65536", "host:x", "a b:1",
                            "fd00::1:29400", "[]:1", "tcp://h:1"}) {
    check(kTorchrun, "DPT_COORDINATOR", place,
          fmt::format("DPT_COORDINATOR: expected HOST:PORT, the machine of rank 0 and a free port "
                      "from 1 to 65535 on it, e.g. node0:29400 or [fd00::1]:29400, found '{}'",
                      place));
  }
}

TEST_CASE("flags: all of them, or none") {
  const World world = detect({{"DPT_JOB", "j"}}, {2, 3, "node0:29400"});
  check_place(world, 2, 3, 0, 1);
  CHECK(world.coordinator == "node0");
  CHECK(world.ports == std::vector<int>{29400});
  CHECK(world.job == "j");
  // A coordinator on the loopback means that all processes are on this machine.
  for (const char* place : {"127.0.0.1:5", "localhost:5", "[::1]:5"}) {
    check_place(detect({}, {2, 3, place}), 2, 3, 2, 3);
  }
  const Variables local = {{"DPT_LOCAL_RANK", "1"}, {"DPT_LOCAL_SIZE", "2"}};
  check_place(detect(local, {3, 4, "node0:1"}), 3, 4, 1, 2);
  check_contains(refusal(without(local, "DPT_LOCAL_SIZE"), {3, 4, "node0:1"}),
                 "but not DPT_LOCAL_SIZE");
  CHECK(detect({{"DPT_COORDINATOR", "h:7"}}, {0, 2, ""}).ports == std::vector<int>{7});

  check_contains(refusal({}, {1, -1, ""}), "--world-size and --coordinator not given");
  check_contains(refusal({}, {-1, 2, "h:1"}), ": --rank not given");
  check_contains(refusal({}, {1, 2, ""}), ": --coordinator not given");
  check_contains(refusal({}, {2, 2, "h:1"}), "--rank=2 is not below --world-size=2");
  check_contains(refusal({}, {-2, 2, "h:1"}), "--rank -2: expected at least 0");
  check_contains(refusal({}, {0, 0, "h:1"}), "--world-size 0: expected at least 1");
  check_contains(refusal({}, {0, 2, "h"}), "--coordinator: expected HOST:PORT");
}

TEST_CASE("--nproc inside of a world is refused") {
  CHECK_NOTHROW(refuse_nested_launch(environment_of({})));
  CHECK_NOTHROW(refuse_nested_launch(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
  for (const Variables* variables : {&kTorchrun, &kOpenMpi4, &kMpich, &kSlurm, &kNproc}) {
    CHECK_THROWS_WITH_AS(refuse_nested_launch(environment_of(*variables)),
                         doctest::Contains("--nproc: this process is already rank"), Error);
  }
}

}  // namespace
}  // namespace dpt
