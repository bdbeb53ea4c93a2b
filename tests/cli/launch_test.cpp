// `--nproc`: starting processes, forwarding their output and incoming signals, and ending. The
// processes are shell scripts, which end when and how the test requires.
#include "app/base/launch_processes.h"

#include <sys/ioctl.h>

#include <csignal>
#include <map>
#include <set>

#include "engine/processes/detect_world.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "tests/cli/workplace.h"
#include "tests/support/pseudo_terminal.h"

namespace dpt::testing {
namespace {

using namespace std::chrono_literals;

/// A launcher of scripts in a separate process. The scripts run in `dir`, which also gets their
/// output.
class Launch {
 public:
  Launch(int count, const std::string& script, const LaunchPatience& patience = {},
         const std::function<void()>& in_launcher = {}) {
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    const auto to = [&](const char* name, int number) {
      const int file = open(dir.file(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (file < 0 || dup2(file, number) < 0) _exit(126);
    };
    to("stdout", 1);
    to("stderr", 2);
    if (chdir(dir.path().c_str()) != 0) _exit(126);
    for (const int number : {SIGHUP, SIGINT, SIGTERM}) signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    if (in_launcher) in_launcher();
    if (getpgrp() != getpid()) setpgid(0, 0);
    try {
      _exit(launch_processes(count, "/bin/sh", {"sh", "-c", script}, patience));
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      std::fflush(stderr);
      _exit(99);
    }
  }
  /// Kills the processes even if a test fails, including those that ignore SIGTERM.
  ~Launch() {
    if (!is_running()) return;
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  Launch(const Launch&) = delete;

  void send(int number) const { kill(pid_, number); }
  bool is_running() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return !ended_;
  }
  /// Returns the exit code, or -SIGNAL if a signal ended the launcher.
  int wait() {
    REQUIRE(wait_until([this] { return !is_running(); }));
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }
  std::string text(const std::string& name) const { return read_file(dir.file(name)); }
  bool wait_for(const std::vector<std::string>& names) const {
    return wait_until([&] {
      for (const std::string& name : names) {
        if (access(dir.file(name).c_str(), F_OK) != 0) return false;
      }
      return true;
    });
  }
  const TempDir dir;

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Returns the state of a process in /proc: 'Z' if it has ended, 0 if it does not exist.
char process_state_of(const std::string& pid) {
  const std::string text = read_file("/proc/" + pid + "/stat");
  const std::size_t name = text.rfind(')');
  return name == std::string::npos ? '\0' : text[name + 2];
}
bool has_ended(const std::string& pid) {
  const char state = process_state_of(pid);
  return state == '\0' || state == 'Z';
}

TEST_CASE(
    "--nproc: each process is told its place, the ports, the job and a token of its own run") {
  const std::string script =
      "printf '%s\\n' $DPT_RANK $DPT_WORLD_SIZE $DPT_LOCAL_RANK $DPT_LOCAL_SIZE $DPT_PORTS "
      "$DPT_JOB "
      "$DPT_TOKEN > env.$DPT_RANK; "
      // If a variable has several values, a shell uses the last one and getenv the first.
      "tr '\\0' '\\n' < /proc/$$/environ | grep -c -e ^DPT_TOKEN= -e ^DPT_RANK= > count.$DPT_RANK";
  const auto mine = [] {
    setenv("DPT_TOKEN", "mine", 1);
    setenv("DPT_RANK", "0", 1);
  };
  std::set<std::string> tokens, jobs;
  for (int round = 0; round < 2; ++round) {
    Launch launch(3, script, {}, mine);
    REQUIRE(launch.wait() == 0);
    for (int rank = 0; rank < 3; ++rank) {
      const auto lines = split_lines(launch.text(fmt::format("env.{}", rank)));
      REQUIRE(lines.size() == 7);
      CHECK(lines[0] == std::to_string(rank));
      CHECK(lines[1] == "3");
      CHECK(lines[2] == std::to_string(rank));
      CHECK(lines[3] == "3");
      CHECK(lines[4] == split_lines(launch.text("env.0"))[4]);
      CHECK(lines[6].size() == 32);
      CHECK(lines[6].find_first_not_of("0123456789abcdef") == std::string::npos);
      CHECK(launch.text(fmt::format("count.{}", rank)) == "2\n");
      jobs.insert(lines[5]);
      tokens.insert(lines[6]);
      // The variables describe a world that dpt itself accepts.
      const std::vector<const char*> names = {"DPT_RANK",       "DPT_WORLD_SIZE", "DPT_LOCAL_RANK",
                                              "DPT_LOCAL_SIZE", "DPT_PORTS",      "DPT_JOB",
                                              "DPT_TOKEN"};
      const World world = detect_world([&](const char* name) -> const char* {
        for (std::size_t i = 0; i < names.size(); ++i) {
          if (std::string(names[i]) == name) return lines[i].c_str();
        }
        return nullptr;
      });
      CHECK(world.rank == rank);
      CHECK(world.token == lines[6]);
      CHECK(world.ports.size() == 8);
      CHECK(std::set<int>(world.ports.begin(), world.ports.end()).size() == 8);
    }
  }
  CHECK(jobs.size() == 2);
  CHECK(tokens.size() == 2);
}

TEST_CASE("--nproc: rank 0 has the streams, the others' lines get a prefix, the last one too") {
  Launch launch(3, "echo out; echo err >&2; echo; read x; echo \"read:$x\"; printf 'no newline'",
                {}, [] {
                  int ends[2];
                  if (pipe(ends) != 0 || write(ends[1], "typed\n", 6) != 6) _exit(126);
                  dup2(ends[0], 0);
                });
  CHECK(launch.wait() == 0);
  CHECK(launch.text("stdout") == "out\n\nread:typed\nno newline");
  const auto lines = split_lines(launch.text("stderr"));
  CHECK(lines.size() == 11);
  const std::multiset<std::string> all(lines.begin(), lines.end());
  CHECK(all.count("err") == 1);
  for (const char* rank : {"[rank 1] ", "[rank 2] "}) {
    for (const char* line : {"out", "err", "", "read:", "no newline"}) {
      CHECK(all.count(std::string(rank) + line) == 1);
    }
  }
}

TEST_CASE("--nproc: lines of several processes stay whole, and in order") {
  // Each line is written in parts, on both streams. Rank 0 exits, because its output is not
  // forwarded.
  Launch launch(4,
                "[ $DPT_RANK = 0 ] && exit; i=0; while [ $i -lt 300 ]; do printf \"$i a\"; printf "
                "\"$i e\" >&2; printf 'b\\n'; printf 'f\\n' >&2; i=$((i+1)); done");
  CHECK(launch.wait() == 0);
  std::map<std::string, int> next;
  for (const std::string& line : split_lines(launch.text("stderr"))) {
    const std::string prefix = line.substr(0, line.find("] ") + 1);
    const std::string stream = line.substr(line.size() - 2);
    REQUIRE(line == fmt::format("{} {} {}", prefix, next[prefix + stream]++, stream));
  }
  CHECK(next.size() == 6);
  for (const auto& [key, count] : next) CHECK(count == 300);
}

TEST_CASE("--nproc: a line without an end is broken") {
  Launch launch(2, "[ $DPT_RANK = 0 ] || head -c 200000 /dev/zero | tr '\\0' x");
  CHECK(launch.wait() == 0);
  const auto parts = split_lines(launch.text("stderr"));
  CHECK(parts.size() == 4);
  std::size_t size = 0;
  for (const std::string& part : parts) size += part.size() - std::string("[rank 1] ").size();
  CHECK(size == 200000);
}

TEST_CASE("--nproc: the exit code is that of the first process that fails") {
  CHECK(Launch(3, "exit 0").wait() == 0);
  CHECK(Launch(3, "exit 7").wait() == 7);
  CHECK(Launch(1, "exit 5").wait() == 5);
  {
    Launch launch(3, "[ $DPT_RANK = 1 ] && exit 3; exit 0");
    CHECK(launch.wait() == 3);
    check_contains(launch.text("stderr"), "dpt: rank 1 (process ");
    check_contains(launch.text("stderr"), ") ended with exit code 3\n");
  }
  {
    Launch launch(3,
                  "case $DPT_RANK in 2) exit 5;; esac; "
                  "until grep -q '^dpt: rank 2' stderr; do sleep 0.02; done; exit 7");
    CHECK(launch.wait() == 5);
  }
  for (const int cause : {2, 3, 4, 5, 7, 1}) {
    // A rank that fails because another rank failed may end before that rank does.
    Launch launch(3, fmt::format("[ $DPT_RANK = 0 ] && exit 6; "
                                 "until grep -q '^dpt: rank 0' stderr; do sleep 0.02; done; "
                                 "[ $DPT_RANK = 1 ] && exit {}; "
                                 "until grep -q '^dpt: rank 1' stderr; do sleep 0.02; done; exit 2",
                                 cause));
    CHECK(launch.wait() == cause);
    check_contains(launch.text("stderr"), fmt::format(") ended with exit code {}\n", cause));
  }
  {
    Launch launch(2,
                  "[ $DPT_RANK = 1 ] && kill -SEGV $$; "
                  "until grep -q '^dpt: rank 1' stderr; do sleep 0.02; done; exit 6");
    CHECK(launch.wait() == 139);
    check_contains(launch.text("stderr"), ") was killed by signal 11 (Segmentation fault)\n");
  }
  {
    Launch launch(2, "[ $DPT_RANK = 1 ] && kill -KILL $$; exit 0");
    CHECK(launch.wait() == 137);
    check_contains(launch.text("stderr"),
                   "was killed by signal 9 (Killed; the system does so when memory runs out)\n");
  }
  {
    Launch launch(2, "exit 4", {}, [] { signal(SIGCHLD, SIG_IGN); });
    CHECK(launch.wait() == 4);
  }
}

TEST_CASE(
    "--nproc: of processes that ended at the same time, the cause counts, not what followed") {
  for (const auto& [script, code] :
       {std::pair{"[ $DPT_RANK = 2 ] && exit 3; exit 6", 3},
        std::pair{"[ $DPT_RANK = 2 ] && kill -ABRT $$; [ $DPT_RANK = 1 ] && exit 3; exit 6",
                  134}}) {
    Launch launch(3, fmt::format("echo $$ > pid.$DPT_RANK.part; mv pid.$DPT_RANK.part "
                                 "pid.$DPT_RANK; until [ -e go ]; do sleep 0.02; done; {}",
                                 script));
    const std::vector<std::string> pids = {"pid.0", "pid.1", "pid.2"};
    REQUIRE(launch.wait_for(pids));
    launch.send(SIGSTOP);
    write_file(launch.dir.file("go"), "");
    for (const std::string& name : pids) {
      REQUIRE(wait_until([&] { return has_ended(split_lines(launch.text(name))[0]); }));
    }
    launch.send(SIGCONT);
    CHECK(launch.wait() == code);
  }
}

/// Returns a script in which all ranks set `trap`. Rank 1 then fails, and the others run forever.
std::string others_continue(const std::string& trap) {
  return "trap '" + trap +
         "' TERM; echo > ready.$DPT_RANK; [ $DPT_RANK = 1 ] && { until [ -e ready.0 ] && [ -e "
         "ready.2 ]; do sleep 0.02; done; exit 3; }; while :; do sleep 0.02; done";
}

TEST_CASE("--nproc: processes that do not end after a failure are ended, and named") {
  Launch asked(3, others_continue("exit 4"), {50ms, 1h});
  CHECK(asked.wait() == 3);
  const std::string text = asked.text("stderr");
  check_contains(
      text, "dpt: ranks 0, 2 did not end within 0.05 s of the end of rank 1: sending SIGTERM\n");
  CHECK_FALSE(contains(text, "SIGKILL"));

  Launch deaf(3, others_continue(""), {0ms, 50ms});
  CHECK(deaf.wait() == 3);
  const std::string err = deaf.text("stderr");
  check_contains(err, "dpt: ranks 0, 2 did not end within 0.05 s of SIGTERM: sending SIGKILL\n");
  CHECK(count_of(err, ") was killed by signal 9 (Killed)\n") == 2);
}

TEST_CASE("--nproc: after a stop on request, the others have all the time they need to save") {
  for (const int code : {75, 129, 130, 143}) {
    Launch launch(2,
                  fmt::format("trap 'exit {0}' USR1; trap 'echo > term' TERM; echo $$ > "
                              "part.$DPT_RANK; mv part.$DPT_RANK pid.$DPT_RANK; "
                              "[ $DPT_RANK = 1 ] && exit {0}; while :; do sleep 0.02; done",
                              code),
                  {0ms, 0ms});
    REQUIRE(launch.wait_for({"pid.0", "pid.1"}));
    // Wait until rank 1 has been reaped: the launcher then knows that it has exited.
    const std::string pid = split_lines(launch.text("pid.1"))[0];
    REQUIRE(wait_until([&] { return process_state_of(pid) == '\0'; }));
    launch.send(SIGUSR1);
    CHECK(launch.wait() == code);
    CHECK(access(launch.dir.file("term").c_str(), F_OK) != 0);
    CHECK(launch.text("stderr").empty());
  }
}

TEST_CASE("--nproc: a suspended rank 0 is ended after all others have stopped on request") {
  const std::string script =
      "trap 'exit 143' TERM; echo $$ > part.$DPT_RANK; mv part.$DPT_RANK pid.$DPT_RANK; "
      "while :; do sleep 0.02; done";
  Launch launch(3, script, {50ms, 1h});
  REQUIRE(launch.wait_for({"pid.0", "pid.1", "pid.2"}));
  const std::string pid = split_lines(launch.text("pid.0"))[0];
  kill(static_cast<pid_t>(std::stol(pid)), SIGSTOP);
  REQUIRE(wait_until([&] { return process_state_of(pid) == 'T'; }));
  launch.send(SIGTERM);
  CHECK(launch.wait() == 143);
  CHECK(launch.text("stderr") ==
        "dpt: rank 0 was suspended and did not end within 0.05 s of the end of all other ranks: "
        "sending SIGTERM\n");

  // If a signal comes while all ranks are suspended, all of them get SIGTERM.
  Launch all(2, script, {50ms, 1h});
  REQUIRE(all.wait_for({"pid.0", "pid.1"}));
  for (const char* file : {"pid.0", "pid.1"}) {
    const std::string number = split_lines(all.text(file))[0];
    kill(static_cast<pid_t>(std::stol(number)), SIGSTOP);
    REQUIRE(wait_until([&] { return process_state_of(number) == 'T'; }));
  }
  all.send(SIGTERM);
  CHECK(all.wait() == 143);
  CHECK(all.text("stderr") ==
        "dpt: ranks 0, 1 were suspended and did not end within 0.05 s of the signal: sending "
        "SIGTERM\n");

  // A rank that is resumed gets the time it needs to stop, and no SIGTERM.
  Launch awake(2, "trap 'exit 75' USR1; trap 'echo > term' TERM; " + script.substr(22), {1h, 50ms});
  REQUIRE(awake.wait_for({"pid.0", "pid.1"}));
  const std::string its = split_lines(awake.text("pid.0"))[0];
  const auto its_pid = static_cast<pid_t>(std::stol(its));
  kill(its_pid, SIGSTOP);
  REQUIRE(wait_until([&] { return process_state_of(its) == 'T'; }));
  awake.send(SIGUSR1);
  const std::string other = split_lines(awake.text("pid.1"))[0];
  REQUIRE(wait_until([&] { return process_state_of(other) == '\0'; }));
  kill(its_pid, SIGCONT);
  CHECK(awake.wait() == 75);
  CHECK(awake.text("stderr").empty());
}

/// Returns a script that counts its signals and ends on SIGUSR1.
std::string counting() {
  return "n=0; trap 'n=$((n+1)); echo > got.$DPT_RANK.$n' INT TERM HUP; "
         "trap 'echo $n > count.$DPT_RANK; exit 75' USR1; echo > ready.$DPT_RANK; "
         "while :; do sleep 0.02; done";
}

TEST_CASE("--nproc: signals to the launcher reach all processes, once") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    Launch launch(3, counting());
    REQUIRE(launch.wait_for({"ready.0", "ready.1", "ready.2"}));
    launch.send(number);
    REQUIRE(launch.wait_for({"got.0.1", "got.1.1", "got.2.1"}));
    launch.send(SIGUSR1);
    CHECK(launch.wait() == 75);
    for (const char* name : {"count.0", "count.1", "count.2"}) CHECK(launch.text(name) == "1\n");
  }
}

TEST_CASE("--nproc: a supervisor's SIGINT and SIGTERM in one go are one, a later one is a second") {
  Launch launch(2, counting());
  REQUIRE(launch.wait_for({"ready.0", "ready.1"}));
  launch.send(SIGSTOP);
  launch.send(SIGTERM);
  launch.send(SIGINT);
  launch.send(SIGCONT);
  REQUIRE(launch.wait_for({"got.0.1", "got.1.1"}));
  std::this_thread::sleep_for(150ms);
  launch.send(SIGTERM);
  REQUIRE(launch.wait_for({"got.0.2", "got.1.2"}));
  launch.send(SIGUSR1);
  CHECK(launch.wait() == 75);
  for (const char* name : {"count.0", "count.1"}) CHECK(launch.text(name) == "2\n");
}

TEST_CASE("--nproc: Ctrl-C in a terminal reaches each process once, from the terminal itself") {
  if (!has_pseudo_terminals()) return;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  Launch launch(2, counting(), {}, [&] {
    // The first terminal that a session leader opens becomes the session's controlling terminal.
    if (setsid() < 0 || open(ptsname(terminal), O_RDWR) < 0) _exit(126);
  });
  REQUIRE(launch.wait_for({"ready.0", "ready.1"}));
  // Suspend the launcher: a SIGINT that it forwarded later would be counted as a second one.
  launch.send(SIGSTOP);
  REQUIRE(write(terminal, "\x03", 1) == 1);
  REQUIRE(launch.wait_for({"got.0.1", "got.1.1"}));
  launch.send(SIGCONT);
  launch.send(SIGUSR1);
  CHECK(launch.wait() == 75);
  for (const char* name : {"count.0", "count.1"}) CHECK(launch.text(name) == "1\n");
  close(terminal);
}

TEST_CASE("--nproc: signals that the launcher ignores are not passed on") {
  Launch launch(2, "exec env --default-signal=INT sh -c \"$COUNTING\"", {}, [] {
    signal(SIGINT, SIG_IGN);
    setenv("COUNTING", counting().c_str(), 1);
  });
  REQUIRE(launch.wait_for({"ready.0", "ready.1"}));
  launch.send(SIGINT);
  launch.send(SIGUSR1);
  CHECK(launch.wait() == 75);
  for (const char* name : {"count.0", "count.1"}) CHECK(launch.text(name) == "0\n");
}

TEST_CASE("--nproc: no process outlives a launcher that is killed, whatever it ignores") {
  for (const int ignored : {SIGUSR2, SIGTERM}) {
    CAPTURE(ignored);
    Launch launch(3, "echo $$ > part.$DPT_RANK; mv part.$DPT_RANK pid.$DPT_RANK; exec sleep 1000",
                  {}, [&] { signal(ignored, SIG_IGN); });
    const std::vector<std::string> pids = {"pid.0", "pid.1", "pid.2"};
    REQUIRE(launch.wait_for(pids));
    launch.send(SIGKILL);
    CHECK(launch.wait() == -SIGKILL);
    for (const std::string& name : pids) {
      const std::string pid = split_lines(launch.text(name))[0];
      CHECK(wait_until([&] { return has_ended(pid); }));
      if (!has_ended(pid)) kill(std::stoi(pid), SIGKILL);
    }
  }
}

TEST_CASE("--nproc: messages that nobody reads hold no signal up, and lost ones change nothing") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const std::string script =
      "trap 'echo > got.$DPT_RANK; exit 75' USR1; echo > ready.$DPT_RANK; "
      "[ $DPT_RANK = 0 ] || { i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890"
      "12345678901234567890; i=$((i+1)); done; }; echo > written.$DPT_RANK; "
      "while :; do sleep 0.02; done";
  Launch launch(2, script, {}, [&] {
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
  });
  close(ends[1]);
  // Rank 1 writes more than a pipe holds.
  REQUIRE(launch.wait_for({"written.0", "written.1"}));
  launch.send(SIGUSR1);
  CHECK(launch.wait_for({"got.0", "got.1"}));
  SUBCASE("read at last: nothing is missing") {
    std::string all;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(got));
    }
    CHECK(count_of(all, "[rank 1] 0123") == 2000);
    close(ends[0]);
  }
  SUBCASE("never read") {
    close(ends[0]);
  }
  CHECK(launch.wait() == 75);
}

