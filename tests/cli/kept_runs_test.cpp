// A run is never lost, and its reports match the measurements: resume, branches, --overwrite, early
// stopping, the log.
#include <doctest/doctest.h>
#include <sys/mount.h>

#include <algorithm>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/kept_runs.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("resuming an older checkpoint: later ones are moved aside, the new branch stays") {
  const KeptRuns w;
  w.train_well({});
  REQUIRE(steps_in(w.dir.file("r/checkpoints")) == Steps{36, 24, 12});
  const std::string old = w.checkpoint(12), before = read_file(w.checkpoint(24));
  const Finished branch =
      w.train_well({"--resume", old, "--max-steps", "20", "checkpoint.keep_last=1"});
  check_contains(branch.err, "abandoned-1");
  // The newest checkpoint and the resumed one stay, whatever keep_last says.
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{20, 12});
  CHECK(steps_in(w.dir.file("r/checkpoints/abandoned-1")) == Steps{36, 24});
  CHECK(read_file(w.dir.file("r/checkpoints/abandoned-1/" + dpt::checkpoint_name(24))) == before);
  const Finished rest = w.train_well({});
  check_contains(rest.err, "at step 20");
  CHECK(w.summary()["steps"] == 36);

  // Every step occurs once: the steps of the abandoned branch are in a separate file.
  std::vector<std::int64_t> epochs;
  for (const json& event : w.events("epoch")) epochs.push_back(event["epoch"]);
  CHECK(epochs == Steps{1, 2, 3});
  CHECK(w.events("epoch", "r", "metrics.abandoned.jsonl").size() == 2);

  // An abandoned branch can be resumed from its current location.
  const std::string left = w.dir.file("r/checkpoints/abandoned-1/" + dpt::checkpoint_name(24));
  const Finished again = w.train_well({"--resume", left, "--max-steps", "30"});
  check_contains(again.err, "abandoned-2");
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{30, 24, 12});
  CHECK(read_file(w.checkpoint(24)) == before);
}

