// Messages of dpt train about an existing state: more epochs or steps than requested, a name or a
// folder that does not fit, a config that cannot be read twice, foreign files.
#include <fcntl.h>

#include <filesystem>

#include "tests/cli/kept_runs.h"
#include "tests/cli/processes.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

TEST_CASE("a run that has trained more epochs than the config asks for says so") {
  const Tiny w;
  const Words train = {"train", "small.yaml"};
  const std::string text =
      "already trained 2 epochs, but the config asks for 1: nothing to train. ";
  w.run_well(train, {"train.epochs=2"});
  CHECK(w.run_well(train).err == "runs/tiny: " + text +
                                     "Raise train.epochs to continue training, or start a new run "
                                     "with --overwrite or --resume never\n");
  // If the results of a finished run are missing, they are measured again.
  fs::remove(w.dir.file("runs/tiny/summary.json"));
  const Finished again = w.run_well(train);
  check_contains(again.err, text);
  check_contains(again.err, "done: 2 epochs");
}

TEST_CASE("--max-steps that a run has passed: no message claims that anything is saved") {
  const KeptRuns w;
  w.train_well({"--max-steps", "10"});
  const std::string passed = w.train_well({"--max-steps", "5"}).err;
  check_contains(passed,
                 "the run already has 10 steps (--max-steps 5): nothing was trained; "
                 "to resume: ");
  CHECK_FALSE(contains(passed, "checkpoint saved"));
  check_contains(w.train_well({"--max-steps", "11"}).err,
                 "stopped at step 11 (--max-steps), checkpoint saved; to resume: ");
}

TEST_CASE("--resume of another run under another name: the message says how to choose the folder") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const Words other = {"train", "small.yaml", "--resume", "runs/tiny", "name=other"};
  const Finished refused = w.run(other);
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "name: tiny -> other");
  check_contains(refused.err,
                 "Restore the values (to choose the folder, give --run-dir DIR instead of another "
                 "name), or start a new run: --resume never");
  CHECK_FALSE(contains(w.run({"train", "small.yaml", "seed=9"}).err, "instead of another name"));
  w.run_well({"train", "small.yaml", "--resume", "runs/tiny", "--run-dir", "runs/other"});
  // A setting that is already given is not suggested.
  const Finished best = w.run({"train", "small.yaml", "--overwrite", "--resume", "best", "seed=9"});
  CHECK(best.exit_code == 2);
  check_contains(best.err,
                 "Restore the values, or leave out --resume: --overwrite alone starts a "
                 "new run in runs/tiny");
}

TEST_CASE("a folder of runs is not taken for the folder of one") {
  const Tiny w;
  const Words train = {"train", "small.yaml"};
  for (const char* name : {"a", "b", "c", "d"}) {
    w.run_well(train, {"--run-dir", std::string("runs/") + name});
  }
  for (const Words& more : {Words{"--run-dir", "runs"}, Words{"--run-dir", "runs/", "--dry-run"}}) {
    const Finished refused = w.run(train, more);
    CHECK(refused.exit_code == 2);
    check_contains(refused.err,
                   "holds runs (a, b, c and 1 more), which a run in this folder would hide");
    check_contains(refused.err, "such as --run-dir runs/NAME");
  }
  CHECK_FALSE(fs::exists(w.dir.file("runs/.dpt-run")));
  // If a folder of runs has the default name, `--resume never` chooses another name. A run in the
  // folder that contains `runs` hides no run.
  fs::create_directories(w.dir.file("runs/tiny"));
  fs::rename(w.dir.file("runs/a"), w.dir.file("runs/tiny/a"));
  w.run_well(train, {"--resume", "never"});
  CHECK(fs::exists(w.dir.file("runs/tiny-2/summary.json")));
  w.run_well(train, {"--run-dir", "."});
  // A run continues even if its folder holds another run.
  fs::create_directories(w.dir.file("old"));
  fs::rename(w.dir.file("runs/b"), w.dir.file("old/b"));
  fs::copy(w.dir.file("runs/c"), w.dir.file("old"), fs::copy_options::recursive);
  w.run_well(train, {"--run-dir", "old"});
}

