// A rollback restores the best together with the weights, even if, in between, the run was stopped,
// was resumed from a named file, or lost files.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/outcome.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

/// Runs of 20 steps whose step 16 diverges, because the fourth epoch begins with an absurd learning
/// rate; after the rollback the rate is normal.
struct Rollbacks : Tiny {
  std::vector<std::string> command(const std::string& folder, const std::string& seed) const {
    return {"train",
            "small.yaml",
            "--run-dir",
            folder,
            "train.epochs=4",
            "data.difficulty=1",
            "train.on_divergence.policy=rollback",
            "train.on_divergence.lr_factor=1e-60",
            "lr_schedule={type: multistep, milestones: [3], gamma: 1.0e+60}",
            "seed=" + seed};
  }
  /// Returns the last rollback of a run, which must have gone back to `step`.
  json rollback(const std::string& folder, std::int64_t step) const {
    const auto all = events(dir.file(folder + "/metrics.jsonl"), "rollback");
    REQUIRE_FALSE(all.empty());
    CHECK(all.back()["step"] == step);
    return all.back();
  }
  Outcome outcome(const std::string& folder) const { return outcome_of(dir.file(folder)); }
};

}  // namespace

TEST_CASE("rollback: the best goes back with the weights, in an undisturbed run too") {
  // Step 5 is the best until step 15, with seed 3 as with seed 4.
  struct Case {
    std::string seed, more;
  };
  for (const Case& c : {Case{"3", "checkpoint.keep_last=1"}, Case{"3", "checkpoint.keep_last=2"},
                        Case{"4", "checkpoint.keep_last=3"}}) {
    CAPTURE(c.seed);
    CAPTURE(c.more);
    const Rollbacks w;
    const Finished whole = w.run_well(w.command("r", c.seed), {c.more});
    w.rollback("r", 10);
    CHECK_FALSE(contains(whole.err, "is missing"));
    const Outcome end = w.outcome("r");
    for (const char* stop : {"7", "12", "15"}) {
      CAPTURE(stop);
      const std::string parts = std::string("parts") + stop;
      w.run_well(w.command(parts, c.seed), {c.more, "--max-steps", stop});
      const Finished rest = w.run_well(w.command(parts, c.seed), {c.more});
      w.rollback(parts, 10);
      CHECK_FALSE(contains(rest.err, "is missing"));
      CHECK((w.outcome(parts) == end));
    }
  }
}

TEST_CASE("rollback: a best that best.safetensors alone holds is kept when a later one comes") {
  const Rollbacks w;
  const std::vector<std::string> more = {"checkpoint.every=0", "checkpoint.every_steps=3"};
  const Finished whole = w.run_well(w.command("r", "3"), more);
  w.rollback("r", 12);
  CHECK_FALSE(contains(whole.err, "is missing"));
  const json summary = json::parse(read_file(w.dir.file("r/summary.json")));
  CHECK(summary["best"]["step"] == 20);
}

TEST_CASE(
    "rollback: a branch that was left finds the ancestor that it shares with the other line") {
  const Rollbacks w;
  w.run_well(w.command("whole", "3"));
  w.run_well(w.command("r", "3"), {"--max-steps", "15"});
  w.run_well(w.command("r", "3"), {"--resume", "10", "--max-steps", "12"});
  const Finished back =
      w.run_well(w.command("r", "3"), {"--resume", "abandoned-1/step-00000015.safetensors"});
  w.rollback("r", 10);
  CHECK_FALSE(contains(back.err, "a rollback would go back to"));
  CHECK((w.outcome("r") == w.outcome("whole")));
}

TEST_CASE("rollback: its checkpoint is found from wherever the run is resumed") {
  const Rollbacks w;
  w.run_well(w.command("whole", "3"));
  const Outcome end = w.outcome("whole");
  w.run_well(w.command("source", "3"), {"--max-steps", "15"});
  const std::string best = "/best.safetensors", last = "/checkpoints/step-00000015.safetensors";
  const auto copy = [&](const std::string& folder) {
    std::filesystem::copy(w.dir.file("source"), w.dir.file(folder),
                          std::filesystem::copy_options::recursive);
    return folder;
  };
  struct Case {
    std::string folder, from;
    bool overwrite;
  };
  for (const Case& c :
       {Case{copy("a"), "a" + best, false}, Case{copy("b"), "b" + last, true},
        Case{copy("c"), "c" + best, true}, Case{"d", "source" + last, false},
        Case{"e", "source" + best, false}, Case{copy("f"), "source" + best, true}}) {
    CAPTURE(c.folder);
    std::vector<std::string> more = {"--resume", c.from};
    if (c.overwrite) more.push_back("--overwrite");
    const auto went_back = [&](const Finished& finished, const std::string& folder) {
      w.rollback(folder, 10);
      CHECK_FALSE(contains(finished.err, "it will go back to"));
      CHECK_FALSE(contains(finished.err, "is missing"));
      CHECK((w.outcome(folder) == end));
      CHECK_FALSE(std::filesystem::exists(w.dir.file(folder + "/replaced")));
    };
    // Resume once to the end, and once in two processes, one after the other: the second must find
    // what the first has carried over.
    const std::string twice = c.folder + "-twice";
    if (std::filesystem::exists(w.dir.file(c.folder))) {
      std::filesystem::copy(w.dir.file(c.folder), w.dir.file(twice),
                            std::filesystem::copy_options::recursive);
    }
    went_back(w.run_well(w.command(c.folder, "3"), more), c.folder);
    const bool own = c.from.starts_with(c.folder + "/");
    if (own) more[1] = twice + c.from.substr(c.folder.size());
    more.insert(more.end(), {"--max-steps", "15"});
    w.run_well(w.command(twice, "3"), more);
    went_back(w.run_well(w.command(twice, "3")), twice);
  }
}

TEST_CASE("rollback: a run resumed from linked checkpoints finds what it goes back to") {
  namespace fs = std::filesystem;
  const Rollbacks w;
  const std::string keep = "checkpoint.keep_last=1";
  w.run_well(w.command("source", "3"), {keep, "--max-steps", "12"});
  // Make best.safetensors the only file with step 5. The rollback returns to step 10, at which step
  // 5 is the best.
  const std::string checkpoints = "source/checkpoints";
  REQUIRE(fs::exists(w.dir.file(checkpoints + "/step-00000010.safetensors")));
  fs::remove(w.dir.file(checkpoints + "/step-00000005.safetensors"));
  w.run_well(w.command("whole", "3"), {keep});
  fs::create_directory(w.dir.file("big"));
  fs::rename(w.dir.file(checkpoints), w.dir.file("big/disk"));
  fs::create_directory_symlink("../big/disk", w.dir.file(checkpoints));
  const std::string from = checkpoints + "/step-00000012.safetensors";
  for (const char* more : {"--overwrite", "--resume"}) {
    CAPTURE(more);
    std::vector<std::string> words = {keep, "--resume", from};
    if (more == std::string("--overwrite")) words.push_back(more);
    const std::string folder = std::string("r") + more;
    const Finished finished = w.run_well(w.command(folder, "3"), words);
    w.rollback(folder, 10);
    CHECK_FALSE(contains(finished.err, "it will go back to"));
    CHECK_FALSE(contains(finished.err, "is missing"));
    CHECK_FALSE(contains(finished.err, "was not found"));
    CHECK((w.outcome(folder) == w.outcome("whole")));
  }
}
