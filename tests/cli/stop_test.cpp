// Further signals after the first, stopped processes, threads that cannot be started.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/cli/outcome.h"
#include "tests/cli/processes.h"
#include "tests/cli/tiny.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"

using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;

/// Returns a mask of signals from /proc: "ShdPnd" (sent to the process, not yet delivered),
/// "SigIgn".
std::uint64_t signals_of(pid_t pid, const std::string& mask) {
  std::istringstream lines(read_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, mask.size(), mask) == 0) {
      return std::stoull(line.substr(line.find(':') + 1), nullptr, 16);
    }
  }
  return 0;
}

std::uint64_t bit_of(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

/// A run that cannot end by itself: its messages go into a full pipe.
class Stuck {
 public:
  explicit Stuck(const std::function<void()>& in_child = {}) {
    write_file(dir.file("small.yaml"), program_config());
    REQUIRE(pipe2(ends_, O_CLOEXEC) == 0);
    program = std::make_unique<Program>(
        std::vector<std::string>{"train", "small.yaml", "train.epochs=100000"}, dir.path(), logs,
        [this, &in_child] {
          dup2(ends_[1], 2);
          if (in_child) in_child();
        });
    REQUIRE(wait_for_checkpoint(dir.file("runs/small")));
    const std::string own = "/proc/self/fd/" + std::to_string(ends_[1]);
    // Open the pipe again: O_NONBLOCK on the existing descriptor would affect the run, which shares
    // it.
    const int filler = open(own.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(filler >= 0);
    // Single bytes fill the rest, so that not even a short message fits.
    const std::string block(4096, '.');
    while (write(filler, block.data(), block.size()) > 0) {
    }
    while (write(filler, ".", 1) > 0) {
    }
    close(filler);
  }
  ~Stuck() {
    close(ends_[0]);
    close(ends_[1]);
  }
  /// Sends a signal and waits until the process has received it.
  void send(int signal) {
    program->send(signal);
    REQUIRE(wait_until([&] {
      return !program->is_running() || (signals_of(program->pid(), "ShdPnd") & bit_of(signal)) == 0;
    }));
  }
  /// Sends a signal so late that it no longer counts as part of the same request.
  void send_later(int signal) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    send(signal);
  }
  void read_messages() {
    close(ends_[1]);
    ends_[1] = -1;
    char buffer[4096];
    while (read(ends_[0], buffer, sizeof buffer) > 0) {
    }
  }
  TempDir dir, logs;
  std::unique_ptr<Program> program;

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace

TEST_CASE("a second SIGTERM or SIGINT stops at once, whatever the run is doing") {
  for (const auto& [first, second, exit_code] :
       {std::tuple{SIGTERM, SIGTERM, 143}, std::tuple{SIGINT, SIGINT, 130},
        std::tuple{SIGTERM, SIGINT, 130}}) {
    CAPTURE(first);
    CAPTURE(second);
    Stuck run;
    run.send(first);
    CHECK(run.program->is_running());
    run.send_later(second);
    CHECK(run.program->wait().exit_code == exit_code);
  }
}

TEST_CASE("signals that come at the same time are one request, and the checkpoint is saved") {
  // `timeout` sends SIGTERM to the program and its group; some supervisors send SIGINT and SIGTERM.
  Stuck run;
  run.program->send(SIGSTOP);
  for (const int signal : {SIGINT, SIGTERM}) run.program->send(signal);
  run.program->send(SIGCONT);
  run.read_messages();
  const int exit_code = run.program->wait().exit_code;
  CHECK((exit_code == 130 || exit_code == 143));
  CHECK(read_file(run.dir.file("runs/small/train.log")).find(", checkpoint saved") !=
        std::string::npos);
}

TEST_CASE(
    "a signal that dpt --nproc passes on, however late, is not a second request; two of them are") {
  Stuck run;
  run.send(SIGTERM);
  const auto pass_on_later = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    REQUIRE(sigqueue(run.program->pid(), SIGTERM, sigval{}) == 0);
    REQUIRE(wait_until([&] {
      return !run.program->is_running() ||
             (signals_of(run.program->pid(), "ShdPnd") & bit_of(SIGTERM)) == 0;
    }));
  };
  pass_on_later();
  CHECK(run.program->is_running());
  pass_on_later();
  CHECK(run.program->wait().exit_code == 143);
}

TEST_CASE("the first SIGTERM or SIGINT after SIGHUP or SIGUSR1 is not a second request") {
  // A closing terminal sends SIGHUP and SIGTERM, a job scheduler SIGUSR1 and SIGTERM.
  for (const auto& [first, second, exit_code] :
       {std::tuple{SIGHUP, SIGTERM, 129}, std::tuple{SIGUSR1, SIGINT, 75}}) {
    CAPTURE(first);
    Stuck run;
    run.send(first);
    run.send(second);
    run.read_messages();
    CHECK(run.program->wait().exit_code == exit_code);
  }
  Stuck run;
  run.send(SIGUSR1);
  run.send(SIGTERM);
  run.send_later(SIGTERM);
  CHECK(run.program->wait().exit_code == 143);
}

TEST_CASE("several SIGHUPs are one request: a terminal that closes sends more than one") {
  Stuck run;
  run.send(SIGHUP);
  run.send(SIGHUP);
  CHECK(run.program->is_running());
  run.read_messages();
  CHECK(run.program->wait().exit_code == 129);
}

TEST_CASE("signals that were ignored stay ignored: nohup, trap '', jobs in the background") {
  for (const std::string devices : {"", "--nproc"}) {
    const TempDir dir, logs;
    write_file(dir.file("small.yaml"), program_config());
    std::vector<std::string> command = {"train", "small.yaml", "train.epochs=100000"};
    if (!devices.empty()) command.insert(command.end(), {"--nproc", "2", "--devices", "cpu"});
    Program program(command, dir.path(), logs, [] {
      for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR2}) signal(number, SIG_IGN);
    });
    const std::string folder = dir.file("runs/small");
    REQUIRE(wait_for_checkpoint(folder));
    for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR2}) {
      CAPTURE(number);
      CHECK((signals_of(program.pid(), "SigIgn") & bit_of(number)) != 0);
      program.send(number);
    }
    const auto before = fs::file_size(folder + "/metrics.jsonl");
    CHECK(wait_until([&] {
      return !program.is_running() || fs::file_size(folder + "/metrics.jsonl") > before + 3000;
    }));
    program.send(SIGUSR1);
    const Finished stopped = program.wait();
    INFO(stopped.err);
    CHECK(stopped.exit_code == 75);
    CHECK(stopped.err.find("(SIGUSR1), checkpoint saved") != std::string::npos);
  }
}

