// A run is never lost, and what is said of it is what was measured: resume, branches, best,
// --overwrite, early stopping, the log.
#include <doctest/doctest.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/workplace.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& path : dpt::list_checkpoints(folder)) {
    steps.push_back(dpt::step_of_checkpoint(fs::path(path).filename().string()));
  }
  return steps;
}
using Steps = std::vector<std::int64_t>;

/// 12 steps an epoch, three epochs; checkpoints at the end of each.
struct KeptRuns : Workplace {
  Finished train(const Words& more, const std::string& folder = "r") const {
    return run(command(folder), more);
  }
  Finished train_well(const Words& more, const std::string& folder = "r") const {
    return run_well(command(folder), more);
  }
  std::string checkpoint(std::int64_t step, const std::string& folder = "r") const {
    return dir.file(folder + "/checkpoints/" + dpt::checkpoint_name(step));
  }
  std::string best(const std::string& folder = "r") const {
    return dir.file(folder + "/best.safetensors");
  }
  json summary(const std::string& folder = "r") const {
    return json::parse(read_file(dir.file(folder + "/summary.json")));
  }
  std::vector<json> events(const std::string& name, const std::string& folder = "r",
                           const std::string& file = "metrics.jsonl") const {
    return dpt::testing::events(dir.file(folder + "/" + file), name);
  }

 private:
  static Words command(const std::string& folder) {
    return {"train",
            "small.yaml",
            "--run-dir",
            folder,
            "train.epochs=3",
            "checkpoint.every_steps=0",
            "checkpoint.keep_last=10"};
  }
};

/// Everything below a folder, name and contents; without the lock.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == ".lock") continue;
    files[entry.path().lexically_relative(folder).string()] = read_file(entry.path().string());
  }
  return files;
}

dpt::RunState state_of(const std::string& path) {
  return dpt::read_checkpoint_header(path).state;
}

std::string checksum_of(const std::string& path) {
  return dpt::read_checkpoint_header(path).checksum;
}

}  // namespace

TEST_CASE("resuming an older checkpoint: later ones are moved aside, the new branch stays") {
  const KeptRuns w;
  w.train_well({});
  REQUIRE(steps_in(w.dir.file("r/checkpoints")) == Steps{36, 24, 12});
  const std::string old = w.checkpoint(12), before = read_file(w.checkpoint(24));
  const Finished branch =
      w.train_well({"--resume", old, "--max-steps", "20", "checkpoint.keep_last=1"});
  check_contains(branch.err, "abandoned-1");
  // What was just written, and what was resumed from, whatever keep_last says.
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{20, 12});
  CHECK(steps_in(w.dir.file("r/checkpoints/abandoned-1")) == Steps{36, 24});
  CHECK(read_file(w.dir.file("r/checkpoints/abandoned-1/" + dpt::checkpoint_name(24))) == before);
  const Finished rest = w.train_well({});
  check_contains(rest.err, "at step 20");
  CHECK(w.summary()["steps"] == 36);

  // Once every step: those of the branch that was left are in a file of their own.
  std::vector<std::int64_t> epochs;
  for (const json& event : w.events("epoch")) epochs.push_back(event["epoch"]);
  CHECK(epochs == Steps{1, 2, 3});
  CHECK(w.events("epoch", "r", "metrics.abandoned.jsonl").size() == 2);

  // A branch that was left can be taken up again, from where it lies.
  const std::string left = w.dir.file("r/checkpoints/abandoned-1/" + dpt::checkpoint_name(24));
  const Finished again = w.train_well({"--resume", left, "--max-steps", "30"});
  check_contains(again.err, "abandoned-2");
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{30, 24});
  CHECK(read_file(w.checkpoint(24)) == before);
}

