// The best checkpoint: its choice, its location, its restoration, and its use by eval.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/cli/kept_runs.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("--overwrite: a best that is saved alone does not end the old run") {
  const KeptRuns w;
  w.train_well({});
  const std::string old = checksum_of(w.checkpoint(36));
  TempDir logs;
  {
    Program program({"train", "small.yaml", "--run-dir", "r", "--overwrite", "seed=4",
                     "train.epochs=1000000", "checkpoint.every=0", "checkpoint.every_steps=0"},
                    w.dir.path(), logs);
    REQUIRE(wait_until([&] {
      return !program.is_running() ||
             (fs::exists(w.dir.file("r/replaced/summary.json")) && fs::exists(w.best()));
    }));
    program.send(SIGKILL);
    CHECK(program.wait().exit_code == -SIGKILL);
  }
  const Finished again = w.train_well({});
  check_contains(again.err, "restored the previous run in");
  CHECK(checksum_of(w.checkpoint(36)) == old);
}

TEST_CASE("eval refuses a best.safetensors that is not the run's") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "optimizer.lr=0.000001"});
  w.train_well({"--max-steps", "24", "seed=9"}, "other");
  w.run_well({"eval", "r"});
  fs::remove(w.best());
  fs::copy_file(w.checkpoint(12, "other"), w.best());
  const Finished eval = w.run({"eval", "r"});
  CHECK(eval.exit_code == 3);
  check_contains(eval.err, "expected the run's best checkpoint, of step 12");
  w.run_well({"eval", w.best()});
  // eval refuses a best checkpoint from a later step, one that the newest checkpoint does not
  // record, and one in a folder without any other checkpoint.
  w.train_well({"seed=9"}, "other");
  fs::remove(w.best());
  fs::copy_file(w.best("other"), w.best());
  CHECK(w.run({"eval", "r"}).exit_code == 3);
  w.train_well({"--max-steps", "3"}, "early");
  fs::copy_file(w.best("other"), w.best("early"));
  const Finished early = w.run({"eval", "early"});
  CHECK(early.exit_code == 3);
  check_contains(early.err, "expected no best.safetensors, because early/checkpoints/");
  fs::remove(w.checkpoint(3, "early"));
  check_contains(w.run({"eval", "early"}).err,
                 "the best checkpoint of the run of early/config.yaml");
}

TEST_CASE("eval after a crash between a checkpoint and its copy: the checkpoint is the best") {
  const KeptRuns w;
  w.train_well({"--max-steps", "12"});
  const std::string older = read_file(w.best());
  w.train_well({"--max-steps", "24"});
  REQUIRE(state_of(w.checkpoint(24)).best_step == 24);
  write_file(w.best(), older);
  const Finished eval = w.run_well({"eval", "r"});
  check_contains(eval.out, "r/checkpoints/step-00000024.safetensors: test split");
  check_contains(eval.err,
                 "dpt: warning: r/best.safetensors is another checkpoint (step 12); the "
                 "best checkpoint is evaluated instead: r/checkpoints/step-00000024.safetensors\n");
}

TEST_CASE("eval takes a best of the run that came after its newest checkpoint") {
  const KeptRuns w;
  w.train_well({});
  const std::int64_t best = state_of(w.best()).step;
  REQUIRE(best > 12);
  for (std::int64_t step = best; step <= 36; step += 12) fs::remove(w.checkpoint(step));
  check_contains(w.run_well({"eval", "r"}).out, "r/best.safetensors: test split");
  fs::remove_all(w.dir.file("r/checkpoints"));
  check_contains(w.run_well({"eval", "r"}).out, "r/best.safetensors: test split");
}

TEST_CASE("eval: if best.safetensors is gone, the message says what is measured instead") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "optimizer.lr=0.000001"});
  REQUIRE(state_of(w.checkpoint(24)).best_step == 12);
  fs::remove(w.best());
  const Finished kept = w.run_well({"eval", "r"});
  check_contains(kept.out, "r/checkpoints/step-00000012.safetensors: test split");
  check_contains(kept.err,
                 "dpt: warning: r/best.safetensors: no such file; the "
                 "best checkpoint is evaluated instead: r/checkpoints/step-00000012.safetensors\n");
  fs::remove(w.checkpoint(12));
  const Finished newest = w.run_well({"eval", "r"});
  check_contains(newest.out, "r/checkpoints/step-00000024.safetensors: test split");
  check_contains(newest.err,
                 "; the newest checkpoint, which is not the best, is evaluated instead: "
                 "r/checkpoints/step-00000024.safetensors\n");
}

TEST_CASE("a complete run whose best is not in its place gets it back") {
  const KeptRuns w;
  w.train_well({"checkpoint.keep_last=10"});
  w.train_well({"seed=9"}, "other");
  const std::string good = read_file(w.best());
  const json summary = w.summary();
  // The file is overwritten in place, as cp does: the checkpoint of the same step must not change.
  write_file(w.best(), read_file(w.best("other")));
  CHECK(w.run({"eval", "r"}).exit_code == 3);
  const Finished again = w.train_well({});
  CHECK_FALSE(contains(again.err, "is complete"));
  CHECK((read_file(w.best()) == good));
  CHECK(w.summary()["best"] == summary["best"]);
  CHECK(w.summary()["test"] == summary["test"]);
  w.run_well({"eval", "r"});
  fs::remove(w.best());
  w.train_well({});
  CHECK((read_file(w.best()) == good));
  check_contains(w.train_well({}).err, "is complete");
  // Another monitor selects another best.
  const Finished monitor = w.train_well({"checkpoint.keep_best={monitor: val/loss}"});
  check_contains(monitor.err, "checkpoint.keep_best monitors val/loss min now");
}

