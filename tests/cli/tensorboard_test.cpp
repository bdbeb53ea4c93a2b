// log: {tensorboard: true}: TensorBoard's own reader finds the values of the log, also after a
// resume.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

TEST_CASE("event files have the scalars of the log, each step once, after a kill and a resume") {
  const Tiny w;
  const std::vector<std::string> words = {"train", "small.yaml", "train.epochs=4",
                                          "checkpoint.every=2",
                                          "log={every: 1, tensorboard: true}"};
  w.run_well(words, {"--max-steps", "10"});
  // The folder looks as if the run had been killed after step 10. The steps after the remaining
  // checkpoint are repeated.
  const Finished resumed = w.run_well(words);
  CHECK(resumed.err.find("warning") == std::string::npos);
  w.run_well({"train", "small.yaml", "train.epochs=4", "checkpoint.every=2", "--run-dir",
              "runs/tiny", "--resume", "runs/tiny/checkpoints/step-00000010.safetensors",
              "log={every: 1, tensorboard: true}"});
  const std::string folder = w.dir.file("runs/tiny/tensorboard");
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    ++files;
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
  }
  CHECK(files >= 2);
  // --overwrite treats the files as part of the run. Without log.tensorboard there are no such
  // files.
  w.run_well({"train", "small.yaml", "--run-dir", "plain"});
  CHECK_FALSE(fs::exists(w.dir.file("plain/tensorboard")));

  const char* chosen = std::getenv("DPT_PYTHON");
  const std::string python = chosen && *chosen ? chosen : "python3";
  const std::string out = w.dir.file("scalars.json"), quiet = " > '" + out + "' 2> /dev/null";
  if (std::system((python + " -c 'import tensorboard'" + quiet).c_str()) != 0) {
    return skip_test("python3 (DPT_PYTHON) lacks tensorboard");
  }
  REQUIRE(std::system((python + " '" + source_dir() + "/tests/cli/read_tensorboard.py' '" + folder +
                       "'" + quiet)
                          .c_str()) == 0);
  const auto scalars = nlohmann::json::parse(read_file(out));
  const auto compare = [&](const std::string& event, const std::string& prefix,
                           const std::string& field, const std::string& split) {
    CAPTURE(prefix + field);
    std::vector<std::pair<std::int64_t, double>> expected, found;
    for (const auto& line : events(w.dir.file("runs/tiny/metrics.jsonl"), event)) {
      if (split.empty() || line["split"] == split) expected.emplace_back(line["step"], line[field]);
    }
    REQUIRE(scalars.contains(prefix + field));
    for (const auto& each : scalars[prefix + field]) found.emplace_back(each[0], each[1]);
    REQUIRE(found.size() == expected.size());
    CHECK_FALSE(found.empty());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].first == expected[i].first);
      CHECK(found[i].second == static_cast<double>(static_cast<float>(expected[i].second)));
    }
  };
  for (const char* field : {"loss", "accuracy", "lr", "grad_norm", "images_per_s"}) {
    compare("step", "train/", field, "");
  }
  compare("epoch", "train_epoch/", "loss", "");
  for (const char* split : {"val", "test"}) {
    compare("eval", split + std::string("/"), "loss", split);
    compare("eval", split + std::string("/"), "accuracy", split);
  }
  // Epochs and sample counts are not curves.
  for (const char* tag : {"train/epoch", "train_epoch/epoch", "val/epoch", "val/n", "test/n"}) {
    CHECK_FALSE(scalars.contains(tag));
  }
}