TEST_CASE("--nproc on the command line") {
  const Workplace w;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& text,
                           const std::function<void()>& in_child = {}) {
    const Finished finished = run_dpt(arguments, w.dir.path(), in_child);
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, text);
    CHECK(count_of(finished.err, "\n") == 1);
  };
  for (const char* command : {"train", "eval"}) {
    refused({command, "x", "--nproc", "0"}, "--nproc");
    refused({command, "x", "--nproc", "two"}, "--nproc");
    refused({command, "x", "--nproc", "2", "--rank", "0"}, "--nproc excludes --rank");
    refused({command, "x", "--nproc", "2", "--world-size", "2"}, "--nproc excludes --world-size");
    refused({command, "x", "--nproc", "2", "--coordinator", "h:1"},
            "--nproc excludes --coordinator");
    refused({command, "x", "--nproc", "2", "--join-timeout", "soon"}, "'soon' is not a duration");
    refused({command, "x", "--nproc", "2", "--join-timeout", "0s"}, "expected at least 1s");
    refused({command, "x", "--rank", "-1"}, "--rank");
    refused({command, "x", "--nproc", "2"},
            "--nproc: this process is already rank 1 of 4 (Open MPI)", [] {
              setenv("OMPI_COMM_WORLD_RANK", "1", 1);
              setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
              setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
              setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
            });
  }
  // The processes have the launcher's command line, but do not launch again.
  const Finished missing = run_dpt({"train", "missing.yaml", "--nproc=2"}, w.dir.path());
  CHECK(missing.exit_code == 2);
  check_contains(missing.err, "missing.yaml");
}

}  // namespace
}  // namespace dpt::testing
