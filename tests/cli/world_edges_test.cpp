// Edge cases of a world of processes: the exit code of the first cause, descriptor limits, jobs
// whose tasks were not started, and worlds without a token.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/processes.h"
#include "tests/cli/workplace.h"

namespace dpt {
namespace {

using namespace testing;

std::vector<std::string> train_command(const std::string& run) {
  return {"train", "small.yaml", "--run-dir", run};
}

/// Sets both limits on open files, soft and hard, so that a program cannot raise them again.
void limit_descriptors(rlim_t count) {
  const rlimit limit{count, count};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(126);
}

TEST_CASE("every process ends with the exit code of the first cause") {
  const Workplace w;
  const std::vector<std::string> must = {"--resume", "must"}, gpu = {"--devices", "cuda:99"};
  struct Cause {
    int rank;
    std::vector<std::string> more;
    int code;
    std::string text;
  };
  for (const Cause& cause : {Cause{0, must, 3, "has no checkpoint"}, Cause{0, gpu, 4, "cuda:99"},
                             Cause{1, gpu, 4, "cuda:99"}}) {
    CAPTURE(cause.rank);
    CAPTURE(cause.code);
    auto arguments = on_devices(train_command("run"), {"cpu", "cpu", "cpu"});
    auto& its = arguments[cause.rank];
    if (cause.code == 4) its.resize(its.size() - 2);
    its.insert(its.end(), cause.more.begin(), cause.more.end());
    if (cause.code == 3) {  // all processes need the option
      for (auto& each : arguments) {
        if (&each != &its) each.insert(each.end(), cause.more.begin(), cause.more.end());
      }
    }
    Processes processes(arguments, w.dir.path());
    int rank = 0;
    for (const Finished& each : processes.wait()) {
      CAPTURE(each.err);
      CHECK(each.exit_code == cause.code);
      check_contains(each.err, cause.text);
      if (rank++ != cause.rank) {
        check_contains(each.err, "rank " + std::to_string(cause.rank) + " (host ");
      }
    }
  }
}

TEST_CASE("a wrong command line of one rank ends all, with its message") {
  const Workplace w;
  for (const int rank : {0, 1}) {
    for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--overfit", "1"},
                                                  {"--no-such-option"},
                                                  {"--max-time", "soon"}}) {
      // Without a token, the rest of the command line identifies the run.
      for (const bool has_token : {true, false}) {
        CAPTURE(rank);
        CAPTURE(wrong[0]);
        CAPTURE(has_token);
        auto arguments = on_devices(train_command("run"), {"cpu", "cpu"});
        auto& its = arguments[rank];
        its.insert(its.end(), wrong.begin(), wrong.end());
        Processes processes(arguments, w.dir.path(), [&](int) {
          if (!has_token) unsetenv("DPT_TOKEN");
        });
        const auto finished = processes.wait();
        for (const Finished& each : finished) {
          CAPTURE(each.err);
          CHECK(each.exit_code == 2);
          check_contains(each.err, wrong.back() == "1" ? "--overfit" : wrong.back());
        }
        check_contains(finished[1 - rank].err, fmt::format("rank {} (host ", rank));
      }
    }
  }
  CHECK_FALSE(std::filesystem::exists(w.dir.file("run")));
}

TEST_CASE("a wrong command line joins nothing if it names no process, or runs in one process") {
  const Workplace w;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"train", "small.yaml", "--no-such-option"},
        {"train", "small.yaml", "--no-such-option", "--nproc", "2"},
        {"train", "small.yaml", "--no-such-option", "--rank", "0"},
        {"train", "small.yaml", "--no-such-option", "--smoke", "--rank", "1", "--world-size", "2",
         "--coordinator", "127.0.0.1:1"},
        {"devices", "--no-such-option", "--rank", "1", "--world-size", "2", "--coordinator",
         "127.0.0.1:1"}}) {
    const Finished finished = w.run(command);
    CAPTURE(finished.err);
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, "unexpected argument");
  }
}

TEST_CASE("options that must be the same on all processes are compared") {
  const Workplace w;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--resume", "never"}, {"--overwrite"}, {"--dry-run"}}) {
    CAPTURE(more[0]);
    auto arguments = on_devices(train_command("run"), {"cpu", "cpu"});
    arguments[1].insert(arguments[1].end(), more.begin(), more.end());
    Processes processes(arguments, w.dir.path());
    for (const Finished& each : processes.wait()) {
      CAPTURE(each.err);
      CHECK(each.exit_code == 2);
      check_contains(each.err, more[0] + " is \"");
    }
  }
  CHECK_FALSE(std::filesystem::exists(w.dir.file("run")));
}

TEST_CASE("without a token, a process with another config is of another run and ends alone") {
  const Workplace w;
  write_file(w.dir.file("copy.yaml"), program_config());
  write_file(w.dir.file("other.yaml"), program_config() + "\n# another one\n");
  for (const bool is_other : {false, true}) {
    auto arguments = on_devices(train_command("run"), {"cpu", "cpu"});
    arguments[1][1] = is_other ? "other.yaml" : "copy.yaml";
    arguments[1].insert(arguments[1].end(), {"data.workers=1"});  // this may differ
    if (is_other) {
      for (auto& each : arguments) each.insert(each.end(), {"--join-timeout", "5s"});
    }
    Processes processes(arguments, w.dir.path(), [](int) { unsetenv("DPT_TOKEN"); });
    const auto finished = processes.wait();
    CAPTURE(finished[0].err);
    CAPTURE(finished[1].err);
    CHECK(finished[0].exit_code == (is_other ? 6 : 0));
    CHECK(finished[1].exit_code == (is_other ? 2 : 0));
    if (!is_other) continue;
    check_contains(finished[0].err, "Refused as members of another run: rank 1 (host ");
    check_contains(finished[1].err, "another run listens there (train ");
    check_contains(finished[1].err, "other.yaml with another config");
  }
}