TEST_CASE("resuming a file from elsewhere: it and its best take their place in the new folder") {
  const KeptRuns w;
  w.train_well({});
  // No epoch of the rest is better: the best is one that only the first folder has.
  w.train_well({"--resume", w.checkpoint(36), "train.epochs=4", "optimizer.lr=0.05"}, "n");
  const json best = w.summary("n")["best"];
  CHECK(fs::exists(w.best("n")));
  CHECK(state_of(w.best("n")).step == best["step"]);
  CHECK(w.summary("n").contains("test"));

  // Nothing left to train: all the same, with the results that were measured.
  w.train_well({"--resume", w.checkpoint(36)}, "m");
  CHECK(w.summary("m")["best"] == w.summary()["best"]);
  CHECK(w.summary("m")["train"] == w.summary()["train"]);
  CHECK(w.summary("m")["val"] == w.summary()["val"]);
  CHECK(w.summary("m")["test"] == w.summary()["test"]);
  CHECK(checksum_of(w.best("m")) == checksum_of(w.best()));
  CHECK(steps_in(w.dir.file("m/checkpoints")) == Steps{36});
}

TEST_CASE("checkpoint.every 0: one checkpoint, at the end") {
  const KeptRuns w;
  w.train_well({"checkpoint.every=0"});
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{36});
  CHECK(state_of(w.best()).step == w.summary()["best"]["step"]);
  w.train_well({"checkpoint.every=0", "data.val_split=0"}, "n");
  CHECK(steps_in(w.dir.file("n/checkpoints")) == Steps{39});
  CHECK(w.events("checkpoint", "n").size() == 1);
}

TEST_CASE("--overwrite: what fails before the first save leaves the old run as it was") {
  const KeptRuns w;
  w.train_well({});
  const auto before = contents(w.dir.file("r"));
  const auto refused = [&](const Words& more, int code) {
    CAPTURE(more.at(0));
    Words words = more;
    words.push_back("--overwrite");
    const Finished run = w.train(words);
    INFO(run.err);
    CHECK(run.exit_code == code);
    CHECK((contents(w.dir.file("r")) == before));
  };
  refused({"--weights", "no-such-file"}, 3);
  refused({"--weights", w.best(), "model.layers.conv1.out_channels=9"}, 3);
  refused({"--resume", "must"}, 2);
  refused({"--resume", "no-such-file"}, 2);
  refused({"optimizer.lr=1e20"}, 5);  // diverges before there is anything to save
  write_file(w.dir.file("r/notes.txt"), "mine");
  const Finished foreign = w.train({"--overwrite"});
  CHECK(foreign.exit_code == 2);
  check_contains(foreign.err, "notes.txt");
  fs::remove(w.dir.file("r/notes.txt"));
  CHECK((contents(w.dir.file("r")) == before));

  // The weights of the run that is replaced, and what a crash left of the writing of its files.
  write_file(w.dir.file("r/best.safetensors.tmp"), "half");
  write_file(w.dir.file("r/summary.json.tmp"), "half");
  w.train_well({"--overwrite", "--weights", w.best(), "--max-steps", "2"});
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{2});
  CHECK_FALSE(fs::exists(w.dir.file("r/replaced")));
  CHECK_FALSE(fs::exists(w.best()));
  CHECK_FALSE(fs::exists(w.dir.file("r/best.safetensors.tmp")));
}

TEST_CASE("--overwrite: the messages of the new run stand in its train.log, each once") {
  const KeptRuns w;
  const auto check_log = [&](const std::string& steps) {
    const std::string log = read_file(w.dir.file("r/train.log"));
    CHECK(count_of(log, "run folder r\n") == 1);
    CHECK(count_of(log, "stopped at step ") == 1);
    check_contains(log, "stopped at step " + steps + " (--max-steps)");
  };
  w.train_well({"--max-steps", "2"});
  check_log("2");
  const Finished done = w.train_well({"--overwrite", "--max-steps", "3"});
  check_log("3");
  const std::string restored = "restored the previous run in r: the new run saved no checkpoint\n";
  CHECK_FALSE(contains(done.err, restored));
  const Finished failed = w.train({"--overwrite", "optimizer.lr=1e20"});
  CHECK(failed.exit_code == 5);
  check_contains(failed.err, restored);
  check_log("3");
}

