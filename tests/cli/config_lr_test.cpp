// dpt config lr: the learning rates of a run as a table, as JSON and as a plot.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny.h"

using namespace dpt;
using namespace dpt::testing;
using nlohmann::json;

namespace {

const std::vector<std::string> kLr = {"config", "lr", "small.yaml"};

json rates_of(const Tiny& w, const std::vector<std::string>& more) {
  std::vector<std::string> words = more;
  words.push_back("--json");
  return json::parse(w.run_well(kLr, words).out);
}

std::vector<std::int64_t> steps_of(const json& curve) {
  std::vector<std::int64_t> steps;
  for (const json& row : curve["rates"]) steps.push_back(row["step"]);
  return steps;
}

}  // namespace

TEST_CASE("config lr: a row for each change of the rate, and for the last step") {
  const Tiny w;
  CHECK(w.run_well(kLr, {"train.epochs=3", "lr_schedule={type: exponential, gamma: 0.5}"}).out ==
        "small.yaml: exponential: 15 steps, 3 epochs of 5 (40 samples in batches of 8)\n"
        "   epoch       step           lr\n"
        "       1          1          0.1\n"
        "       2          6         0.05\n"
        "       3         11        0.025\n"
        "       3         15        0.025\n");
  CHECK(w.run_well(kLr, {"lr_schedule={type: constant, warmup: {steps: 1}}"}).out ==
        "small.yaml: constant, after a warm-up of 1 step: 5 steps, 1 epoch of 5 (40 samples in "
        "batches of 8)\n"
        "   epoch       step           lr\n"
        "       1          1    0.0333333\n"
        "       1          2          0.1\n"
        "       1          5          0.1\n");
  CHECK_FALSE(std::filesystem::exists(w.dir.file("runs")));
}

TEST_CASE("config lr: a rate that changes too often is shown at evenly spaced steps") {
  const Tiny w;
  const std::vector<std::string> cosine = {"train.epochs=100",
                                           "lr_schedule={type: cosine, warmup: {steps: 7}}"};
  std::vector<std::string> words = cosine;
  words.insert(words.end(), {"--rows", "5"});
  CHECK(steps_of(rates_of(w, words)) == std::vector<std::int64_t>{1, 8, 125, 250, 375, 500});
  words.back() = "2";
  CHECK(steps_of(rates_of(w, words)) == std::vector<std::int64_t>{1, 8, 500});
  CHECK(steps_of(rates_of(w, cosine)).size() == 21);
  // The run has more steps than can be enumerated.
  CHECK(steps_of(rates_of(w, {"train.epochs=1000000", "--samples", "1000000000000"})).size() == 20);
}

TEST_CASE("config lr: the rates are those of the run") {
  const Tiny w;
  const std::vector<std::string> overrides = {
      "train.epochs=3", "lr_schedule={type: wsd, decay: 0.5, warmup: {epochs: 0.5}}"};
  w.run_well({"train", "small.yaml"}, overrides);
  const auto steps = events(w.dir.file("runs/tiny/metrics.jsonl"), "step");
  const json curve = rates_of(w, overrides);
  CHECK(curve["schedule"] == "wsd");
  CHECK(curve["steps"] == 15);
  CHECK(curve["epochs"] == 3);
  CHECK(curve["steps_per_epoch"] == 5);
  CHECK(curve["warmup_steps"] == 3);
  CHECK(curve["depends_on_results"] == false);
  REQUIRE(steps.size() == 15);
  std::map<std::int64_t, json> rows;
  for (const json& row : curve["rates"]) rows[row["step"]] = row;
  CHECK(rows.size() == 9);
  for (const json& step : steps) {
    if (!rows.contains(step["step"])) continue;
    CHECK(rows[step["step"]]["lr"] == step["lr"]);
    CHECK(rows[step["step"]]["epoch"] == step["epoch"]);
  }
}

TEST_CASE("config lr without the data: --samples says how many there are") {
  const Tiny w;
  const std::vector<std::string> elsewhere = {"data={dataset: mnist, root: nowhere, batch_size: 8}",
                                              "model.input=[1, 28, 28]"};
  const Finished missing = w.run(kLr, elsewhere);
  CHECK(missing.exit_code == 3);
  check_contains(missing.err, "nowhere");
  check_contains(missing.err, "If the data is not available, give that number: --samples N");
  std::vector<std::string> words = elsewhere;
  words.insert(words.end(), {"data.val_split=10", "--samples", "51"});
  check_contains(w.run_well(kLr, words).out,
                 "6 steps, 1 epoch of 6 (41 samples in batches of 8)\n");
  words.back() = "10";
  const Finished none = w.run(kLr, words);
  CHECK(none.exit_code == 2);
  check_contains(none.err,
                 "--samples 10: expected more samples than data.val_split holds out (10)");
}

TEST_CASE("config lr says what follows from results") {
  const Tiny w;
  const std::string plateau = "lr_schedule={type: plateau, factor: 0.25}";
  check_contains(w.run_well(kLr, {plateau}).out,
                 "plateau multiplies them by 0.25 each time val/loss stops improving");
  CHECK(rates_of(w, {plateau})["depends_on_results"] == true);
}

TEST_CASE("config lr --plot") {
  const Tiny w;
  const std::string out = w.run_well(kLr, {"--plot", "train.epochs=64", "data.batch_size=40",
                                           "lr_schedule={type: step, step_size: 32, gamma: 0.2}"})
                              .out;
  std::string expected =
      "small.yaml: step: 64 steps, 64 epochs of 1 (40 samples in batches of 40)\n";
  expected += "       0.1 +" + std::string(32, '*') + "\n";
  for (int y = 1; y < 16; ++y) {
    const char* label = y == 5    ? "    0.0667"
                        : y == 10 ? "    0.0333"
                        : y == 15 ? "         0"
                                  : "          ";
    expected += std::string(label) + (y % 5 == 0 ? " +" : " |") +
                (y == 12 ? std::string(32, ' ') + std::string(32, '*') : "") + "\n";
  }
  expected += "           +" + std::string(64, '-') + "\n";
  expected += "            0" + std::string(27, ' ') + "epochs" + std::string(28, ' ') + "64\n";
  CHECK(out == expected);
}

TEST_CASE("config lr --png is gone, and its error names --plot") {
  const Tiny w;
  const Finished gone = w.run(kLr, {"--png", "lr.png"});
  CHECK(gone.exit_code == 2);
  check_contains(gone.err, "--png: this option was removed: use --plot");
  CHECK_FALSE(std::filesystem::exists(w.dir.file("lr.png")));
}

TEST_CASE("config lr: options that contradict each other, and a config that is wrong") {
  const Tiny w;
  CHECK(w.run(kLr, {"--plot", "--json"}).exit_code == 2);
  CHECK(w.run(kLr, {"--plot", "--rows", "5"}).exit_code == 2);
  CHECK(w.run(kLr, {"--rows", "1"}).exit_code == 2);
  CHECK(w.run(kLr, {"--samples", "0"}).exit_code == 2);
  const Finished wrong = w.run(kLr, {"lr_schedule={type: cosine, min_lr: 1}"});
  CHECK(wrong.exit_code == 2);
  check_contains(wrong.err, "expected a min_lr of at most");
}
