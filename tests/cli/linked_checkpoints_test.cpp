// Run folders whose `checkpoints` is a link: two runs never use the same folder.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/kept_runs.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

struct LinkedRuns : KeptRuns {
  LinkedRuns() { fs::create_directories(dir.file("disk")); }
  /// Makes `checkpoints` of a run folder a link to disk/.
  void link(const std::string& folder, const std::string& to = "../disk") const {
    fs::create_directories(dir.file(folder));
    fs::create_directory_symlink(to, dir.file(folder + "/checkpoints"));
  }
  std::string disk() const { return dir.file("disk"); }
  /// Moves `checkpoints` of a run folder to `was` and puts a link to `to` in its place. The
  /// exchange is atomic: a run always finds one of the two.
  void exchange_for_link(const std::string& folder, const std::string& to,
                         const std::string& was) const {
    fs::create_directory_symlink(to, dir.file(folder + "/new-link"));
    REQUIRE(::renameat2(AT_FDCWD, dir.file(folder + "/new-link").c_str(), AT_FDCWD,
                        dir.file(folder + "/checkpoints").c_str(), RENAME_EXCHANGE) == 0);
    fs::rename(dir.file(folder + "/new-link"), dir.file(was));
  }
  /// Checks that a run is refused and changes nothing; returns its message.
  std::string refused(const std::string& folder, const Words& more = {}) const {
    return refused_with(2, folder, [&] { return train(more, folder); });
  }
  std::string refused_with(int code, const std::string& folder,
                           const std::function<Finished()>& run_command) const {
    const auto before = contents(dir.path());
    const Finished finished = run_command();
    CHECK(finished.exit_code == code);
    CHECK((contents(dir.path()) == before));
    CHECK(fs::is_symlink(dir.file(folder + "/checkpoints")));
    return finished.err;
  }
  /// Checks that `train` with several options and `runs --restore` change nothing, and that they
  /// end with exit code 3 and a message that contains `text`.
  void check_asks_for_disk(const std::string& folder, const std::string& text) const {
    for (const Words& more : {Words{"seed=4"}, Words{"--overwrite"}}) {
      CAPTURE(more.front());
      check_contains(refused_with(3, folder, [&] { return train(more, folder); }), text);
    }
    const auto restore = [&] { return run({"runs", "--restore", folder}); };
    check_contains(refused_with(3, folder, restore), text);
  }
};

const Words kStop3 = {"--max-steps", "3"}, kStop5 = {"--max-steps", "5"};

}  // namespace

TEST_CASE("two runs whose checkpoints lead to one folder: the second is refused") {
  const LinkedRuns w;
  w.link("a");
  w.link("b");
  w.train_well(kStop3, "a");
  for (const Words& more : {Words{}, Words{"--overwrite"}, Words{"--resume", "must"},
                            Words{"--resume", "3"}, Words{"--dry-run"}, Words{"seed=4"}}) {
    const std::string text = w.refused("b", more);
    check_contains(text, "b/checkpoints is a link to " + fs::canonical(w.disk()).string());
    check_contains(
        text, "found the checkpoints of the run in " + fs::canonical(w.dir.file("a")).string());
    check_contains(text, "make b/checkpoints a link to an empty folder");
  }
  CHECK_FALSE(fs::exists(w.dir.file("b/.lock")));
  // The first run can still be continued, replaced and restored.
  w.train_well(kStop5, "a");
  CHECK(steps_in(w.disk()) == Steps{5, 3});
  w.train_well({"--overwrite", "seed=4", "--max-steps", "2"}, "a");
  w.refused("b");
  w.run_well({"runs", "--restore", "a"});
  CHECK(steps_in(w.disk()) == Steps{5, 3});
  w.refused("b");
  // A run that resumes a checkpoint from disk/ saves into its own folder.
  fs::remove(w.dir.file("b/checkpoints"));
  w.train_well({"--resume", "disk", "--max-steps", "6"}, "b");
  CHECK(steps_in(w.dir.file("b/checkpoints")) == Steps{6, 5});
  // A folder that has become empty may be used.
  for (const auto& [name, text] : contents(w.disk())) {
    if (name.find("step-") != name.npos)
      fs::remove(w.disk() + "/" + fs::path(name).filename().string());
  }
  fs::remove_all(w.disk() + "/abandoned-1");
  w.link("c");
  w.train_well(kStop3, "c");
  w.refused("a");
}

