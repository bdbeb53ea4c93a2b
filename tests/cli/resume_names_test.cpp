// Names that --resume accepts, its message for others, and ways back: to the best if the other
// checkpoints are damaged, and to an abandoned branch.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/kept_runs.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Changes one byte of a checkpoint, counted from its end; 1 is the last byte, which is data.
void change_byte(const std::string& path, std::size_t from_end = 1) {
  std::string bytes = read_file(path);
  REQUIRE(bytes.size() > from_end);
  char& byte = bytes[bytes.size() - from_end];
  byte = static_cast<char>(byte ^ 1);
  write_file(path, bytes);
}

/// Changes the first brace of a checkpoint's header.
void damage_header(const std::string& path) {
  change_byte(path, read_file(path).size() - 8);
}

/// Returns the last of the message's lines that are indented by two spaces, without the indent.
std::string command_in(const std::string& text) {
  const std::size_t begin = text.rfind("\n  ");
  REQUIRE(begin != std::string::npos);
  return text.substr(begin + 3, text.find('\n', begin + 1) - begin - 3);
}

std::vector<std::int64_t> logged_steps(const std::vector<json>& events) {
  std::vector<std::int64_t> steps;
  for (const json& event : events) steps.push_back(event["step"]);
  return steps;
}

}  // namespace

TEST_CASE("--resume: a step, a bare name, a part of the path, best, a folder") {
  const KeptRuns w;
  w.train_well({});
  const auto resumed = [&](const std::string& name, const std::string& file, int step) {
    CAPTURE(name);
    const std::string copy = "c";
    fs::remove_all(w.dir.file(copy));
    fs::copy(w.dir.file("r"), w.dir.file(copy), fs::copy_options::recursive);
    const Finished done = w.train_well(
        {"--resume", name, "train.epochs=4", "--max-steps", std::to_string(step + 1)}, copy);
    check_contains(done.err, fmt::format("resuming {} at step {} ", file, step));
  };
  const std::string place = "c/checkpoints/" + dpt::checkpoint_name(12);
  resumed("12", place, 12);
  resumed("step-12", place, 12);
  resumed("step-00000012", place, 12);
  resumed("step-00000012.safetensors", place, 12);
  resumed("checkpoints/step-00000012.safetensors", place, 12);
  const auto best = static_cast<int>(state_of(w.best()).step);
  if (best < 36) resumed("best", "c/best.safetensors", best);
  resumed("c/checkpoints", "c/checkpoints/" + dpt::checkpoint_name(36), 36);

  // A run folder stands for its newest checkpoint. Given to the run itself, it stands for the
  // checkpoint that a plain resume uses.
  const Finished other =
      w.train_well({"--resume", "r", "train.epochs=4", "--max-steps", "37"}, "n");
  check_contains(other.err, "resuming r/checkpoints/" + dpt::checkpoint_name(36) + " at step 36");
  CHECK(steps_in(w.dir.file("n/checkpoints")) == Steps{37, 36});
  check_contains(w.train_well({"--resume", "r"}).err, "is complete");

  // An existing file of exactly that name takes precedence.
  fs::copy_file(w.checkpoint(24), w.dir.file("12"));
  const Finished file = w.train_well({"--resume", "12", "--max-steps", "25"}, "m");
  check_contains(file.err, "resuming 12 at step 24 ");
}

