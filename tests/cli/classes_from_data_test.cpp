// model.classes of the zoo's networks: the number of classes of the data in every format, or 1.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/cli/image_folders.h"
#include "tests/support/npy.h"
#include "tests/support/tar.h"

using namespace dpt::testing;

namespace {

std::string zoo_config(const std::string& data, const std::string& model,
                       const std::string& more = "") {
  return "version: 1\nname: zoo\ndata:\n  batch_size: 6\n" + data + "model: {" + model +
         "}\noptimizer: {type: Adam, lr: 0.01}\ntrain: {epochs: 1}\ndevices: [cpu]\n" + more;
}

/// Checks that all commands use the same number of outputs, and that the run keeps this number.
void check_outputs(const Workplace& w, int outputs) {
  CHECK(w.run_well({"config", "check", "small.yaml"}).out.find(": ok: ") != std::string::npos);
  const std::string number = fmt::format("classes: {}\n", outputs);
  CHECK(w.run_well({"config", "show", "small.yaml"}).out.find(number) != std::string::npos);
  CHECK(w.run_well({"model", "summary", "small.yaml"}).out.find("fc") != std::string::npos);
  w.run_well({"train", "small.yaml", "--dry-run"});
  w.run_well({"train", "small.yaml"});
  const std::string stored = read_file(w.dir.file("runs/zoo/config.yaml"));
  CHECK(stored.find(fmt::format("out_features: {}\n", outputs)) != std::string::npos);
  CHECK(stored.find("zoo:") == std::string::npos);
}

}  // namespace

TEST_CASE("classes of a network: those of a folder of images") {
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "light"});
  w.put("photos/test", {"dark", "grey", "light"});
  write_file(w.dir.file("small.yaml"), zoo_config("  dataset: image_folder\n  root: photos\n",
                                                  "zoo: logistic, input: [1, 2, 2]"));
  check_outputs(w, 3);
  // One more class makes the network larger, so the run refuses it.
  w.put("photos/train", {"dark", "grey", "light", "white"});
  w.run_well({"config", "check", "small.yaml"});
  const Finished resumed = w.run({"train", "small.yaml", "train.epochs=2"});
  CHECK(resumed.exit_code == 2);
  check_contains(resumed.err, "out_features: 3 -> 4");

  std::filesystem::remove_all(w.dir.file("photos"));
  for (const char* command : {"check", "show"}) {
    const Finished missing = w.run({"config", command, "small.yaml"});
    CHECK(missing.exit_code == 3);
    check_contains(missing.err, "model.classes is not given, and the data cannot be read: ");
    check_contains(missing.err, "photos: no such folder");
  }
}

TEST_CASE("classes of a network: those of a table, or its targets") {
  const Workplace w;
  write_file(w.dir.file("t.csv"),
             "a,b,kind,y\n1,2,x,0.5\n2,3,y,0.25\n3,1,z,1\n4,4,x,0\n0,1,y,0.5\n2,2,z,0\n");
  const std::string data = "  dataset: csv\n  train: {file: t.csv}\n  features: [a, b]\n";
  const std::string model = "zoo: mlp, hidden: [4], input: [2, 1, 1]";
  write_file(w.dir.file("small.yaml"), zoo_config(data + "  label: kind\n", model));
  check_outputs(w, 3);
  std::filesystem::remove_all(w.dir.file("runs"));
  // Regression with one output, and a single sigmoid, also with explicit classes.
  write_file(w.dir.file("small.yaml"),
             zoo_config(data + "  targets: [y]\n  target: values\n", model, "loss: {type: mse}\n"));
  check_outputs(w, 1);
  w.run_well({"config", "check", "small.yaml", "model.classes=1"});
  std::filesystem::remove_all(w.dir.file("runs"));
  write_file(w.dir.file("small.yaml"), zoo_config(data + "  targets: [y]\n  target: multi_hot\n",
                                                  model, "loss: {type: bce_with_logits}\n"));
  check_outputs(w, 1);
  // One output is too few for class labels; the message says how many the model needs.
  const Finished one =
      w.run({"config", "check", "small.yaml", "data.targets=[]", "data.target=labels",
             "data.label=kind", "loss.type=cross_entropy", "model.classes=1"});
  CHECK(one.exit_code != 0);
  check_contains(one.err, "give it 3");
}

TEST_CASE("classes of a network: those of arrays and of shards") {
  const Workplace w;
  write_bytes(w.dir.file("x.npy"), npy<float>({6, 2}, std::vector<float>(12, 0.5F)));
  write_bytes(w.dir.file("y.npy"), npy<std::int64_t>({6}, {0, 1, 2, 3, 4, 0}));
  write_bytes(w.dir.file("v.npy"), npy<float>({6}, std::vector<float>(6, 1)));
  const auto config = [](const char* targets, const char* more) {
    return zoo_config(
        fmt::format("  dataset: npy\n  train: {{images: x.npy, targets: {}}}\n", targets),
        "zoo: mlp, hidden: [4], input: [2, 1, 1]", more);
  };
  write_file(w.dir.file("small.yaml"), config("y.npy", ""));
  check_outputs(w, 5);
  std::filesystem::remove_all(w.dir.file("runs"));
  write_file(w.dir.file("small.yaml"), config("v.npy", "loss: {type: mse}\n"));
  check_outputs(w, 1);
  std::filesystem::remove_all(w.dir.file("runs"));

  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 6; ++i) {
    members.emplace_back(fmt::format("{}.png", i), image_of("dark", i));
    members.emplace_back(fmt::format("{}.cls", i), i % 2 == 0 ? "left" : "right");
  }
  write_file(w.dir.file("a.tar"), tar(members));
  write_file(w.dir.file("small.yaml"),
             zoo_config("  dataset: webdataset\n  train: {shards: a.tar}\n",
                        "zoo: logistic, input: [1, 2, 2]"));
  check_outputs(w, 2);
}

TEST_CASE("classes of a network: a mistake in the data section is reported alone") {
  const Workplace w;
  write_file(w.dir.file("small.yaml"), zoo_config("  dataset: image_folder\n  rot: photos\n",
                                                  "zoo: logistic, input: [1, 2, 2]"));
  const Finished bad = w.run({"config", "check", "small.yaml"});
  CHECK(bad.exit_code == 2);
  check_contains(bad.err, "unknown key 'rot'");
  CHECK(bad.err.find("classes") == std::string::npos);
}
