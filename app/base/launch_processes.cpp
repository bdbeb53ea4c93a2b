#include "app/base/launch_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/process_options.h"
#include "app/base/rank_output.h"
#include "engine/processes/descriptor_limit.h"
#include "engine/processes/detect_world.h"
#include "engine/processes/stop.h"
#include "engine/processes/world.h"
#include "engine/run/progress.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/message_writer.h"
#include "kernels/base/secret.h"

namespace dpt {
namespace {

using Clock = std::chrono::steady_clock;

/// As in engine/processes/stop.cpp: within this time, signals are one request.
constexpr std::chrono::milliseconds kOneRequest{100};
/// Time for which the last messages wait for a reader of stderr.
constexpr std::chrono::seconds kPatience{5};
/// How many ports the processes may try.
constexpr int kPorts = 8;

[[noreturn]] void fail_at(const char* what) {
  fail(ErrorKind::unexpected, "--nproc: {} failed: {}", what, std::strerror(errno));
}

/// Ports of the loopback on which nothing listened just now.
std::vector<int> free_ports() {
  std::vector<FileHandle> sockets;  // all open at once: no port twice
  std::vector<int> ports;
  for (int i = 0; i < kPorts; ++i) {
    sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    const int number = sockets.back().fd();
    if (number < 0 || bind(number, any, size) != 0 || getsockname(number, any, &size) != 0) {
      fail_at("finding a free port of 127.0.0.1");
    }
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

/// The environment of all processes, each with a place of its own.
class Environments {
 public:
  explicit Environments(int count)
      : own_{{"DPT_WORLD_SIZE", std::to_string(count)},
             {"DPT_LOCAL_SIZE", std::to_string(count)},
             {"DPT_PORTS", fmt::format("{}", fmt::join(free_ports(), ","))},
             {"DPT_JOB", random_text(8)},
             {"DPT_TOKEN", random_text(16)}} {}
  std::vector<std::string> of(int rank) {
    own_["DPT_RANK"] = own_["DPT_LOCAL_RANK"] = std::to_string(rank);
    std::vector<std::string> result;
    for (char** variable = environ; *variable; ++variable) {
      const std::string text = *variable;
      if (own_.count(text.substr(0, text.find('='))) == 0) result.push_back(text);
    }
    for (const auto& [name, value] : own_) result.push_back(name + "=" + value);
    return result;
  }

 private:
  std::map<std::string, std::string> own_;
};

/// Texts in the form that exec takes; the texts must stay.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct Child {
  int rank = 0;
  pid_t pid = 0;
  std::vector<RankOutput> outputs;
  bool is_running = true, is_suspended = false;
  int status = 0;
};

/// Signals as events, and as they were before at the end.
class Signals {
 public:
  Signals() {
    // Ignored, it would take away how children ended.
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &child_before_);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (const int number : kStopSignals) {
      if (!is_signal_ignored(number)) sigaddset(&mask, number);
    }
    blocked_ = mask;
    sigdelset(&blocked_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, &before_);
    events_ = FileHandle(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!events_.is_open()) fail_at("signalfd");
  }
  ~Signals() {
    // What came while the last process ended was for it, too.
    while (next()) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    sigaction(SIGCHLD, &child_before_, nullptr);
  }
  Signals(const Signals&) = delete;
  /// Returns the former mask, with the signals that are passed on blocked if `blocks`, so that the
  /// child keeps them for the program that it becomes.
  sigset_t mask_of_children(bool blocks) const {
    sigset_t mask = before_;
    for (const int number : kStopSignals) {
      if (blocks && sigismember(&blocked_, number) == 1) sigaddset(&mask, number);
    }
    return mask;
  }
  int descriptor() const { return events_.fd(); }
  std::optional<signalfd_siginfo> next() const {
    signalfd_siginfo info = {};
    if (read(events_.fd(), &info, sizeof info) != sizeof info) return std::nullopt;
    return info;
  }

 private:
  sigset_t before_ = {}, blocked_ = {};
  struct sigaction child_before_ = {};
  FileHandle events_;
};

struct Ending {
  int code = 0;
  bool by_signal = false;
};
Ending ending_of(int status) {
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), true};
  return {WEXITSTATUS(status), false};
}
/// Whether the others cannot go on; a stop that was asked for may take them as long as it does.
bool is_failure(const Ending& ending) {
  constexpr std::array kStopped = {75, 128 + SIGHUP, 128 + SIGINT, 128 + SIGTERM};
  if (ending.by_signal) return true;
  return ending.code != 0 &&
         std::find(kStopped.begin(), kStopped.end(), ending.code) == kStopped.end();
}
/// Of processes that are found ended at the same time, which one came first: that another one
/// failed (exit code 6) is a consequence.
int order_of(const Ending& ending) {
  return ending.by_signal ? 0 : ending.code != static_cast<int>(ErrorKind::peer) ? 1 : 2;
}

