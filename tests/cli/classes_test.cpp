// One class table from training to evaluation and export: classes are matched by name, and
// mismatches are refused.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/safetensors.h"
#include "tests/cli/image_folders.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/support/tar.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("classes: an evaluation on other folders goes by their names") {
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "white"});
  w.put("photos/test", {"dark", "grey", "white"});
  w.run_well({"train", "small.yaml"});
  const auto eval = [&](const std::vector<std::string>& more) {
    return w.run({"eval", "runs/small", "data.root=other", "--allow-other-data", "--json"}, more);
  };
  REQUIRE(json::parse(w.run_well({"eval", "runs/small", "--json"}).out)["accuracy"] == 1);
  // If sorted separately, these two would be classes 0 and 1.
  w.put("other/train", {"grey", "white"});
  w.put("other/test", {"grey", "white"});
  const Finished part = eval({});
  INFO(part.err);
  REQUIRE(part.exit_code == 0);
  CHECK(json::parse(part.out)["accuracy"] == 1);
  CHECK(json::parse(part.out)["classes"][0]["name"] == "dark");
  CHECK(json::parse(part.out)["classes"][0]["support"] == 0);
  // The training samples are not read.
  CHECK(part.err.find("the training data has no samples") == std::string::npos);
  check_contains(part.err, "dpt: note: the test data has no samples of 1 of the 3 classes: dark\n");
  const Finished two = eval({"--nproc", "2"});
  INFO(two.err);
  REQUIRE(two.exit_code == 0);
  CHECK(json::parse(two.out)["accuracy"] == 1);
  // The note appears once.
  const std::string note = "note: the test data";
  CHECK(two.err.find(note) == two.err.rfind(note));
  w.put("other/test", {"grey", "whites"});
  const Finished renamed = eval({});
  CHECK(renamed.exit_code == 3);
  check_contains(renamed.err,
                 "other/test/whites: the checkpoint has no class 'whites'; it "
                 "has 'white' (names are compared byte by byte)");
  // The checkpoint keeps the names, and so do exported files.
  const auto file =
      dpt::SafetensorsFile::open(w.dir.file("runs/small/checkpoints/step-00000120.safetensors"));
  CHECK(file.metadata().at("dpt.classes") == R"(["dark","grey","white"])");
  w.run_well({"export", "runs/small", "--torch", "x.safetensors"});
  CHECK(dpt::SafetensorsFile::open(w.dir.file("x.safetensors")).metadata().at("classes") ==
        R"(["dark","grey","white"])");
}

TEST_CASE("classes: a validation set that lacks one is measured, one with another is refused") {
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "white"});
  w.put("photos/val", {"grey", "white"});
  const std::string note =
      "dpt: note: the validation data has no samples of 1 of the 3 classes: dark";
  for (const char* command : {"config", "train"}) {
    std::vector<std::string> arguments = {command, "small.yaml"};
    if (command == std::string("config")) arguments.insert(arguments.begin() + 1, "check");
    check_contains(w.run_well(arguments).err, note);
  }
  CHECK(json::parse(
            w.run_well({"eval", "runs/small", "--split", "val", "--json"}).out)["accuracy"] == 1);
  w.put("photos/val", {"blue", "grey"});
  const Finished other = w.run({"train", "small.yaml", "--overwrite"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "photos/val/blue: ");
  check_contains(other.err, "photos/train has no class 'blue'");
}

TEST_CASE("classes: tar shards with labels as text are trained, resumed and measured by name") {
  const auto shard = [](const std::vector<std::string>& classes) {
    std::string text;
    for (int i = 0; i < 6; ++i) {
      for (const std::string& name : classes) {
        const std::string key = fmt::format("{}{}", name, i);
        text += tar_member(key + ".cls", name) + tar_member(key + ".png", image_of(name, i));
      }
    }
    return text + kTarEnd;
  };
  const Workplace w(config_of(
      "  dataset: webdataset\n  train: {shards: train.tar}\n  test: {shards: test.tar}\n"));
  write_file(w.dir.file("train.tar"), shard({"white", "dark", "grey"}));
  write_file(w.dir.file("test.tar"), shard({"grey", "white"}));
  w.run_well({"train", "small.yaml", "--max-steps", "50"});
  w.run_well({"train", "small.yaml"});
  const json result = json::parse(w.run_well({"eval", "runs/small", "--json"}).out);
  CHECK(result["accuracy"] == 1);
  CHECK(result["classes"][2]["name"] == "white");
  // A list of the same classes in another order changes nothing.
  const json given = json::parse(
      w.run_well({"eval", "runs/small", "--json", "data.classes=[white, grey, dark]"}).out);
  CHECK(given["accuracy"] == 1);
  CHECK(given["classes"] == result["classes"]);
}