TEST_CASE("resuming a file from elsewhere: it and its best take their place in the new folder") {
  const KeptRuns w;
  w.train_well({});
  // No later epoch is better: the best is from an epoch that only the first folder has.
  w.train_well({"--resume", w.checkpoint(36), "train.epochs=4", "optimizer.lr=0.05"}, "n");
  const json best = w.summary("n")["best"];
  CHECK(fs::exists(w.best("n")));
  CHECK(state_of(w.best("n")).step == best["step"]);
  CHECK(w.summary("n").contains("test"));

  // If nothing is left to train, the run still has its measured results.
  w.train_well({"--resume", w.checkpoint(36)}, "m");
  CHECK(w.summary("m")["best"] == w.summary()["best"]);
  CHECK(w.summary("m")["train"] == w.summary()["train"]);
  CHECK(w.summary("m")["val"] == w.summary()["val"]);
  CHECK(w.summary("m")["best_val"] == w.summary()["best_val"]);
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

TEST_CASE("--overwrite: a failure before the first save leaves the old run as it was") {
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
  refused({"optimizer.lr=1e20"}, 5);  // diverges before the first save
  write_file(w.dir.file("r/notes.txt"), "mine");
  const Finished foreign = w.train({"--overwrite"});
  CHECK(foreign.exit_code == 2);
  check_contains(foreign.err, "notes.txt");
  fs::remove(w.dir.file("r/notes.txt"));
  CHECK((contents(w.dir.file("r")) == before));

  // Weights may come from the replaced run, and files left by a crash do not prevent --overwrite.
  write_file(w.dir.file("r/best.safetensors.tmp"), "half");
  write_file(w.dir.file("r/summary.json.tmp"), "half");
  w.train_well({"--overwrite", "--weights", w.best(), "--max-steps", "2"});
  CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{2});
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
  // This run saves a regular checkpoint, so that from now on another run can replace it.
  w.train_well({"--max-steps", "12", "--resume", "must"});
  const std::string restored = "restored the previous run in r: the new run saved no checkpoint\n";
  CHECK_FALSE(contains(done.err, restored));
  const Finished failed = w.train({"--overwrite", "optimizer.lr=1e20"});
  CHECK(failed.exit_code == 5);
  check_contains(failed.err, restored);
  check_contains(read_file(w.dir.file("r/train.log")), "stopped at step 12 (--max-steps)");
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
  // Until the old run is restored, read-only commands find it in r/replaced.
  const Finished eval = w.run({"eval", "r"});
  CHECK(eval.exit_code == 3);
  check_contains(eval.err,
                 "no good checkpoint. r/replaced holds the run that --overwrite was about to");
  w.run_well({"eval", "r/replaced"});
  w.run_well({"train", "small.yaml", "--run-dir", "r", "--resume", "must", "--dry-run"});
  CHECK(fs::exists(w.dir.file("r/replaced/best.safetensors")));
  const Finished again = w.train_well({});
  check_contains(again.err, "restored the previous run in");
  check_contains(again.err, "is complete");
  for (const auto& [name, text] : before) {
    if (name == "train.log") continue;
    CAPTURE(name);
    CHECK((read_file(w.dir.file("r/" + name)) == text));
  }
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

TEST_CASE("a summary or a log with odd types does not stop a run") {
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

TEST_CASE("a resume with nothing left in the epoch reports what was measured") {
  const KeptRuns w;
  w.train_well({});
  const json whole = w.summary();
  fs::remove(w.dir.file("r/summary.json"));  // like a crash before it was written
  const Finished run = w.train({"--require", "train/loss<=0.0000001"});
  CHECK(run.exit_code == 7);
  CHECK(w.summary()["train"] == whole["train"]);
  CHECK(w.summary()["val"] == whole["val"]);
  CHECK(w.summary()["test"] == whole["test"]);
  CHECK(w.summary()["best"] == whole["best"]);
  // A split without results meets no condition.
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
  // A run that resumes in another folder remembers the best of epoch 1, so epoch 2 ends it.
  Words elsewhere = early;
  elsewhere.insert(elsewhere.end(), {"--resume", w.checkpoint(12)});
  w.train_well(elsewhere, "n");
  CHECK(w.summary("n")["epochs"] == 2);
}

TEST_CASE("the message about a stopped run says how it continues") {
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
  // The state after a kill: steps after the checkpoint, and half a line.
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

TEST_CASE(
    "on_failure continue: the run continues without a checkpoint, the last one must succeed") {
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
  // Fill the disk, so that saving checkpoints, the best and the log all fail.
  write_file(disk + "/filler", std::string(1 << 20, 'x'));
  // Leave room only for config.yaml and similar small files, which are written again.
  fs::resize_file(disk + "/filler", fs::file_size(disk + "/filler") / 4096 * 4096 - 4096 * 2);
  const Finished full = w.train(words, "disk/r");
  INFO(full.err);
  CHECK(full.exit_code == 3);
  check_contains(full.err, "No space left on device");
  check_contains(full.err, "lines of its log are missing");
  check_contains(full.err, "epoch 40/40: ");  // failed writes do not end the run earlier
  // A new best counts only if its checkpoint was saved.
  const dpt::RunState saved =
      state_of(dpt::newest_good_checkpoint(disk + "/r/checkpoints", [](const std::string&) {}));
  CHECK(saved.step < 100);
  // If there was room for a checkpoint but not for its copy, that checkpoint itself is the best.
  const std::int64_t best = state_of(w.best("disk/r")).step;
  CHECK((best == saved.best_step || (saved.step == saved.best_step && best < saved.step)));
  w.run_well({"eval", "disk/r"});
  fs::remove(disk + "/filler");
  w.train_well(words, "disk/r");
  CHECK(w.summary("disk/r")["status"] == "ok");
  CHECK(state_of(w.best("disk/r")).step == w.summary("disk/r")["best"]["step"]);
  CHECK(umount(disk.c_str()) == 0);
}
