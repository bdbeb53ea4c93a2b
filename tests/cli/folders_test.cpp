// Ownership of a folder. Files that no run wrote are never overwritten, moved or removed. A run
// stays in its folder even if the folder is moved. A run that was replaced by mistake can be
// restored.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <set>

#include "tests/cli/kept_runs.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// A command that runs until it is stopped and saves checkpoints occasionally.
const Words kEndless = {"train",
                        "small.yaml",
                        "--run-dir",
                        "r",
                        "train.epochs=1000000",
                        "checkpoint.every=0",
                        "checkpoint.every_steps=20",
                        "data.val_split=0"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Waits until the run in `folder` has a checkpoint after `step`. Returns the checkpoint's step.
std::int64_t wait_for_step_after(Program& program, const std::string& folder, std::int64_t step) {
  std::int64_t newest = 0;
  const bool has_it = wait_until([&] {
    const Steps steps = steps_in(folder + "/checkpoints");
    newest = steps.empty() ? 0 : steps.front();
    return newest > step || !program.is_running();
  });
  INFO(program.messages());
  REQUIRE(has_it);
  REQUIRE(newest > step);
  return newest;
}

}  // namespace

TEST_CASE("a folder that no run made keeps every file that a run would write over") {
  const Workplace w;
  const Words names = {"config.yaml",  "command.txt",     "env.json",    "summary.json",
                       "train.log",    "metrics.jsonl",   "report.html", "best.safetensors",
                       "env.json.tmp", "checkpoints/m.pt"};
  for (const std::string& name : names) {
    const std::string folder = "of-" + name.substr(0, name.find('/'));
    fs::create_directories(w.dir.file(folder + "/checkpoints"));
    write_file(w.dir.file(folder + "/" + name), "mine");
    const auto before = contents(w.dir.file(folder));
    for (const Words& more : {Words{}, Words{"--overwrite"}, Words{"--dry-run"},
                              Words{"--resume", "never", "--overwrite"}}) {
      CAPTURE(name);
      const Finished refused = w.run({"train", "small.yaml", "--run-dir", folder}, more);
      CHECK(refused.exit_code == 2);
      check_contains(refused.err, folder + " is not a run folder of dpt, but holds " +
                                      name.substr(0, name.find('/')));
      check_contains(refused.err, "Choose another folder with --run-dir");
      CHECK((contents(w.dir.file(folder)) == before));
      CHECK_FALSE(fs::exists(w.dir.file(folder + "/.lock")));
    }
  }
  // If a foreign folder has the default name, `--resume never` takes the next name.
  fs::create_directories(w.dir.file("runs"));
  fs::rename(w.dir.file("of-env.json"), w.dir.file("runs/small"));
  CHECK(w.run({"train", "small.yaml", "--max-steps", "1"}).exit_code == 2);
  w.run_well({"train", "small.yaml", "--max-steps", "1", "--resume", "never"});
  CHECK(fs::exists(w.dir.file("runs/small-2/.dpt-run")));
}

TEST_CASE("a folder with other files, or prepared for a run, is taken") {
  const Workplace w;
  // The folder contains the config itself, and unrelated files.
  fs::create_directories(w.dir.file("logs"));
  fs::create_directories(w.dir.file("tensorboard"));
  fs::create_directories(w.dir.file("disk"));
  fs::create_directory_symlink("disk", w.dir.file("checkpoints"));
  write_file(w.dir.file("logs/slurm-1.out"), "mine");
  write_file(w.dir.file("tensorboard/events.out.tfevents.1.host.2.0"), "mine");
  write_file(w.dir.file("train.log"), "");  // as a shell redirection creates it
  w.run_well({"train", "small.yaml", "--run-dir", ".", "--max-steps", "3", "log.tensorboard=true"});
  CHECK(read_file(w.dir.file("logs/slurm-1.out")) == "mine");
  CHECK(read_file(w.dir.file("tensorboard/events.out.tfevents.1.host.2.0")) == "mine");
  CHECK(steps_in(w.dir.file("disk")) == Steps{3});
  CHECK(fs::exists(w.dir.file(".dpt-run")));
  w.run_well({"train", "small.yaml", "--run-dir", "./", "--max-steps", "4"});
  CHECK(steps_in(w.dir.file("disk")).front() == 4);
}

