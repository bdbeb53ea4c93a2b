// The control channel of real processes, some of which are killed or stopped.
#include <fcntl.h>

#include <algorithm>

#include "engine/processes/control.h"
#include "engine/processes/world.h"
#include "tests/engine/processes/control_world.h"

namespace dpt::testing {
namespace {

/// The child's connection to the test.
class Parent {
 public:
  Parent(int in, int out) : in_(in), out_(out) {}
  void say(const std::string& line) const {
    const std::string text = line + "\n";
    [[maybe_unused]] const auto written = ::write(out_, text.data(), text.size());
  }
  /// Waits up to `wait`. Returns true once the test has asked this process to end.
  bool says_end(std::chrono::milliseconds wait) const {
    pollfd one{in_, POLLIN, 0};
    return ::poll(&one, 1, static_cast<int>(wait.count())) > 0;
  }

 private:
  int in_, out_;
};

/// A process of a world: a fork of the test, which must be single-threaded.
class Process {
 public:
  Process(const World& world, const ControlOptions& options,
          const std::function<void(ControlChannel&, const Parent&)>& body) {
    int to_child[2], from_child[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to_child) == 0);
    REQUIRE(::pipe2(from_child, O_CLOEXEC) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(to_child[1]);
      ::close(from_child[0]);
      const Parent parent(to_child[0], from_child[1]);
      try {
        const auto channel = ControlChannel::join(world, options);
        parent.say("joined");
        body(*channel, parent);
      } catch (const std::exception& error) {
        parent.say(error.what());
      }
      parent.say("end");
      ::_exit(0);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    to_ = to_child[1];
    from_ = from_child[0];
  }
  Process(const Process&) = delete;
  ~Process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(to_);
    ::close(from_);
  }

  int pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  void say_end() const { ::send(to_, "x", 1, MSG_NOSIGNAL); }
  /// Returns the next line from the process; "" if it has ended or stays silent for long.
  std::string line() const {
    std::string text;
    char next = 0;
    pollfd one{from_, POLLIN, 0};
    while (::poll(&one, 1, 1000 * static_cast<int>(kLong.count())) > 0 &&
           ::read(from_, &next, 1) == 1 && next != '\n') {
      text += next;
    }
    return text;
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

using Processes = std::vector<std::unique_ptr<Process>>;

/// Starts a world. All processes have joined when this returns.
Processes start_world(int size, const ControlOptions& options,
                      const std::function<void(ControlChannel&, const Parent&)>& body) {
  const std::vector<int> ports = free_ports(3);
  Processes processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(std::make_unique<Process>(local_world(rank, size, ports), options, body));
  }
  for (const auto& process : processes) REQUIRE(process->line() == "joined");
  return processes;
}

/// Works until the world fails or the test ends it.
void work(ControlChannel& channel, const Parent& parent) {
  heartbeat_of_thread()->set_step(17);
  while (!channel.failure() && !parent.says_end(5ms)) beat("training");
  if (const auto failure = channel.failure()) {
    parent.say(failure->text);
  } else {
    channel.leave();
    parent.say("left");
  }
}

std::string name_in(const Processes& processes, int rank) {
  return "rank " + std::to_string(rank) + " (host host" + std::to_string(rank) + ", pid " +
         std::to_string(processes[rank]->pid()) + ")";
}

ControlOptions options_with_stall(std::chrono::milliseconds timeout) {
  ControlOptions options = quick_options();
  options.stall_timeout = timeout;
  return options;
}

/// Time in which each process sends several beats.
constexpr auto kSomeBeats = 100ms;

}  // namespace

TEST_CASE("every survivor names a killed process within five seconds, rank 0 too") {
  for (const int killed : {1, 0}) {
    Processes processes = start_world(3, quick_options(), work);
    std::this_thread::sleep_for(kSomeBeats);
    const auto start = std::chrono::steady_clock::now();
    processes[killed]->signal(SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == killed) continue;
      const std::string text = processes[rank]->line();
      CHECK(contains(text, name_in(processes, killed) + " was lost: its connection ended"));
      CHECK(contains(text, "it was last at step 17, training"));
      CHECK(processes[rank]->line() == "end");
    }
    CHECK(std::chrono::steady_clock::now() - start < 5s);
  }
}

