// The commands on .npy data with each kind of target: train, eval and its predictions, config
// check, --require, gradcheck, --overfit.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/workplace.h"
#include "tests/support/npy_data.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

/// A folder with arrays of the given kind, and the config of a small net for them.
struct Arrays : Workplace {
  explicit Arrays(const std::string& kind, bool weighted = true, const std::string& more = "")
      : Workplace("") {
    write_file(dir.file("small.yaml"), "version: 1\nname: arrays\ndata:\n" +
                                           npy_data(dir.path(), kind, weighted) +
                                           R"(  val_split: 8
  batch_size: 8
  transforms:
    train: [{type: Normalize, mean: [0.5], std: [0.5]}]
    eval: [{type: Normalize, mean: [0.5], std: [0.5]}]
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: Adam, lr: 0.02}
train: {epochs: 3}
devices: [cpu]
loss: {type: )" + loss_of_kind(kind) + "}\n" +
                                           more);
  }
};

/// Returns the rows of a table without quotes: the names, then each sample's fields.
std::vector<std::vector<std::string>> table(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    rows.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) rows.back().push_back(field);
  }
  return rows;
}

double number(const std::string& text) {
  return std::stod(text);
}

}  // namespace

TEST_CASE("npy: each kind of target is trained, measured and predicted") {
  for (const std::string& kind : npy_kinds()) {
    CAPTURE(kind);
    const bool labelled = kind == "labels" || kind == "soft_labels";
    const Arrays w(kind, true,
                   kind == "values" ? "metrics: [{type: mean_absolute_error}, {type: r2}]\n" : "");
    const Finished trained = w.run_well({"train", "small.yaml"});
    const json summary = json::parse(std::ifstream(w.dir.file("runs/arrays/summary.json")));
    const bool has_accuracy = kind != "values";
    for (const char* part : {"train", "val", "test"}) {
      CHECK(summary[part].contains("accuracy") == has_accuracy);
      CHECK(summary[part]["loss"].is_number());
    }
    const std::string monitor = has_accuracy ? "val/accuracy" : "val/loss";
    CHECK(summary["best"].contains(monitor));
    CHECK((trained.err.find("accuracy") != std::string::npos) == has_accuracy);

    const json test =
        json::parse(w.run_well({"eval", "runs/arrays", "--json", "--predictions", "out.csv"}).out);
    CHECK(test.contains("accuracy") == has_accuracy);
    const auto rows = table(w.dir.file("out.csv"));
    REQUIRE(rows.size() == 24);
    double loss = 0, weight = 0, right = 0, count = 0, errors = 0, squares = 0;
    std::vector<double> of_target(4, 0.0), of_squares(4, 0.0);
    for (std::size_t i = 1; i < rows.size(); ++i) {
      auto row = rows[i];
      if (labelled) row.pop_back();  // the probability
      loss += number(row[row.size() - 2]);
      weight += number(row.back());
      if (number(row.back()) == 0) {
        CHECK(number(row[row.size() - 2]) == 0);
        continue;
      }
      count += 1;
      if (labelled) {
        right += row[1] == row[2] ? 1 : 0;
        CHECK(row[1] == row[3]);
        continue;
      }
      for (std::size_t c = 0; c < 4; ++c) {
        const double target = number(row[1 + c]), predicted = number(row[5 + c]);
        right += (predicted > 0.5) == (target > 0.5) ? 0.25 : 0;
        errors += std::abs(predicted - target) / 4;
        squares += (predicted - target) * (predicted - target);
        of_target[c] += target;
        of_squares[c] += target * target;
      }
    }
    CHECK(count < 23);
    CHECK(test["loss"].get<double>() == doctest::Approx(loss / weight).epsilon(1e-5));
    if (has_accuracy) CHECK(test["accuracy"].get<double>() == doctest::Approx(right / count));
    if (kind == "values") {
      CHECK(test["mean_absolute_error"].get<double>() ==
            doctest::Approx(errors / count).epsilon(1e-5));
      double spread = 0;
      for (std::size_t c = 0; c < 4; ++c) {
        spread += of_squares[c] - of_target[c] * of_target[c] / count;
      }
      CHECK(test["r2"].get<double>() == doctest::Approx(1 - squares / spread).epsilon(1e-5));
    }
    const std::string first =
        labelled ? "index,label,prediction,label_name,prediction_name,loss,weight,probability"
                 : "index,target_0,target_1,target_2,target_3,prediction_0,prediction_1,"
                   "prediction_2,prediction_3,loss,weight";
    std::string names;
    std::getline(std::ifstream(w.dir.file("out.csv")), names);
    CHECK(names == first);
    // The result is the same on several replicas.
    w.run_well({"eval", "runs/arrays", "--predictions", "two.csv", "--devices", "cpu,cpu,cpu"});
    CHECK(table(w.dir.file("two.csv")) == rows);
  }
}