TEST_CASE("runs from before the marker are recognised, and get one") {
  const KeptRuns w;
  w.train_well({"--max-steps", "3"});
  const auto unmark = [&](const Words& without) {
    fs::remove(w.dir.file("r/.dpt-run"));
    for (const std::string& name : without) fs::remove_all(w.dir.file("r/" + name));
  };
  const std::string steps[] = {"4", "5", "6"};
  const Words missing[] = {{}, {"metrics.jsonl"}, {"checkpoints", "best.safetensors"}};
  for (int i = 0; i < 3; ++i) {
    unmark(missing[i]);
    // A run without its checkpoints cannot be resumed, but it can be replaced.
    const Words more = i < 2 ? Words{} : Words{"--overwrite"};
    w.train_well(with({"--max-steps", steps[i]}, more));
    const json marker = json::parse(read_file(w.dir.file("r/.dpt-run")));
    CHECK(marker["v"] == 1);
    CHECK(marker["files"].size() >= 12);
  }
  // These files only look like a run's: a log of another program, and a checkpoint that does not
  // verify.
  unmark({"metrics.jsonl", "best.safetensors", "replaced"});
  write_file(w.dir.file("r/metrics.jsonl"), R"({"loss":1})");
  const std::string checkpoint = w.checkpoint(6);
  fs::resize_file(checkpoint, fs::file_size(checkpoint) - 1);
  CHECK(w.train({}).exit_code == 2);
}

TEST_CASE("--overwrite refuses names that only look like a checkpoint's or a branch's") {
  const KeptRuns w;
  w.train_well({"--max-steps", "2"});
  for (const char* name : {"step-notes.md", "step-2.safetensors", "abandoned-mine/notes.txt",
                           "abandoned-1/notes.txt", "replaced/notes.txt"}) {
    CAPTURE(name);
    const fs::path file = w.dir.file(std::string("r/checkpoints/") + name);
    fs::create_directories(file.parent_path());
    write_file(file.string(), "mine");
    const Finished refused = w.train({"--overwrite"});
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, "which is not part of a run");
    CHECK(read_file(file.string()) == "mine");
    const bool is_inside = file.parent_path().filename() != "checkpoints";
    fs::remove_all(is_inside ? file.parent_path() : file);
  }
}

TEST_CASE("a marker that dpt did not write makes no run of a folder") {
  const Workplace w;
  for (const char* marker : {"", "mine", "[1]", R"({"v":1})"}) {
    CAPTURE(marker);
    fs::create_directories(w.dir.file("r"));
    write_file(w.dir.file("r/.dpt-run"), marker);
    write_file(w.dir.file("r/config.yaml"), "mine");
    CHECK(w.run({"train", "small.yaml", "--run-dir", "r"}).exit_code == 2);
    CHECK(read_file(w.dir.file("r/config.yaml")) == "mine");
  }
}

TEST_CASE("a replaced run that waits among foreign files is not considered lost") {
  const KeptRuns w;
  w.train_well({});
  w.train_well({"seed=4", "checkpoint.every=0", "--overwrite", "--max-steps", "5"});
  write_file(w.dir.file("r/replaced/.DS_Store"), "litter");
  write_file(w.dir.file("r/replaced/notes.txt"), "mine");
  for (const Words& words :
       {Words{"runs", "--restore", "r"}, Words{"train", "small.yaml", "--run-dir", "r"}}) {
    const Finished refused = w.run(words);
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, "files that dpt did not write (notes.txt)");
  }
  fs::remove(w.dir.file("r/replaced/notes.txt"));
  w.run_well({"runs", "--restore", "r"});
  CHECK(w.summary()["steps"] == 36);
}

