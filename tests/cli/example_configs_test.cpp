// The configs in configs/ that are examples for user data: each runs on small data of its kind.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/cli/image_folders.h"
#include "tests/support/npy.h"
#include "tests/support/places.h"
#include "tests/support/tar.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kTwo = {"dark", "white"};

struct Examples : FolderWorkplace {
  /// Checks the config and trains one step.
  void run_example(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    CAPTURE(name);
    const std::string config = source_dir() + "/configs/" + name + ".yaml";
    std::vector<std::string> words = {"data.batch_size=2", "devices=[cpu]"};
    words.insert(words.end(), overrides.begin(), overrides.end());
    const auto in_child = [this] { setenv("DPT_DATA", dir.path().c_str(), 1); };
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"config", "check", config},
          {"train", config, "--max-steps", "1"}}) {
      std::vector<std::string> all = command;
      all.insert(all.end(), words.begin(), words.end());
      const Finished finished = run_dpt(all, dir.path(), in_child);
      INFO(finished.err);
      CHECK(finished.exit_code == 0);
    }
  }
};

}  // namespace

TEST_CASE("example configs: own images, and finetuning from a file of weights") {
  const Examples w;
  for (const char* part : {"train", "val", "test"}) w.put(std::string("photos/") + part, kTwo);
  const std::vector<std::string> two = {"model.classes=2"};
  w.run_example("own-images", two);
  w.run_well({"export", "runs/own-images", "--torch", "resnet18.safetensors"});
  w.run_example("finetune-resnet18",
                {"model.classes=2", "weights.file=" + w.dir.file("resnet18.safetensors")});
}

TEST_CASE("example configs: a table, arrays, tar shards") {
  const Examples w;
  fs::create_directories(w.dir.file("iris"));
  for (const char* part : {"train", "val"}) {
    write_file(w.dir.file(fmt::format("iris/{}.csv", part)),
               "a,b,c,d,species\n1,2,3,4,x\n2,3,4,5,y\n3,4,5,6,z\n");
  }
  w.run_example("table-csv");

  fs::create_directories(w.dir.file("arrays"));
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(i % 10);
  const std::string images = npy<std::uint8_t>({20, 32, 32, 3}, std::vector<std::uint8_t>(61440));
  for (const char* part : {"train", "test"}) {
    write_file(w.dir.file(fmt::format("arrays/{}_images.npy", part)), images);
    write_file(w.dir.file(fmt::format("arrays/{}_labels.npy", part)),
               npy<std::int64_t>({20}, labels));
  }
  w.run_example("arrays-npy");

  fs::create_directories(w.dir.file("shards"));
  for (const char* part : {"train", "val"}) {
    std::string shard;
    for (int i = 0; i < 4; ++i) {
      const std::string& name = kTwo[i % 2];
      shard += tar_member(fmt::format("{}.png", i), image_of(name, i)) +
               tar_member(fmt::format("{}.cls", i), name);
    }
    write_file(w.dir.file(fmt::format("shards/{}-000000.tar", part)), shard + kTarEnd);
  }
  w.run_example("shards-webdataset", {"model.classes=2"});
}
