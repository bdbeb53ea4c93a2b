// A run that diverges, from the user's view: exit code, report, log, and the ways to continue.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/outcome.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

/// A run whose weights grow by a factor of several hundred per step, unless the learning rate is
/// lower.
struct DivergingRuns : Workplace {
  Finished train(std::vector<std::string> more, const std::string& devices = "cpu,cpu") const {
    std::vector<std::string> words = {"train",
                                      "small.yaml",
                                      "--run-dir",
                                      "r",
                                      "--devices",
                                      devices,
                                      "optimizer={type: SGD, lr: 100, weight_decay: 1}",
                                      "train.epochs=3",
                                      "log.every=1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_dpt(words, dir.path());
  }
  std::string log() const { return dir.file("r/metrics.jsonl"); }
  std::set<std::string> checkpoints() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir.file("r/checkpoints"))) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
};

constexpr const char* kRollback = "train.on_divergence.policy=rollback";
constexpr const char* kFactor = "train.on_divergence.lr_factor=0.01";

}  // namespace

TEST_CASE("a run that diverges ends with 5, repeats itself, and continues with another policy") {
  const DivergingRuns w;
  const Finished first = w.train({});
  CHECK(first.exit_code == 5);
  check_contains(first.err, "training diverged at step ");
  check_contains(first.err, "The last checkpoint is good");
  check_contains(first.err, "synthetic training data, sample ");
  const json report = events(w.log(), "diverged").at(0);
  const std::int64_t step = report["step"];
  CHECK(step > 5);
  CHECK(report["loss"].is_null());
  CHECK(report["batch_samples"].size() == 16);
  CHECK(events(w.log(), "run_end").at(0)["exit_code"] == 5);
  for (const std::string& name : w.checkpoints()) {
    CHECK(run_dpt({"inspect", w.dir.file("r/checkpoints/" + name)}, w.dir.path()).exit_code == 0);
  }

  const Finished again = w.train({});
  CHECK(again.exit_code == 5);
  check_contains(again.err, "resuming");
  check_contains(again.err, "training diverged at step " + std::to_string(step) + " ");

  const Finished on = w.train({kRollback, kFactor});
  INFO(on.err);
  CHECK(on.exit_code == 0);
  check_contains(on.err, "resuming");
  check_contains(on.err, "diverged: the loss is ");
  const json back = events(w.log(), "rollback").at(0);
  CHECK(back["bad_step"] == step);
  // The rollback returns to the last regular checkpoint that was followed by a good step.
  const std::int64_t regular = (step - 2) / 5 * 5;
  CHECK(back["step"] == regular);
  CHECK(back["lr_scale"] == 0.01);
  // Each step occurs once, with the learning rate with which it was finally trained.
  std::set<std::int64_t> steps;
  for (const json& line : events(w.log(), "step")) {
    CHECK(steps.insert(line["step"].get<std::int64_t>()).second);
    CHECK(line["lr"] == (line["step"] <= regular ? 100.0 : 1.0));
    CHECK_FALSE(line.contains("nonfinite"));
  }
  CHECK(*steps.rbegin() == 36);
}

TEST_CASE("rollback: stopped, killed or undisturbed, on any replicas, the last weights are equal") {
  const DivergingRuns whole;
  const Finished done = whole.train({kRollback, kFactor});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const json back = events(whole.log(), "rollback").at(0);
  const std::string last = "r/checkpoints/step-00000036.safetensors";
  const auto weights = [&](const DivergingRuns& w) {
    // The header lists the devices, and the last 16 bytes are the checksum of the whole file.
    const std::string file = read_file(w.dir.file(last));
    std::uint64_t header = 0;
    REQUIRE(file.size() > 1000);
    std::memcpy(&header, file.data(), sizeof(header));
    return file.substr(8 + header, file.size() - 8 - header - 16);
  };
  for (const char* stop : {"6", "8", "20"}) {
    CAPTURE(stop);
    const DivergingRuns parts;
    CHECK(parts.train({kRollback, kFactor, "--max-steps", stop}, "cpu").exit_code == 0);
    const Finished rest = parts.train({kRollback, kFactor}, "cpu,cpu,cpu");
    INFO(rest.err);
    CHECK(rest.exit_code == 0);
    CHECK(events(parts.log(), "rollback").back()["bad_step"] == back["bad_step"]);
    CHECK((weights(parts) == weights(whole)));
  }
}