TEST_CASE("--resume: the message for an unknown name lists those that exist") {
  const KeptRuns w;
  w.train_well({});
  w.train_well({"--resume", "12", "--max-steps", "20"});
  for (const char* name : {"28", "step-00000028.safetensors", "runs/sc", "bset"}) {
    const Finished bad = w.train({"--resume", name});
    CHECK(bad.exit_code == 2);
    check_contains(bad.err, fmt::format("--resume {}: expected auto, never, must, a checkpoint "
                                        "file, a step of the run, best, or another run's folder, "
                                        "found no such file; r/checkpoints has steps 12, 20; "
                                        "r/checkpoints/abandoned-1 has steps 24, 36",
                                        name));
  }
  fs::create_directory(w.dir.file("empty"));
  const Finished empty = w.train({"--resume", "empty"});
  CHECK(empty.exit_code == 2);
  check_contains(
      empty.err,
      "--resume empty: expected a run folder with a good checkpoint, but empty/checkpoints "
      "has no checkpoint");
  const Finished fresh = w.train({"--resume", "3"}, "new");
  CHECK(fresh.exit_code == 2);
  check_contains(fresh.err, "new/checkpoints has no checkpoint");
}

TEST_CASE(
    "damaged checkpoints: the message names the good best and the command to continue from it") {
  const KeptRuns w;
  w.train_well({});
  const std::int64_t step = state_of(w.best()).step;
  for (const std::int64_t each : {12, 24, 36}) change_byte(w.checkpoint(each));
  damage_header(w.checkpoint(24));
  const auto before = contents(w.dir.file("r"));
  for (const char* resume : {"auto", "must"}) {
    const Finished bad = w.train({"train.epochs=4", "--resume", resume});
    CHECK(bad.exit_code == 3);
    check_contains(bad.err,
                   "r/checkpoints has checkpoints, but none of them is good (see above). "
                   "r/best.safetensors is good: step " +
                       std::to_string(step));
    CHECK_FALSE(contains(bad.err, "--overwrite"));
    check_contains(command_in(bad.err), " train small.yaml --run-dir r train.epochs=3");
    check_contains(command_in(bad.err), " train.epochs=4 --resume r/best.safetensors");
  }
  for (const char* damaged : {"36", "24"}) {
    const Finished one = w.train({"--resume", damaged});
    CHECK(one.exit_code == 3);
    check_contains(one.err, "there is no good checkpoint in its folder, but r/best.safetensors is");
  }
  auto after = contents(w.dir.file("r"));
  after["train.log"] = before.at("train.log");
  CHECK((after == before));

  // The suggested command works, and the damaged files are not lost.
  const Finished again = w.train_well({"train.epochs=4", "--resume", "r/best.safetensors"});
  check_contains(again.err, "resuming r/best.safetensors at step " + std::to_string(step));
  CHECK(w.summary()["epochs"] == 4);
}

TEST_CASE("damaged checkpoints and best: the newest of an abandoned branch is named, else none") {
  const KeptRuns w;
  w.train_well({});
  w.train_well({"--resume", "12", "--max-steps", "20"});
  for (const std::int64_t each : {12, 20}) change_byte(w.checkpoint(each));
  change_byte(w.best());
  const std::string branch = "r/checkpoints/abandoned-1/";
  for (const auto& entry : fs::directory_iterator(w.dir.file(branch))) {
    if (entry.path().filename() == "best.safetensors") change_byte(entry.path().string());
  }
  const Finished bad = w.train({});
  CHECK(bad.exit_code == 3);
  check_contains(bad.err, branch + dpt::checkpoint_name(36) + " is good: step 36, epoch 3.");
  for (const std::int64_t each : {24, 36})
    change_byte(w.dir.file(branch + dpt::checkpoint_name(each)));
  const Finished none = w.train({});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "Start a new run with --overwrite or --resume never");
}

