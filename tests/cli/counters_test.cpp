// Checkpoints that are well-formed but wrong, or from an older release; learning rate and
// conditions of a resumed run.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <tuple>

#include "app/base/command_support.h"
#include "app/gate/conditions.h"
#include "engine/checkpoints/safetensors.h"
#include "tests/cli/workplace.h"
#include "tests/support/rewrite.h"

using namespace dpt;
using namespace dpt::testing;
using nlohmann::json;

namespace {

/// Rewrites a checkpoint with other metadata and a correct checksum.
template <class Change>
void rewrite(const std::string& path, Change change) {
  rewrite_checkpoint(path, path, [&](Metadata& metadata, auto&) { change(metadata); });
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
}

/// A run with 180 samples in batches of 16, stopped after 14 of 24 steps, two steps into the second
/// epoch.
struct Stopped : Workplace {
  const std::string checkpoint = "runs/small/checkpoints/step-00000014.safetensors";
  const std::vector<std::string> command = {"train", "small.yaml", "train.epochs=2"};
  Stopped() { REQUIRE(run(command, {"--max-steps", "14"}).exit_code == 0); }
  void set(const std::string& key, const std::string& value) const {
    rewrite(dir.file(checkpoint), [&](Metadata& metadata) { metadata.at(key) = value; });
  }
};

}  // namespace

TEST_CASE("a well-formed checkpoint whose counters are impossible is refused by name") {
  const Stopped w;
  // Invalid values are refused by every command.
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"dpt.position", "-1280000"},
                                                        {"dpt.step", "-50"},
                                                        {"dpt.epoch", "-1"},
                                                        {"dpt.best_step", "15"},
                                                        {"dpt.bad_evaluations", "-2"},
                                                        {"dpt.epoch_loss_sum", "nan"},
                                                        {"dpt.epoch_correct", "33"}}) {
    CAPTURE(key);
    const std::string good = read_file(w.dir.file(w.checkpoint));
    w.set(key, value);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"inspect", w.checkpoint},
          {"eval", w.checkpoint},
          {"train", "small.yaml", "train.epochs=2", "--resume", w.checkpoint}}) {
      CAPTURE(command[0]);
      const Finished refused = w.run(command);
      CHECK(refused.exit_code == 3);
      check_contains(refused.err, w.checkpoint + ": metadata '" + key + "': expected ");
      check_contains(refused.err, ", found " + value);
    }
    write_file(w.dir.file(w.checkpoint), good);
  }
  // Values that do not fit the run's samples are refused on resume.
  for (const auto& [key, value, expected] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"dpt.position", "99999999", "expected 0 to 180, the number of training samples"},
           {"dpt.position", "181", "expected 0 to 180, the number of training samples"},
           {"dpt.position", "33", "expected a multiple of data.batch_size (16), or 180"},
           {"dpt.step", "15", "expected 0 to 14 (1 epoch of 12 steps, and 32 samples"},
           {"dpt.step", "99999999", "expected 0 to 14"}}) {
    CAPTURE(key);
    CAPTURE(value);
    const std::string good = read_file(w.dir.file(w.checkpoint));
    w.set(key, value);
    const Finished refused = w.run(w.command);
    CHECK(refused.exit_code == 3);
    check_contains(refused.err, w.checkpoint + ": metadata '" + key + "': " + expected);
    check_contains(refused.err, ", found " + value);
    write_file(w.dir.file(w.checkpoint), good);
  }
  CHECK(w.run(w.command).exit_code == 0);
}

TEST_CASE("a checkpoint that lost the name of its checksum is damaged, not foreign") {
  const Stopped w;
  std::string bytes = read_file(w.dir.file(w.checkpoint));
  bytes[bytes.find("dpt.integrity") + 4] = 'h';
  write_file(w.dir.file(w.checkpoint), bytes);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"inspect", w.checkpoint},
        {"inspect", w.checkpoint, "--json"},
        {"eval", w.checkpoint},
        {"train", "small.yaml", "train.epochs=2", "--resume", w.checkpoint},
        {"train", "small.yaml", "--run-dir", "other", "--weights", w.checkpoint}}) {
    CAPTURE(command[0]);
    const Finished refused = w.run(command);
    CHECK(refused.exit_code == 3);
    check_contains(refused.err, w.checkpoint + ": expected the checksum tensor 'dpt.integrity'");
  }
}

TEST_CASE("a run of a release in which device_weights was called shares continues") {
  const Stopped w;
  rewrite(w.dir.file(w.checkpoint), [](Metadata& metadata) {
    metadata["dpt.shares"] = metadata.at("dpt.device_weights");
    metadata.erase("dpt.device_weights");
    metadata["dpt.version"] = "1.1";
    replace(metadata.at("dpt.config"), "\ndevice_weights: auto", "\nshares: auto");
  });
  const Finished eval = w.run({"eval", w.checkpoint, "--json"});
  INFO(eval.err);
  CHECK(eval.exit_code == 0);
  const Finished resumed = w.run(w.command);
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  check_contains(resumed.err, "at step 14");
  const Finished config = w.run(w.command, {"shares=[1, 1]"});
  CHECK(config.exit_code == 2);
  check_contains(config.err, "the key 'shares' was renamed: write 'device_weights'");
}