TEST_CASE("--overwrite that saves no checkpoint: the best of the new run is not the old run's") {
  const KeptRuns w;
  const Words diverges = {"--overwrite", "checkpoint.every=0", "seed=9",
                          "lr_schedule={type: multistep, milestones: [2], gamma: 1.0e+60}"};
  for (const char* steps : {"3", "24"}) {  // before the first best, and after it
    CAPTURE(steps);
    const std::string folder = std::string("r") + steps;
    w.train_well({"--max-steps", steps}, folder);
    const auto before = contents(w.dir.file(folder));
    const Finished failed = w.train(diverges, folder);
    CHECK(failed.exit_code == 5);
    check_contains(failed.err, "restored the previous run in " + folder +
                                   ": the new run saved no checkpoint; its best weights, "
                                   "metrics.jsonl and train.log are in " +
                                   folder + "/checkpoints/abandoned-1\n");
    auto after = contents(w.dir.file(folder));
    CHECK(after.erase("checkpoints/abandoned-1/metrics.jsonl") == 1);
    CHECK(after.erase("checkpoints/abandoned-1/train.log") == 1);
    CHECK(after.erase("checkpoints/abandoned-1/best.safetensors") == 1);
    CHECK(before.size() == after.size());
    for (const auto& [name, text] : before) {
      CAPTURE(name);
      CHECK((after[name] == text));
    }
  }
}

TEST_CASE("eval: a best of the newest checkpoint's own step is not one that came after it") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "optimizer.lr=0.000001"});
  REQUIRE(state_of(w.checkpoint(24)).best_step == 12);
  fs::remove(w.best());
  fs::copy_file(w.checkpoint(24), w.best());
  const Finished eval = w.run({"eval", "r"});
  CHECK(eval.exit_code == 3);
  check_contains(
      eval.err,
      "expected the run's best checkpoint, of step 12 (according to "
      "r/checkpoints/step-00000024.safetensors), but r/best.safetensors is "
      "another checkpoint (step 24). Resume the run to restore its best checkpoint, or name "
      "the file to evaluate: dpt eval r/best.safetensors\n");
}

TEST_CASE("the best: a foreign file in its place is found, and the true one is put back") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "optimizer.lr=0.000001"});
  w.train_well({"--max-steps", "24", "seed=9"}, "other");
  const dpt::RunState state = state_of(w.checkpoint(24));
  REQUIRE(state.best_step == 12);
  const std::string good = read_file(w.best());
  const auto put = [&](const std::string& from) {
    fs::remove(w.best());
    fs::copy_file(from, w.best());
  };
  const Words rest = {"optimizer.lr=0.000001"};
  SUBCASE("of another run") {
    put(w.checkpoint(12, "other"));
  }
  SUBCASE("of another step") {
    put(w.checkpoint(24));
  }
  SUBCASE("damaged") {
    std::string bytes = good;
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    fs::remove(w.best());
    write_file(w.best(), bytes);
  }
  SUBCASE("none") {
    fs::remove(w.best());
  }
  w.train_well(rest);
  CHECK(w.summary()["best"]["step"] == 12);
  CHECK((read_file(w.best()) == good));
}

TEST_CASE("the best is lost: the run says so and continues with what is known") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "optimizer.lr=0.000001"});
  fs::remove(w.best());
  fs::remove(w.checkpoint(12));
  const Finished run = w.train_well({"optimizer.lr=0.000001"});
  check_contains(run.err, ") was not found");
  CHECK(w.summary()["best"]["step"] == 24);
  CHECK(state_of(w.best()).step == 24);
}

TEST_CASE("the best: a crash between checkpoint and best is repaired, and keep_last spares it") {
  const KeptRuns w;
  w.train_well({"--max-steps", "12"});
  const std::string older = read_file(w.best());
  w.train_well({"--max-steps", "24"});
  REQUIRE(state_of(w.checkpoint(24)).best_step == 24);
  fs::remove(w.best());
  write_file(w.best(), older);  // as after a crash before the link was made
  w.train_well({"checkpoint.keep_last=1", "--max-steps", "30"});
  CHECK(state_of(w.best()).step == 24);
  CHECK_FALSE(fs::exists(w.dir.file("r/checkpoints/abandoned-1")));
  CHECK(w.summary()["best"]["step"] == 24);
}

TEST_CASE("keep_best watches something else on resume: like is compared with like") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24"});
  const Finished run = w.train_well({"checkpoint.keep_best={monitor: val/loss, mode: min}"});
  check_contains(run.err, "monitors val/loss min now");
  const json best = w.summary()["best"];
  double smallest = 1e9;
  std::int64_t at = 0;
  for (const json& event : w.events("eval")) {
    if (event["split"] != "val" || event["loss"] >= smallest) continue;
    smallest = event["loss"];
    at = event["step"];
  }
  CHECK(best["val/loss"] == smallest);
  CHECK(best["step"] == at);
  CHECK(state_of(w.best()).step == at);
}

TEST_CASE("keep_best with smoothing: the summary says so, and a resume with other smoothing too") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "checkpoint.keep_best.smoothing=0.5"});
  const auto best = [&]() -> json { return w.summary()["best"]; };
  CHECK(best()["smoothing"] == 0.5);
  const auto evals = w.events("eval");
  REQUIRE(evals.size() == 2);
  const double first = evals[0]["accuracy"], second = evals[1]["accuracy"];
  const double average = (0.25 * first + 0.5 * second) / 0.75;
  CHECK(best()["val/accuracy"] == doctest::Approx(std::max(first, average)).epsilon(1e-14));
  const Finished other = w.train_well({});
  check_contains(other.err,
                 "checkpoint.keep_best monitors val/accuracy max now and monitored val/accuracy "
                 "max (smoothing 0.5) before");
  CHECK_FALSE(best().contains("smoothing"));
}