TEST_CASE("rollback: two processes go back together, to the bits of one") {
  const DivergingRuns one, two;
  // The run first rolls back to the start, which each process could recreate, and then to a
  // checkpoint that only one process has.
  const std::vector<std::string> settings = {kRollback, "train.on_divergence.lr_factor=0.1",
                                             "checkpoint.every_steps=4"};
  std::vector<std::string> twice = settings;
  twice.insert(twice.end(), {"--nproc", "2"});
  const Finished done = one.train(settings), both = two.train(twice);
  INFO(both.err);
  CHECK(done.exit_code == 0);
  CHECK(both.exit_code == 0);
  const auto steps = [](const DivergingRuns& w) {
    std::vector<std::int64_t> found;
    for (const json& back : events(w.log(), "rollback")) found.push_back(back["step"]);
    return found;
  };
  CHECK_FALSE(steps(one).empty());
  CHECK(steps(two) == steps(one));
  CHECK((outcome_of(two.dir.file("r")) == outcome_of(one.dir.file("r"))));
  // Only the first process knows that a rollback would not help, but both end.
  const DivergingRuns halted;
  const Finished ended =
      halted.train({kRollback, "--nproc", "2",
                    "data.transforms.train=[{type: Normalize, mean: [0.5], std: [1.0e-38]}]"});
  CHECK(ended.exit_code == 5);
  check_contains(ended.err, "A rollback would go back to right before this step");
}

TEST_CASE("rollback keeps the checkpoint that it would go back to, with keep_last: 1 too") {
  const DivergingRuns w;
  CHECK(w.train({kRollback, kFactor, "checkpoint.keep_last=1", "--max-steps", "7"}).exit_code == 0);
  const auto names = w.checkpoints();
  CHECK(names.count("step-00000005.safetensors") == 1);
  CHECK(names.count("step-00000007.safetensors") == 1);
  const Finished rest = w.train({kRollback, kFactor, "checkpoint.keep_last=1"});
  INFO(rest.err);
  CHECK(rest.exit_code == 0);
  CHECK(events(w.log(), "rollback").size() == 1);
  CHECK(rest.err.find("it will go back to") == std::string::npos);
}

TEST_CASE("rollback: a learning rate that would become zero ends the run, which stays readable") {
  const Tiny w;
  const std::vector<std::string> command = {
      "train",
      "small.yaml",
      "--run-dir",
      "r",
      kRollback,
      "train.epochs=4",
      "train.on_divergence.max_rollbacks=5",
      "lr_schedule={type: multistep, milestones: [3], gamma: 1.0e+300}"};
  const auto with = [&](const char* factor) {
    return w.run(command, {std::string("train.on_divergence.lr_factor=") + factor});
  };
  const Finished ended = with("1e-200");
  CHECK(ended.exit_code == 5);
  check_contains(ended.err,
                 "The learning rate is down to 1e-200 of the schedule's, and "
                 "train.on_divergence.lr_factor (1e-200) would make it zero");
  check_contains(ended.err, "To get past it, raise train.on_divergence.lr_factor, or add");
  CHECK(events(w.dir.file("r/metrics.jsonl"), "rollback").size() == 1);
  // The advice in the message works: all checkpoints are good.
  const Finished on = with("1e-100");
  INFO(on.err);
  CHECK(on.exit_code == 0);
}

TEST_CASE("a run that fails leaves no summary of an earlier end") {
  const DivergingRuns w;
  CHECK(w.train({"--max-steps", "3"}).exit_code == 0);
  CHECK(std::filesystem::exists(w.dir.file("r/summary.json")));
  CHECK(w.train({}).exit_code == 5);
  CHECK_FALSE(std::filesystem::exists(w.dir.file("r/summary.json")));
}

TEST_CASE("a factor of 1 or more is refused, since it changes nothing") {
  const DivergingRuns w;
  const Finished refused = w.train({kRollback, "train.on_divergence.lr_factor=1"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "lr_factor");
  CHECK(w.train({"train.on_divergence.policy=stop"}).exit_code == 2);
}
