// The program with unusable GPUs; emulated GPUs fail on request.
#if __has_include("emulation/control.h")
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/processes.h"
#include "tests/support/events.h"

using namespace dpt::testing;

namespace {

/// Sets an environment variable for the programs started in a scope.
struct Variable {
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("a GPU older than 8.0 is refused before the run folder is made") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const Variable old("DPT_EMULATED_COMPUTE", "7.5");
  for (const std::string devices : {"cuda:0", "cuda:1,cpu", "cuda", "auto"}) {
    CAPTURE(devices);
    for (const char* dry : {"", "--dry-run"}) {
      std::vector<std::string> words = {"train", "small.yaml", "--devices", devices};
      if (*dry) words.push_back(dry);
      const Finished refused = run_dpt(words, dir.path());
      CHECK(refused.exit_code == 4);
      INFO(refused.err);
      CHECK(refused.err.find("has compute capability 7.5; dpt needs 8.0 or later") !=
            std::string::npos);
      CHECK(refused.err.find(devices == "cuda:1,cpu" ? "cuda:1: " : "cuda:0: ") !=
            std::string::npos);
      CHECK(!std::filesystem::exists(dir.file("runs")));
    }
  }
  CHECK(run_dpt({"train", "small.yaml", "--devices", "cpu", "--max-steps", "1"}, dir.path())
            .exit_code == 0);
}

TEST_CASE("exact mode: GPUs of different kinds are refused, in one process and in two") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const Variable kinds("DPT_EMULATED_MULTIPROCESSORS", "8,5");
  const std::vector<std::string> words = {"train",     "small.yaml",    "--max-steps",
                                          "1",         "--run-dir",     "run",
                                          "--devices", "cuda:0,cuda:1", "train.shards=2"};
  const Finished refused = run_dpt(words, dir.path());
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "exact mode (train.shards: 2) needs GPUs of one kind");
  check_contains(refused.err, "cuda:0: Emulated GPU (9.0, 8 multiprocessors, ");
  check_contains(refused.err, "cuda:1: Emulated GPU (9.0, 5 multiprocessors, ");
  CHECK(!std::filesystem::exists(dir.file("run")));
  std::vector<std::string> fast = words;
  fast.back() = "train.shards=auto";
  CHECK(run_dpt(fast, dir.path()).exit_code == 0);

  std::vector<std::string> two = words;
  two[7] = "auto";  // one GPU for each process
  two.insert(two.end(), {"--nproc", "2"});
  const Finished compared = run_dpt(two, dir.path());
  CHECK(compared.exit_code == 2);
  check_contains(compared.err, "the kind of device, which exact mode's bits depend on,");
}

TEST_CASE("exact mode: a resume on a GPU of another kind warns and is recorded") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const std::vector<std::string> words = {"train",     "small.yaml", "--run-dir",     "run",
                                          "--devices", "cuda:0",     "train.shards=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return run_dpt(more, dir.path());
  };
  REQUIRE(with({"--max-steps", "1"}).exit_code == 0);
  const Finished same = with({"--max-steps", "2"});
  REQUIRE(same.exit_code == 0);
  CHECK(same.err.find("different bits") == std::string::npos);
  const auto starts = [&] { return events(dir.file("run/metrics.jsonl"), "run_start"); };
  CHECK_FALSE(starts().back().contains("other_bits"));
  {
    const Variable kind("DPT_EMULATED_MULTIPROCESSORS", "5");
    const Finished other = with({"--max-steps", "3"});
    REQUIRE(other.exit_code == 0);
    check_contains(other.err, "Emulated GPU (9.0, 8 multiprocessors, ");
    check_contains(other.err, "Emulated GPU (9.0, 5 multiprocessors, ");
    check_contains(other.err, "which may compute different bits");
    CHECK(starts().back()["other_bits"].size() == 1);
  }
  const Variable override("NVIDIA_TF32_OVERRIDE", "0");
  const Finished changed = with({"--max-steps", "4"});
  check_contains(changed.err, "NVIDIA_TF32_OVERRIDE=0 changes the arithmetic");
  check_contains(starts().back()["other_bits"][0].get<std::string>(), "NVIDIA_TF32_OVERRIDE=0");
}

TEST_CASE("exact mode: denormal gradients have the same bits on GPUs, the host and processes") {
  const TempDir dir;
  // Inputs of about 1e-38 make some gradients of the first layer denormal. A huge learning rate
  // makes them visible in the weights.
  std::string config = program_config();
  for (std::size_t at = 0; (at = config.find("std: [0.3]")) != std::string::npos;) {
    config.replace(at, 10, "std: [1e37]");
  }
  config.replace(config.find("lr: 0.05, momentum: 0.9"), 23, "lr: 1.0e+36");
  write_file(dir.file("small.yaml"), config);
  const auto checksum = [&](const std::string& run, std::vector<std::string> words) {
    words.insert(words.begin(), {"train", "small.yaml", "--max-steps", "5", "--run-dir", run,
                                 "train.freeze={except: [conv1.weight]}"});
    const Finished done = run_dpt(words, dir.path());
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
    return tensor_bytes(dir.file(run));
  };
  const auto one = checksum("one", {"--devices", "cuda:0"});
  CHECK(checksum("two", {"--devices", "cuda:0,cuda:1"}) == one);
  const Variable blind("DPT_EMULATED_PEERS", "none");
  CHECK(checksum("host", {"--devices", "cuda:0,cuda:1"}) == one);
  CHECK(checksum("processes", {"--devices", "auto", "--nproc", "2"}) == one);
}

