#include "tests/io_faults/harness.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace dpt::testing {
namespace fs = std::filesystem;
namespace {

std::vector<IoCall> parse_calls(const std::string& text) {
  std::vector<IoCall> calls;
  std::istringstream lines(text);
  std::size_t data_at = 0;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words;
    std::istringstream fields(line);
    for (std::string word; std::getline(fields, word, '\t');) words.push_back(word);
    if (words.size() != 8) throw std::runtime_error("the shim wrote: " + line);
    IoCall call{std::stoi(words[0]),
                words[1],
                words[2],
                words[3],
                std::stoull(words[4]),
                std::stoll(words[5]),
                std::stoll(words[6]),
                std::stoi(words[7]),
                data_at};
    if (call.kind == "write" && call.error == 0) data_at += static_cast<std::size_t>(call.bytes);
    calls.push_back(std::move(call));
  }
  return calls;
}

/// Runs dpt in a child process, as Program does, with additional environment variables.
Finished run_with_environment(const std::vector<std::string>& arguments, const std::string& cwd,
                              const std::vector<std::string>& variables, const TempDir& logs) {
  std::vector<std::string> words = {"/usr/bin/env"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.push_back(dpt_program());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = logs.file("out"), err = logs.file("err");
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    const int to = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err_to = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int from = open("/dev/null", O_RDONLY);
    if (chdir(cwd.c_str()) != 0 || dup2(to, 1) < 0 || dup2(err_to, 2) < 0 || dup2(from, 0) < 0) {
      _exit(126);
    }
    alarm(60);  // survives exec; its default action ends the process
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out),
          read_file(err)};
}

}  // namespace

IoRun run_watched(const std::vector<std::string>& arguments, const std::string& cwd,
                  const std::string& root, const std::optional<IoFault>& fault) {
  const TempDir logs;
  // The library is that of the build or, on another machine, the one that DPT_IO_SHIM names.
  const char* moved = std::getenv("DPT_IO_SHIM");
  std::vector<std::string> variables = {std::string("LD_PRELOAD=") + (moved ? moved : DPT_IO_SHIM),
                                        "DPT_IO_ROOT=" + root, "DPT_IO_LOG=" + logs.file("calls"),
                                        // The sanitizer's library insists on being loaded first,
                                        // but its checks also work if it is second.
                                        "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};
  if (fault) {
    variables.push_back("DPT_IO_FAIL_AT=" + std::to_string(fault->at));
    variables.push_back("DPT_IO_FAULT=" + fault->what);
  }
  IoRun run;
  run.finished = run_with_environment(arguments, cwd, variables, logs);
  run.calls = parse_calls(read_file(logs.file("calls")));
  run.data = read_file(logs.file("calls.data"));
  return run;
}

std::string watched_config() {
  return R"(version: 1
name: watched
seed: 4
data:
  dataset: synthetic
  size: 48
  test_size: 10
  classes: 3
  val_split: 10
  batch_size: 8
  transforms:
    train: [{type: RandomHorizontalFlip}]
model:
  input: [1, 4, 4]
  layers:
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 3}
optimizer: {type: SGD, lr: 0.3, momentum: 0.9}
train: {epochs: 3, shards: 2}
checkpoint: {every_steps: 3, keep_last: 2, keep_best: {monitor: val/loss, mode: min}}
log: {every: 4}
devices: [cpu, cpu]
)";
}

std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  }
  return files;
}

}  // namespace dpt::testing
