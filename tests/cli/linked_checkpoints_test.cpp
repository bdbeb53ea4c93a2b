// Run folders whose `checkpoints` is a link: two of them never use one folder.
#include <doctest/doctest.h>

#include <filesystem>

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
  /// Checks that a run is refused and changes nothing; returns its message.
  std::string refused(const std::string& folder, const Words& more = {}) const {
    const auto before = contents(disk());
    const auto before_there = contents(dir.file(folder));
    const Finished finished = train(more, folder);
    CHECK(finished.exit_code == 2);
    CHECK((contents(disk()) == before));
    CHECK((contents(dir.file(folder)) == before_there));
    return finished.err;
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
        text, "holds the checkpoints of the run in " + fs::canonical(w.dir.file("a")).string());
    check_contains(text, "make b/checkpoints a link to an empty folder");
  }
  CHECK_FALSE(fs::exists(w.dir.file("b/.lock")));
  // The first continues, is replaced and is restored as ever.
  w.train_well(kStop5, "a");
  CHECK(steps_in(w.disk()) == Steps{5, 3});
  w.train_well({"--overwrite", "seed=4", "--max-steps", "2"}, "a");
  w.refused("b");
  w.run_well({"runs", "--restore", "a"});
  CHECK(steps_in(w.disk()) == Steps{5, 3});
  w.refused("b");
  // What is named with --resume, for a folder of its own, is continued there.
  fs::remove(w.dir.file("b/checkpoints"));
  w.train_well({"--resume", "disk", "--max-steps", "6"}, "b");
  CHECK(steps_in(w.dir.file("b/checkpoints")) == Steps{6, 5});
  // A folder that is empty again may be taken.
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
  // A new folder with the path of the old one is another run.
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
  check_contains(w.refused("new"), "holds checkpoints, but this run has not saved any yet");
  w.train_well(kStop5, "a");
  w.refused("new");
  // An earlier version's --overwrite was interrupted: the log is in replaced/.
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

TEST_CASE("a start that fails leaves a linked folder that is still no run") {
  const LinkedRuns w;
  w.link("a");
  CHECK(w.train({"--weights", "missing.safetensors"}, "a").exit_code != 0);
  w.train_well({"--resume", "never", "--max-steps", "3"}, "a");
  CHECK(steps_in(w.disk()) == Steps{3});
}
