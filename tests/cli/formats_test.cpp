// The commands on data sets of several formats: config check, train, resume, eval, export.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/support/tar.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

/// Returns a config with the given data section and model.
std::string config_of(const std::string& data, const std::string& model) {
  return "version: 1\nname: small\ndata:\n  batch_size: 8\n" + data + "model:\n" + model +
         "optimizer: {type: Adam, lr: 0.02}\ntrain: {epochs: 3}\ndevices: [cpu]\n";
}

/// Trains once as a whole and once in two parts, and compares the results.
void check_resume(const Workplace& w) {
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
}

/// Returns a grey image of 8x8 pixels whose brightness shows the class.
std::string picture(int index) {
  const auto value = static_cast<std::uint8_t>(index % 2 == 0 ? 10 + index / 2 : 200 - index / 2);
  const dpt::data_test::Bytes bytes =
      dpt::data_test::png(8, 8, 1, dpt::data_test::Bytes(64, value));
  return {bytes.begin(), bytes.end()};
}

constexpr const char* kImageModel =
    "  input: [1, 8, 8]\n"
    "  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 2}]\n";

}  // namespace

TEST_CASE("formats: a CSV file of features is checked, trained, resumed, measured and exported") {
  const auto table = [](int begin, int end) {
    std::string text = "id,width,kind,height\n";
    for (int i = begin; i < end; ++i) {
      const bool is_wide = i % 2 == 0;
      text += fmt::format("{},{},{},{}\n", i, is_wide ? 1.0 + i / 100.0 : i / 100.0,
                          is_wide ? "wide" : "high", is_wide ? i / 100.0 : 1.5);
    }
    return text;
  };
  const Workplace w(config_of(
      "  dataset: csv\n  train: {file: train.csv}\n  test: {file: test.csv}\n  label: kind\n"
      "  features: [width, height]\n  val_split: 8\n",
      "  input: [2, 1, 1]\n"
      "  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 2}]\n"));
  write_file(w.dir.file("train.csv"), table(0, 60));
  write_file(w.dir.file("test.csv"), table(60, 80));
  check_contains(w.run_well({"config", "check", "small.yaml"}).out,
                 "; 60 training samples, 20 test samples; data.val_split holds out some of the "
                 "training samples\n");
  check_resume(w);
  const Finished trained =
      w.run_well({"train", "small.yaml", "train.epochs=20", "--require", "test/accuracy>=0.95"});
  // Rows of a table are not called images.
  check_contains(trained.err, " samples/s");
  CHECK(trained.err.find("images/s") == std::string::npos);
  w.run_well({"eval", "runs/small", "--predictions", "out.csv"});
  std::string names, first;
  std::ifstream predictions(w.dir.file("out.csv"));
  std::getline(predictions, names);
  std::getline(predictions, first);
  CHECK(names == "index,label,prediction,label_name,prediction_name,loss,probability");
  CHECK(first.starts_with("0,1,1,wide,wide,"));
  w.run_well({"export", "runs/small", "--onnx", "net.onnx", "--include-normalisation"});
  w.run_well({"data", "check", "small.yaml"});

  const auto error = [&](const std::vector<std::string>& overrides, int exit_code) {
    const Finished finished = w.run({"config", "check", "small.yaml"}, overrides);
    CHECK(finished.exit_code == exit_code);
    return finished.err;
  };
  check_contains(error({"data.label=knd"}, 3),
                 "train.csv: expected a column 'knd', which data.label names, found id, width, "
                 "kind, height; did you mean 'kind'?");
  check_contains(error({"data.targets=[id]"}, 2), "expected label (the column of the classes) or ");
  check_contains(error({"data.train.file=no.csv"}, 3), "no.csv: cannot be opened: No such file");
  // Changed numbers count as other data.
  write_file(w.dir.file("train.csv"), table(0, 61));
  const Finished other = w.run({"eval", "runs/small", "--split", "val"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "expected the run's training data (fingerprint ");
}

TEST_CASE("formats: a CSV file of images is trained and resumed, and one that is bad is named") {
  const Workplace w(
      config_of("  dataset: csv\n  train: {file: lists/train.csv}\n  root: pictures\n  path: file\n"
                "  label: kind\n  val_split: 8\n",
                kImageModel));
  std::string text = "kind,file\n";
  std::filesystem::create_directory(w.dir.file("lists"));
  std::filesystem::create_directory(w.dir.file("pictures"));
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("{},{}.png\n", i % 2 == 0 ? "dark" : "bright", i);
    write_file(w.dir.file(fmt::format("pictures/{}.png", i)), picture(i));
  }
  write_file(w.dir.file("lists/train.csv"), text);
  check_contains(w.run_well({"config", "check", "small.yaml"}).out,
                 "; 60 training samples (60 files read, from every class); data.val_split holds "
                 "out some of the training samples\n");
  check_resume(w);
  w.run_well({"train", "small.yaml", "data.cache=cache"});
  const std::vector<std::string> smaller = {"eval", "runs/small", "data.cache=smaller",
                                            "data.cache_shorter_side=4"};
  const Finished other = w.run(smaller);
  CHECK(other.exit_code == 3);
  check_contains(other.err,
                 "expected images as the run read them (data.cache_shorter_side=full), found 4");
  w.run_well(smaller, {"--allow-other-data"});
  // Several processes create the file together, and only once.
  w.run_well({"train", "small.yaml", "data.cache=shared", "--run-dir", "two", "--nproc", "2"});
  CHECK(std::filesystem::file_size(w.dir.file("shared/train.pack")) ==
        std::filesystem::file_size(w.dir.file("cache/train.pack")));
  CHECK(!std::filesystem::exists(w.dir.file("shared/train.pack.lock")));
  CHECK(!std::filesystem::exists(w.dir.file("shared/train.pack.tmp")));
  std::string damaged = picture(7);
  damaged.resize(damaged.size() / 2);
  write_file(w.dir.file("pictures/7.png"), damaged);
  const Finished bad = w.run({"data", "check", "small.yaml"});
  CHECK(bad.exit_code == 3);
  check_contains(bad.out, "pictures/7.png");
}

