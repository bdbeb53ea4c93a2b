// Runs the dpt program as users do, in a separate process.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace dpt::testing {

struct Finished {
  int exit_code = -1;  ///< -SIGNAL if a signal ended it
  std::string out, err;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Timeout: longer than any wait of these tests on a busy machine, and well below ctest's own, so
/// that a hanging test reports its place.
constexpr std::chrono::seconds kPatience{90};

/// Polls until the condition holds; returns false on timeout.
inline bool wait_until(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// A running dpt. Its working directory is `cwd`; stdout and stderr go to files in `logs`.
/// `in_child` runs in the new process before the program starts, and may set other streams and
/// limits.
class Program {
 public:
  Program(const std::vector<std::string>& arguments, const std::string& cwd, const TempDir& logs,
          const std::function<void()>& in_child = {})
      : out_(logs.file("stdout")), err_(logs.file("stderr")) {
    std::vector<std::string> words = {dpt_program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
      const int out = open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err = open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int in = open("/dev/null", O_RDONLY);
      if (chdir(cwd.c_str()) != 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || dup2(in, 0) < 0) {
        _exit(126);
      }
      // nohup, or a shell that started the tests in the background, may have set these signals to
      // be ignored.
      for (const int number : {SIGHUP, SIGINT, SIGTERM}) signal(number, SIG_DFL);
      if (in_child) in_child();
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  /// Kills the process, so that a failing test does not leave it running.
  ~Program() {
    if (is_running()) {
      send(SIGKILL);
      waitpid(pid_, &status_, 0);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Sends `signal`, unless the process is known to have ended: its ID may belong to another
  /// process.
  void send(int signal) const {
    if (!ended_) kill(pid_, signal);
  }
  pid_t pid() const { return pid_; }
  /// Returns the output on stderr so far.
  std::string messages() const { return read_file(err_); }
  bool is_running() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return !ended_;
  }
  /// Waits for the end. On timeout, kills the process and throws.
  Finished wait() {
    if (!wait_until([this] { return !is_running(); })) {
      send(SIGKILL);
      waitpid(pid_, &status_, 0);
      ended_ = true;
      throw std::runtime_error("dpt did not end in time; its messages: " + read_file(err_));
    }
    Finished finished;
    finished.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
    finished.out = read_file(out_);
    finished.err = read_file(err_);
    return finished;
  }

 private:
  std::string out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

inline Finished run_dpt(const std::vector<std::string>& arguments, const std::string& cwd,
                        const std::function<void()>& in_child = {}) {
  const TempDir logs;
  return Program(arguments, cwd, logs, in_child).wait();
}

/// Waits until the log of the run in `folder` has `text`; returns false on timeout.
inline bool wait_for_log(const std::string& folder, const std::string& text) {
  return wait_until(
      [&] { return read_file(folder + "/metrics.jsonl").find(text) != std::string::npos; });
}

/// Waits until the run in `folder` has written a checkpoint; returns false on timeout.
inline bool wait_for_checkpoint(const std::string& folder) {
  return wait_for_log(folder, "\"event\":\"checkpoint\"");
}

/// Returns the config of a run of several hundred quick steps in exact mode, so that bits can be
/// compared.
inline std::string program_config() {
  return R"(version: 1
name: small
seed: 3
data:
  dataset: synthetic
  size: 200
  test_size: 40
  classes: 4
  val_split: 20
  batch_size: 16
  transforms:
    train: [{type: RandomHorizontalFlip}, {type: Normalize, mean: [0.5], std: [0.3]}]
    eval: [{type: Normalize, mean: [0.5], std: [0.3]}]
model:
  input: [1, 8, 8]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 4}
optimizer: {type: SGD, lr: 0.05, momentum: 0.9}
train: {epochs: 30, shards: 4}
checkpoint: {every_steps: 5}
log: {every: 10}
devices: [cpu, cpu]
)";
}

}  // namespace dpt::testing