TEST_CASE("a stopped process is named after the stall timeout, and told so when it wakes") {
  const std::vector<std::size_t> stopped = {2, 0};
  std::vector<Processes> worlds;
  for (std::size_t i = 0; i < stopped.size(); ++i) {
    worlds.push_back(start_world(3, options_with_stall(1s), work));
  }
  std::this_thread::sleep_for(kSomeBeats);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < stopped.size(); ++i) worlds[i][stopped[i]]->signal(SIGSTOP);
  for (std::size_t i = 0; i < stopped.size(); ++i) {
    const std::string name = name_in(worlds[i], static_cast<int>(stopped[i]));
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == stopped[i]) continue;
      const std::string text = worlds[i][rank]->line();
      CAPTURE(text);
      CHECK(contains(text, name + " does not answer: nothing was received from it for 1.0 s"));
      CHECK(contains(text, "it was last at step 17, training"));
      // The remaining process closes its channel without waiting for the stopped one.
      CHECK(worlds[i][rank]->line() == "end");
    }
    CHECK(std::chrono::steady_clock::now() - start < 1s + 5s);
    CHECK(std::chrono::steady_clock::now() - start > 700ms);
    worlds[i][stopped[i]]->signal(SIGCONT);
    const std::string text = worlds[i][stopped[i]]->line();
    CAPTURE(text);
    CHECK(contains(text, name + " does not answer"));
  }
}

TEST_CASE("while a run starts, a stopped process is lost after the join timeout already") {
  ControlOptions options = options_with_stall(1h);
  options.join_timeout = 5s;
  std::vector<Processes> worlds;
  for (int i = 0; i < 2; ++i) worlds.push_back(start_world(2, options, work));
  for (const std::size_t stopped : {0, 1}) worlds[stopped][stopped]->signal(SIGSTOP);
  for (const std::size_t stopped : {0, 1}) {
    const std::string text = worlds[stopped][1 - stopped]->line();
    CHECK(contains(text, name_in(worlds[stopped], static_cast<int>(stopped)) +
                             " does not answer: nothing was received from it for 5.0 s "
                             "(--join-timeout)"));
  }
}

TEST_CASE("a process that continues before the stall timeout, and a whole job after it, continue") {
  Processes processes = start_world(3, options_with_stall(1s), work);
  for (const auto& process : processes) {
    process->signal(SIGSTOP);
    std::this_thread::sleep_for(200ms);
    process->signal(SIGCONT);
  }
  for (const auto& process : processes) process->signal(SIGSTOP);
  std::this_thread::sleep_for(1600ms);
  for (const auto& process : processes) process->signal(SIGCONT);
  // A process that accused another would do so before the other's first beat arrives.
  std::this_thread::sleep_for(kSomeBeats);
  for (const auto& process : processes) process->say_end();
  for (const auto& process : processes) CHECK(process->line() == "left");
}

TEST_CASE("fail() returns when rank 0 does not take it, and its cause is that of this process") {
  Processes processes =
      start_world(2, quick_options(), [](ControlChannel& channel, const Parent& parent) {
        while (!parent.says_end(kLong)) continue;
        const auto start = std::chrono::steady_clock::now();
        channel.fail("no memory", 4);
        parent.say(std::chrono::steady_clock::now() - start < 3s ? "returned" : "late");
        parent.say(channel.failure() ? channel.failure()->text : "none");
      });
  processes[0]->signal(SIGSTOP);
  processes[1]->say_end();
  CHECK(processes[1]->line() == "returned");
  const std::string text = processes[1]->line();
  CHECK(contains(text, name_in(processes, 1) + " failed before its first step: no memory"));
  // The failure arrives when rank 0 continues.
  processes[0]->signal(SIGCONT);
  processes[0]->say_end();
  CHECK(processes[0]->line() == "returned");
  CHECK(processes[0]->line() == text);
}

TEST_CASE("a process may end at once after it has left, rank 0 too") {
  Processes processes = start_world(3, quick_options(), [](ControlChannel& channel, const Parent&) {
    channel.leave();
    ::_exit(0);
  });
  Processes others = start_world(3, quick_options(), [](ControlChannel& channel, const Parent& to) {
    channel.leave();
    if (channel.world().rank == 0) return;
    to.say(channel.wait_for_failure(200ms) ? "failed" : "left");
  });
  CHECK(others[1]->line() == "left");
  CHECK(others[2]->line() == "left");
  for (const auto& process : processes) CHECK(process->line() == "");
}

TEST_CASE("signals are handled on the threads of the program, not of the channel") {
  Processes processes =
      start_world(2, quick_options(), [](ControlChannel& channel, const Parent& to) {
        // This thread blocks the signal; if a thread of the channel handled it, the process would
        // end.
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGTERM);
        ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
        to.say("blocked");
        // Poll at first: a thread in sigwait would receive the signal before all other threads.
        for (sigset_t pending; ::sigpending(&pending) == 0 && !sigismember(&pending, SIGTERM);) {
          std::this_thread::sleep_for(1ms);
        }
        int number = 0;
        ::sigwait(&one, &number);
        to.say("signal " + std::to_string(number));
        channel.leave();
        to.say("left");
      });
  for (const auto& process : processes) CHECK(process->line() == "blocked");
  for (const auto& process : processes) process->signal(SIGTERM);
  for (const auto& process : processes) {
    CHECK(process->line() == "signal " + std::to_string(SIGTERM));
    CHECK(process->line() == "left");
  }
}

}  // namespace dpt::testing
