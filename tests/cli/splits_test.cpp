// val_split as a mapping, and data.sampler, from the user's view.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/workplace.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

/// A table of 60 measurements of 12 patients, 45 of them of class "common".
struct Patients : Workplace {
  Patients()
      : Workplace(R"(version: 1
name: small
data:
  dataset: csv
  train: {file: train.csv}
  label: kind
  features: [a, b]
  val_split: {fraction: 0.25, stratify: true, group: patient}
  batch_size: 5
model:
  input: [2, 1, 1]
  layers: [{type: Flatten}, {type: Linear, out_features: 8}, {type: Dropout}, {type: Linear, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 2}
log: {every: 1}
devices: [cpu]
)") {
    std::string text = "a,patient,b,kind\n";
    for (int i = 0; i < 60; ++i) {
      text += fmt::format("{},p{},{},{}\n", i, i * 7 % 12, i % 5, i % 4 == 0 ? "rare" : "common");
    }
    write_file(dir.file("train.csv"), text);
  }
  std::string refusal(const std::vector<std::string>& overrides, int exit_code = 2) const {
    const Finished finished = run({"train", "small.yaml", "--dry-run"}, overrides);
    CHECK(finished.exit_code == exit_code);
    return finished.err;
  }
  std::string shown(const std::string& override) const {
    const std::string text = run_well({"config", "show", "small.yaml", override}).out;
    const std::size_t begin = text.find("  val_split:"), end = text.find("  shuffle:");
    return text.substr(begin, end - begin);
  }
};

}  // namespace

TEST_CASE("val_split: a group column is not a feature, and the split is the checkpoint's") {
  const Patients w;
  w.run_well({"train", "small.yaml", "data.features=[]"});
  const json val = json::parse(w.run_well({"eval", "runs/small", "--split", "val", "--json"}).out);
  CHECK(val["n"] == 15);
  const Finished other =
      w.run({"eval", "runs/small", "--split", "val", "data.val_split.fraction=0.3"});
  CHECK(other.exit_code == 3);
  check_contains(
      other.err,
      "expected the run's split of the training files (seed=1, data.val_split={fraction: "
      "0.25, stratify: true, group: patient}), found seed=1, data.val_split={fraction: "
      "0.3, stratify: true, group: patient}");
  const Finished resumed = w.run({"train", "small.yaml", "data.val_split.fraction=0.3"});
  CHECK(resumed.exit_code == 2);
  check_contains(resumed.err, "data.val_split.fraction: 0.25 -> 0.3");
}

TEST_CASE("val_split: other groups hold out other samples, which a resume and eval notice") {
  const Patients w;
  w.run_well({"train", "small.yaml", "--max-steps", "3"});
  std::string text = read_file(w.dir.file("train.csv"));
  for (std::size_t at = 0; (at = text.find(",p1,", at)) != std::string::npos;) text[at + 2] = '2';
  write_file(w.dir.file("train.csv"), text);
  const Finished resumed = w.run({"train", "small.yaml"});
  CHECK(resumed.exit_code == 3);
  check_contains(resumed.err, "expected the run's validation samples (fingerprint xxh3:");
  const Finished eval = w.run({"eval", "runs/small", "--split", "val"});
  CHECK(eval.exit_code == 3);
  check_contains(eval.err, "the val split may contain samples that the weights were trained on");
  const Finished allowed =
      w.run_well({"eval", "runs/small", "--split", "val", "--allow-other-data", "--json"});
  check_contains(json::parse(allowed.out)["other_data"], "expected the run's validation samples");
}

TEST_CASE("val_split: folds hold every sample out once") {
  const Patients w;
  int samples = 0;
  for (int k = 1; k <= 3; ++k) {
    const std::string split = fmt::format("data.val_split={{fold: [{}, 3], group: patient}}", k);
    const Finished checked = w.run_well({"data", "check", "small.yaml", split, "--json"});
    const json report = json::parse(checked.out);
    samples += report["splits"]["val"]["samples"].get<int>();
  }
  CHECK(samples == 60);
}

TEST_CASE("val_split: a plain number is the count, in files, overrides and config show") {
  const Patients w;
  CHECK(w.shown("data.val_split=7") == "  val_split: 7\n");
  CHECK(w.shown("data.val_split={count: 7}") == "  val_split: 7\n");
  CHECK(w.shown("data.val_split={count: 7, stratify: true}") ==
        "  val_split:\n    count: 7\n    fraction: 0\n    fold: null\n    stratify: true\n");
  check_contains(w.shown("data.val_split.fraction=0.5"), "    fraction: 0.5\n");
  check_contains(w.run_well({"config", "lr", "small.yaml", "--samples", "1000"}).out,
                 "750 samples in batches of 5");
}

TEST_CASE("val_split and sampler: settings that do not fit are refused with what to do") {
  const Patients w;
  check_contains(w.refusal({"data.val_split=[1, 2]"}),
                 "data.val_split: expected an integer of at least 0, or a mapping, found a list");
  check_contains(w.refusal({"data.val_split.count=5"}),
                 "expected one of count, fraction and fold, found several");
  check_contains(w.refusal({"data.val_split={stratify: true}"}),
                 "expected count, fraction or fold with stratify or group, found none");
  check_contains(w.refusal({"data.val_split={fraction: 1}"}),
                 "fraction: expected a number from 0 to below 1, found 1");
  check_contains(w.refusal({"data.val_split={fold: [4, 3]}"}),
                 "fold: expected [k, K] with K of at least 2 and k from 1 to K, found [4, 3]");
  check_contains(w.refusal({"data.val_split={fold: [1, 20], group: patient}"}),
                 "column 'patient' has 12 distinct values, expected at least 20");
  check_contains(w.refusal({"data.val_split={fraction: 0.1, group: patiend}"}, 3),
                 "expected a column 'patiend', which data.val_split.group names");
  check_contains(
      w.refusal({"data={dataset: digits, batch_size: 5, val_split: {count: 9, group: patient}}",
                 "model.input=[1,8,8]", "model.layers.3.out_features=10"}),
      "data.val_split.group: patient: expected data with columns (csv)");
  check_contains(w.refusal({"data.sampler=balance"}),
                 "expected one of uniform, balanced, found 'balance'; did you mean 'balanced'?");
  check_contains(
      w.refusal({"data.sampler=balanced", "data.label=\"\"", "data.targets=[b]",
                 "data.target=values", "data.features=[a]", "data.val_split=5",
                 "model.input=[1,1,1]", "loss={type: mse}", "model.layers.3.out_features=1"}),
      "data.sampler: balanced needs class labels");
}

TEST_CASE("sampler: balanced gives the same weights on replicas and processes, after a stop") {
  const Patients w;
  const std::vector<std::string> balanced = {"train", "small.yaml", "data.sampler=balanced",
                                             "train.shards=6", "--run-dir"};
  const auto last = [&](const std::string& folder) {
    const json summary = json::parse(read_file(w.dir.file(folder + "/summary.json")));
    return json{summary["train"], summary["val"]};
  };
  w.run_well(balanced, {"one"});
  w.run_well(balanced, {"three", "devices=[cpu,cpu,cpu]"});
  const json one = last("one");
  CHECK(last("three") == one);
  w.run_well(balanced, {"cut", "--max-steps", "13"});
  w.run_well(balanced, {"cut", "devices=[cpu,cpu]"});
  CHECK(last("cut") == one);
  w.run_well(balanced, {"two", "--nproc", "2"});
  CHECK(last("two") == one);
  w.run_well({"train", "small.yaml", "train.shards=6", "--run-dir", "plain"});
  CHECK(last("plain") != one);
}