TEST_CASE("npy: the metrics of the config are printed after each epoch and at the end") {
  const Arrays w("values", true, "metrics: [{type: mean_absolute_error}, {type: r2}]\n");
  const Finished trained = w.run_well({"train", "small.yaml"});
  const std::string log = w.dir.file("runs/arrays/metrics.jsonl");
  const auto epochs = events(log, "epoch"), evals = events(log, "eval");
  REQUIRE(epochs.size() == 3);
  REQUIRE(evals.size() == 4);
  const auto value = [](const json& line, const char* name) { return line[name].get<double>(); };
  for (std::size_t i = 0; i < 3; ++i) {
    check_contains(
        trained.err,
        fmt::format("epoch {}/3: train loss {:.4f} mean_absolute_error {:.4f}, val loss {:.4f} "
                    "mean_absolute_error {:.4f} r2 {:.4f}",
                    i + 1, value(epochs[i], "loss"), value(epochs[i], "mean_absolute_error"),
                    value(evals[i], "loss"), value(evals[i], "mean_absolute_error"),
                    value(evals[i], "r2")));
  }
  check_contains(trained.err,
                 fmt::format("; test loss {:.4f}, mean_absolute_error {:.4f}, r2 {:.4f}\n",
                             value(evals[3], "loss"), value(evals[3], "mean_absolute_error"),
                             value(evals[3], "r2")));
}

TEST_CASE("npy: the accuracy of multi-hot targets is exact at the bound of a gate") {
  const Arrays w("multi_hot", false);
  // Use three targets for each sample instead of four: fp32 cannot represent a third exactly.
  const auto write_targets = [&](const std::string& part, std::int64_t n) {
    std::vector<float> targets;
    for (std::int64_t i = 0; i < 3 * n; ++i) targets.push_back(i % 7 < 3 ? 1.0F : 0.0F);
    write_bytes(w.dir.file(part + "_y.npy"), npy({n, 3}, targets));
  };
  write_targets("train", 60);
  write_targets("test", 23);
  w.run_well({"train", "small.yaml", "model.layers.fc.out_features=3"});
  w.run_well({"eval", "runs/arrays", "--predictions", "out.csv"});
  int right = 0, partly_right = 0;
  auto rows = table(w.dir.file("out.csv"));
  rows.erase(rows.begin());
  for (const auto& row : rows) {
    int own = 0;
    for (std::size_t c = 1; c < 4; ++c) own += (number(row[c]) > 0.5) == (number(row[c + 3]) > 0.5);
    right += own;
    partly_right += own % 3 != 0 ? 1 : 0;
  }
  REQUIRE(rows.size() == 23);
  REQUIRE(partly_right > 0);
  const double accuracy = static_cast<double>(right) / 69;
  for (const char* relation : {"<=", ">="}) {
    w.run_well(
        {"eval", "runs/arrays", "--require", fmt::format("test/accuracy{}{}", relation, accuracy)});
  }
  const json result = json::parse(w.run_well({"eval", "runs/arrays", "--json"}).out);
  CHECK(result["accuracy"] == accuracy);
}

TEST_CASE("npy: a table of predictions without weights, with names of the outputs") {
  const Arrays w("multi_hot", false);
  const std::string names = "data.classes=[sky, sea, \"a,b\", sand]";
  w.run_well({"train", "small.yaml", "train.epochs=1", names});
  w.run_well({"eval", "runs/arrays", "--predictions", "out.csv"});
  std::string first;
  std::getline(std::ifstream(w.dir.file("out.csv")), first);
  CHECK(first ==
        "index,target_sky,target_sea,\"target_a,b\",target_sand,prediction_sky,prediction_sea,"
        "\"prediction_a,b\",prediction_sand,loss");
}

