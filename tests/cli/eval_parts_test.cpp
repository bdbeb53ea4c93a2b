// dpt eval needs only the data of the split that it evaluates, and accepts a config.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/image_folders.h"
#include "tests/cli/workplace.h"
#include "tests/support/npy_data.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string config_of(const std::string& data) {
  return "version: 1\nname: parts\ndata:\n" + data + R"(  batch_size: 8
model:
  input: [2, 1, 1]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
lr_schedule: {type: cosine, warmup: {epochs: 1}}
train: {epochs: 3, early_stopping: {patience: 2}}
devices: [cpu]
)";
}

std::string table(int samples, int seed) {
  std::string text = "kind,a,b\n";
  for (int i = 0; i < samples; ++i) {
    const int a = (i * 7 + seed) % 11, b = (i * 5 + seed) % 7;
    text += (a > b ? "wide," : "high,") + std::to_string(a) + "," + std::to_string(b) + "\n";
  }
  return text;
}

constexpr const char* kFiles =
    "  dataset: csv\n  train: {file: train.csv}\n  val: {file: val.csv}\n"
    "  test: {file: test.csv}\n  label: kind\n";

struct Tables : Workplace {
  Tables() : Workplace(config_of(kFiles)) {
    write_file(dir.file("train.csv"), table(40, 0));
    write_file(dir.file("val.csv"), table(13, 3));
    write_file(dir.file("test.csv"), table(17, 5));
  }
  json eval(const std::vector<std::string>& more) const {
    return json::parse(run_well({"eval", "runs/parts", "--json"}, more).out);
  }
};

}  // namespace

TEST_CASE("eval opens the files of its split alone") {
  const Tables w;
  w.run_well({"train", "small.yaml"});
  const json test = w.eval({}), val = w.eval({"--split", "val"});
  CHECK(test["n"] == 17);
  CHECK(val["n"] == 13);
  CHECK(w.eval({"--split", "train"})["n"] == 40);
  fs::remove(w.dir.file("train.csv"));
  fs::remove(w.dir.file("val.csv"));
  CHECK(w.eval({}) == test);
  CHECK(w.eval({"--split", "test", "--nproc", "2"}) == test);
  w.run_well({"report", "runs/parts", "--out", "report.html"});
  check_contains(read_file(w.dir.file("report.html")), "test split, 17 samples");
  CHECK(w.run({"eval", "runs/parts", "--split", "val"}).exit_code == 3);
  CHECK(w.run({"eval", "runs/parts", "--split", "train"}).exit_code == 3);
  write_file(w.dir.file("val.csv"), table(13, 3));
  fs::remove(w.dir.file("test.csv"));
  CHECK(w.eval({"--split", "val"}) == val);
  // The fingerprint of the split detects other samples.
  write_file(w.dir.file("val.csv"), table(13, 4));
  const Finished other = w.run({"eval", "runs/parts", "--split", "val"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "expected the run's validation samples (fingerprint ");
  check_contains(other.err, "the result is not comparable with the run's");
}

TEST_CASE("eval and predict with a config: val/ is the validation set there, too") {
  const FolderWorkplace w;
  for (const char* part : {"train", "val"}) {
    w.put(std::string("photos/") + part, {"dark", "grey", "white"});
  }
  w.run_well({"train", "small.yaml"});
  write_file(w.dir.file("lab.yaml"), "data: {dataset: image_folder, root: photos}\n");
  check_contains(w.run_well({"eval", "runs/small", "lab.yaml"}).out, "val split, 18 samples");
  CHECK(w.run({"eval", "runs/small", "lab.yaml", "--split", "test"}).exit_code == 3);
  check_contains(w.run_well({"predict", "runs/small", "lab.yaml", "--split", "val"}).out,
                 "photos/val/");
}

TEST_CASE("eval does not take the validation set for a test set that is gone") {
  const FolderWorkplace w;
  for (const char* part : {"train", "val", "test"}) {
    w.put(std::string("photos/") + part, {"dark", "grey", "white"});
  }
  w.run_well({"train", "small.yaml"});
  fs::remove_all(w.dir.file("photos/test"));
  const Finished refused = w.run({"eval", "runs/small"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err, "the run has a test set, which is missing now: restore it, ");
  check_contains(w.run_well({"eval", "runs/small", "--split", "val"}).out, "val split, 18 samples");
  w.run_well({"eval", "runs/small", "--allow-other-data"});
}

TEST_CASE("eval needs the training samples where the weights of classes follow from them") {
  const Tables w;
  w.run_well({"train", "small.yaml", "loss={type: cross_entropy, class_weights: balanced}"});
  const json test = w.eval({});
  fs::remove(w.dir.file("train.csv"));
  const Finished refused = w.run({"eval", "runs/parts"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err, "train.csv");
}

TEST_CASE("eval takes a config whose data section names the samples") {
  const Tables w;
  w.run_well({"train", "small.yaml"});
  fs::create_directory(w.dir.file("lab"));
  write_file(w.dir.file("lab/other.csv"), "b,kind,a\n6,high,2\n1,wide,9\n5,high,3\n");
  write_file(w.dir.file("lab/lab.yaml"),
             "data:\n  dataset: csv\n  train: {file: none.csv}\n  test: {file: other.csv}\n"
             "  label: kind\n");
  const Finished eval = w.run_well({"eval", "runs/parts", "lab/lab.yaml", "--json"});
  const json result = json::parse(eval.out);
  CHECK(result["n"] == 3);
  CHECK(result["classes"][0]["support"] == 2);
  check_contains(eval.err, "expected the run's test data (fingerprint ");
  check_contains(eval.err, "(lab/lab.yaml)");
  CHECK(result.contains("other_data"));
  write_file(w.dir.file("lab/more.csv"), "kind,a,b\nwide,9,1\n");
  CHECK(w.eval({"lab/lab.yaml", "data.test.file=" + w.dir.file("lab/more.csv")})["n"] == 1);
  CHECK(w.eval({"runs/parts/config.yaml"}) == w.eval({}));
  const Finished two = w.run({"eval", "runs/parts", "lab/lab.yaml", "small.yaml"});
  CHECK(two.exit_code == 2);
  check_contains(two.err, "expected one config, found lab/lab.yaml and small.yaml");
  // Evaluation needs labels, but a config for prediction has none.
  write_file(w.dir.file("lab/lab.yaml"),
             "data:\n  dataset: csv\n  train: {file: none.csv}\n  test: {file: other.csv}\n");
  CHECK(w.run({"eval", "runs/parts", "lab/lab.yaml"}).exit_code == 2);
}

TEST_CASE("eval of arrays opens those of its split alone") {
  const Workplace w("");
  write_file(w.dir.file("small.yaml"), "version: 1\nname: parts\ndata:\n" +
                                           npy_data(w.dir.path(), "labels", false) +
                                           R"(  batch_size: 8
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
  w.run_well({"train", "small.yaml"});
  const std::string before = w.run_well({"eval", "runs/parts", "--json"}).out;
  for (const auto& file : fs::directory_iterator(w.dir.path())) {
    if (file.path().filename().string().starts_with("train")) fs::remove(file.path());
  }
  CHECK(w.run_well({"eval", "runs/parts", "--json"}).out == before);
}