TEST_CASE("back to a branch that was left: its log lines come back, each step once") {
  const KeptRuns w;
  const Words logged = {"log.every=1"};
  const auto train = [&](Words more) {
    more.insert(more.end(), logged.begin(), logged.end());
    return w.train_well(more).err;
  };
  train({});
  const std::string whole = read_file(w.dir.file("r/metrics.jsonl"));
  const std::string left = train({"--resume", "12", "--max-steps", "20"});
  check_contains(left, "1 abandoned branch takes ");
  check_contains(left, " and stays until you remove it: rm -r r/checkpoints/abandoned-*");
  CHECK(logged_steps(w.events("step")).size() == 20);

  const std::string branch = "r/checkpoints/abandoned-1/" + dpt::checkpoint_name(24);
  const std::string back = train({"--resume", branch});
  check_contains(back, "2 abandoned branches take ");
  check_contains(back, " of this branch again; ");
  std::vector<std::int64_t> all(36);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i) + 1;
  CHECK(logged_steps(w.events("step")) == all);
  std::vector<std::int64_t> epochs;
  for (const json& event : w.events("epoch")) epochs.push_back(event["epoch"]);
  CHECK(epochs == Steps{1, 2, 3});
  // metrics.abandoned.jsonl has the repeated steps of this branch and the steps of the other
  // branch. It lists each of them only once.
  std::vector<std::int64_t> gone = logged_steps(w.events("step", "r", "metrics.abandoned.jsonl"));
  std::sort(gone.begin(), gone.end());
  Steps expected;
  for (std::int64_t step = 13; step <= 20; ++step) expected.push_back(step);
  for (std::int64_t step = 25; step <= 36; ++step) expected.push_back(step);
  CHECK(gone == expected);

  // Return to the other branch, whose log is next to its checkpoint.
  const std::string other = "r/checkpoints/abandoned-2/" + dpt::checkpoint_name(20);
  train({"--resume", other, "--max-steps", "20"});
  CHECK(logged_steps(w.events("step")) == Steps(all.begin(), all.begin() + 20));
  CHECK(fs::exists(w.dir.file("r/checkpoints/abandoned-1/metrics.jsonl")));
}

TEST_CASE("back to a branch that was left: the ancestors of both lines stay where they are") {
  const KeptRuns w;
  const auto train = [&](Words more) {
    more.insert(more.end(), {"checkpoint.every_steps=4", "log.every=1"});
    return w.train_well(more).err;
  };
  train({});
  const std::string old_16 = checksum_of(w.checkpoint(16));
  train({"--resume", "12", "--max-steps", "18"});
  REQUIRE(steps_in(w.dir.file("r/checkpoints")) == Steps{18, 16, 12, 8, 4});
  const auto time_of_12 = fs::last_write_time(w.checkpoint(12));
  SUBCASE("with its log") {
    // Steps 13 to 24 come back from the log of their branch, without metrics.abandoned.jsonl.
    fs::remove(w.dir.file("r/metrics.abandoned.jsonl"));
    const std::string back = train({"--resume", "abandoned-1/step-00000024", "--max-steps", "25"});
    CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{25, 24, 12, 8, 4});
    CHECK(steps_in(w.dir.file("r/checkpoints/abandoned-2")) == Steps{18, 16});
    CHECK(fs::last_write_time(w.checkpoint(12)) == time_of_12);
    check_contains(back, "the checkpoints of steps 16, 18, which are not its ancestors");
    std::istringstream lines(read_file(w.dir.file("r/checkpoints/abandoned-1/metrics.jsonl")));
    std::int64_t count = 0;
    for (std::string line; std::getline(lines, line);) {
      const std::int64_t step = json::parse(line).value("step", std::int64_t{-1});
      if (step > 12 && step <= 24) ++count;
    }
    check_contains(back,
                   "metrics.jsonl has " + std::to_string(count) + " lines of this branch again");
  }
  SUBCASE("a file of the same step that the other line has saved again is not an ancestor") {
    train({"--resume", "abandoned-1/step-00000020", "--max-steps", "21"});
    CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{21, 20, 12, 8, 4});
    CHECK(checksum_of(w.dir.file("r/checkpoints/abandoned-1/step-00000016.safetensors")) == old_16);
  }
  SUBCASE("without its log, all of the other line moves") {
    fs::remove(w.dir.file("r/checkpoints/abandoned-1/metrics.jsonl"));
    train({"--resume", "abandoned-1/step-00000024", "--max-steps", "25"});
    CHECK(steps_in(w.dir.file("r/checkpoints")) == Steps{25, 24});
    CHECK(steps_in(w.dir.file("r/checkpoints/abandoned-2")) == Steps{18, 16, 12, 8, 4});
  }
}

