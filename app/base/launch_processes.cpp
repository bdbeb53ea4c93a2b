#include "app/base/launch_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/secret.h"

namespace dpt {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr Clock::time_point kNever = Clock::time_point::max();
/// Exit code of a process that ended because another one did.
constexpr int kPeerFailed = static_cast<int>(ErrorKind::peer);

/// Returns currently free ports of the loopback interface, as many as the processes may try.
std::vector<int> free_ports() {
  constexpr std::size_t kPorts = 8;
  std::vector<FileHandle> sockets;  // all open at once, so that no port is found twice
  std::vector<int> ports;
  while (ports.size() < kPorts) {
    const int number = sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).fd();
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (number < 0 || bind(number, any, size) != 0 || getsockname(number, any, &size) != 0) {
      fail(ErrorKind::unexpected, "--nproc: cannot find a free port on 127.0.0.1: {}",
           std::strerror(errno));
    }
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

void set_variable(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Returns true if the other ranks cannot continue after a rank has ended with `status`. After a
/// requested stop they can continue, and may take as long as they need.
bool is_failure(int status) {
  if (WIFSIGNALED(status)) return true;
  return code_of(status) != 0 && stop_of_exit_code(code_of(status)) == StopReason::none;
}

/// Returns the signal for processes whose launcher has died: the first stop signal that they do not
/// ignore.
int last_signal() {
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGINT}) {
    if (!is_signal_ignored(number)) return number;
  }
  return SIGKILL;
}

class Launcher {
 public:
  /// Blocks the signals that wait() takes.
  explicit Launcher(const LaunchPatience& patience) : patience_(patience) {
    signal(SIGCHLD, SIG_DFL);  // exit codes are lost if it is ignored
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGCHLD);
    for (const int number : kStopSignals) {
      if (!is_signal_ignored(number)) sigaddset(&signals_, number);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  }
  /// Kills the processes that still run after a failure.
  ~Launcher() {
    send(SIGKILL);
    for (const int rank : running()) waitpid(ranks_[rank].pid, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;

  void start(int count, const std::string& program, std::vector<std::string> command) {
    set_variable("DPT_WORLD_SIZE", std::to_string(count));
    set_variable("DPT_LOCAL_SIZE", std::to_string(count));
    set_variable("DPT_PORTS", fmt::format("{}", fmt::join(free_ports(), ",")));
    set_variable("DPT_JOB", random_text(8));
    set_variable("DPT_TOKEN", random_text(16));
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    for (int rank = 0; rank < count; ++rank) start_rank(rank, count, program, words.data());
    output_.start();
  }

  /// Waits for all ranks, and returns the exit code.
  int wait() {
    for (reap(); !running().empty(); reap()) {
      end_late_ranks();
      wait_for_signal();
    }
    // Discard signals that came while the last rank ended: they were meant for it. Later signals
    // end this process, which a stalled reader of stderr might otherwise block forever.
    const timespec now = {};
    while (sigtimedwait(&signals_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    return exit_code_;
  }

 private:
  struct Rank {
    pid_t pid = 0;
    bool is_running = true, is_suspended = false;
  };

  void start_rank(int rank, int count, const std::string& program, char* const* words) {
    set_variable("DPT_RANK", std::to_string(rank));
    set_variable("DPT_LOCAL_RANK", std::to_string(rank));
    const std::string refused = fmt::format("dpt: --nproc: cannot run {}\n", program);
    FileHandle in, out, err;
    if (rank != 0) {
      in = open_file("/dev/null", O_RDONLY);
      if (!in.is_open()) {
        fail(ErrorKind::unexpected, "--nproc {}: rank {}: cannot open /dev/null: {}", count, rank,
             std::strerror(errno));
      }
      for (FileHandle* end : {&out, &err}) *end = output_.add_pipe(fmt::format("[rank {}] ", rank));
    }
    sigset_t mask = mask_before_;
    if (patience_.unblocks_signals) sigorset(&mask, &mask, &signals_);
    sigdelset(&mask, SIGCHLD);
    const pid_t launcher = getpid(), pid = fork();
    if (pid < 0) {
      const bool is_limit = errno == EAGAIN || errno == ENOMEM;
      fail(is_limit ? ErrorKind::device : ErrorKind::unexpected,
           "--nproc {}: cannot start the process of rank {}: {}{}", count, rank,
           std::strerror(errno),
           is_limit ? ". Use fewer processes, or raise the limit (ulimit -u, or pids.max of the "
                      "control group)"
                    : "");
    }
    if (pid > 0) {
      ranks_.push_back({pid});
      return;
    }
    // Make only system calls until exec. Check the parent, because the launcher may have died
    // before prctl.
    prctl(PR_SET_PDEATHSIG, last_signal());
    if (getppid() != launcher) _exit(128 + SIGTERM);
    if (rank != 0) {
      dup2(in.fd(), STDIN_FILENO);
      dup2(out.fd(), STDOUT_FILENO);
      dup2(err.fd(), STDERR_FILENO);
    }
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    execv(program.c_str(), words);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, refused.data(), refused.size());
    _exit(127);
  }

  std::vector<int> running() const {
    std::vector<int> result;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].is_running) result.push_back(static_cast<int>(i));
    }
    return result;
  }