namespace {

/// Returns a function that makes signals pending, so that they arrive as the program starts.
std::function<void()> pending(std::vector<int> numbers) {
  return [numbers] {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int number : numbers) sigaddset(&mask, number);
    sigprocmask(SIG_BLOCK, &mask, nullptr);
    for (const int number : numbers) raise(number);
  };
}

}  // namespace

TEST_CASE("a signal at the first instant of dpt train is a stop, and leaves a good folder") {
  for (const auto& [number, exit_code] :
       {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}, std::pair{SIGHUP, 129},
        std::pair{SIGUSR1, 75}, std::pair{SIGUSR2, 75}, std::pair{SIGXCPU, 75}}) {
    CAPTURE(number);
    const Tiny w;
    const TempDir logs;
    const Finished stopped =
        Program({"train", "small.yaml"}, w.dir.path(), logs, pending({number})).wait();
    INFO(stopped.err);
    CHECK(stopped.exit_code == exit_code);
    CHECK(count_of(stopped.err, "stopped before the first step (SIG") == 1);
    CHECK_FALSE(fs::exists(w.dir.file("runs")));
  }
}

TEST_CASE("a stop before the first step keeps the run that --overwrite was to replace") {
  const Tiny w;
  const TempDir logs;
  w.run_well({"train", "small.yaml"});
  const Outcome before = outcome_of(w.dir.file("runs/tiny"));
  const std::vector<std::string> command = {"train", "small.yaml", "--overwrite", "seed=9"};
  CHECK(Program(command, w.dir.path(), logs, pending({SIGTERM})).wait().exit_code == 143);
  CHECK((outcome_of(w.dir.file("runs/tiny")) == before));
  CHECK_FALSE(fs::exists(w.dir.file("runs/tiny/replaced")));
}

