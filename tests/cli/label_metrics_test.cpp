// F1, AUROC and related metrics in runs, for CSV columns of several labels and for classes:
// monitors, requirements, logs and files are the same on any number of replicas and processes.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/workplace.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

constexpr const char* kConfig = R"(version: 1
name: tags
data:
  dataset: csv
  train: {file: train.csv}
  val: {file: val.csv}
  test: {file: test.csv}
  label: tags
  label_separator: '|'
  batch_size: 8
model:
  input: [3, 1, 1]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
loss: {type: bce_with_logits}
optimizer: {type: Adam, lr: 0.1}
metrics:
  - {type: f1, threshold: [0.5, 0.25, 0.5, 0.75]}
  - {type: auroc, average: per_class}
  - {type: average_precision, average: micro}
checkpoint: {keep_best: {monitor: val/macro_f1}}
train: {epochs: 3, early_stopping: {monitor: val/per_class_auroc, patience: 2}}
devices: [cpu]
)";

/// Returns a table with one row per sample. A row has three numbers, and tags that depend on which
/// of the numbers are large. Only training samples have the tag `rare`.
std::string table(int samples, int seed, bool has_rare) {
  std::string text = "x,y,z,tags\n";
  for (int i = 0; i < samples; ++i) {
    const int a = (i * 7 + seed) % 11, b = (i * 5 + seed) % 7, c = (i * 3 + seed) % 5;
    std::string tags;
    const auto add = [&](const char* tag) { tags += (tags.empty() ? "" : "|") + std::string(tag); };
    if (a > 5) add("high");
    if (b > 3) add("wide");
    if (c > 2 && a < 9) add("deep");
    if (has_rare && i % 10 == 0) add("rare");
    text +=
        std::to_string(a) + "," + std::to_string(b) + "," + std::to_string(c) + "," + tags + "\n";
  }
  return text;
}

struct Tags : Workplace {
  Tags() : Workplace(kConfig) {
    write_file(dir.file("train.csv"), table(60, 0, true));
    write_file(dir.file("val.csv"), table(21, 4, false));
    write_file(dir.file("test.csv"), table(23, 9, false));
  }
};

json read_json(const std::string& path) {
  return json::parse(std::ifstream(path));
}

}  // namespace

TEST_CASE("labels of a CSV column: metrics are logged, monitored, required and compared") {
  const Tags w;
  w.run_well({"config", "check", "small.yaml"});
  const Finished trained = w.run_well({"train", "small.yaml", "--require", "val/macro_f1>=0.01",
                                       "--require", "test/micro_average_precision>0"});
  const json summary = read_json(w.dir.file("runs/tags/summary.json"));
  for (const char* part : {"val", "best_val", "test"}) {
    for (const char* name : {"macro_f1", "per_class_auroc", "micro_average_precision"}) {
      CAPTURE(name);
      CHECK(summary[part][name].is_number());
    }
  }
  CHECK(summary["best"].contains("val/macro_f1"));
  // A training step computes no F1.
  CHECK_FALSE(summary["train"].contains("macro_f1"));
  for (const json& eval : events(w.dir.file("runs/tags/metrics.jsonl"), "eval")) {
    CHECK(eval["macro_f1"].is_number());
    CHECK(eval["per_class_auroc_of"].size() == 3);
    CHECK(eval["per_class_auroc_of"].contains("deep"));
    // No validation or test sample has this label.
    CHECK_FALSE(eval["per_class_auroc_of"].contains("rare"));
    CHECK(eval["left_out"] == json{{"per_class_auroc", 1}});
  }
  const Finished unmet =
      w.run({"train", "small.yaml", "--run-dir", "two", "--require", "val/macro_f1>=1.5"});
  CHECK(unmet.exit_code == 7);
  check_contains(w.run_well({"compare", "runs/tags", "two"}).out, "val/macro_f1");
  const Finished wrong = w.run({"train", "small.yaml", "--require", "val/f1>=0.5"});
  CHECK(wrong.exit_code == 2);
  check_contains(wrong.err, "macro_f1");
}