TEST_CASE("formats: tar shards are checked, trained, resumed and measured") {
  const Workplace w(
      config_of("  dataset: webdataset\n  train: {shards: \"shards/train-{00..02}.tar\"}\n"
                "  test: {shards: shards/test-*.tar}\n  val_split: 8\n",
                kImageModel));
  std::filesystem::create_directory(w.dir.file("shards"));
  const auto shard = [](int begin, int end) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = begin; i < end; ++i) {
      members.emplace_back(fmt::format("{:04}.cls", i), i % 2 == 0 ? "0" : "1");
      members.emplace_back(fmt::format("{:04}.png", i), picture(i));
    }
    return tar(members);
  };
  for (int i = 0; i < 3; ++i) {
    write_file(w.dir.file(fmt::format("shards/train-{:02}.tar", i)), shard(20 * i, 20 * i + 20));
  }
  write_file(w.dir.file("shards/test-0.tar"), shard(60, 75));
  check_contains(w.run_well({"config", "check", "small.yaml"}).out,
                 "; 60 training samples, 15 test samples (75 files read, from every class); "
                 "data.val_split holds out some of the training samples\n");
  check_resume(w);
  w.run_well({"train", "small.yaml", "train.epochs=20", "data.cache=cache", "--require",
              "test/accuracy>=0.95"});
  w.run_well({"data", "check", "small.yaml"});
  write_file(w.dir.file("shards/train-01.tar"), shard(20, 40).substr(0, 5000));
  const Finished truncated = w.run({"config", "check", "small.yaml"});
  CHECK(truncated.exit_code == 3);
  check_contains(truncated.err, "shards/train-01.tar, offset 5000: the archive is truncated: ");
}