TEST_CASE("back to a branch whose best is an ancestor that is moved aside: the best stays") {
  const KeptRuns w;
  w.train_well({"checkpoint.every_steps=4", "checkpoint.keep_last=40"});
  const Words more = {"checkpoint.every_steps=4", "checkpoint.keep_last=40"};
  const auto train = [&](Words words) {
    words.insert(words.end(), more.begin(), more.end());
    return w.train_well(words).err;
  };
  const auto best_of_branch = state_of(w.checkpoint(16)).best_step;
  train({"--resume", "12", "--max-steps", "14"});
  // Without the log of the branch, its ancestors are unknown, so they are moved aside.
  fs::remove(w.dir.file("r/checkpoints/abandoned-1/metrics.jsonl"));
  const std::string back =
      train({"--resume", "abandoned-1/" + dpt::checkpoint_name(16), "--max-steps", "17"});
  CHECK(back.find("was not found") == std::string::npos);
  CHECK(state_of(w.best()).step == best_of_branch);
}

TEST_CASE("names of 255 bytes work; one that no checkpoint could hold is refused before training") {
  const KeptRuns w;
  const std::string longest(255, 'n');
  const std::string layer = "model.layers.fc1.name=";
  w.train_well({layer + longest, "--max-steps", "2"}, longest);
  w.train_well({layer + longest, "--max-steps", "3"}, longest);
  check_contains(w.run_well({"eval", longest}).out, ": test split, 40 samples");
  w.run_well({"export", longest, "--onnx", std::string(246, 'n') + ".onnx"});
  // The name "optim.momentum_buffer.NAME.weight" has more than 1,024 bytes.
  const Finished bad = w.train({layer + std::string(1000, 'n'), "--max-steps", "2"}, "bad");
  CHECK(bad.exit_code == 2);
  check_contains(bad.err, "a checkpoint could not hold its tensor 'optim.momentum_buffer.nnn");
  check_contains(bad.err, "expected a name of at most 1024 bytes, found 1029");
  CHECK(steps_in(w.dir.file("bad/checkpoints")).empty());
}

TEST_CASE("if only the best of a run is left, a new run says where it is and how to resume it") {
  const KeptRuns w;
  w.train_well({"log.every=1"});
  const std::int64_t step = state_of(w.best()).step;
  fs::remove_all(w.dir.file("r/checkpoints"));
  const Finished must = w.train({"--resume", "must"});
  CHECK(must.exit_code == 3);
  check_contains(must.err, "--resume must: r/checkpoints has no checkpoint. r/best.safetensors is");
  check_contains(command_in(must.err), " --resume r/best.safetensors");
  const Finished plain = w.train({"log.every=1"});
  CHECK(plain.exit_code == 3);
  check_contains(plain.err, "r/checkpoints has no checkpoint, but the run has saved step 36 there");
  check_contains(command_in(plain.err), " --resume r/best.safetensors");
  CHECK(w.events("step").size() == 36);

  // Change the log to that of a run whose only checkpoint was its best.
  std::string lines;
  std::istringstream log(read_file(w.dir.file("r/metrics.jsonl")));
  for (std::string line; std::getline(log, line);) {
    if (line.find(R"("event":"checkpoint")") == std::string::npos) lines += line + "\n";
  }
  write_file(w.dir.file("r/metrics.jsonl"), lines);
  const std::string moved = "r/checkpoints/abandoned-1/best.safetensors";
  const Finished fresh = w.train_well({"log.every=1", "--max-steps", "2"});
  check_contains(fresh.err, fmt::format("moved to {} (step {}; --resume {} continues from it)",
                                        moved, step, moved));
  w.train_well({"log.every=1", "--resume", moved});
  CHECK(w.events("step").size() == 36);
  CHECK(w.events("epoch").size() == 3);
}