TEST_CASE("device weights that an earlier release measured are used on the same devices only") {
  const Workplace w;
  const std::string checkpoint = "runs/small/checkpoints/step-00000014.safetensors";
  const std::vector<std::string> on_two = {"train", "small.yaml", "train.epochs=2",
                                           "devices=[cpu,cpu]"};
  REQUIRE(w.run(on_two, {"--max-steps", "14"}).exit_code == 0);
  rewrite(w.dir.file(checkpoint), [](Metadata& m) { m.at("dpt.device_weights") = "3,1"; });
  const auto weights_of_last_start = [&] {
    return events(w.dir.file("runs/small/metrics.jsonl"), "run_start").back()["device_weights"];
  };
  REQUIRE(w.run(on_two, {"--max-steps", "2"}).exit_code == 0);
  CHECK(weights_of_last_start() == json::array({3, 1}));
  // The device weights stay in the checkpoints of the run.
  REQUIRE(w.run(on_two, {"--max-steps", "2"}).exit_code == 0);
  CHECK(weights_of_last_start() == json::array({3, 1}));
  const Finished on_three = w.run(on_two, {"devices=[cpu,cpu,cpu]", "--max-steps", "2"});
  INFO(on_three.err);
  REQUIRE(on_three.exit_code == 0);
  CHECK(weights_of_last_start() == json::array({1, 1, 1}));
}

TEST_CASE("the fields themselves say which of them may change on resume") {
  const Stopped w;
  const Finished refused = w.run(w.command, {"optimizer.lr=0.01"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "optimizer.lr: 0.05 -> 0.01");
  for (const char* field : {"data.root", "data.workers", "data.prefetch", "train.epochs",
                            "checkpoint", "log", "devices", "device_weights"}) {
    check_contains(refused.err.substr(refused.err.find("may change only")), field);
  }
}

TEST_CASE("more epochs under a schedule over the whole run: the change of rate is reported") {
  const Workplace w;
  const std::vector<std::string> cosine = {"lr_schedule.type=cosine"};
  REQUIRE(w.run({"train", "small.yaml", "train.epochs=2"}, cosine).exit_code == 0);
  const Finished unsaid = w.run({"train", "small.yaml", "train.epochs=4"}, cosine);
  CHECK(unsaid.exit_code == 2);
  check_contains(unsaid.err,
                 "the learning rate of step 25 is 0.025, where the run so far would have used 0. "
                 "Choose one: train.on_more_epochs=stretch");
  CHECK(w.run({"train", "small.yaml", "train.epochs=4", "--dry-run"}, cosine).exit_code == 2);
  const Finished more =
      w.run({"train", "small.yaml", "train.epochs=4", "train.on_more_epochs=stretch"}, cosine);
  INFO(more.err);
  CHECK(more.exit_code == 0);
  check_contains(
      more.err,
      "train.epochs was 2 and is now 4 (train.on_more_epochs: stretch): the learning rate of "
      "step 25 is 0.025, that of step 48 is ");
  // No message is needed if the epochs are the same, or if the schedule does not depend on them.
  const Finished again = w.run({"train", "small.yaml", "train.epochs=4"}, cosine);
  CHECK(again.err.find("learning rate of step") == std::string::npos);
  REQUIRE(w.run({"train", "small.yaml", "train.epochs=1", "--run-dir", "c"}).exit_code == 0);
  const Finished constant = w.run({"train", "small.yaml", "train.epochs=2", "--run-dir", "c"});
  CHECK(constant.exit_code == 0);
  CHECK(constant.err.find("learning rate of step") == std::string::npos);
}

TEST_CASE("--require at its bound, on NaN and on what was not measured") {
  const auto met = [](const std::string& text, double value) {
    return parse_condition(text).is_met(value);
  };
  CHECK(met("val/accuracy>=0.5", 0.5));
  CHECK_FALSE(met("val/accuracy>0.5", 0.5));
  CHECK(met("val/accuracy<=0.5", 0.5));
  CHECK_FALSE(met("val/accuracy<0.5", 0.5));
  CHECK(met("val/accuracy>0.5", 0.75));
  CHECK(met("val/accuracy<0.5", 0.25));
  CHECK_FALSE(met("val/accuracy>=0.5", 0.25));
  CHECK_FALSE(met("val/accuracy<=0.5", 0.75));
  for (const char* relation : {">=", "<=", ">", "<"}) {
    CHECK_FALSE(met(std::string("val/loss") + relation + "0", std::nan("")));
  }

  const Workplace w;
  REQUIRE(w.run({"train", "small.yaml", "train.epochs=1"}).exit_code == 0);
  const json test = json::parse(read_file(w.dir.file("runs/small/summary.json"))).at("test");
  const std::string bound = test["accuracy"].dump();
  const auto exit_code = [&](const std::string& relation) {
    const std::string text = "test/accuracy" + relation + bound;
    const int of_train =
        w.run({"train", "small.yaml", "train.epochs=1", "--require", text}).exit_code;
    CHECK(w.run({"eval", "runs/small", "--require", text}).exit_code == of_train);
    return of_train;
  };
  CHECK(exit_code(">=") == 0);
  CHECK(exit_code("<=") == 0);
  CHECK(exit_code(">") == 7);
  CHECK(exit_code("<") == 7);
  CHECK(w.run({"eval", "runs/small", "--require", "val/loss>=0"}).exit_code == 2);
  // Without validation samples the condition cannot be met.
  CHECK(w.run({"train", "small.yaml", "data.val_split=0", "--run-dir", "n", "--require",
               "val/loss>=0"})
            .exit_code != 0);
}