TEST_CASE("devices says which GPU is too old") {
  const TempDir dir;
  const auto devices = [&] {
    return nlohmann::json::parse(run_dpt({"devices", "--json"}, dir.path()).out);
  };
  CHECK(!devices()["cuda"][0].contains("unusable"));
  CHECK(devices()["auto"][0] == "cuda:0");
  const Variable old("DPT_EMULATED_COMPUTE", "7.0");
  CHECK(devices()["cuda"][0]["unusable"].get<std::string>().find("7.0") != std::string::npos);
  CHECK(devices()["auto"].empty());
  CHECK(devices().contains("auto_refused"));
  const Finished text = run_dpt({"devices"}, dir.path());
  CHECK(text.exit_code == 0);
  CHECK(text.out.find("`devices: auto` fails here: cuda:0: ") != std::string::npos);
}

TEST_CASE("GPUs of several processes give the bits of one process' GPUs, one process each") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const auto train = [](const char* run) {
    return std::vector<std::string>{"train", "small.yaml", "--run-dir", run, "train.epochs=2"};
  };
  std::vector<std::string> alone = train("alone");
  alone.insert(alone.end(), {"--devices", "cuda:0,cuda:1"});
  REQUIRE(run_dpt(alone, dir.path()).exit_code == 0);
  Processes processes(on_devices(train("two"), {"cuda:0", "cuda:1"}), dir.path());
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 0);
  }
  CHECK((tensor_bytes(dir.file("two")) == tensor_bytes(dir.file("alone"))));
  // With `auto`, each process gets its share of the GPUs. Two processes on one GPU are an error.
  Processes shared(on_devices(train("auto"), {"auto", "auto"}), dir.path());
  for (const Finished& each : shared.wait()) CHECK(each.exit_code == 0);
  CHECK((tensor_bytes(dir.file("auto")) == tensor_bytes(dir.file("alone"))));
  Processes same(on_devices(train("same"), {"cuda:0", "cuda:0"}), dir.path());
  for (const Finished& each : same.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 2);
    CHECK(each.err.find("ranks 0 and 1") != std::string::npos);
    CHECK(each.err.find("cuda:0") != std::string::npos);
  }
}

namespace {

/// A fast-mode run whose gradients are large enough to be summed by the emulated NCCL.
struct WideInWorld {
  WideInWorld() {
    std::string config = program_config();
    const std::string last = "    - {type: Linear, name: fc1";
    config.insert(config.find(last), "    - {type: Linear, name: wide, out_features: 4200}\n");
    write_file(dir.file("wide.yaml"), config);
  }
  std::vector<std::string> train(const std::string& run,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = {"train",       "wide.yaml",      "--run-dir",
                                        dir.file(run), "train.shards=0", "log.every=1"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::string log_of(const std::string& run) const {
    return read_file(dir.file(run + "/metrics.jsonl"));
  }

  const TempDir dir;
};

}  // namespace

TEST_CASE_FIXTURE(WideInWorld, "GPUs of several processes sum large gradients without the host") {
  const std::vector<std::string> few = {"train.epochs=1"};
  std::vector<std::string> alone = train("alone", few);
  alone.insert(alone.end(), {"--devices", "cuda:0,cuda:1"});
  REQUIRE(run_dpt(alone, dir.path()).exit_code == 0);
  Processes processes(on_devices(train("two", few), {"cuda:0", "cuda:1"}), dir.path());
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 0);
  }
  CHECK(log_of("two").find("\"sums\":\"overlapped with backward, in 1 bucket(s)\"") !=
        std::string::npos);
  // A sum of two terms has only one order.
  CHECK((tensor_bytes(dir.file("two")) == tensor_bytes(dir.file("alone"))));
}

TEST_CASE_FIXTURE(WideInWorld, "A process without NCCL is named in the log, and all do without") {
  Processes processes(on_devices(train("without", {"train.epochs=1"}), {"cuda:0", "cuda:1"}),
                      dir.path(), [](int rank) {
                        if (rank == 1) setenv("DPT_EMULATED_NCCL", "absent", 1);
                      });
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 0);
  }
  CHECK(log_of("without").find("tree (rank 1: NCCL cannot be used: ") != std::string::npos);
}

TEST_CASE_FIXTURE(WideInWorld, "Steps behind an aborted sum over GPUs are not saved") {
  for (const bool has_nccl : {true, false}) {
    CAPTURE(has_nccl);
    const std::string run = has_nccl ? "aborted" : "whole";
    // The run saves no checkpoint until its end.
    const auto command =
        train(run, {"train.epochs=4000", "checkpoint.every_steps=0", "checkpoint.every=0"});
    Processes processes(on_devices(command, {"cuda:0", "cuda:1"}), dir.path(), [&](int) {
      if (!has_nccl) setenv("DPT_EMULATED_NCCL", "absent", 1);
    });
    REQUIRE(wait_for_log(dir.file(run), "\"step\":3,"));
    processes[1].send(SIGKILL);
    const Finished survivor = processes[0].wait();
    processes.wait();
    CAPTURE(survivor.err);
    CHECK(survivor.exit_code == 6);
    CHECK(survivor.err.find("rank 1") != std::string::npos);
    const auto saved = dpt::list_checkpoints(dir.file(run + "/checkpoints"));
    if (has_nccl) {
      CHECK(saved.empty());
      CHECK(survivor.err.find("could not be saved before exiting: ") != std::string::npos);
      CHECK(survivor.err.find("the newest checkpoint is the one to resume from") !=
            std::string::npos);
    } else {
      // Without NCCL, sums go through the host, and a step has its whole sum or none of it.
      CHECK(saved.size() == 1);
      CHECK(survivor.err.find(" before exiting") != std::string::npos);
    }
  }
}

#endif