TEST_CASE("a run whose checkpoints are elsewhere holds that folder") {
  const LinkedRuns w;
  w.link("a");
  w.link("b");
  const TempDir logs;
  Program first({"train", "small.yaml", "--run-dir", "a", "train.epochs=1000000",
                 "checkpoint.every=0", "checkpoint.every_steps=0", "log.every=1"},
                w.dir.path(), logs);
  REQUIRE(wait_for_log(w.dir.file("a"), "\"event\":\"step\""));
  const Finished second = w.train(kStop3, "b");
  CHECK(second.exit_code == 2);
  check_contains(second.err, "b/checkpoints is a link to ");
  check_contains(second.err, "which is in use by another dpt process, of the run in " +
                                 fs::canonical(w.dir.file("a")).string());
  CHECK(steps_in(w.disk()).empty());
  first.send(SIGTERM);
  CHECK(first.wait().exit_code == 128 + SIGTERM);
}

TEST_CASE("a moved run keeps its checkpoints elsewhere; a copy and a new run do not get them") {
  const LinkedRuns w;
  w.link("a", w.disk());
  w.train_well(kStop3, "a");
  const auto rename = [&](const char* from, const char* to) {
    fs::rename(w.dir.file(from), w.dir.file(to));
  };
  rename("a", "moved");
  w.train_well({"--max-steps", "4"}, "moved");
  CHECK(steps_in(w.disk()) == Steps{4, 3});
  fs::copy(w.dir.file("moved"), w.dir.file("copy"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  check_contains(w.refused("copy"), "of the run in " + fs::canonical(w.dir.file("moved")).string());
  w.train_well(kStop5, "moved");
  // A new folder with the path of the old one belongs to another run.
  rename("moved", "gone");
  w.link("moved");
  w.refused("moved");
  fs::remove_all(w.dir.file("gone"));
  w.refused("moved");
}

TEST_CASE("checkpoints elsewhere without a record: a run that has trained takes them") {
  const LinkedRuns w;
  w.link("a");
  w.train_well(kStop3, "a");
  const auto forget = [&] {
    for (const char* name : {".dpt-checkpoints", ".lock"}) fs::remove(w.disk() + "/" + name);
  };
  forget();
  w.link("new");
  check_contains(w.refused("new"), "found checkpoints, but this run has not saved any yet");
  w.train_well(kStop5, "a");
  w.refused("new");
  // Simulate an interrupted --overwrite of an earlier release: the log is in replaced/.
  w.train_well({"--overwrite", "seed=4", "--max-steps", "2"}, "a");
  forget();
  fs::remove(w.dir.file("a/metrics.jsonl"));
  w.run_well({"runs", "--restore", "a"});
  CHECK(steps_in(w.disk()) == Steps{5, 3});
}

TEST_CASE("checkpoints that lead into the folder of another run are refused") {
  const LinkedRuns w;
  w.train_well(kStop3, "a");
  w.link("b", "../a/checkpoints");
  const std::string text = w.refused("b");
  check_contains(
      text, "b/checkpoints is a part of the run in " + fs::canonical(w.dir.file("a")).string());
}

TEST_CASE("a start that fails does not make a run of a linked folder") {
  const LinkedRuns w;
  w.link("a");
  CHECK(w.train({"--weights", "missing.safetensors"}, "a").exit_code != 0);
  w.train_well({"--resume", "never", "--max-steps", "3"}, "a");
  CHECK(steps_in(w.disk()) == Steps{3});
}

TEST_CASE(
    "checkpoints that come to lead elsewhere during a run end it, and nothing there changes") {
  const LinkedRuns w;
  fs::create_directories(w.dir.file("disk2"));
  w.link("b", "../disk2");
  w.train_well(kStop3, "b");
  w.train_well({"--max-steps", "5"}, "b");
  const auto others = contents(w.dir.file("disk2"));
  bool is_link = false;
  std::string to = "../disk2", found;
  SUBCASE("a link to another run's") {
    is_link = true;
    found = "is a link to " + fs::canonical(w.dir.file("disk2")).string();
  }
  SUBCASE("a link to nothing") {
    is_link = true;
    to = "../disk3";
    found = "is a link to " + fs::canonical(w.dir.path()).string() + "/disk3";
  }
  SUBCASE("a folder that moved to another run's") {
    found = "is a link to " + fs::canonical(w.dir.file("disk2")).string();
  }
  SUBCASE("a folder that moved, and the link follows it") {
    to = "../was";
    found = "is a link to " + fs::canonical(w.dir.path()).string() + "/was";
  }
  if (is_link) w.link("a");
  const TempDir logs;
  Program run(
      {"train", "small.yaml", "--run-dir", "a", "train.epochs=1000000", "checkpoint.every=0",
       "checkpoint.every_steps=0", "checkpoint.keep_last=1", "log.every=1"},
      w.dir.path(), logs);
  REQUIRE(wait_for_log(w.dir.file("a"), "\"event\":\"step\""));
  w.exchange_for_link("a", to, "was");
  // At its end the run saves a checkpoint and removes older ones.
  run.send(SIGTERM);
  const Finished finished = run.wait();
  CHECK(finished.exit_code == 3);
  check_contains(finished.err, "a/checkpoints no longer ");
  check_contains(finished.err, ": it " + found);
  CHECK((contents(w.dir.file("disk2")) == others));
  CHECK_FALSE(fs::exists(w.dir.file("disk3")));
  if (!is_link) CHECK(steps_in(w.dir.file("was")).empty());
}

TEST_CASE("checkpoints on a disk that is not mounted: a replaced run waits for it") {
  const LinkedRuns w;
  w.link("a");
  w.train_well(kStop5, "a");
  w.train_well({"--overwrite", "seed=4", "--max-steps", "2"}, "a");
  fs::rename(w.disk(), w.dir.file("unmounted"));
  fs::create_directory(w.disk());
  w.check_asks_for_disk("a", "is the disk mounted?");
  fs::remove(w.disk());
  fs::rename(w.dir.file("unmounted"), w.disk());
  w.train_well({"seed=4", "--max-steps", "3"}, "a");
  CHECK(steps_in(w.disk()) == Steps{3, 2});
  w.run_well({"runs", "--restore", "a"});
  CHECK(steps_in(w.disk()) == Steps{5});
}

TEST_CASE("checkpoints on a disk that is not mounted: the leftovers of a crash wait for it") {
  const LinkedRuns w;
  w.link("a");
  w.train_well(kStop5, "a");
  const std::string kept = read_file(w.dir.file("a/config.yaml"));
  w.train_well({"--overwrite", "seed=4", "--max-steps", "2"}, "a");
  std::string name;
  SUBCASE("while the old run came back") {
    name = "a/replaced.restoring";
  }
  SUBCASE("while the old run moved") {
    name = "a/replaced.moving";
    fs::remove(w.disk() + "/" + dpt::checkpoint_name(2));
  }
  fs::rename(w.dir.file("a/replaced"), w.dir.file(name));
  fs::rename(w.disk(), w.dir.file("unmounted"));
  fs::create_directory(w.disk());
  w.check_asks_for_disk("a", "is the disk mounted?");
  fs::remove(w.disk());
  fs::rename(w.dir.file("unmounted"), w.disk());
  w.run_well({"runs", "--restore", "a"});
  CHECK(steps_in(w.disk()) == Steps{5});
  CHECK(read_file(w.dir.file("a/config.yaml")) == kept);
}

TEST_CASE("a crash before any checkpoint moved does not look like a missing disk") {
  const LinkedRuns w;
  w.link("a");
  w.train_well(kStop5, "a");
  fs::create_directory(w.dir.file("a/replaced.moving"));
  fs::create_symlink("../checkpoints/replaced", w.dir.file("a/replaced.moving/checkpoints"));
  w.run_well({"runs", "--restore", "a"});
  CHECK(steps_in(w.disk()) == Steps{5});
}

TEST_CASE("checkpoints that are a link to nothing: asks for the disk") {
  const LinkedRuns w;
  w.link("a");
  w.train_well(kStop3, "a");
  fs::rename(w.disk(), w.dir.file("unmounted"));
  w.check_asks_for_disk("a", "a/checkpoints: expected a folder, found a link to " +
                                 fs::canonical(w.dir.path()).string() +
                                 "/disk, which is not a folder: is the disk mounted?");
  check_contains(w.refused_with(3, "a", [&] { return w.train({"--dry-run"}, "a"); }),
                 "is the disk mounted?");
}

TEST_CASE("resuming another run through its linked checkpoints finds its best") {
  const LinkedRuns w;
  w.link("a");
  // Nothing is learned after the first epoch, and keep_last removes the checkpoint of that epoch.
  const Words best_first = {"lr_schedule={type: multistep, milestones: [1], gamma: 1.0e-30}",
                            "checkpoint.keep_last=1"};
  Words more = best_first;
  w.train_well(more, "a");
  const std::int64_t best_step = dpt::read_checkpoint_header(w.best("a")).state.step;
  REQUIRE(best_step < 36);
  REQUIRE(steps_in(w.disk()) == Steps{36});
  std::string from;
  SUBCASE("its newest checkpoint") {
    from = "a/checkpoints";
  }
  SUBCASE("a file of it") {
    from = "a/checkpoints/" + dpt::checkpoint_name(36);
  }
  SUBCASE("one that was moved aside") {
    fs::create_directory(w.disk() + "/abandoned-1");
    fs::rename(w.disk() + "/" + dpt::checkpoint_name(36),
               w.disk() + "/abandoned-1/" + dpt::checkpoint_name(36));
    from = "a/checkpoints/abandoned-1/" + dpt::checkpoint_name(36);
  }
  more.insert(more.end(), {"--resume", from, "train.epochs=4"});
  const Finished finished = w.train_well(more, "b");
  CHECK(finished.err.find("was not found") == std::string::npos);
  CHECK(checksum_of(w.best("b")) == checksum_of(w.best("a")));
  CHECK(dpt::read_checkpoint_header(w.best("b")).state.step == best_step);
}