TEST_CASE("npy: a run that was stopped continues to the same weights") {
  const Arrays w("soft_labels");
  const std::vector<std::string> exact = {"train.shards=4", "checkpoint.every_steps=1"};
  w.run_well({"train", "small.yaml", "--run-dir", "whole"}, exact);
  w.run_well({"train", "small.yaml", "--run-dir", "parts", "--max-steps", "9"}, exact);
  w.run_well(
      {"train", "small.yaml", "--run-dir", "parts", "--resume", "auto", "--devices", "cpu,cpu"},
      exact);
  const auto last = [&](const std::string& run) {
    return events(w.dir.file(run + "/metrics.jsonl"), "eval").back();
  };
  CHECK(last("parts")["loss"] == last("whole")["loss"]);
  // Arrays with other sample weights are not the data of the run.
  write_npy_part(w.dir.path(), "train", "soft_labels", 60, 1);
  write_bytes(w.dir.file("train_w.npy"), npy({60}, std::vector<float>(60, 1.0F)));
  const Finished other = w.run({"eval", "parts", "--split", "val"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "expected the run's training data (fingerprint ");
}

TEST_CASE("npy: config check opens the arrays and says what does not fit") {
  const Arrays w("values");
  check_contains(w.run_well({"config", "check", "small.yaml"}).out,
                 "; 60 training samples, 23 test samples; data.val_split holds out some of the "
                 "training samples\n");
  const auto error = [&](const std::vector<std::string>& overrides) {
    const Finished finished = w.run({"config", "check", "small.yaml"}, overrides);
    CHECK(finished.exit_code != 0);
    return finished.err;
  };
  check_contains(error({"loss={type: cross_entropy}"}),
                 "expected one of mse, l1, smooth_l1, found cross_entropy");
  check_contains(
      error({"data.target=auto"}),
      "train_y.npy: an array (60, 4) of float32 can be soft_labels, multi_hot or values: "
      "say which in data.target");
  check_contains(error({"data.target=multi_hot", "loss={type: bce_with_logits}"}),
                 "expected a target from 0 to 1, found ");
  check_contains(error({"metrics=[{type: accuracy}]"}),
                 "found accuracy, which is for class labels");
  check_contains(error({"checkpoint.keep_best.monitor=val/accuracy"}), "needs class labels");
  check_contains(error({"data.train.weights=no.npy"}), "no.npy: cannot be opened: No such file");
  CHECK(w.run({"train", "small.yaml", "loss={type: cross_entropy}"}).exit_code == 2);
}

TEST_CASE("npy: --require, gradcheck, bench and --overfit without accuracy") {
  const Arrays w("values", true, "metrics: [{type: r2}]\n");
  check_contains(w.run({"train", "small.yaml", "--require", "val/accuracy>=0.5"}).err,
                 "expected a metric of val: loss, r2; found 'accuracy'");
  w.run_well({"train", "small.yaml", "train.epochs=40", "--require", "test/r2>=0.5"});
  check_contains(w.run({"eval", "runs/arrays", "--require", "test/loss<0"}).err, "not met");
  check_contains(w.run_well({"model", "gradcheck", "small.yaml"}).out, "fc.weight");
  w.run_well({"bench", "small.yaml", "--calls"});
  const Finished learned = w.run({"train", "small.yaml", "--overfit", "1", "optimizer.lr=0.1"});
  CHECK(learned.exit_code == 0);
  CHECK(learned.err.find("accuracy") == std::string::npos);
}

TEST_CASE("npy: a config of values that is shown is valid, and says what is monitored") {
  const Arrays w("values");
  const Finished shown = w.run_well({"config", "show", "small.yaml"});
  check_contains(shown.out, "monitor: val/loss");
  write_file(w.dir.file("shown.yaml"), shown.out);
  w.run_well({"config", "check", "shown.yaml"});
  const Finished refused =
      w.run({"config", "check", "small.yaml", "checkpoint.keep_best.mode=max"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "checkpoint.keep_best.mode: the data's targets are values");
}

TEST_CASE("one output is refused where there are class labels, with and without data") {
  const Workplace w("");
  write_file(w.dir.file("one.yaml"), R"(version: 1
data: {dataset: digits, batch_size: 32}
model: {input: [1, 8, 8], layers: [{type: Flatten}, {type: Linear, out_features: 1}]}
loss: {type: mse}
optimizer: {type: Adam, lr: 0.02}
train: {epochs: 1}
)");
  for (const char* command : {"check", "train"}) {
    const std::vector<std::string> words =
        std::string(command) == "check" ? std::vector<std::string>{"config", "check", "one.yaml"}
                                        : std::vector<std::string>{"train", "one.yaml"};
    const Finished refused = w.run(words);
    CHECK(refused.exit_code == 2);
    check_contains(
        refused.err,
        "data set digits has class labels: expected a last layer with one output per class");
  }
}

TEST_CASE("npy: a pipe is not a file") {
  const Arrays w("labels");
  REQUIRE(mkfifo(w.dir.file("pipe").c_str(), 0600) == 0);
  const Finished refused = w.run({"config", "check", "small.yaml", "data.train.images=pipe"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err, "not a file");
}