  void send(int number) const {
    // Use sigqueue to mark the signal as passed on: the rank may also have received it directly.
    for (const int rank : running()) sigqueue(ranks_[rank].pid, number, sigval{});
  }

  /// Waits for a signal or the deadline. Passes the signal on, except SIGCHLD, which reports a
  /// change of a rank's state.
  void wait_for_signal() {
    const auto left = std::clamp<Clock::duration>(deadline_ - Clock::now(), Clock::duration(0),
                                                  std::chrono::hours(1));
    const auto ms = std::chrono::ceil<milliseconds>(left).count();
    const timespec time = {ms / 1000, ms % 1000 * 1'000'000};
    siginfo_t info = {};
    const int number = sigtimedwait(&signals_, &info, &time);
    // A signal from the terminal (Ctrl-C, SI_KERNEL) has reached the other processes too.
    if (number < 0 || number == SIGCHLD || info.si_code == SI_KERNEL) return;
    if (number == SIGINT || number == SIGTERM) {
      // Signals within this time are one request; engine/processes/stop.cpp has the same rule.
      constexpr milliseconds kOneRequest{100};
      const Clock::time_point now = Clock::now();
      if (now - interrupted_.value_or(now - kOneRequest) < kOneRequest) return;
      interrupted_ = interrupted_.value_or(now);
    }
    was_stopped_ = true;
    send(number);
  }

