// data.normalize: one normalisation for all splits, given or measured.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/base/training_statistics.h"
#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/image_folders.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace normalize_test {
namespace {

const std::vector<std::string> kClasses = {"dark", "grey", "white"};

/// Returns the losses of all steps and evaluations, which reveal any differing bit.
std::vector<double> losses(const Workplace& w, const std::string& run) {
  std::vector<double> all;
  for (const char* name : {"step", "eval"}) {
    for (const json& event : events(w.dir.file(run + "/metrics.jsonl"), name)) {
      all.push_back(event["loss"]);
    }
  }
  REQUIRE(!all.empty());
  return all;
}

/// Trains with `words` and returns the losses.
std::vector<double> train(const Workplace& w, const std::string& run,
                          std::vector<std::string> words) {
  words.insert(words.end(), {"--run-dir", run});
  w.run_well({"train", "small.yaml"}, words);
  return losses(w, run);
}

/// A workplace whose images in train/ and test/ differ in their brightness.
struct Photos : FolderWorkplace {
  Photos() {
    for (const char* part : {"photos/train", "photos/test"}) put(part, kClasses);
  }
};

const std::vector<std::string> kShort = {"train.epochs=2", "data.val_split=4"};

std::vector<std::string> with(std::vector<std::string> words, const std::string& word) {
  words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("normalize: numbers act as a Normalize at the end of both lists, before an erasing") {
  const Tiny w;
  const std::string flip = "{type: RandomHorizontalFlip}", erase = "{type: RandomErasing, p: 0.5}";
  const std::string numbers = "{type: Normalize, mean: [0.4], std: [0.3]}";
  const auto lists = [](const std::string& train, const std::string& eval) {
    return std::vector<std::string>{"data.transforms.train=[" + train + "]",
                                    "data.transforms.eval=[" + eval + "]"};
  };
  const auto written = train(w, "written", lists(flip + "," + numbers + "," + erase, numbers));
  const auto once = train(
      w, "once", with(lists(flip + "," + erase, ""), "data.normalize={mean: [0.4], std: [0.3]}"));
  CHECK(once == written);
  CHECK(train(w, "none", with(lists(flip + "," + erase, ""), "data.normalize=none")) != written);
  // The lists of the stored config are those of the user, without a Normalize.
  const std::string stored = read_file(w.dir.file("once/config.yaml"));
  check_contains(stored, "  normalize:\n    mean: [0.4]\n    std: [0.3]\n    mode: given\n");
  CHECK(!contains(stored, "Normalize"));
  CHECK(train(w, "again",
              with(lists(flip + "," + erase, ""),
                   "data.normalize={mean: [0.4], std: [0.3], mode: given}")) == written);
}

TEST_CASE("normalize: auto takes what data stats prints, and the run keeps it") {
  const Photos w;
  std::string line = w.run_well({"data", "stats", "small.yaml"}, {"data.val_split=4"}).out;
  line.pop_back();
  const auto written =
      train(w, "written",
            {"train.epochs=2", "data.val_split=4", "data.transforms.train=[" + line + "]",
             "data.transforms.eval=[" + line + "]"});
  const auto words = with(kShort, "data.normalize=auto");
  const Finished first =
      w.run_well({"train", "small.yaml", "--run-dir", "auto", "--max-steps", "2"}, words);
  const std::string numbers = line.substr(line.find("mean"), line.size() - 1 - line.find("mean"));
  check_contains(first.err, "data.normalize: auto: " + numbers + " (14 training samples)");
  const std::string stored = read_file(w.dir.file("auto/config.yaml"));
  check_contains(stored, "    mode: auto\n");
  // A resumed run keeps its measured mean and std, even if the data has changed.
  fs::copy(w.dir.file("auto"), w.dir.file("changed"), fs::copy_options::recursive);
  const Finished resumed = w.run_well({"train", "small.yaml", "--run-dir", "auto"}, words);
  CHECK(!contains(resumed.err, "data.normalize: auto"));
  CHECK(losses(w, "auto") == written);
  write_file(w.dir.file("photos/train/dark/0.png"), image_of("white", 0));
  w.run_well({"train", "small.yaml", "--run-dir", "changed", "--allow-other-data"}, words);
  CHECK(read_file(w.dir.file("changed/config.yaml")) == stored);
  // The same holds for a run that resumes from a checkpoint outside its run folder.
  fs::copy(dpt::list_checkpoints(w.dir.file("auto/checkpoints")).front(),
           w.dir.file("alone.safetensors"));
  const Finished alone = w.run_well({"train", "small.yaml", "--resume", "alone.safetensors",
                                     "--run-dir", "alone", "--allow-other-data",
                                     "data.normalize=auto", "data.val_split=4", "train.epochs=3"});
  CHECK(!contains(alone.err, "data.normalize: auto"));
  // A new run measures again.
  const Finished fresh = w.run_well({"train", "small.yaml", "--run-dir", "fresh"}, words);
  check_contains(fresh.err, "data.normalize: auto: ");
  CHECK(!contains(fresh.err, numbers));
}

TEST_CASE("normalize: auto has the same bits on three replicas and two processes") {
  const Photos w;
  const auto words = with(with(kShort, "data.normalize=auto"), "train.shards=3");
  const auto one = train(w, "one", words);
  std::vector<std::string> three = words, two = words;
  three.insert(three.end(), {"--devices", "cpu,cpu,cpu"});
  two.insert(two.end(), {"--nproc", "2"});
  CHECK(train(w, "three", three) == one);
  CHECK(train(w, "two", two) == one);
}

TEST_CASE("normalize: the mean is exact to a hundred-thousandth of the deviation") {
  dpt::ChannelStatistics statistics;
  statistics.mean = {1764118480.125, 0.4733491, 0};
  statistics.stddev = {1494.25, 0.25, 0};
  CHECK(dpt::text_of(dpt::normalize_spec(statistics)) ==
        "mean: [1764118480.12, 0.473349, 0], std: [1494.25, 0.25, 1]");
}

TEST_CASE("normalize: an evaluation does not measure its own samples") {
  const Photos w;
  w.run_well({"train", "small.yaml"}, kShort);
  const Finished refused =
      w.run({"eval", "runs/small", "data.normalize=auto", "--allow-other-model"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "training samples: give them as numbers");
}

TEST_CASE("normalize: commands that read a run use its numbers") {
  const Photos w;
  const auto words = with(kShort, "data.normalize=auto");
  w.run_well({"train", "small.yaml"}, words);
  const json summary = json::parse(read_file(w.dir.file("runs/small/summary.json")));
  // A new measurement would give other numbers.
  for (const char* name : {"0", "1", "2"}) {
    write_file(w.dir.file(std::string("photos/train/dark/") + name + ".png"), image_of("white", 0));
  }
  const json eval =
      json::parse(w.run_well({"eval", "runs/small", "--json", "--allow-other-data"}).out);
  CHECK(eval["loss"] == summary["test"]["loss"]);
  const Finished again =
      w.run_well({"eval", "runs/small", "--json", "--allow-other-data"}, {"data.normalize=auto"});
  CHECK(json::parse(again.out) == eval);
  const std::string table =
      w.run_well({"predict", "runs/small", "photos/test/grey/0.png", "--top", "3"}).out;
  const std::string of_data =
      w.run_well({"predict", "runs/small", "--split", "test", "--top", "3"}).out;
  const std::string row = table.substr(table.find("0.png"));
  check_contains(of_data, row.substr(0, row.find('\n')));
  const Finished refused = w.run({"eval", "runs/small", "data.normalize=none"});
  CHECK(refused.exit_code == 2);
  const Finished predict = w.run({"predict", "runs/small", "small.yaml", "data.normalize=none"});
  CHECK(predict.exit_code == 2);
  check_contains(predict.err, "data.normalize=none: dpt predict uses the checkpoint's value");
  w.run_well({"export", "runs/small", "--onnx", "m.onnx"});
  const std::string stored = read_file(w.dir.file("runs/small/config.yaml"));
  const std::size_t mean = stored.find("mean: [") + 7;
  check_contains(read_file(w.dir.file("m.onnx")), stored.substr(mean, stored.find(']') - mean));
}

TEST_CASE("normalize: commands on a config work with auto") {
  const Photos w;
  const std::vector<std::string> words = {"data.normalize=auto", "data.val_split=4"};
  check_contains(w.run_well({"config", "show", "small.yaml"}, words).out, "  normalize: auto\n");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"config", "check", "small.yaml"},
           {"config", "lr", "small.yaml"},
           {"model", "summary", "small.yaml"},
           {"data", "show", "small.yaml", "--out", "sheet.png"},
           {"data", "stats", "small.yaml"},
           {"data", "check", "small.yaml", "--allow", "duplicate_across_splits"},
           {"bench", "--data", "small.yaml", "--rounds", "1", "--steps", "1"},
           {"bench", "small.yaml", "--rounds", "1", "--steps", "1"},
           {"train", "small.yaml", "--dry-run"},
           {"train", "small.yaml", "--smoke"}}) {
    CAPTURE(command);
    const Finished finished = w.run(command, words);
    INFO(finished.err);
    CHECK(finished.exit_code == 0);
  }
}