namespace {

/// Returns a grey PNG of 2x2 pixels.
std::string grey_image() {
  const std::string hex =
      "89504e470d0a1a0a0000000d494844520000000200000002080000000057dd52f80000000e49444154789c631050"
      "6030700000017600a1ec308af40000000049454e44ae426082";
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// A run whose cache lock is held by the test: the program waits as if for another process.
struct HeldCache {
  TempDir dir;
  int lock = -1;
  HeldCache() {
    write_file(dir.file("c.yaml"), R"(version: 1
name: c
data: {dataset: image_folder, root: data, batch_size: 2, cache: cache}
model:
  input: [1, 2, 2]
  layers: [{type: Flatten}, {type: Linear, name: fc1, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
    for (const char* folder : {"data/train/a", "data/train/b"}) {
      fs::create_directories(dir.file(folder));
      write_file(dir.file(std::string(folder) + "/1.png"), grey_image());
    }
    fs::create_directories(dir.file("cache"));
    lock = open(dir.file("cache/train.pack.lock").c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(flock(lock, LOCK_EX) == 0);
  }
  ~HeldCache() { close(lock); }
  static bool waits(Program& program, std::size_t processes) {
    return wait_until([&] {
      return !program.is_running() ||
             count_of(program.messages(), "waiting for another process to create") == processes;
    });
  }
};

}  // namespace

TEST_CASE("a stop while a cache is made, or waited for, comes at once") {
  for (const std::size_t processes : {1, 2}) {
    CAPTURE(processes);
    HeldCache w;
    const TempDir logs;
    std::vector<std::string> command = {"train", "c.yaml"};
    if (processes > 1) command.insert(command.end(), {"--nproc", "2"});
    Program program(command, w.dir.path(), logs);
    REQUIRE(HeldCache::waits(program, processes));
    program.send(SIGUSR1);
    const Finished stopped = program.wait();
    INFO(stopped.err);
    CHECK(stopped.exit_code == 75);
    // The message appears once per run, not once per process.
    CHECK(count_of(stopped.err, "stopped before the first step (SIGUSR1)") == 1);
    CHECK_FALSE(fs::exists(w.dir.file("runs")));
    flock(w.lock, LOCK_UN);
    const Finished rest = run_dpt(command, w.dir.path());
    INFO(rest.err);
    CHECK(rest.exit_code == 0);
  }
}

TEST_CASE("a stop that reaches one process before the first step stops all, with its exit code") {
  HeldCache w;
  Processes run(on_devices({"train", "c.yaml"}, {"cpu", "cpu"}), w.dir.path());
  for (const int rank : {0, 1}) REQUIRE(HeldCache::waits(run[rank], 1));
  run[1].send(SIGTERM);
  const std::vector<Finished> stopped = run.wait();
  for (const Finished& each : stopped) {
    INFO(each.err);
    CHECK(each.exit_code == 143);
  }
  CHECK(count_of(stopped[0].err, "stopped before the first step (SIGTERM)") == 1);
  CHECK(stopped[1].err.find("stopped before") == std::string::npos);
}

TEST_CASE("a stop while a process looks for the others ends it") {
  const Tiny w;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(listener, any, size) == 0);
  REQUIRE(listen(listener, 1) == 0);
  REQUIRE(getsockname(listener, any, &size) == 0);
  const TempDir logs;
  Program program({"train", "small.yaml", "--rank", "1", "--world-size", "2", "--coordinator",
                   "127.0.0.1:" + std::to_string(ntohs(address.sin_port))},
                  w.dir.path(), logs);
  // The program has connected to a peer that does not answer.
  const int connection = accept(listener, nullptr, nullptr);
  CHECK(connection >= 0);
  program.send(SIGTERM);
  const Finished stopped = program.wait();
  INFO(stopped.err);
  CHECK(stopped.exit_code == 143);
  close(connection);
  close(listener);
}

TEST_CASE("other commands end as any program does: by the signal") {
  const Tiny w;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGXCPU}) {
    CAPTURE(number);
    const TempDir logs;
    CHECK(Program({"devices"}, w.dir.path(), logs, pending({number})).wait().exit_code == -number);
  }
}

TEST_CASE("signals that were ignored stay ignored in other commands, too") {
  const Tiny w;
  const TempDir logs;
  const std::string pipe = w.dir.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Program program({"config", "check", "pipe"}, w.dir.path(), logs,
                  [] { signal(SIGTERM, SIG_IGN); });
  // A writer can open the pipe once the command reads it.
  int writer = -1;
  REQUIRE(wait_until([&] { return (writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK)) >= 0; }));
  CHECK((signals_of(program.pid(), "SigIgn") & bit_of(SIGTERM)) != 0);
  CHECK((signals_of(program.pid(), "SigIgn") & bit_of(SIGINT)) == 0);
  const std::string config = read_file(w.dir.file("small.yaml"));
  CHECK(write(writer, config.data(), config.size()) == static_cast<ssize_t>(config.size()));
  close(writer);
  CHECK(program.wait().exit_code == 0);
}

TEST_CASE("time in which the process is stopped does not count as a stall") {
  const TempDir dir, logs;
  write_file(dir.file("small.yaml"), program_config());
  // Rank 1 has the work, so rank 0 nearly always waits for it, also at the moment of the stop.
  Program program({"train", "small.yaml", "train.epochs=100000", "train.stall_timeout=1",
                   "device_weights=[1,50]", "data.batch_size=90", "train.shards=64"},
                  dir.path(), logs);
  const std::string folder = dir.file("runs/small");
  REQUIRE(wait_for_checkpoint(folder));
  for (int stop = 0; stop < 2; ++stop) {
    program.send(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const auto before = fs::file_size(folder + "/metrics.jsonl");
    program.send(SIGCONT);
    CHECK(wait_until([&] {
      return !program.is_running() || fs::file_size(folder + "/metrics.jsonl") > before + 1000;
    }));
  }
  REQUIRE(program.is_running());
  program.send(SIGTERM);
  const Finished stopped = program.wait();
  INFO(stopped.err);
  CHECK(stopped.exit_code == 143);
}

TEST_CASE("a --max-time that is too short for anything: each process completes one item of work") {
  const Tiny w;
  for (const char* devices : {"cpu", "cpu,cpu"}) {
    CAPTURE(devices);
    const std::string folder = std::string("r") + devices;
    const std::vector<std::string> whole = {
        "train", "small.yaml", "train.epochs=2", "data.size=24", "--devices", devices, "--run-dir"};
    w.run_well(whole, {folder + "-whole"});
    // Four steps, two validations and one test need seven processes at most.
    int processes = 1;
    while (w.run(whole, {folder, "--max-time", "0"}).exit_code == 75 && processes < 12) ++processes;
    CHECK(processes <= 7);
    CHECK(processes > 4);
    CHECK((outcome_of(w.dir.file(folder)) == outcome_of(w.dir.file(folder + "-whole"))));
  }
}

TEST_CASE("train.stall_timeout may change when a run continues") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  CHECK(run_dpt({"train", "small.yaml", "--max-steps", "5"}, dir.path()).exit_code == 0);
  const Finished rest = run_dpt({"train", "small.yaml", "train.stall_timeout=90"}, dir.path());
  INFO(rest.err);
  CHECK(rest.exit_code == 0);
}

TEST_CASE("threads that cannot be started are an error, not the end of the program") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  for (const char* label : {"a", "b"}) {
    fs::create_directories(dir.file(std::string("train/") + label));
    write_file(dir.file(std::string("train/") + label + "/1.png"), "\x89PNG\r\n\x1a\nno more");
  }
  write_file(dir.file("pictures.yaml"), R"(
data: {dataset: image_folder, root: ., batch_size: 2, workers: 3}
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
  // A thread's stack has the size of this limit, which no address space can hold. (A limit on the
  // number of threads does not apply to root.)
  const auto no_stacks = [] {
    const rlimit limit{rlim_t{1} << 47, RLIM_INFINITY};
    if (setrlimit(RLIMIT_STACK, &limit) != 0) _exit(124);
  };
  for (const auto& [arguments, whose] :
       {std::pair<std::vector<std::string>, std::string>(
            {"train", "small.yaml", "--devices", "cpu,cpu"}, "replica 0 of 2"),
        {{"train", "small.yaml", "--devices", "cpu:3"}, "the OpenMP team of cpu:3, thread 1 of 2"},
        {{"train", "pictures.yaml"}, "decoder thread 1 of 3"}}) {
    CAPTURE(whose);
    const Finished run = run_dpt(arguments, dir.path(), no_stacks);
    INFO(run.err);
    if (run.exit_code == 124) {
      skip_test("the hard limit of the stack is too low");
      return;
    }
    CHECK(run.exit_code == 4);
    CHECK(run.err.find("cannot start a thread (" + whose) != std::string::npos);
    CHECK(run.err.find("134217728.0 MiB of stack for each thread (ulimit -s)") !=
          std::string::npos);
    CHECK(run.err.find("This process has 0 thread") == std::string::npos);
  }
}

TEST_CASE("a small stack limit stops neither threads nor the process") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const std::vector<std::string> command = {"train", "small.yaml", "train.epochs=1"};
  for (const std::string devices : {"cpu", "cpu,cpu", "cpu:2", "--nproc"}) {
    CAPTURE(devices);
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--run-dir", "run" + devices});
    if (devices == "--nproc") {
      words.insert(words.end(), {"--nproc", "2", "--devices", "cpu"});
    } else {
      words.insert(words.end(), {"--devices", devices});
    }
    const Finished run = run_dpt(words, dir.path(), [] {
      const rlimit limit{rlim_t{64} << 10, rlim_t{64} << 10};
      if (setrlimit(RLIMIT_STACK, &limit) != 0) _exit(124);
    });
    INFO(run.err);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("a file size limit is an error of a write, not the end of the process") {
  const TempDir dir, logs;
  write_file(dir.file("small.yaml"), program_config());
  Program program({"train", "small.yaml"}, dir.path(), logs, [] {
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
  });
  const Finished run = program.wait();
  CHECK(run.exit_code == 3);
  CHECK(run.err.find("File too large") != std::string::npos);
}