TEST_CASE("--overwrite: killed before the first save, the old run comes back") {
  const KeptRuns w;
  w.train_well({});
  const auto before = contents(w.dir.file("r"));
  TempDir logs;
  {
    Program program(
        {"train", "small.yaml", "--run-dir", "r", "--overwrite", "seed=4", "train.epochs=1000000",
         "checkpoint.every=0", "checkpoint.every_steps=0", "data.val_split=0", "log.every=1"},
        w.dir.path(), logs);
    while (program.is_running() &&
           (!fs::exists(w.dir.file("r/replaced/summary.json")) ||
            read_file(w.dir.file("r/metrics.jsonl")).find("\"step\":30,") == std::string::npos)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    CHECK(fs::exists(w.dir.file("r/replaced/best.safetensors")));
    program.send(SIGKILL);
    CHECK(program.wait().exit_code == -SIGKILL);
  }
  const Finished again = w.train_well({});
  check_contains(again.err, "restored the previous run in");
  check_contains(again.err, "is complete");
  for (const auto& [name, text] : before) {
    if (name == "train.log") continue;
    CAPTURE(name);
    CHECK((read_file(w.dir.file("r/" + name)) == text));
  }
}

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

TEST_CASE("--resume FILE of another run of as many steps is not this run, which is complete") {
  const KeptRuns w;
  w.train_well({}, "a");
  w.train_well({"seed=4"}, "r");
  const std::string file = w.checkpoint(36, "a");
  const Finished run = w.train_well({"--resume", file});
  CHECK(run.err.find("is complete") == std::string::npos);
  CHECK(checksum_of(w.checkpoint(36)) == checksum_of(file));
  CHECK(w.summary()["train"] == w.summary("a")["train"]);
  CHECK(fs::exists(w.dir.file("r/checkpoints/abandoned-1/" + dpt::checkpoint_name(36))));
}

TEST_CASE("a summary or a log of odd types is no obstacle") {
  const KeptRuns w;
  w.train_well({});
  for (const char* text : {R"({"status":1})", R"({"status":"ok","steps":"x"})", "[]", "7"}) {
    CAPTURE(text);
    write_file(w.dir.file("r/summary.json"), text);
    const std::string log = w.dir.file("r/metrics.jsonl");
    write_file(log, R"({"event":5,"step":1})"
                    "\n"
                    R"({"event":"eval","split":7,"step":1,"epoch":1})"
                    "\n[3]\n" +
                        read_file(log));
    w.train_well({});
    CHECK(w.summary()["steps"] == 36);
  }
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
  // Neither is one of a later step, nor one where the run has no best, nor one alone.
  w.train_well({"seed=9"}, "other");
  fs::remove(w.best());
  fs::copy_file(w.best("other"), w.best());
  CHECK(w.run({"eval", "r"}).exit_code == 3);
  w.train_well({"--max-steps", "3"}, "early");
  fs::copy_file(w.best("other"), w.best("early"));
  const Finished early = w.run({"eval", "early"});
  CHECK(early.exit_code == 3);
  check_contains(early.err,
                 "expected a run without a best so far (according to early/checkpoints/");
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
                 "dpt: warning: r/best.safetensors: is another checkpoint, of step 12; "
                 "r/checkpoints/step-00000024.safetensors is evaluated, which is the best "
                 "checkpoint\n");
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

TEST_CASE("eval: where best.safetensors is gone, what is measured instead is said") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "optimizer.lr=0.000001"});
  REQUIRE(state_of(w.checkpoint(24)).best_step == 12);
  fs::remove(w.best());
  const Finished kept = w.run_well({"eval", "r"});
  check_contains(kept.out, "r/checkpoints/step-00000012.safetensors: test split");
  check_contains(kept.err,
                 "dpt: warning: r/best.safetensors: no such file; "
                 "r/checkpoints/step-00000012.safetensors is evaluated, which is the best "
                 "checkpoint\n");
  fs::remove(w.checkpoint(12));
  const Finished newest = w.run_well({"eval", "r"});
  check_contains(newest.out, "r/checkpoints/step-00000024.safetensors: test split");
  check_contains(newest.err, "is evaluated, which is the newest checkpoint, not the best\n");
}