TEST_CASE("--overwrite leaves what others keep in logs/ and tensorboard/") {
  const KeptRuns w;
  w.train_well({"--max-steps", "2", "log.tensorboard=true"});
  fs::create_directories(w.dir.file("r/logs"));
  write_file(w.dir.file("r/logs/precious.log"), "mine");
  write_file(w.dir.file("r/logs/rank-a.log"), "mine");
  write_file(w.dir.file("r/logs/rank-1.log"), "2026-11-25T09:30:00+01:00 info rank 1 of 2\n");
  write_file(w.dir.file("r/logs/rank-2.log"), "mine");
  const std::string other = "r/tensorboard/events.out.tfevents.1.host.2.0";
  write_file(w.dir.file(other), "mine");
  const auto count_own = [&] {
    int own = 0;
    for (const auto& entry : fs::directory_iterator(w.dir.file("r/tensorboard"))) {
      own += entry.path().extension() == ".dpt" ? 1 : 0;
    }
    return own;
  };
  CHECK(count_own() == 1);
  w.train_well({"--overwrite", "log.tensorboard=false"});
  CHECK(read_file(w.dir.file("r/logs/precious.log")) == "mine");
  CHECK(read_file(w.dir.file("r/logs/rank-a.log")) == "mine");
  CHECK_FALSE(fs::exists(w.dir.file("r/logs/rank-1.log")));
  CHECK(read_file(w.dir.file("r/logs/rank-2.log")) == "mine");
  CHECK(read_file(w.dir.file(other)) == "mine");
  CHECK(count_own() == 0);
  CHECK_FALSE(fs::exists(w.dir.file("r/replaced")));
}

