// Validation sets with separate files: val/ of an image folder, data.val of tables and arrays.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_files.h"
#include "tests/cli/image_folders.h"
#include "tests/support/rewrite.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kClasses = {"dark", "grey", "white"};

struct Photos : FolderWorkplace {
  explicit Photos(const std::vector<std::string>& parts) {
    for (const std::string& part : parts) put("photos/" + part, kClasses);
  }
  json summary() const { return json::parse(read_file(dir.file("runs/small/summary.json"))); }
  json eval(const std::vector<std::string>& more = {}) const {
    return json::parse(run_well({"eval", "runs/small", "--json"}, more).out);
  }
};

/// Removes the field data.val from a stored run, as if an earlier release had written it.
void make_earlier(const Photos& w) {
  const auto without = [](const std::string& text) {
    const std::string line = "  val: none\n";
    const std::size_t at = text.find(line);
    REQUIRE(at != std::string::npos);
    return text.substr(0, at) + text.substr(at + line.size());
  };
  const std::string config = w.dir.file("runs/small/config.yaml");
  write_file(config, without(read_file(config)));
  std::vector<std::string> files = dpt::list_checkpoints(w.dir.file("runs/small/checkpoints"));
  for (const std::string& file : files) {
    rewrite_checkpoint(file, file, [&](dpt::Metadata& metadata, auto&) {
      metadata["dpt.config"] = without(metadata.at("dpt.config"));
    });
  }
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("validation set: val/ is measured each epoch, chooses the best, and is not a test set") {
  const Photos w({"train", "val", "test"});
  const std::vector<std::string> early = {
      "train.early_stopping={monitor: val/accuracy, patience: 30}"};
  const Finished train = w.run_well({"train", "small.yaml"}, early);
  CHECK(w.summary()["val"]["n"] == 18);
  CHECK(w.summary()["val"]["accuracy"] == 1);
  CHECK(w.summary()["test"]["n"] == 18);
  CHECK(fs::exists(w.dir.file("runs/small/best.safetensors")));
  CHECK(w.eval({"--split", "val"})["n"] == 18);
  const Finished predicted = w.run_well({"predict", "runs/small", "--split", "val"});
  CHECK(count(predicted.out, "photos/val/") == 18);
  const Finished all = w.run_well({"predict", "runs/small", "--split", "all"});
  CHECK(count(all.out, "photos/val/") == 18);
  CHECK(count(all.out, "\n") == 1 + 3 * 18);
  // Each part's samples have the same predictions as when they are evaluated alone.
  const auto tail = [](const std::string& text, int lines) {
    std::size_t at = text.size();
    for (int i = 0; i <= lines; ++i) at = text.rfind('\n', at - 1);
    return text.substr(at + 1);
  };
  const auto without_index = [](const std::string& text) {
    std::string kept;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) kept += line.substr(line.find(',')) + "\n";
    return kept;
  };
  const std::vector<std::string> fewer = {"--split", "all"};
  fs::remove(w.dir.file("photos/test/dark/0.png"));
  const Finished parts = w.run_well({"predict", "runs/small"}, fewer);
  const Finished test = w.run_well({"predict", "runs/small", "--split", "test"});
  CHECK(count(test.out, "\n") == 1 + 17);
  CHECK(without_index(tail(parts.out, 17)) == without_index(tail(test.out, 17)));
  write_file(w.dir.file("photos/test/dark/0.png"), image_of("dark", 0));
  const Finished check = w.run_well({"config", "check", "small.yaml"});
  check_contains(check.out, "18 training samples, 18 validation samples, 18 test samples");
  // Changed images make another validation set.
  write_file(w.dir.file("photos/val/grey/0.png"), image_of("grey", 0) + "more bytes");
  const Finished other = w.run({"eval", "runs/small", "--split", "val"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "expected the run's validation samples");
}

TEST_CASE("validation set: none to monitor, or two of them, is refused with what to do") {
  const Photos w({"train", "val"});
  const Finished both = w.run({"train", "small.yaml", "data.val_split=4"});
  CHECK(both.exit_code == 2);
  check_contains(both.err, "data.val_split: 4: the data set has its own validation set");
  check_contains(both.err, "Remove val_split");
  check_contains(both.err, "data.test=val makes it the test set");
  w.run_well({"train", "small.yaml", "--dry-run", "data.val_split=4", "data.test=val"});
  const Finished gate = w.run({"train", "small.yaml", "--require", "test/accuracy>0.5"});
  CHECK(gate.exit_code == 3);
  check_contains(gate.err, "its folder val, which was the test set in earlier releases");
  fs::remove_all(w.dir.file("photos/val"));
  for (const char* monitor : {"train.early_stopping={monitor: val/accuracy}",
                              "lr_schedule={type: plateau, monitor: val/loss}"}) {
    const Finished none = w.run({"train", "small.yaml", monitor});
    CHECK(none.exit_code == 2);
    check_contains(none.err, "but the data set has no validation samples, and none are held out");
    const Finished check = w.run({"config", "check", "small.yaml", monitor});
    CHECK(check.exit_code == 2);
    check_contains(check.err, "but the data set has no validation samples, and none are held out");
  }
}

TEST_CASE("validation set: a run of an earlier release keeps val/ as its test set") {
  const Photos w({"train", "val"});
  w.run_well({"train", "small.yaml", "data.val=none", "--max-steps", "3"});
  make_earlier(w);
  CHECK(w.eval()["split"] == "test");
  // The earlier release would have started the run with this config.
  const Finished resumed = w.run_well({"train", "small.yaml"});
  check_contains(resumed.err, "resuming");
  CHECK(w.summary()["test"]["n"] == 18);
  CHECK(!w.summary().contains("val"));
  check_contains(read_file(w.dir.file("runs/small/config.yaml")), "  val: none\n");
  // An explicit user setting is still compared.
  make_earlier(w);
  const Finished other = w.run({"train", "small.yaml", "data.val=auto"});
  CHECK(other.exit_code == 2);
  check_contains(other.err, "data.val: none -> auto");
  // A new run uses val/ as its validation set.
  w.run_well({"train", "small.yaml", "--overwrite"});
  CHECK(w.summary()["val"]["n"] == 18);
}

TEST_CASE("validation set: data.val of a table, on several processes too") {
  const Workplace w(R"(version: 1
name: small
data:
  dataset: csv
  train: {file: train.csv}
  val: {file: val.csv}
  label: kind
  batch_size: 5
model:
  input: [1, 1, 1]
  layers: [{type: Flatten}, {type: Linear, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 2}
devices: [cpu]
)");
  write_file(w.dir.file("train.csv"), "a,kind\n1,yes\n-1,no\n2,yes\n-2,no\n");
  write_file(w.dir.file("val.csv"), "a,kind\n3,yes\n-1,no\n-5,no\n");
  w.run_well({"train", "small.yaml", "train.shards=2"});
  w.run_well({"train", "small.yaml", "train.shards=2", "--nproc", "2", "--run-dir", "two"});
  const auto val_of = [&](const std::string& run) {
    return json::parse(read_file(w.dir.file(run + "/summary.json")))["val"];
  };
  CHECK(val_of("runs/small")["n"] == 3);
  CHECK(val_of("runs/small") == val_of("two"));
  const Finished both = w.run({"config", "check", "small.yaml", "data.val_split=1"});
  CHECK(both.exit_code == 2);
  check_contains(both.err, "expected data.val or data.val_split, found both");
}
