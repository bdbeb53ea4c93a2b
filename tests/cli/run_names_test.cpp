// The run that belongs to a config. It is found by the config's `name`, by the name of its file, or
// by its folder.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

TEST_CASE("the config.yaml of a run leads back to its folder") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "out/a", "--max-steps", "2"});
  check_contains(w.run_well({"train", "out/a/config.yaml", "--max-steps", "3"}).err,
                 "resuming out/a/checkpoints/step-00000002.safetensors");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
  // The config is found from within the folder, and through other spellings of its path.
  const Finished inside =
      run_dpt({"train", "config.yaml", "--max-steps", "4"}, w.dir.file("out/a"));
  CHECK(inside.exit_code == 0);
  check_contains(inside.err, "resuming ./checkpoints/step-00000003.safetensors");
  check_contains(w.run_well({"train", "out/../out/./a/config.yaml"}).err, "at step 4");
  check_contains(w.run_well({"train", "out/a/config.yaml"}).err, "out/a is complete");
  CHECK_FALSE(fs::exists(w.dir.file("out/a/runs")));
  // An explicit --run-dir takes precedence, and a new run gets a separate folder.
  w.run_well({"train", "out/a/config.yaml", "--run-dir", "b", "--max-steps", "1"});
  CHECK(fs::exists(w.dir.file("b/metrics.jsonl")));
  w.run_well({"train", "out/a/config.yaml", "--resume", "never", "--max-steps", "1"});
  CHECK(fs::exists(w.dir.file("runs/tiny/metrics.jsonl")));
  w.run_well({"train", "out/a/config.yaml", "--overwrite", "seed=5", "--max-steps", "1"});
  CHECK(fs::exists(w.dir.file("out/a/checkpoints/step-00000001.safetensors")));
}

TEST_CASE("a config.yaml that no run has written is a config like any other") {
  const Tiny w;
  fs::create_directories(w.dir.file("project"));
  write_file(w.dir.file("project/config.yaml"), kTinyConfig);
  w.run_well({"train", "project/config.yaml", "--max-steps", "1"});
  CHECK(fs::exists(w.dir.file("runs/tiny/metrics.jsonl")));
  // A log of another program does not make the folder a run.
  write_file(w.dir.file("project/metrics.jsonl"), "{\"loss\": 1}\n");
  check_contains(w.run_well({"train", "project/config.yaml", "--max-steps", "2"}).err,
                 "resuming runs/tiny/");
  CHECK(fs::file_size(w.dir.file("project/metrics.jsonl")) == 12);
}

TEST_CASE("a config from a stream needs a name, and its paths are those of the working folder") {
  const Tiny w;
  std::string unnamed = kTinyConfig;
  const std::string name = "name: tiny\n";
  unnamed.erase(unnamed.find(name), name.size());
  write_file(w.dir.file("unnamed.yaml"), unnamed);
  const auto from_stdin = [&](const std::vector<std::string>& words) {
    return run_dpt(words, w.dir.path(), [&] {
      const int file = open("unnamed.yaml", O_RDONLY);
      if (file < 0 || dup2(file, 0) < 0) _exit(126);
    });
  };
  for (const char* stream : {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}) {
    CAPTURE(stream);
    const Finished refused = from_stdin({"train", stream});
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, std::string(stream) + ": expected a name for the run");
  }
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
  CHECK(from_stdin({"train", "/dev/stdin", "name=given"}).exit_code == 0);
  CHECK(fs::exists(w.dir.file("runs/given/summary.json")));
  CHECK(from_stdin({"config", "check", "/dev/stdin"}).exit_code == 0);
  const Finished shared = from_stdin({"train", "/dev/stdin", "name=given", "--nproc", "2"});
  CHECK(shared.exit_code == 2);
  check_contains(
      shared.err,
      "--nproc: /dev/stdin: expected a file, found a stream, which only one process can read");
  // A second reader finds the pipe empty.
  const Finished twice = run_dpt({"train", "/dev/stdin", "--smoke"}, w.dir.path(), [&] {
    int ends[2];
    const std::string text = kTinyConfig;
    if (pipe(ends) != 0 || write(ends[1], text.data(), text.size()) < 0 || close(ends[1]) != 0 ||
        dup2(ends[0], 0) < 0) {
      _exit(126);
    }
  });
  CHECK(twice.exit_code == 2);
  check_contains(twice.err, "cannot read the config /dev/stdin: the pipe is empty");
  // The base that `extends` names is searched for in the working folder.
  write_file(w.dir.file("unnamed.yaml"), "extends: small.yaml\nname: extended\n");
  const Finished extended = from_stdin({"train", "/dev/stdin"});
  INFO(extended.err);
  CHECK(extended.exit_code == 0);
  CHECK(fs::exists(w.dir.file("runs/extended/summary.json")));
}