TEST_CASE("too few descriptors for the connections: one line on every rank before connecting") {
  const Workplace w;
  for (const int poor : {0, 1}) {
    // At the first limit the process can still inform the others; at the second it cannot.
    for (const int limit : {40, 8}) {
      CAPTURE(poor);
      CAPTURE(limit);
      auto arguments = on_devices(train_command("run"), {"cpu", "cpu"});
      for (auto& each : arguments) each.insert(each.end(), {"--join-timeout", "1s"});
      Processes processes(arguments, w.dir.path(), [&](int rank) {
        if (rank == poor) limit_descriptors(static_cast<rlim_t>(limit));
      });
      const auto finished = processes.wait();
      const Finished& its = finished[poor];
      const Finished& other = finished[1 - poor];
      CAPTURE(its.err);
      CAPTURE(other.err);
      CHECK(its.exit_code == 4);
      check_contains(its.err, "rank " + std::to_string(poor) + " (host ");
      check_contains(its.err, fmt::format(") of 2 processes needs up to "));
      check_contains(its.err, fmt::format("but this system allows {} (ulimit -n)", limit));
      CHECK(std::count(its.err.begin(), its.err.end(), '\n') == 1);
      CHECK(other.exit_code == (limit == 40 ? 4 : 6));
      if (limit == 40) check_contains(other.err, "(ulimit -n)");
    }
  }
}

TEST_CASE("--nproc needs descriptors: the soft limit is raised, a hard one is named at once") {
  const Workplace w;
  TempDir logs;
  std::vector<std::string> command = train_command("run");
  command.insert(command.end(), {"--nproc", "3", "--devices", "cpu"});
  Program poor(command, w.dir.path(), logs, [] { limit_descriptors(20); });
  const Finished refused = poor.wait();
  CHECK(refused.exit_code == 4);
  check_contains(refused.err, "--nproc 3: rank 0 needs up to ");
  check_contains(refused.err, "but this system allows 20 (ulimit -n)");
  CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  CHECK_FALSE(std::filesystem::exists(w.dir.file("run")));

  TempDir other_logs;
  Program raised(command, w.dir.path(), other_logs, [] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 20;
    setrlimit(RLIMIT_NOFILE, &limit);
  });
  const Finished whole = raised.wait();
  CAPTURE(whole.err);
  CHECK(whole.exit_code == 0);
}

TEST_CASE("a process with few descriptors is not said to lack memory") {
  const Workplace w;
  for (int limit = 3; limit <= 12; ++limit) {
    TempDir logs;
    // An evaluation takes more memory than the steps before it.
    std::vector<std::string> command = train_command("run" + std::to_string(limit));
    command.insert(command.end(), {"--devices", "cpu", "data.val_split=120", "data.batch_size=4",
                                   "train.shards=0", "checkpoint.every_steps=0"});
    Program program(command, w.dir.path(), logs,
                    [&] { limit_descriptors(static_cast<rlim_t>(limit)); });
    const Finished finished = program.wait();
    CAPTURE(limit);
    CAPTURE(finished.err);
    CHECK((finished.exit_code == 0 || finished.exit_code == 3 || finished.exit_code == 127));
    CHECK(finished.err.find("memory") == std::string::npos);
    if (finished.exit_code == 3) check_contains(finished.err, "Too many open files");
  }
}

TEST_CASE("in a job whose tasks nobody started, only training insists on srun") {
  const Workplace w;
  w.run_well(train_command("run"));
  const auto in_job = [&](const std::vector<std::string>& command) {
    TempDir logs;
    Program program(command, w.dir.path(), logs, [] {
      setenv("SLURM_JOB_ID", "9", 1);
      setenv("SLURM_NTASKS", "4", 1);
    });
    return program.wait();
  };
  const Finished refused = in_job(train_command("other"));
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "srun did not start this process");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", "run"},
        {"bench", "small.yaml", "--rounds", "1", "--steps", "1"},
        {"train", "small.yaml", "--dry-run"}}) {
    const Finished finished = in_job(command);
    CAPTURE(command[0]);
    CAPTURE(finished.err);
    CHECK(finished.exit_code == 0);
  }
}

TEST_CASE("without DPT_TOKEN the processes share a token that rank 0 draws, and the log says so") {
  const Workplace w;
  for (const bool has_token : {false, true}) {
    const std::string run = has_token ? "given" : "drawn";
    Processes processes(on_devices(train_command(run), {"cpu", "cpu"}), w.dir.path(), [&](int) {
      if (!has_token) unsetenv("DPT_TOKEN");
    });
    for (const Finished& each : processes.wait()) {
      CAPTURE(each.err);
      CHECK(each.exit_code == 0);
    }
    const bool is_said =
        read_file(w.dir.file(run + "/train.log")).find("DPT_TOKEN is not set") != std::string::npos;
    CHECK(is_said != has_token);
    check_contains(read_file(w.dir.file(run + "/metrics.jsonl")),
                   has_token ? R"("token":"DPT_TOKEN")" : R"("token":"drawn by rank 0")");
  }
}

}  // namespace
}  // namespace dpt