TEST_CASE("a complete run whose best is not in its place gets it back") {
  const KeptRuns w;
  w.train_well({"checkpoint.keep_last=10"});
  w.train_well({"seed=9"}, "other");
  const std::string good = read_file(w.best());
  const json summary = w.summary();
  // Written in place, as cp does: the checkpoint of the same step stays what it is.
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
  // Another monitor is another question.
  const Finished monitor = w.train_well({"checkpoint.keep_best={monitor: val/loss}"});
  check_contains(monitor.err, "checkpoint.keep_best monitors val/loss min now");
}

TEST_CASE("a checkpoint that is resumed through a link becomes a file of the run") {
  const KeptRuns w;
  w.train_well({"--max-steps", "12"});
  fs::create_symlink("r/checkpoints/" + dpt::checkpoint_name(12), w.dir.file("latest"));
  w.train_well({"--resume", "latest", "--max-steps", "12"}, "b");
  CHECK(fs::is_regular_file(fs::symlink_status(w.checkpoint(12, "b"))));
  CHECK(fs::is_regular_file(fs::symlink_status(w.best("b"))));
  fs::remove_all(w.dir.file("r"));
  w.train_well({}, "b");
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
  check_contains(eval.err,
                 "expected the run's best checkpoint, of step 12 (according to "
                 "r/checkpoints/step-00000024.safetensors), but r/best.safetensors: is another "
                 "checkpoint, of step 24. Resume the run to restore its best, or name the file to "
                 "evaluate: dpt eval r/best.safetensors\n");
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

TEST_CASE("the best: lost, the run says so and goes on with what is known") {
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
  write_file(w.best(), older);  // as a crash before the link leaves it
  w.train_well({"checkpoint.keep_last=1", "--max-steps", "30"});
  CHECK(state_of(w.best()).step == 24);
  CHECK_FALSE(fs::exists(w.dir.file("r/checkpoints/abandoned-1")));
  CHECK(w.summary()["best"]["step"] == 24);
}

TEST_CASE("a resume with nothing left in the epoch reports what was measured") {
  const KeptRuns w;
  w.train_well({});
  const json whole = w.summary();
  fs::remove(w.dir.file("r/summary.json"));  // as a crash before its writing leaves it
  const Finished run = w.train({"--require", "train/loss<=0.0000001"});
  CHECK(run.exit_code == 7);
  CHECK(w.summary()["train"] == whole["train"]);
  CHECK(w.summary()["val"] == whole["val"]);
  CHECK(w.summary()["test"] == whole["test"]);
  CHECK(w.summary()["best"] == whole["best"]);
  // Results that do not exist are none.
  const Finished early = w.train({"--max-steps", "5", "--require", "train/loss<=1000"}, "n");
  CHECK(early.exit_code == 7);
  check_contains(early.err, "this run has no train result");
  CHECK_FALSE(w.summary("n").contains("train"));
}

TEST_CASE("early stopping is remembered") {
  const KeptRuns w;
  const Words early = {"train.early_stopping={monitor: val/accuracy, patience: 1}",
                       "optimizer.lr=0.000001", "train.epochs=9"};
  w.train_well(early);
  CHECK(w.summary()["epochs"] == 2);
  const json whole = w.summary();
  fs::remove(w.dir.file("r/summary.json"));
  w.train_well(early);
  CHECK(w.summary()["epochs"] == 2);
  CHECK(w.summary()["early_stopped"] == true);
  CHECK(w.summary()["test"] == whole["test"]);
  // Also in another folder, and patience that was half used up.
  Words elsewhere = early;
  elsewhere.insert(elsewhere.end(), {"--resume", w.checkpoint(12)});
  w.train_well(elsewhere, "n");
  CHECK(w.summary("n")["epochs"] == 2);
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

TEST_CASE("how a stopped run goes on is said as it is") {
  const KeptRuns w;
  TempDir logs;
  const auto hint = [&](Words words) {
    words.insert(words.begin(), {"train", "small.yaml"});
    words.insert(words.end(), {"--max-time", "0s"});
    const Finished run = run_dpt(words, w.dir.path());
    CHECK(run.exit_code == 75);
    return run.err;
  };
  check_contains(hint({}), "; run the same command again to resume");
  check_contains(hint({"--overwrite"}), "; to resume: ");
  CHECK(hint({"--overwrite"}).find("--overwrite --max-time") == std::string::npos);
  check_contains(hint({"--resume", "never"}),
                 "train small.yaml --max-time 0s --run-dir runs/small-2");
  check_contains(
      run_dpt({"train", "small.yaml", "--max-steps=3", "--run-dir", "x y"}, w.dir.path()).err,
      "train small.yaml --run-dir 'x y'");
}

TEST_CASE("half a line at the end of the log goes, and steps that come again stand once") {
  const KeptRuns w;
  w.train_well({"--max-steps", "24", "log.every=1"});
  // As a kill leaves it: steps after the checkpoint, and half a line.
  const std::string path = w.dir.file("r/metrics.jsonl");
  write_file(path, read_file(path) + R"({"v":1,"event":"step","epoch":3,"step":25,"loss":1.0})" +
                       "\n" + R"({"v":1,"event":"step","epo)");
  w.train_well({"log.every=1"});
  Steps steps;
  for (const json& event : w.events("step")) steps.push_back(event["step"]);
  CHECK(steps.size() == 36);
  CHECK(std::is_sorted(steps.begin(), steps.end()));
  CHECK(w.events("step", "r", "metrics.abandoned.jsonl").size() == 1);
}

TEST_CASE("on_failure continue: the run goes on without a checkpoint, the last one must succeed") {
  const KeptRuns w;
  const std::string disk = w.dir.file("disk");
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=400k") != 0) {
    skip_test("cannot mount a small tmpfs here");
    return;
  }
  const Words words = {"checkpoint.on_failure=continue", "log.every=1", "train.epochs=40"};
  Words first = words;
  first.insert(first.end(), {"--max-steps", "24"});
  w.train_well(first, "disk/r");
  // Full to the last byte: checkpoints, the best and the log all fail.
  write_file(disk + "/filler", std::string(1 << 20, 'x'));
  // config.yaml and its like are there already, but are written anew: room for them alone.
  fs::resize_file(disk + "/filler", fs::file_size(disk + "/filler") / 4096 * 4096 - 4096 * 2);
  const Finished full = w.train(words, "disk/r");
  INFO(full.err);
  CHECK(full.exit_code == 3);
  check_contains(full.err, "No space left on device");
  check_contains(full.err, "lines of its log are missing");
  check_contains(full.err, "epoch 40/40: ");  // neither checkpoints nor the log end it before
  // What was not saved is not the best.
  const dpt::RunState saved =
      state_of(dpt::newest_good_checkpoint(disk + "/r/checkpoints", [](const std::string&) {}));
  CHECK(saved.step < 100);
  // Where there was room for a checkpoint but not for its copy, that one is the best by itself.
  const std::int64_t best = state_of(w.best("disk/r")).step;
  CHECK((best == saved.best_step || (saved.step == saved.best_step && best < saved.step)));
  w.run_well({"eval", "disk/r"});
  fs::remove(disk + "/filler");
  w.train_well(words, "disk/r");
  CHECK(w.summary("disk/r")["status"] == "ok");
  CHECK(state_of(w.best("disk/r")).step == w.summary("disk/r")["best"]["step"]);
  CHECK(umount(disk.c_str()) == 0);
}