  /// Records which ranks have ended, and which were suspended or continued. If several have ended,
  /// notes the ranks that a signal ended first, and the ranks that ended because of another one
  /// last.
  void reap() {
    std::multimap<int, std::pair<int, int>> ended;  // rank and status
    for (const int rank : running()) {
      Rank& it = ranks_[rank];
      int status = 0;
      while (it.is_running && waitpid(it.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
        it.is_suspended = WIFSTOPPED(status);
        it.is_running = WIFSTOPPED(status) || WIFCONTINUED(status);
      }
      const int order = WIFSIGNALED(status) ? 0 : code_of(status) != kPeerFailed ? 1 : 2;
      if (!it.is_running) ended.emplace(order, std::pair(rank, status));
    }
    for (const auto& [order, end] : ended) note_end(end.first, end.second);
  }

  void note_end(int rank, int status) {
    const int code = code_of(status);
    // A failing process informs the others before it ends, so they may end first (exit code 6).
    const bool is_cause = exit_code_ == kPeerFailed && code != kPeerFailed && is_failure(status) &&
                          !WIFSIGNALED(status);
    std::string what;
    if (WIFSIGNALED(status)) {
      const int number = WTERMSIG(status);
      const bool is_foreign = number == SIGKILL && !has_killed_;
      what = fmt::format("was killed by signal {} ({}{})", number, strsignal(number),
                         is_foreign ? "; the system does so when memory runs out" : "");
    } else if (is_failure(status) && (!ended_rank_ || is_cause)) {
      what = fmt::format("ended with exit code {}", code);
    }
    if (!what.empty()) {
      output_.add(fmt::format("dpt: rank {} (process {}) {}", rank, ranks_[rank].pid, what));
    }
    if (exit_code_ == 0 || is_cause) exit_code_ = code;
    // After a requested stop, rank 0 ends last because it saves: the others should have ended by
    // then.
    if (!ended_rank_ && (is_failure(status) || (rank == 0 && code != 0))) ended_rank_ = rank;
  }

  /// Returns the event after which the running ranks should end by themselves, or an empty string.
  std::string call_to_end() const {
    if (ended_rank_) return fmt::format("the end of rank {}", *ended_rank_);
    // Do not wait forever for suspended ranks.
    const std::vector<int> waiting = running();
    const bool are_suspended = std::all_of(waiting.begin(), waiting.end(),
                                           [&](int rank) { return ranks_[rank].is_suspended; });
    if (!are_suspended) return {};
    if (waiting.size() < ranks_.size()) return "the end of all other ranks";
    return was_stopped_ ? "the signal" : "";
  }

  /// Ends the ranks that should have ended by themselves: by SIGTERM, then by SIGKILL.
  void end_late_ranks() {
    if (!has_terminated_) {
      const std::string call = call_to_end();
      if (call != call_) deadline_ = call.empty() ? kNever : Clock::now() + patience_.before_term;
      call_ = call;
    }
    if (Clock::now() < deadline_) return;
    const std::vector<int> late = running();
    const milliseconds waited = has_terminated_ ? patience_.before_kill : patience_.before_term;
    const char* state = "";
    if (!has_terminated_ && !ended_rank_) {
      state = late.size() == 1 ? " was suspended and" : " were suspended and";
    }
    output_.add(fmt::format("dpt: {} {}{} did not end within {:g} s of {}: sending {}",
                            late.size() == 1 ? "rank" : "ranks", fmt::join(late, ", "), state,
                            static_cast<double>(waited.count()) / 1000, call_,
                            has_terminated_ ? "SIGKILL" : "SIGTERM"));
    send(has_terminated_ ? SIGKILL : SIGTERM);
    send(SIGCONT);  // a suspended rank can then save
    has_killed_ = has_terminated_;
    has_terminated_ = true;
    call_ = "SIGTERM";
    deadline_ = has_killed_ ? kNever : Clock::now() + patience_.before_kill;
  }

  LaunchPatience patience_;
  sigset_t signals_ = {}, mask_before_ = {};
  RankOutput output_;
  std::vector<Rank> ranks_;
  std::optional<Clock::time_point> interrupted_;  ///< time of the first SIGINT or SIGTERM
  bool was_stopped_ = false;                      ///< true if a signal was passed on
  std::optional<int> ended_rank_;  ///< first rank whose end requires the others to end
  std::string call_;               ///< event that started the deadline
  Clock::time_point deadline_ = kNever;
  bool has_terminated_ = false, has_killed_ = false;
  int exit_code_ = 0;
};

}  // namespace

bool must_launch(const ProcessOptions& options) {
  if (duration_of("--join-timeout", options.join_timeout) < 1) {
    fail(ErrorKind::usage, "--join-timeout {}: expected at least 1s", options.join_timeout);
  }
  if (options.nproc == 0) return false;
  // The processes that --nproc started have the same command line.
  if (std::getenv("DPT_RANK") && detect_world().size == options.nproc) return false;
  refuse_nested_launch();
  return true;
}

int launch_processes(int count, const std::string& program, const std::vector<std::string>& command,
                     const LaunchPatience& patience) {
  Launcher launcher(patience);
  // From here on, signals are passed on. Earlier ones were for this process alone.
  if (const StopReason noted = requested_stop(); noted != StopReason::none) {
    say(fmt::format("stopped before the processes were started ({})", name_of(noted)));
    return exit_code_of(noted);
  }
  launcher.start(count, program, command);
  return launcher.wait();
}

int launch_processes(int count, const std::vector<std::string>& command) {
  for (const char* stdin_path : {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}) {
    if (std::find(command.begin(), command.end(), stdin_path) == command.end()) continue;
    fail(ErrorKind::usage,
         "--nproc: {}: expected a file, found a stream, which only one process can read: write it "
         "to a file first",
         stdin_path);
  }
  // Make room for this process's pipes to the others, and for the connections of rank 0: it
  // inherits the limit and has the most connections.
  constexpr int kOwn = 32;
  const int more = std::max(2 * count + kOwn, descriptors_to_run(0, count));
  const std::string problem =
      make_room_for_descriptors(more, fmt::format("--nproc {}: rank 0 needs", count));
  if (!problem.empty()) throw Error(ErrorKind::device, problem);
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    fail(ErrorKind::unexpected, "--nproc: cannot read /proc/self/exe: {}", error.message());
  }
  LaunchPatience patience;
  patience.unblocks_signals = true;
  return launch_processes(count, program, command, patience);
}

}  // namespace dpt