TEST_CASE("--overwrite takes verdicts and reports of the run along") {
  const KeptRuns w;
  const Words gate = {"--require",    "train/loss<100", "--verdict",
                      "r/verdict.md", "--junit",        "r/junit.xml"};
  w.train_well(gate);
  CHECK(read_file(w.dir.file("r/verdict.md")).starts_with("# dpt train: "));
  w.run_well({"eval", "r", "--require", "test/loss<100", "--verdict", "r/of-eval.md"});
  w.run_well({"report", "r"});
  w.train_well(with(gate, {"--overwrite", "seed=5"}));
  CHECK(fs::exists(w.dir.file("r/verdict.md")));
  CHECK(fs::exists(w.dir.file("r/junit.xml")));
  CHECK_FALSE(fs::exists(w.dir.file("r/of-eval.md")));
  CHECK_FALSE(fs::exists(w.dir.file("r/report.html")));
  // Any other user file is still a reason to refuse.
  write_file(w.dir.file("r/README.md"), "# dpt and I");
  const Finished refused = w.train({"--overwrite"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "r holds README.md, which is not part of a run");
}

TEST_CASE("a hostile marker names nothing outside of the folder") {
  const KeptRuns w;
  w.train_well({"--max-steps", "2"});
  write_file(w.dir.file("precious"), "mine");
  write_file(w.dir.file("r/.dpt-run"),
             R"({"v":1,"files":["../precious","/etc/hostname","..",".","",7,{"a":1}]})");
  w.train_well({"--overwrite"});
  CHECK(read_file(w.dir.file("precious")) == "mine");
  for (const char* text : {"", "{", "[]", R"({"files":3})"}) {
    write_file(w.dir.file("r/.dpt-run"), text);
    w.train_well({});
    CHECK(read_file(w.dir.file("r/.dpt-run")).find("\"checkpoints\"") != std::string::npos);
  }
}

TEST_CASE("a run whose folder was removed or replaced ends, and harms nobody") {
  const KeptRuns w;
  for (const bool is_replaced : {false, true}) {
    CAPTURE(is_replaced);
    TempDir logs;
    Program program(kEndless, w.dir.path(), logs);
    wait_for_step_after(program, w.dir.file("r"), 0);
    // The rename removes the folder at once. rm would take time, and the run might write meanwhile.
    fs::rename(w.dir.file("r"), w.dir.file("gone"));
    for (const char* name : {".dpt-run", ".lock"}) fs::remove(w.dir.file("gone") + "/" + name);
    std::error_code ignored;
    while (fs::exists(w.dir.file("gone"))) fs::remove_all(w.dir.file("gone"), ignored);
    if (is_replaced) w.train_well({"seed=4"});
    const auto before = is_replaced ? contents(w.dir.file("r")) : decltype(contents(""))();
    const Finished ended = program.wait();
    CHECK(ended.exit_code == 3);
    check_contains(ended.err,
                   "the run folder r was removed or replaced while this process was writing to it");
    if (is_replaced) {
      CHECK((contents(w.dir.file("r")) == before));
      w.run_well({"eval", "r"});
      check_contains(w.train_well({"seed=4"}).err, "is complete");
    } else {
      CHECK_FALSE(fs::exists(w.dir.file("r")));
    }
  }
}

TEST_CASE("a lock that was taken over ends a run, one that was removed is made again") {
  const KeptRuns w;
  TempDir logs;
  Program program(kEndless, w.dir.path(), logs);
  const std::int64_t first = wait_for_step_after(program, w.dir.file("r"), 0);
  fs::remove(w.dir.file("r/.lock"));
  REQUIRE(wait_until([&] { return fs::exists(w.dir.file("r/.lock")) || !program.is_running(); }));
  wait_for_step_after(program, w.dir.file("r"), first);
  check_contains(w.train({}).err, "the run folder r is in use by another dpt process");
  // The lock now belongs to another process, as in a folder that was emptied and reused.
  write_file(w.dir.file("other.lock"), "");
  fs::rename(w.dir.file("other.lock"), w.dir.file("r/.lock"));
  const Finished ended = program.wait();
  CHECK(ended.exit_code == 3);
  check_contains(ended.err, "the run folder r was removed or replaced");
}

TEST_CASE("a run follows its folder when that is moved, whoever takes its path") {
  const KeptRuns w;
  for (const bool is_taken : {false, true}) {
    CAPTURE(is_taken);
    const std::string to = w.dir.file(is_taken ? "moved-2" : "moved");
    TempDir logs;
    Program program(kEndless, w.dir.path(), logs);
    const std::int64_t first = wait_for_step_after(program, w.dir.file("r"), 0);
    fs::rename(w.dir.file("r"), to);
    if (is_taken) w.train_well({"seed=4"});
    const std::int64_t second = wait_for_step_after(program, to, first + 20);
    wait_for_step_after(program, to, second);
    program.send(SIGTERM);
    const Finished ended = program.wait();
    CHECK(ended.exit_code == 143);
    CHECK(count_of(ended.err, "warning: the run folder r was moved to " + to) == 1);
    check_contains(ended.err, "--run-dir " + to);
    CHECK(fs::exists(to + "/summary.json"));
    check_contains(read_file(to + "/train.log"), "stopped at step");
    CHECK(fs::exists(w.dir.file("r")) == is_taken);
    if (is_taken) check_contains(w.train_well({"seed=4"}).err, "is complete");
    // The run can be resumed at its new place.
    Words again = kEndless;
    again[3] = to;
    const Finished resumed = w.run(with(again, {"--max-steps", "1"}));
    CHECK(resumed.exit_code == 0);
    check_contains(resumed.err, "resuming " + to);
    fs::remove_all(w.dir.file("r"));
  }
}

TEST_CASE("--overwrite by mistake, stopped at once: the old run can be brought back") {
  const KeptRuns w;
  w.train_well({});
  const auto before = contents(w.dir.file("r"));
  const std::string old = checksum_of(w.checkpoint(36));
  const Words mistake = {"seed=4", "checkpoint.every=0"};
  const auto replace = [&] {
    const Finished stopped = w.train_well(with(mistake, {"--overwrite", "--max-steps", "5"}));
    check_contains(stopped.err,
                   "the run that this one replaces is in r/replaced until the next "
                   "regular checkpoint; to bring it back: dpt runs --restore r\n");
    CHECK(fs::exists(w.dir.file("r/replaced/checkpoints/step-00000036.safetensors")));
  };
  replace();
  SUBCASE("restored, the new one is kept aside") {
    const std::string mistaken = checksum_of(w.checkpoint(5));
    const Finished restored = w.run_well({"runs", "--restore", "r"});
    CHECK(restored.out ==
          "restored the previous run in r; what the new run saved is in "
          "r/checkpoints/abandoned-1\n");
    auto after = contents(w.dir.file("r"));
    for (const auto& [name, text] : before) {
      CAPTURE(name);
      CHECK((after[name] == text));
    }
    CHECK(checksum_of(w.dir.file("r/checkpoints/abandoned-1/step-00000005.safetensors")) ==
          mistaken);
    CHECK(fs::exists(w.dir.file("r/checkpoints/abandoned-1/config.yaml")));
    CHECK_FALSE(fs::exists(w.dir.file("r/replaced")));
    const Finished nothing = w.run({"runs", "--restore", "r"});
    CHECK(nothing.exit_code == 2);
    check_contains(nothing.err, "expected a replaced run in r/replaced");
    check_contains(w.train_well({}).err, "is complete");
  }
  SUBCASE("the old one is not trained where it waits") {
    const auto all_but_messages = [&] {
      auto files = contents(w.dir.file("r"));
      files.erase("train.log");
      return files;
    };
    const auto waiting = all_but_messages();
    for (const Words& words :
         {Words{"train", "r/replaced/config.yaml"},
          Words{"train", "small.yaml", "--run-dir", "r/replaced"},
          Words{"train", "small.yaml", "--run-dir", "r", "--resume", "r/replaced"}}) {
      CAPTURE(words.back());
      const Finished refused = w.run(words);
      CHECK(refused.exit_code == 2);
      check_contains(refused.err, "dpt runs --restore ");
    }
    for (const char* part : {"r/checkpoints", "r/checkpoints/abandoned-1", "r/logs/x"}) {
      CAPTURE(part);
      const Finished refused = w.run({"train", "small.yaml", "--run-dir", part});
      CHECK(refused.exit_code == 2);
      check_contains(refused.err, " is a part of the run in ");
    }
    CHECK((all_but_messages() == waiting));
  }
  SUBCASE("a plain train goes on with the new one, and its regular checkpoint ends the old one") {
    w.train_well(with(mistake, {"--max-steps", "7"}));
    CHECK(fs::exists(w.dir.file("r/replaced")));
    CHECK(steps_in(w.dir.file("r/checkpoints")).front() == 7);
    w.train_well(mistake);
    CHECK_FALSE(fs::exists(w.dir.file("r/replaced")));
    CHECK(checksum_of(w.checkpoint(36)) != old);
  }
  SUBCASE("a second --overwrite keeps the oldest and discards the unfinished one") {
    replace();
    w.run_well({"runs", "--restore", "r"});
    CHECK(checksum_of(w.checkpoint(36)) == old);
    CHECK_FALSE(fs::exists(w.dir.file("r/checkpoints/abandoned-2")));
  }
  SUBCASE("a second --overwrite that saves nothing brings the oldest back") {
    CHECK(w.train({"--overwrite", "optimizer.lr=1e20"}).exit_code == 5);
    CHECK(checksum_of(w.checkpoint(36)) == old);
  }
  SUBCASE("a second --overwrite does not start from what it would discard") {
    const Finished refused = w.train(with(mistake, {"--overwrite", "--resume", w.checkpoint(5)}));
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, "belongs to the unfinished run in r, which --overwrite removes");
    CHECK(fs::exists(w.checkpoint(5)));
  }
  SUBCASE("what cannot be restored") {
    CHECK(w.run({"runs", "--restore", "no-such-folder"}).exit_code == 3);
    CHECK_FALSE(fs::exists(w.dir.file("no-such-folder")));
    const json restored = json::parse(w.run_well({"runs", "--restore", "r", "--json"}).out);
    CHECK(restored == json{{"restored", "r"}, {"abandoned", "r/checkpoints/abandoned-1"}});
  }
}

