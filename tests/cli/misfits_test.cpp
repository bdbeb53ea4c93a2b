// Settings that are allowed but probably unintended. dpt config check and the start of dpt train
// warn of them.
#include <doctest/doctest.h>

#include <filesystem>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_files.h"
#include "tests/cli/tiny.h"
#include "tests/support/rewrite.h"

using namespace dpt::testing;
using dpt::list_checkpoints;

namespace {

/// Returns the tiny config with a batch normalisation.
std::string with_norm(const char* options = "") {
  std::string text = kTinyConfig;
  const std::string head = "{type: Linear, name: fc";
  const std::string norm = std::string("{type: BatchNorm1d, name: n") + options + "}, ";
  text.insert(text.find(head), norm);
  return text;
}

constexpr const char* kLocalStatistics =
    "batch normalisation (layer 'n' and others like it) uses the statistics of each replica's part "
    "of the batch: the result depends on the number of replicas. sync: true in these layers";

}  // namespace

TEST_CASE("batch normalisation of each replica by itself is reported at a start and at a resume") {
  const Workplace w(with_norm());
  const auto train = [&](const std::vector<std::string>& more) {
    return w.run_well({"train", "small.yaml", "train.epochs=9", "data.batch_size=32"}, more).err;
  };
  const auto warns = [](const std::string& text) {
    return text.find(kLocalStatistics) != std::string::npos;
  };
  CHECK_FALSE(warns(train({"--max-steps", "1"})));
  CHECK_FALSE(warns(train({"--max-steps", "2"})));
  const std::string resumed = train({"--max-steps", "3", "--devices", "cpu,cpu"});
  check_contains(resumed, "warning: the run had 1 replica and continues on 2, and ");
  CHECK(warns(resumed));
  CHECK_FALSE(warns(train({"--max-steps", "4", "--devices", "cpu,cpu"})));
  CHECK(warns(train({"--max-steps", "5", "--devices", "cpu"})));
  const std::string fresh = train({"--run-dir", "r", "--devices", "cpu,cpu", "--max-steps", "1"});
  check_contains(fresh, "warning: there are 2 replicas, and ");
  CHECK(warns(fresh));
  check_contains(read_file(w.dir.file("r/train.log")), kLocalStatistics);
  // In exact mode, the statistics are those of a shard. With sync: true, they are those of the
  // whole batch.
  CHECK_FALSE(warns(
      train({"--run-dir", "s", "--devices", "cpu,cpu", "--max-steps", "1", "train.shards=2"})));
  CHECK_FALSE(warns(train(
      {"--run-dir", "t", "--devices", "cpu,cpu", "--max-steps", "1", "model.layers.n.sync=true"})));
  const std::string checked =
      w.run_well({"config", "check", "small.yaml", "devices=[cpu, cpu]"}).err;
  CHECK(warns(checked));
  CHECK(w.run_well({"config", "check", "small.yaml"}).err.empty());
}

TEST_CASE(
    "a schedule that does not fit the run, and other normalisation in evaluations, are reported") {
  const Tiny w;
  const std::vector<std::string> change = {"train.epochs=9", "lr_schedule={type: polynomial}"};
  const std::string text =
      "dpt: warning: lr_schedule: polynomial: total_iters: 5 epochs is shorter than the run: the "
      "learning rate is 0 from epoch 6 to the last one, 9\n";
  CHECK(w.run_well({"config", "check", "small.yaml"}, change).err == text);
  check_contains(w.run_well({"train", "small.yaml", "--dry-run"}, change).err, text.substr(5));
  const std::string start = w.run_well({"train", "small.yaml"}, change).err;
  check_contains(start, text.substr(5));
  CHECK(start.find("total_iters") == start.rfind("total_iters"));
  check_contains(read_file(w.dir.file("runs/tiny/train.log")), "total_iters: 5 epochs");

  const std::string transforms =
      "data.transforms={train: [{type: Normalize, mean: [0.5], std: [0.25]}], eval: []}";
  CHECK(w.run_well({"config", "check", "small.yaml", transforms}).err ==
        "dpt: warning: data.transforms: train has Normalize with mean [0.5], std [0.25], eval with "
        "nothing: evaluation inputs differ from the training inputs\n");
}

TEST_CASE("random transforms of evaluations: refused for a new run, a warning for a stored one") {
  const Tiny w;
  const std::string random = "data.transforms.eval=[{type: RandomHorizontalFlip, p: 0.5}]";
  const std::string text = "RandomHorizontalFlip is random: validation, test and predict";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"config", "check"}, {"train"}, {"train", "--dry-run"}}) {
    const Finished refused = w.run(command, {"small.yaml", random});
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, text);
  }
  // Store a config with a random transform in `eval`, as an earlier release allowed.
  w.run_well({"train", "small.yaml", "train.epochs=2", "--max-steps", "1"});
  const std::string file = list_checkpoints(w.dir.file("runs/tiny/checkpoints")).at(0);
  rewrite_checkpoint(file, file, [](dpt::Metadata& metadata, auto&) {
    std::string& config = metadata.at("dpt.config");
    const std::string none = "    eval: []\n";
    const std::size_t at = config.find(none);
    REQUIRE(at != std::string::npos);
    config.replace(at, none.size(),
                   "    eval:\n      - type: RandomHorizontalFlip\n        p: 0.5\n");
  });
  const Finished resumed = w.run_well({"train", "small.yaml", "train.epochs=2", random});
  check_contains(resumed.err, "warning: ");
  check_contains(resumed.err, text);
  w.run_well({"eval", "runs/tiny"});
}

TEST_CASE("a mean of Normalize above 1 is reported if samples are 8-bit") {
  const Tiny w;
  const auto checked = [&](const char* mean) {
    return w
        .run_well({"config", "check", "small.yaml",
                   fmt::format("data.transforms={{train: [{{type: Normalize, mean: [{0}], std: "
                               "[60]}}], eval: [{{type: Normalize, mean: [{0}], std: [60]}}]}}",
                               mean)})
        .err;
  };
  CHECK(checked("120") ==
        "dpt: warning: data.transforms.train: Normalize has the mean 120, but its input ranges "
        "from 0 to 1: "
        "divide mean and std by 255\n");
  CHECK(checked("0.5").empty());
}

TEST_CASE("the shipped configs have no setting that is probably unintended") {
  const TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/configs")) {
    const std::string file = entry.path().string();
    const Finished checked = run_dpt({"config", "check", file}, dir.path());
    CAPTURE(file);
    // The check may fail because data is missing, but it must not warn.
    CHECK(checked.err.find("warning") == std::string::npos);
  }
}

TEST_CASE("keep_best of a run without validation: refused where it was chosen, read where stored") {
  const Tiny w;
  const std::string chosen = "checkpoint.keep_best.monitor=val/loss";
  const Finished refused = w.run({"train", "small.yaml", "data.val_split=0", chosen});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "keep_best monitors val/loss, but there are no validation samples");
  // A run without validation can be continued with its stored config, and evaluated.
  w.run_well({"train", "small.yaml", "data.val_split=0"});
  w.run_well({"train", "runs/tiny/config.yaml", "train.epochs=2"});
  w.run_well({"eval", "runs/tiny"});
}