/// Returns the signal for a process whose launcher has died: the first that asks it to save and
/// end.
int last_signal() {
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGINT}) {
    if (!is_signal_ignored(number)) return number;
  }
  return SIGKILL;
}

class Launcher {
 public:
  explicit Launcher(const LaunchPatience& patience) : patience_(patience) {}
  /// What fails here leaves no process.
  ~Launcher() {
    for (const Child& child : children_) {
      if (child.is_running) kill(child.pid, SIGKILL);
    }
    for (const Child& child : children_) {
      while (child.is_running && waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Launcher(const Launcher&) = delete;

  void start(int count, const std::string& program, const std::vector<std::string>& command) {
    Environments environments(count);
    for (int rank = 0; rank < count; ++rank) {
      start_one(rank, count, program, command, environments.of(rank));
    }
  }

  int wait() {
    while (running() > 0) {
      poll_once();
      pass_on_signals();
      reap();
      watch_suspended();
      press_on();
    }
    // Signals act again: a reader that does not read must not hold this process.
    signals_.reset();
    flush();
    for (Child& child : children_) {
      for (RankOutput& output : child.outputs) {
        // A process of theirs may still have the pipe: no more than what is there.
        while (!output.read_into(messages_) && flush()) {
        }
        output.end_line(messages_);
      }
    }
    flush();
    return exit_code_;
  }

 private:
  void start_one(int rank, int count, const std::string& program, std::vector<std::string> command,
                 std::vector<std::string> environment) {
    const std::vector<char*> argv = pointers(command), envp = pointers(environment);
    const std::string refused = fmt::format("dpt: --nproc: cannot run {}\n", program);
    Child child;
    child.rank = rank;
    FileHandle null(open("/dev/null", O_RDONLY | O_CLOEXEC)), out, err;
    if (!null.is_open()) fail_at("opening /dev/null");
    if (rank != 0) {
      for (FileHandle* end : {&out, &err}) {
        std::array<int, 2> ends = {};
        if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_at("pipe");
        *end = FileHandle(ends[1]);
        child.outputs.emplace_back(rank, FileHandle(ends[0]));
      }
    }
    const pid_t launcher = getpid();
    const sigset_t mask = signals_->mask_of_children(patience_.unblocks_signals);
    child.pid = fork();
    if (child.pid < 0) {
      const bool is_limit = errno == EAGAIN || errno == ENOMEM;
      fail(is_limit ? ErrorKind::device : ErrorKind::unexpected,
           "--nproc {}: cannot start the process of rank {}: {}{}", count, rank,
           std::strerror(errno),
           is_limit ? ". Use fewer processes, or raise the limit (ulimit -u, or pids.max of the "
                      "control group)"
                    : "");
    }
    if (child.pid == 0) {
      // Only what is allowed between fork and exec. The launcher may have gone before prctl.
      prctl(PR_SET_PDEATHSIG, last_signal());
      if (getppid() != launcher) _exit(128 + SIGTERM);
      if (rank != 0) {
        dup2(null.fd(), STDIN_FILENO);
        dup2(out.fd(), STDOUT_FILENO);
        dup2(err.fd(), STDERR_FILENO);
      }
      sigprocmask(SIG_SETMASK, &mask, nullptr);
      execve(program.c_str(), argv.data(), envp.data());
      const ssize_t ignored = write(STDERR_FILENO, refused.data(), refused.size());
      static_cast<void>(ignored);
      _exit(127);
    }
    children_.push_back(std::move(child));
  }

  /// Returns false if nobody takes what is left.
  bool flush() {
    while (!messages_.empty() && stderr_writer().is_ready(kPatience)) messages_.write_some();
    return messages_.empty();
  }

  std::size_t running() const {
    return static_cast<std::size_t>(std::count_if(
        children_.begin(), children_.end(), [](const Child& child) { return child.is_running; }));
  }
  std::string running_ranks() const {
    std::vector<std::string> ranks;
    for (const Child& child : children_) {
      if (child.is_running) ranks.push_back(std::to_string(child.rank));
    }
    return fmt::format("{} {}", ranks.size() > 1 ? "ranks" : "rank", fmt::join(ranks, ", "));
  }

  void poll_once() {
    std::vector<pollfd> wanted = {{signals_->descriptor(), POLLIN, 0}};
    if (!messages_.empty()) wanted.push_back({STDERR_FILENO, POLLOUT, 0});
    std::vector<RankOutput*> read;
    for (Child& child : children_) {
      for (RankOutput& output : child.outputs) {
        if (output.is_open() && !messages_.is_full()) read.push_back(&output);
      }
    }
    const std::size_t first = wanted.size();
    for (const RankOutput* output : read) wanted.push_back({output->descriptor(), POLLIN, 0});
    int timeout = -1;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
      timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
    }
    if (poll(wanted.data(), wanted.size(), timeout) < 0 && errno != EINTR) fail_at("poll");
    if (!messages_.empty() && wanted[1].revents != 0) messages_.write_some();
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (wanted[first + i].revents != 0) read[i]->read_into(messages_);
    }
  }

  void pass_on_signals() {
    while (const std::optional<signalfd_siginfo> info = signals_->next()) {
      const int number = static_cast<int>(info->ssi_signo);
      // A terminal's Ctrl-C reaches all processes that it runs.
      if (number == SIGCHLD || info->ssi_code == SI_KERNEL) continue;
      if (number == SIGINT || number == SIGTERM) {
        const Clock::time_point now = Clock::now();
        if (interrupted_ && now - *interrupted_ < kOneRequest) continue;
        if (!interrupted_) interrupted_ = now;
      }
      was_stopped_ = true;
      send(number);
    }
  }
  void send(int number) const {
    for (const Child& child : children_) {
      // Queued, it is seen to be passed on: the process may have got the same signal itself.
      if (child.is_running) sigqueue(child.pid, number, sigval{});
    }
  }

  void reap() {
    std::vector<Child*> ended;
    for (Child& child : children_) {
      if (!child.is_running) continue;
      const pid_t got = waitpid(child.pid, &child.status, WNOHANG | WUNTRACED | WCONTINUED);
      if (got == 0 || (got < 0 && errno == EINTR)) continue;
      if (got < 0) fail_at("waitpid");
      child.is_suspended = WIFSTOPPED(child.status);
      if (WIFSTOPPED(child.status) || WIFCONTINUED(child.status)) continue;
      child.is_running = false;
      ended.push_back(&child);
    }
    std::stable_sort(ended.begin(), ended.end(), [](const Child* a, const Child* b) {
      return order_of(ending_of(a->status)) < order_of(ending_of(b->status));
    });
    for (Child* child : ended) {
      // Its last words come before what is said of it.
      for (RankOutput& output : child->outputs) output.read_into(messages_);
      note_end(*child);
    }
  }
  void note_end(const Child& child) {
    const Ending ending = ending_of(child.status);
    if (ending.by_signal) {
      const int number = WTERMSIG(child.status);
      messages_.add(fmt::format(
          "dpt: rank {} (process {}) was killed by signal {} ({}{})", child.rank, child.pid, number,
          strsignal(number),
          number == SIGKILL && !has_killed_ ? "; the system does so when memory runs out" : ""));
    } else if (is_failure(ending) && (!ended_rank_ || is_first_cause(ending))) {
      messages_.add(fmt::format("dpt: rank {} (process {}) ended with exit code {}", child.rank,
                                child.pid, ending.code));
    }
    if (exit_code_ == 0 || is_first_cause(ending)) exit_code_ = ending.code;
    // After a stop the others may take as long as they do, but rank 0, which saves, ends last.
    const bool is_last_of_stop = child.rank == 0 && ending.code != 0;
    if ((is_failure(ending) || is_last_of_stop) && !ended_rank_) {
      ended_rank_ = child.rank;
      deadline_ = Clock::now() + patience_.before_term;
    }
  }

  /// Whether it explains what the others ended with before it: a process that fails tells them
  /// first, and they may end (exit code 6) before it does.
  bool is_first_cause(const Ending& ending) const {
    constexpr int kPeer = static_cast<int>(ErrorKind::peer);
    return exit_code_ == kPeer && !ending.by_signal && is_failure(ending) && ending.code != kPeer;
  }

  /// Sets a deadline for suspended processes, once all others have ended or a stop was passed on,
  /// and nothing else does: they would be waited for forever. If one continues, it has the time it
  /// needs.
  void watch_suspended() {
    const auto is_busy = [](const Child& child) { return child.is_running && !child.is_suspended; };
    const bool should_end = running() < children_.size() || was_stopped_;
    const bool only_suspended =
        running() > 0 && should_end && std::none_of(children_.begin(), children_.end(), is_busy);
    if (only_suspended && !deadline_ && !has_terminated_) {
      waits_for_suspended_ = true;
      deadline_ = Clock::now() + patience_.before_term;
    } else if (!only_suspended && waits_for_suspended_ && !has_terminated_) {
      waits_for_suspended_ = false;
      deadline_.reset();
    }
  }

  /// Returns the event from which the deadline for SIGTERM counts.
  std::string reason() const {
    if (!waits_for_suspended_) return fmt::format("the end of rank {}", *ended_rank_);
    return running() < children_.size() ? "the end of all others" : "the signal";
  }

  /// Ends the processes that should have ended by themselves.
  void press_on() {
    if (!deadline_ || Clock::now() < *deadline_ || running() == 0) return;
    const auto seconds = [](std::chrono::milliseconds time) {
      return static_cast<double>(time.count()) / 1000;
    };
    if (!has_terminated_) {
      const char* const verb = running() == 1 ? " was" : " were";
      const std::string suspended =
          waits_for_suspended_ ? fmt::format("{} suspended and", verb) : std::string();
      messages_.add(fmt::format("dpt: {}{} did not end within {:g} s of {}: sends SIGTERM",
                                running_ranks(), suspended, seconds(patience_.before_term),
                                reason()));
      has_terminated_ = true;
      deadline_ = Clock::now() + patience_.before_kill;
      send(SIGTERM);
      // A suspended one then saves what it can, and ends.
      send(SIGCONT);
      return;
    }
    messages_.add(fmt::format("dpt: {} did not end within {:g} s of SIGTERM: sends SIGKILL",
                              running_ranks(), seconds(patience_.before_kill)));
    has_killed_ = true;
    deadline_.reset();
    for (const Child& child : children_) {
      if (child.is_running) kill(child.pid, SIGKILL);
    }
  }

  LaunchPatience patience_;
  std::optional<Signals> signals_{std::in_place};
  RankMessages messages_;
  std::vector<Child> children_;
  std::optional<Clock::time_point> interrupted_;  // by the first SIGINT or SIGTERM
  std::optional<Clock::time_point> deadline_;
  std::optional<int> ended_rank_;     ///< the first after whose end the others should end too
  bool waits_for_suspended_ = false;  ///< that is what the deadline is for
  bool was_stopped_ = false;          ///< a signal was passed on
  bool has_terminated_ = false, has_killed_ = false;
  int exit_code_ = 0;
};

}  // namespace