TEST_CASE("checkpoints/ may be a link to another file system, through everything") {
  const KeptRuns w;
  TempDir disk("/dev/shm");
  struct stat here {
  }, there{};
  REQUIRE(stat(w.dir.path().c_str(), &here) == 0);
  REQUIRE(stat(disk.path().c_str(), &there) == 0);
  if (here.st_dev == there.st_dev) MESSAGE("one file system: no move crosses it");
  fs::create_directories(w.dir.file("r"));
  fs::create_directory_symlink(disk.path(), w.dir.file("r/checkpoints"));
  w.train_well({"checkpoint.every_steps=4"});
  REQUIRE(steps_in(disk.path()).size() > 3);
  const std::string old = checksum_of(w.checkpoint(36));
  SUBCASE("a resume of an older file moves the best there") {
    w.train_well({"--resume", w.checkpoint(8), "checkpoint.every_steps=4"});
    CHECK(fs::exists(disk.file("abandoned-1/best.safetensors")));
    check_contains(w.train_well({"checkpoint.every_steps=4"}).err, "is complete");
  }
  SUBCASE("--overwrite keeps the link and what it leads to") {
    const Words other = {"seed=4", "checkpoint.every=0"};
    w.train_well(with(other, {"--overwrite", "--max-steps", "3"}));
    CHECK(fs::is_symlink(w.dir.file("r/checkpoints")));
    CHECK(steps_in(disk.path()) == Steps{3});
    w.run_well({"eval", "r/replaced"});
    w.run_well({"runs", "--restore", "r"});
    CHECK(fs::is_symlink(w.dir.file("r/checkpoints")));
    CHECK(checksum_of(disk.file("step-00000036.safetensors")) == old);
    CHECK(steps_in(disk.file("abandoned-1")) == Steps{3});
    CHECK(fs::exists(disk.file("abandoned-1/config.yaml")));
    CHECK_FALSE(fs::exists(disk.file("replaced")));
    w.train_well(with(other, {"--overwrite"}));
    CHECK(steps_in(disk.path()) == Steps{36});
    const auto is_shown = [](const fs::directory_entry& entry) {
      return entry.path().filename().string().front() != '.';
    };
    CHECK(std::count_if(fs::directory_iterator(disk.path()), {}, is_shown) == 1);
    CHECK_FALSE(fs::exists(w.dir.file("r/replaced")));
  }
}

TEST_CASE("parallel starts with --resume never take a name each") {
  const Workplace w;
  std::vector<TempDir> logs(4);
  std::vector<std::unique_ptr<Program>> programs;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    programs.push_back(
        std::make_unique<Program>(Words{"train", "small.yaml", "--resume", "never", "--max-steps",
                                        "5", "seed=" + std::to_string(i)},
                                  w.dir.path(), logs[i]));
  }
  for (const auto& program : programs) {
    const Finished finished = program->wait();
    INFO(finished.err);
    CHECK(finished.exit_code == 0);
  }
  std::set<std::string> seeds;
  for (const char* name : {"small", "small-2", "small-3", "small-4"}) {
    const std::string config = read_file(w.dir.file(std::string("runs/") + name + "/config.yaml"));
    seeds.insert(config.substr(config.find("\nseed:"), 9));
  }
  CHECK(seeds.size() == 4);
}