TEST_CASE("the results of a run that was moved say where it is") {
  const KeptRuns w;
  w.train_well({});
  const auto before = w.summary();
  fs::rename(w.dir.file("r"), w.dir.file("moved"));
  check_contains(w.train_well({}, "moved").err, "moved is complete");
  auto expected = before;
  expected["folder"] = "moved";
  CHECK(w.summary("moved") == expected);
}

TEST_CASE("command.txt of a config from a stream names the config of the run") {
  const Tiny w;
  const auto from_stdin = [&](const Words& words) {
    return run_dpt(words, w.dir.path(), [] {
      const int file = open("small.yaml", O_RDONLY);
      if (file < 0 || dup2(file, 0) < 0) _exit(126);
    });
  };
  const Finished stopped =
      from_stdin({"train", "/dev/stdin", "name=given", "--max-steps", "2", "--resume", "never"});
  CHECK(stopped.exit_code == 0);
  const std::string command = " train runs/given/config.yaml name=given";
  check_contains(read_file(w.dir.file("runs/given/command.txt")), command + " --max-steps 2");
  check_contains(stopped.err, "to resume: " + dpt_program() + command);
  w.run_well({"train", "runs/given/config.yaml", "name=given"});
  CHECK(fs::exists(w.dir.file("runs/given/summary.json")));
}

TEST_CASE("--rank-logs leaves a foreign file alone") {
  const Workplace w;
  fs::create_directories(w.dir.file("r/logs"));
  write_file(w.dir.file("r/logs/rank-1.log"), "mine\n");
  const auto train = [&] {
    Processes processes(
        on_devices({"train", "small.yaml", "--run-dir", "r", "--rank-logs", "--max-steps", "3"},
                   {"cpu", "cpu"}),
        w.dir.path());
    const auto ended = processes.wait();
    for (const Finished& each : ended) {
      INFO(each.err);
      CHECK(each.exit_code == 0);
    }
    return ended[1].err;
  };
  check_contains(train(), "r/logs/rank-1.log: expected a dpt log, found a different file");
  CHECK(read_file(w.dir.file("r/logs/rank-1.log")) == "mine\n");
  fs::remove(w.dir.file("r/logs/rank-1.log"));
  for (const int times : {1, 2}) {
    CHECK_FALSE(contains(train(), "found a different file"));
    CHECK(count_of(read_file(w.dir.file("r/logs/rank-1.log")), "info rank 1 of 2") ==
          static_cast<std::size_t>(times));
  }
}

TEST_CASE("a start that fails before the run has a log leaves no run folder that it created") {
  const Tiny w;
  const Words train = {"train", "small.yaml"};
  w.run_well(train, {"--run-dir", "old"});
  const auto fails = [&](const Words& more, int exit_code) {
    const Finished failed = w.run(train, more);
    INFO(failed.err);
    CHECK(failed.exit_code == exit_code);
  };
  // The weights do not fit the model.
  const Words misfit = {"--weights", "old/best.safetensors", "model.input=[1, 4, 5]"};
  fails(misfit, 3);
  CHECK_FALSE(fs::exists(w.dir.file("runs/tiny")));
  fs::create_directories(w.dir.file("runs/tiny"));
  fails(misfit, 3);
  CHECK(fs::exists(w.dir.file("runs/tiny")));
  const auto before = contents(w.dir.file("old"));
  fails({"--run-dir", "old", "--overwrite", "--weights", "old/best.safetensors",
         "model.input=[1, 4, 5]"},
        3);
  CHECK(contents(w.dir.file("old")) == before);
  // A step that diverges still counts as trained.
  fails({"--run-dir", "diverged", "optimizer.lr=1e38", "train.epochs=9"}, 5);
  CHECK(fs::exists(w.dir.file("diverged/metrics.jsonl")));
}