bool must_launch(const ProcessOptions& options) {
  if (duration_of("--join-timeout", options.join_timeout) < 1) {
    fail(ErrorKind::usage, "--join-timeout {}: expected at least 1s", options.join_timeout);
  }
  if (options.nproc == 0) return false;
  // Its processes have the same command line.
  if (std::getenv("DPT_RANK") && detect_world().size == options.nproc) return false;
  refuse_nested_launch();
  return true;
}

int launch_processes(int count, const std::string& program, const std::vector<std::string>& command,
                     const LaunchPatience& patience) {
  Launcher launcher(patience);
  // Signals are passed on from here on; earlier ones were for this process alone.
  if (const StopReason noted = requested_stop(); noted != StopReason::none) {
    say(fmt::format("stopped before the processes were started ({})", name_of(noted)));
    return exit_code_of(noted);
  }
  launcher.start(count, program, command);
  return launcher.wait();
}

/// Refuses to read stdin: only rank 0 has it.
void check_reads_no_stdin(const std::vector<std::string>& command) {
  for (const char* stdin_path : {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}) {
    if (std::find(command.begin(), command.end(), stdin_path) == command.end()) continue;
    fail(ErrorKind::usage,
         "--nproc: {}: expected a file, which each process can read, found a stream, which only "
         "one can: write it to a file first",
         stdin_path);
  }
}

int launch_processes(int count, const std::vector<std::string>& command) {
  check_reads_no_stdin(command);
  // Includes this process' pipes to the processes; rank 0, which inherits the limit, has the most
  // connections.
  constexpr int kOwn = 32;
  const int more = std::max(2 * count + kOwn, descriptors_to_run(0, count));
  const std::string problem =
      make_room_for_descriptors(more, fmt::format("--nproc {}: rank 0 needs", count));
  if (!problem.empty()) throw Error(ErrorKind::device, problem);
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    fail(ErrorKind::unexpected, "--nproc: cannot read /proc/self/exe: {}", error.message());
  LaunchPatience patience;
  patience.unblocks_signals = true;
  return launch_processes(count, program, command, patience);
}

}  // namespace dpt
