// RandomErasing, MixUp and CutMix in the commands.
#include <doctest/doctest.h>

#include "tests/cli/tiny.h"

using namespace dpt::testing;

namespace {

constexpr const char* kMix = "data.transforms.batch=[{type: MixUp, alpha: 0.2}, {type: CutMix}]";
constexpr const char* kErase =
    "data.transforms.train=[{type: Normalize, mean: [0.5], std: [0.5]}, {type: RandomErasing}]";

}  // namespace

TEST_CASE("config check refuses mixing and erasing that cannot be") {
  const Tiny w;
  w.run_well({"config", "check", "small.yaml"}, {kMix, kErase});
  const auto error = [&](const std::string& text) {
    const Finished done = w.run({"config", "check", "small.yaml"}, {text});
    CHECK(done.exit_code == 2);
    return done.err;
  };
  check_contains(error("data.transforms.batch=[{type: MixUp, alpha: 0}]"),
                 "data.transforms.batch.0.alpha: expected a number above 0, found 0");
  check_contains(error("data.transforms.batch=[{type: Mixup}]"), "MixUp");
  check_contains(error("data.transforms.batch=[{type: RandomCrop}]"),
                 "unknown batch transform 'RandomCrop'");
  check_contains(error("data.transforms.train=[{type: MixUp}]"),
                 "data.transforms.batch: [{type: MixUp}]");
  check_contains(error("data.transforms.train=[{type: RandomErasing}, {type: Normalize, mean: "
                       "[0.5], std: [1]}]"),
                 "Normalize: must come before RandomErasing");
  check_contains(error("data.transforms.eval=[{type: RandomErasing}]"),
                 "RandomErasing: is for training only: expected it in data.transforms.train");
  check_contains(error("data.transforms.train=[{type: RandomErasing, value: [1, 2]}]"),
                 "RandomErasing: value has 2 values, but the images have 1 channel");
  check_contains(error("data.transforms.train=[{type: RandomErasing, value: random}]"),
                 "value: expected a number");
  check_contains(error("data.transforms.train=[{type: RandomErasing, scale: [0.5, 0.1]}]"),
                 "scale: expected [minimum, maximum], found [0.5, 0.1]");
  check_contains(error("data.transforms.train=[{type: RandomErasing, ratio: [0, 1]}]"),
                 "ratio: expected [minimum, maximum] above 0, found [0, 1]");
}

TEST_CASE("config check refuses to mix labels of which one is ignored") {
  const Tiny w;
  const Finished done = w.run({"config", "check", "small.yaml"},
                              {kMix, "loss={type: cross_entropy, ignore_index: 0}"});
  CHECK(done.exit_code == 2);
  check_contains(done.err, "MixUp: a mixed sample combines two labels");
}

TEST_CASE("a run that mixes and erases is evaluated, predicted, resumed and timed as any other") {
  const Tiny w;
  const std::vector<std::string> with = {kMix, kErase};
  w.run_well({"train", "small.yaml", "--run-dir", "run"}, with);
  w.run_well({"eval", "run"});
  w.run_well({"eval", "run", "--split", "train"});
  w.run_well({"train", "small.yaml", "--run-dir", "run", "train.epochs=2"}, with);
  // Exit code 7 means that three steps are too few; a step that cannot run has another exit code.
  CHECK(w.run({"train", "small.yaml", "--overfit", "1", "--max-steps", "3"}, with).exit_code == 7);
  w.run_well({"bench", "small.yaml", "--calls", "--rounds", "1"}, with);
  w.run_well({"model", "gradcheck", "small.yaml"}, with);
}

TEST_CASE("data show erases, and says that it does not mix") {
  const Tiny w;
  const auto show = [&](const std::string& out, const std::vector<std::string>& with) {
    return w.run_well({"data", "show", "small.yaml", "--out", out}, with).out;
  };
  const std::string note = "before data.transforms.batch mixes them";
  check_contains(show("mixed.png", {kMix, "data.transforms.train=[]"}), note);
  CHECK(show("plain.png", {}).find(note) == std::string::npos);
  CHECK(read_file(w.dir.file("mixed.png")) == read_file(w.dir.file("plain.png")));
  show("erased.png", {kErase});
  CHECK(read_file(w.dir.file("erased.png")) != read_file(w.dir.file("plain.png")));
  show("never.png", {"data.transforms.train=[{type: RandomErasing, p: 0}]"});
  CHECK(read_file(w.dir.file("never.png")) == read_file(w.dir.file("plain.png")));
}