TEST_CASE("normalize: auto reports mistakes before it reads the images") {
  const Photos w;
  const Finished refused =
      w.run({"train", "small.yaml"}, {"data.normalize=auto", "metrics=[{type: r2}]"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "metrics: r2 is the distance");
  CHECK(refused.err.find("data.normalize: auto: mean") == std::string::npos);
}

TEST_CASE("normalize: two normalisations, half of one and a mean of 0 to 255 are found") {
  const Photos w;
  const std::string list = "data.transforms.eval=[{type: Normalize, mean: [0.5], std: [0.5]}]";
  const auto error = [&](const std::string& word, const std::string& also = "seed=1") {
    const Finished refused = w.run({"config", "check", "small.yaml", word, also});
    CHECK(refused.exit_code == 2);
    return refused.err;
  };
  for (const char* word : {"data.normalize=auto", "data.normalize={mean: [0.5], std: [0.5]}"}) {
    check_contains(error(word, list),
                   "expected data.normalize or Normalize in data.transforms, found both: remove "
                   "Normalize from transforms.train and transforms.eval, or write normalize: none");
  }
  w.run_well({"config", "check", "small.yaml", "data.normalize=none", list});
  check_contains(error("data.normalize={mean: [0.5]}"), "as many numbers in mean as in std");
  // Both lists have the same mistake, which is reported once.
  CHECK(error("data.normalize={mean: [0.5, 1], std: [1, 1]}") ==
        "dpt: error: command line: Normalize: mean has 2 values, but the images have 1 channel\n");
  check_contains(error("data.normalize={mode: none, mean: [0.5], std: [1]}"), "mode: none");
  check_contains(error("data.normalize=given"), "write auto");
  check_contains(
      w.run_well({"config", "check", "small.yaml", "data.normalize={mean: [125], std: [50]}"}).err,
      "warning: data.normalize has the mean 125, but its input ranges from 0 to 1");
}

TEST_CASE("normalize: a run without it is not resumed with it") {
  const Photos w;
  w.run_well({"train", "small.yaml", "--max-steps", "2"}, kShort);
  const Finished refused = w.run({"train", "small.yaml"}, with(kShort, "data.normalize=auto"));
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "data.normalize");
}

TEST_CASE("normalize: auto reports a bad image, or leaves it out") {
  const Photos w;
  write_file(w.dir.file("photos/train/dark/0.png"), "");
  const std::vector<std::string> words = {"train.epochs=2", "data.normalize=auto"};
  const Finished stopped = w.run({"train", "small.yaml"}, words);
  CHECK(stopped.exit_code == 3);
  check_contains(stopped.err, "photos/train/dark/0.png: the file is empty");
  CHECK(!fs::exists(w.dir.file("runs/small/metrics.jsonl")));
  const Finished skipped =
      w.run_well({"train", "small.yaml"}, with(words, "data.on_bad_sample=skip"));
  check_contains(skipped.err, "training samples was left out");
  check_contains(w.run_well({"data", "stats", "small.yaml", "data.on_bad_sample=skip"}).err,
                 "1 of 18 training samples was left out");
}

}  // namespace normalize_test
