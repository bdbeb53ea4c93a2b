// The parts of dpt train that need no separate process: the start of a run, its results, and its
// continuation.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/train/start_weights.h"
#include "app/train/train_options.h"
#include "app/train/train_report.h"
#include "app/train/train_start.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "tests/cli/program.h"
#include "tests/engine/training/run.h"
#include "tests/support/rewrite.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A job with one replica, its run folder, and the messages printed when it is loaded.
struct Start {
  TempDir dir;
  Job job = small_job(small_config(kSgd), {cpus(1)});
  RunFolder folder{dir.file("r")};
  TrainOptions options;

  TrainStart load() const {
    Progress progress(true);
    progress.also_to(dir.file("messages"));
    return load_start(options, job, folder.path(), progress);
  }
  std::string messages() const { return read_file(dir.file("messages")); }
  /// Returns the message of the Error that loading throws, which must be of the given kind.
  std::string refused(ErrorKind kind) const {
    try {
      load();
    } catch (const Error& error) {
      CHECK(error.kind() == kind);
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string checkpoint(std::int64_t step) const { return folder.checkpoint(step); }
};

/// Returns the folder of a run of seven steps, with five steps per epoch.
TempDir& seven_steps() {
  static TempDir dir;
  static const FinalState state =
      train_small(small_job(small_config(kSgd), {cpus(1)}), dir.file("r"), nullptr, 7);
  CHECK(state.step == 7);
  return dir;
}

void copy_seven_steps(const Start& start) {
  std::filesystem::copy(seven_steps().file("r/checkpoints"), start.folder.checkpoints(),
                        std::filesystem::copy_options::recursive);
}

/// A source whose samples with an odd index cannot be read.
class OddIsBad : public DataSource {
 public:
  OddIsBad(std::int64_t size, DType type) : size_(size), type_(type) {}
  std::int64_t size() const override { return size_; }
  SampleShape shape() const override { return {3, 2, 1}; }
  DType type() const override { return type_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t&) const override {
    CHECK(pixels.size() == (type_ == DType::u8 ? 6 : 24));
    if (index % 2 == 1) fail(ErrorKind::data, "{} is odd", index);
  }
  std::string describe(std::int64_t) const override { return {}; }
  std::vector<std::int64_t> samples_to_try() const override {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < size_; ++i) all.push_back(i);
    return all;
  }
  std::string fingerprint() const override { return {}; }

 private:
  std::int64_t size_;
  DType type_;
  std::vector<std::string> classes_;
};

std::string trial_of(std::int64_t size, DType type = DType::u8) {
  const OddIsBad source(size, type);
  try {
    try_samples({&source}, OnBadSample::stop);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("the kinds of errors have the exit codes that the help lists") {
  const auto code = [](ErrorKind kind) { return static_cast<int>(kind); };
  CHECK(code(ErrorKind::unexpected) == 1);
  CHECK(code(ErrorKind::usage) == 2);
  CHECK(code(ErrorKind::data) == 3);
  CHECK(code(ErrorKind::device) == 4);
  CHECK(code(ErrorKind::diverged) == 5);
  CHECK(code(ErrorKind::peer) == 6);
  CHECK(code(ErrorKind::requirement) == 7);
}

TEST_CASE("a command as a shell needs it: plain words as they are, others in quotes") {
  const std::string plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  CHECK(shell_command({"dpt", plain, "x"}) == "dpt " + plain + " x");
  CHECK(shell_command({}).empty());
  CHECK(shell_command({"a", "", "b"}) == "a '' b");
  CHECK(shell_command({"it's"}) == "'it'\\''s'");
  for (const char c : std::string(" \t\n\"$&()*;<>?[\\]^`{|}~#!")) {
    const std::string word = std::string("x") + c + "y";
    CHECK(shell_command({word}) == "'" + word + "'");
  }
}

TEST_CASE("how a run that ended early continues") {
  Start s;
  const auto hint = [&](std::vector<std::string> words, RunEnd end) {
    s.options.command = std::move(words);
    return how_to_resume(s.options, s.job, s.folder, end);
  };
  const std::string same = "run the same command again to resume";
  s.options.run_dir = "r";
  CHECK(hint({"dpt", "train"}, RunEnd::stopped) == same);
  s.options.resume = "must";
  CHECK(hint({"dpt", "train"}, RunEnd::stopped) == same);
  // The hint omits --max-steps, which would stop the resumed run at once.
  const std::vector<std::string> limited = {"dpt",           "--max-steps", "3",  "a.yaml",
                                            "--max-steps=3", "--max-time",  "1h", "--resume-x"};
  CHECK(hint(limited, RunEnd::max_steps) == "to resume: dpt a.yaml --max-time 1h --resume-x");
  s.options.resume = "never";
  CHECK(hint(limited, RunEnd::stopped) ==
        "to resume: dpt --max-steps 3 a.yaml --max-steps=3 --max-time 1h --resume-x");
  CHECK(hint({"dpt", "--resume=never", "a.yaml", "--resume", "never", "b"}, RunEnd::stopped) ==
        "to resume: dpt a.yaml b");
  s.options.resume = "auto";
  s.options.overwrite = true;
  CHECK(hint({"dpt", "--overwrite", "a.yaml"}, RunEnd::stopped) == "to resume: dpt a.yaml");
  // The command does not name the run folder, so the hint does.
  s.options.run_dir.clear();
  CHECK(hint({"dpt", "a.yaml"}, RunEnd::stopped) ==
        "to resume: dpt a.yaml --run-dir " + s.folder.path());
}

TEST_CASE("results hold what was measured and nothing else") {
  const Start s;
  TrainOutcome outcome;
  outcome.end = RunEnd::stopped;
  outcome.reason = StopReason::terminate;
  outcome.state.step = 12;
  outcome.state.epoch = 2;
  outcome.seconds = 1.5;
  // Parsing makes comparisons ignore the order of the keys.
  const auto summary = [&] {
    return nlohmann::json::parse(summary_of(s.job, s.folder, outcome).dump());
  };
  nlohmann::json expected = {{"v", 1},
                             {"run", "small"},
                             {"folder", s.folder.path()},
                             {"status", "stopped"},
                             {"exit_code", 143},
                             {"epochs", 2},
                             {"steps", 12},
                             {"seconds", 1.5},
                             {"params", s.job.model.plan.param_count},
                             {"devices", {"cpu"}}};
  CHECK(summary() == expected);

  outcome.end = RunEnd::complete;
  outcome.reason = StopReason::none;
  outcome.early_stopped = true;
  RunState& state = outcome.state;
  state.best = 0.75;
  state.best_step = 10;
  state.train_loss = 0.5;
  state.val_loss = 0.25;
  expected["status"] = "ok";
  expected["exit_code"] = 0;
  expected["early_stopped"] = true;
  expected["best"] = {{"val/accuracy", 0.75}, {"step", 10}};
  CHECK(summary() == expected);
  state.train_accuracy = 0.625;
  state.val_accuracy = 0.875;
  state.val_n = 7;
  outcome.test.emplace();
  outcome.test->n = 23;
  outcome.test->loss = 2;
  outcome.test->accuracy = 0.125;
  expected["train"] = {{"loss", 0.5}, {"accuracy", 0.625}};
  expected["val"] = {{"n", 7}, {"loss", 0.25}, {"accuracy", 0.875}};
  expected["test"] = {{"n", 23}, {"loss", 2.0}, {"accuracy", 0.125}};
  CHECK(summary() == expected);
  state.train_loss.reset();
  state.val_loss.reset();
  expected.erase("train");
  expected.erase("val");
  CHECK(summary() == expected);
}

TEST_CASE("the folder of a run: the given one, or runs/NAME, or a new one") {
  const TempDir dir;
  TrainSpec spec;
  spec.name = "no-run-is-called-so";
  TrainOptions options;
  CHECK(choose_folder(options, spec) == "runs/no-run-is-called-so");
  options.resume = "never";
  CHECK(choose_folder(options, spec) == "runs/no-run-is-called-so");
  options.run_dir = dir.file("r");
  CHECK(choose_folder(options, spec) == options.run_dir);
  std::filesystem::create_directory(options.run_dir);
  CHECK(choose_folder(options, spec) == options.run_dir);
  write_file(options.run_dir + "/config.yaml", "");
  CHECK_THROWS_WITH_AS(choose_folder(options, spec), doctest::Contains("already holds a run"),
                       Error);
  options.overwrite = true;
  CHECK(choose_folder(options, spec) == options.run_dir);
  CHECK_NOTHROW(check_options(options));
  options.resume = "must";
  CHECK_THROWS_WITH_AS(check_options(options), doctest::Contains("--overwrite contradicts"), Error);
  options.overwrite = false;
  CHECK_NOTHROW(check_options(options));
  CHECK(choose_folder(options, spec) == options.run_dir);
}

TEST_CASE("--weights: names that are expected, by themselves or up to a star") {
  Start s;
  const std::vector<float> bias = {1, 2, 3, 4};
  s.options.weights = s.dir.file("w.safetensors");
  write_safetensors(s.options.weights, {},
                    {{"fc2.bias", "F32", {4}, bias.data()},
                     {"extra.x", "F32", {2}, bias.data()},
                     {"extra.y", "F32", {4}, bias.data()}});
  s.options.expect_missing = {"conv1.*", "conv2.weight", "conv2.b*", "fc*"};
  s.options.expect_left_over = {"extra.x", "*"};
  const TrainStart start = s.load();
  CHECK(start.checkpoint.empty());
  // A resumed run could not load the weights again, so a rollback never goes back to the start.
  CHECK(start.point.state.rollback_step == -1);
  CHECK(fresh_start(s.job).state.rollback_step == 0);
  const std::vector<float>& params = start.point.params;
  CHECK(std::search(params.begin(), params.end(), bias.begin(), bias.end()) != params.end());
  const std::string said = s.messages();
  check_contains(said, "weights from " + s.options.weights + ": 1 loaded, 7 missing, 2 left over");
  check_contains(said, "  missing from the file: conv1.weight (expected)");
  check_contains(said, "  left over in the file: extra.y (expected)");
  CHECK(count_of(said, "(expected)") == 9);

  // A star matches any characters; a pattern without one matches only that name.
  s.options.expect_missing = {"conv1", "onv1.*", "conv2.w*", "conv2.bias.*", "", "fc*"};
  s.options.expect_left_over = {"extra", "extra.x"};
  const std::string refused = s.refused(ErrorKind::data);
  check_contains(refused,
                 "does not fit the model:\n  missing from the file: conv1.weight\n  missing from "
                 "the file: conv1.bias\n  missing from the file: conv2.bias\n  left over in the "
                 "file: extra.y\nIf this");
}

TEST_CASE("weights: names that the config's patterns do not expect are refused, with what to add") {
  Start s;
  const std::vector<float> values = {1, 2, 3, 4};
  const std::string file = s.dir.file("w.safetensors");
  write_safetensors(file, {},
                    {{"net.fc2.bias", "F32", {4}, values.data()},
                     {"net.conv2.bias", "F32", {7}, std::vector<float>(7).data()},
                     {"extra.x", "F32", {2}, values.data()}});
  s.job.spec.weights.emplace();
  WeightsSpec& weights = *s.job.spec.weights;
  weights.file = file;
  weights.expect_missing = {"conv1.*"};
  const std::string refused = s.refused(ErrorKind::data);
  check_contains(refused, "weights.file " + file +
                              " does not fit the model: its names differ by a prefix. To map them, "
                              "add to the config's `weights`:\n  map: {\"net.\": \"\"}\n"
                              "  missing from the file: conv2.weight\n");
  CHECK_FALSE(contains(refused, "conv1"));
  // The suggested patterns do not match anything that was loaded.
  weights.map = {{"net.", ""}};
  const std::string mapped = s.refused(ErrorKind::data);
  check_contains(mapped, " does not fit the model:\n  missing from the file: conv2.weight\n");
  check_contains(mapped,
                 "\nIf this is intended, add to the config's `weights`:\n"
                 "  expect_missing: [\"conv2.weight\", \"fc1.*\", \"fc2.weight\"]\n"
                 "  expect_left_over: [\"extra.*\"]");
  weights.expect_missing = {"conv1.*", "*.weight", "fc1.*"};
  weights.expect_left_over = {"extra.*"};
  CHECK(s.load().point.state.rollback_step == -1);
  check_contains(s.messages(), "weights from " + file + ": 2 loaded, 6 missing, 1 left over");
  // The command line may supply other patterns.
  weights.expect_left_over.clear();
  check_contains(s.refused(ErrorKind::data), "left over in the file: extra.x");
  s.options.expect_left_over = {"extra.?"};
  s.load();
  s.options.expect_missing = {"fc2.bias", "conv?.weight"};
  s.options.expect_left_over = {"extra.x", "net.*"};
  const std::string idle = s.refused(ErrorKind::data);
  check_contains(idle,
                 ": patterns that match nothing:\n"
                 "  weights.expect_missing: 'fc2.bias' matches no tensor that is missing from the "
                 "file\n"
                 "  weights.expect_left_over: 'net.*' matches no tensor that is left over in the "
                 "file\nCorrect");
  // --weights replaces the file of the same block.
  s.options = {};
  s.options.weights = s.dir.file("none");
  weights.expect_left_over = {"extra.*"};
  check_contains(s.refused(ErrorKind::data), s.options.weights);
  s.options.weights = file;
  weights.file = s.dir.file("none");
  s.load();
  replace_weights_file("", s.job.spec);
  CHECK(weights.file == s.dir.file("none"));
  replace_weights_file("x/../y", s.job.spec);
  CHECK(weights.file == (std::filesystem::current_path() / "y").string());
  s.job.spec.weights.reset();
  replace_weights_file("y", s.job.spec);
  CHECK_FALSE(s.job.spec.weights);
}

TEST_CASE("where a run continues: the newest checkpoint, the one that is named, or none") {
  Start s;
  CHECK(s.load().checkpoint.empty());
  CHECK(s.load().point.state.rollback_step == 0);
  s.options.resume = "must";
  check_contains(s.refused(ErrorKind::data),
                 "--resume must: " + s.folder.checkpoints() + " has no checkpoint");
  s.options.resume = s.dir.file("none.safetensors");
  check_contains(s.refused(ErrorKind::usage), "found no such file");
  s.options.resume = s.dir.path();
  check_contains(s.refused(ErrorKind::usage), s.dir.path() + "/checkpoints has no checkpoint");

  std::filesystem::create_directories(s.folder.checkpoints());
  std::filesystem::remove(s.folder.checkpoints());
  copy_seven_steps(s);
  for (const char* resume : {"auto", "must"}) {
    s.options.resume = resume;
    const TrainStart newest = s.load();
    CHECK(newest.checkpoint == s.checkpoint(7));
    CHECK(newest.point.state.step == 7);
    CHECK(newest.point.state.epoch == 1);
    CHECK_FALSE(newest.point.keep_forever);
  }
  s.options.resume = s.checkpoint(3);
  const TrainStart named = s.load();
  CHECK(named.checkpoint == s.checkpoint(3));
  CHECK(named.point.state.step == 3);
  CHECK(named.point.keep_forever);
  s.options.overwrite = true;
  CHECK(s.load().checkpoint == s.checkpoint(3));
  s.options.resume = "auto";
  CHECK(s.load().checkpoint.empty());
  s.options.overwrite = false;
  s.options.resume = "never";
  CHECK(s.load().checkpoint.empty());

  // Weights only apply to a fresh start.
  CHECK_FALSE(contains(s.messages(), "is not used"));
  s.options.resume = "auto";
  s.options.weights = s.dir.file("no-such-file");
  CHECK(s.load().point.state.step == 7);
  check_contains(s.messages(), "--weights " + s.options.weights +
                                   " is ignored: the run resumes from " + s.checkpoint(7));
}

TEST_CASE("damaged checkpoints do not lead to a fresh start") {
  Start s;
  std::filesystem::create_directories(s.folder.checkpoints());
  write_file(s.checkpoint(5), "half");
  check_contains(s.refused(ErrorKind::data),
                 s.folder.checkpoints() + " has checkpoints, but none of them is good");
  s.options.resume = "never";
  CHECK(s.load().checkpoint.empty());
  s.options.resume = "auto";
  s.options.overwrite = true;
  CHECK(s.load().checkpoint.empty());
}

TEST_CASE("if a checkpoint does not name the monitor of its best, its config does") {
  Start s;
  copy_seven_steps(s);
  const std::string path = s.checkpoint(7);
  rewrite_checkpoint(path, path, [](Metadata& metadata, auto&) {
    REQUIRE(metadata.at("dpt.best_monitor") == "val/accuracy max");
    metadata.at("dpt.version") = "1.1";
    for (const char* key : {"dpt.best_monitor", "dpt.early_monitor"}) metadata.erase(key);
  });
  const TrainStart start = s.load();
  REQUIRE(start.point.state.best.has_value());
  CHECK(start.point.state.best_monitor == "val/accuracy max");
}

TEST_CASE("samples that are tried: a line for each bad one, and no more than can be read") {
  try_samples({nullptr}, OnBadSample::stop);
  CHECK(trial_of(1).empty());
  CHECK(trial_of(1, DType::f32).empty());
  CHECK(trial_of(4) == "1 is odd\n3 is odd");
  const std::string most = trial_of(40);
  CHECK(count_of(most, " is odd") == 20);
  CHECK(most.ends_with("\n39 is odd"));
  const std::string more = trial_of(45);
  CHECK(count_of(more, " is odd") == 20);
  CHECK(more.ends_with("\n39 is odd\n(and 2 more)"));
}

TEST_CASE("--devices is the last override") {
  using Texts = std::vector<std::string>;
  CHECK(with_devices({"a=1"}, "") == Texts{"a=1"});
  CHECK(with_devices({"devices=[cuda]", "a=1"}, "cpu,cpu:2") ==
        Texts{"devices=[cuda]", "a=1", "devices=[cpu,cpu:2]"});
}