TEST_CASE("labels of a CSV column: eval has a table of labels, and the best thresholds") {
  const Tags w;
  w.run_well({"train", "small.yaml"});
  const json eval = json::parse(
      w.run_well({"eval", "runs/tags", "--json", "--best-thresholds", "--predictions", "out.csv"})
          .out);
  REQUIRE(eval["labels"].size() == 4);
  CHECK(eval["labels"][0]["name"] == "deep");
  CHECK(eval["labels"][2]["name"] == "rare");
  CHECK(eval["labels"][2]["support"] == 0);
  CHECK(eval["labels"][2]["auroc"].is_null());
  CHECK(eval["labels"][2]["best_f1"].is_null());
  CHECK(eval["labels"][1]["threshold"] == 0.25);
  CHECK(eval["macro"]["f1"] == eval["macro_f1"]);
  CHECK(eval["micro"]["average_precision"] == eval["micro_average_precision"]);
  std::string thresholds;
  for (const json& label : eval["labels"]) {
    if (label["best_f1"].is_null()) continue;
    CHECK(label["best_f1"].get<double>() >= label["f1"].get<double>());
  }
  const std::string written = read_file(w.dir.file("out.csv"));
  CHECK(written.starts_with("index,labels,predicted_labels,target_deep,target_high,"));
  check_contains(written, ",high|wide,");

  const Finished tables = w.run_well({"eval", "runs/tags", "--best-thresholds"});
  check_contains(tables.out, "1 class left out of per_class_auroc");
  check_contains(tables.out, "macro average");
  // The printed line is valid in a config, and its thresholds give the best F1 of each label.
  const std::string start = "metrics: [{type: f1, threshold: [";
  const std::size_t begin = tables.out.find(start) + start.size();
  const std::string list = tables.out.substr(begin, tables.out.find(']', begin) - begin);
  const json again = json::parse(
      w.run_well({"eval", "runs/tags", "--json", "metrics=[{type: f1, threshold: [" + list + "]}]"})
          .out);
  for (std::size_t c = 0; c < 4; ++c) {
    const json& best = eval["labels"][c]["best_f1"];
    if (!best.is_null()) CHECK(again["labels"][c]["f1"] == best);
  }

  const std::string predicted = w.run_well({"predict", "runs/tags", "--split", "test"}).out;
  CHECK(predicted.starts_with("index,predicted_labels,prediction_deep,"));
  const std::string lines =
      w.run_well({"predict", "runs/tags", "--split", "test", "--format", "jsonl"}).out;
  CHECK(json::parse(lines.substr(0, lines.find('\n')))["predicted_labels"].is_array());
  const Finished report = w.run_well({"report", "runs/tags", "--out", "report.html"});
  check_contains(read_file(w.dir.file("report.html")), "<h4>Labels</h4>");
}

TEST_CASE("labels of a CSV column: the same bits on any number of replicas and processes") {
  const Tags w;
  w.run_well({"train", "small.yaml", "--max-steps", "4"});
  const auto eval = [&](const std::vector<std::string>& more) {
    return w.run_well({"eval", "runs/tags", "--json"}, more).out;
  };
  const std::string one = eval({});
  CHECK(eval({"--devices", "cpu,cpu,cpu"}) == one);
  CHECK(eval({"--nproc", "2"}) == one);
}

TEST_CASE("labels of a CSV column: a label that training samples lack is an error with its line") {
  const Tags w;
  write_file(w.dir.file("val.csv"), "x,y,z,tags\n1,2,3,high\n1,2,3,wide|flat\n");
  const Finished refused = w.run({"train", "small.yaml"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err, "val.csv, line 3, column 4 (tags): ");
  check_contains(refused.err, "has no class 'flat'");
  const Finished check = w.run({"config", "check", "small.yaml", "data.label_separator='||'"});
  CHECK(check.exit_code == 2);
  check_contains(check.err, "label_separator: expected one character such as '|' or ';'");
}

TEST_CASE("classes: macro F1 and AUROC are monitored, and classes have no threshold") {
  const Workplace w(R"(version: 1
name: classes
data: {dataset: synthetic, size: 48, test_size: 12, classes: 3, val_split: 8, batch_size: 8}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
metrics: [{type: f1}, {type: auroc}, {type: precision, average: per_class}, {type: recall}]
checkpoint: {keep_best: {monitor: val/macro_auroc}}
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
  w.run_well({"train", "small.yaml"});
  const json eval = json::parse(w.run_well({"eval", "runs/classes", "--json"}).out);
  CHECK(eval["macro_f1"] == eval["macro"]["f1"]);
  CHECK(eval["per_class_precision"] == eval["macro"]["precision"]);
  CHECK(eval["per_class_precision_of"].size() == 3);
  CHECK(json::parse(w.run_well({"eval", "runs/classes", "--json", "--devices", "cpu,cpu"}).out) ==
        eval);
  const Finished unknown = w.run({"train", "small.yaml", "--require", "val/micro_precision>0.1"});
  CHECK(unknown.exit_code == 2);
  check_contains(unknown.err, "; add it to the config: metrics: [{type: precision}]");
  check_contains(
      w.run({"config", "check", "small.yaml", "checkpoint.keep_best.monitor=val/f1"}).err,
      "found 'val/f1'; did you mean 'val/macro_f1'?");
  const Finished undefined =
      w.run_well({"train", "small.yaml", "--run-dir", "one", "data.classes=3", "data.val_split=1"});
  check_contains(undefined.err,
                 "val/macro_auroc is not a finite number after epoch 1, so it counts as no "
                 "improvement");
  const Finished refused = w.run({"eval", "runs/classes", "metrics=[{type: f1, threshold: 0.3}]"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "f1.threshold: the data's targets are class labels");
  const Finished best = w.run({"eval", "runs/classes", "--best-thresholds"});
  CHECK(best.exit_code == 2);
  check_contains(best.err, "expected multi_hot targets, whose labels have thresholds");
}
