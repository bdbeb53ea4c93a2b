// `weights` in a config: its effect on the commands.
#include <doctest/doctest.h>

#include <filesystem>

#include "engine/checkpoints/safetensors.h"
#include "engine/checkpoints/tensor_view.h"
#include "tests/cli/tiny.h"
#include "tests/support/npy_data.h"
#include "tests/support/torch_archive.h"

using namespace dpt;
using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

/// A run of the tiny network whose weights are in "pre.safetensors", and a config "tune.yaml" that
/// starts from them. The config has a separate folder, because paths are relative to it.
struct Tuning : Tiny {
  explicit Tuning(const std::string& ema = "null") {
    run_well({"train", "small.yaml", "train.ema=" + ema});
    fs::create_directory(dir.file("c"));
    fs::copy_file(dir.file("runs/tiny/best.safetensors"), dir.file("c/pre.safetensors"));
    fs::remove_all(dir.file("runs"));
    write_config("weights: {file: pre.safetensors, head: by_class_name}\n");
  }
  void write_config(const std::string& more) const {
    write_file(dir.file("c/tune.yaml"), "extends: ../small.yaml\nname: tune\n" + more);
  }
  std::string values(const std::string& path, const std::string& name) const {
    const SafetensorsFile file = SafetensorsFile::open(dir.file(path));
    const TensorEntry* entry = file.find(name);
    REQUIRE(entry);
    const std::vector<std::byte> bytes = file.read(*entry);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

constexpr const char* kStill = "optimizer.lr=1e-30";

}  // namespace

TEST_CASE("weights: config check, config show, a dry run and the run know them") {
  const Tuning w;
  const std::string file = fs::canonical(w.dir.file("c")).string() + "/pre.safetensors";
  check_contains(w.run_well({"config", "check", "c/tune.yaml"}).out,
                 "parameters; weights from " + file + ": 2 loaded, 0 missing, 0 left over");
  const std::string shown = w.run_well({"config", "show", "c/tune.yaml", "--origins"}).out;
  check_contains(shown, "\nweights:\n  file: " + file);
  check_contains(shown, "  head: by_class_name");
  check_contains(shown, "  use: null");
  check_contains(w.run_well({"train", "c/tune.yaml", "--dry-run"}).err,
                 "  head 'fc': the rows of 3 of 3 classes, by name\n");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));

  const Finished run = w.run_well({"train", "c/tune.yaml", kStill});
  check_contains(run.err, "weights from " + file + ": 2 loaded");
  CHECK(w.values("runs/tune/best.safetensors", "fc.weight") ==
        w.values("c/pre.safetensors", "fc.weight"));
  // A resumed run already has the weights, even if the file is gone.
  fs::rename(w.dir.file("c/pre.safetensors"), w.dir.file("moved.safetensors"));
  const Finished more = w.run_well({"train", "c/tune.yaml", kStill, "train.epochs=2"});
  check_contains(more.err, "resuming");
  CHECK_FALSE(contains(more.err, "weights"));
  const Finished other = w.run_well(
      {"train", "c/tune.yaml", kStill, "train.epochs=3", "weights.file=moved.safetensors"});
  check_contains(other.err, "moved.safetensors is ignored: the run resumes from runs/tune");
  check_contains(other.err, "; it began with " + file);
  // An argument that replaces the config's file is reported once.
  fs::copy_file(w.dir.file("moved.safetensors"), w.dir.file("third.safetensors"));
  const Finished twice = w.run_well(
      {"train", "c/tune.yaml", kStill, "train.epochs=4", "--weights", "third.safetensors"});
  check_contains(twice.err, "--weights third.safetensors is ignored: the run resumes from ");
  check_contains(twice.err, "; it began with ");
  CHECK(twice.err.find("is ignored") == twice.err.rfind("is ignored"));
  const Finished changed = w.run({"train", "c/tune.yaml", kStill, "weights.head=null"});
  CHECK(changed.exit_code == 2);
  check_contains(changed.err, "weights.head: by_class_name -> null");
  // A fresh run needs the file.
  const Finished missing = w.run({"config", "check", "c/tune.yaml"});
  CHECK(missing.exit_code == 3);
  check_contains(missing.err, file + ": cannot open");
  const Finished given = w.run_well(
      {"train", "c/tune.yaml", kStill, "--run-dir", "g", "--weights", "moved.safetensors"});
  check_contains(given.err, "weights from moved.safetensors: 2 loaded");
  check_contains(read_file(w.dir.file("g/config.yaml")),
                 "  file: " + fs::canonical(w.dir.file("moved.safetensors")).string());
}

TEST_CASE("weights: the average of a run with train.ema is taken, or the weights themselves") {
  const Tuning w("{decay: 0.5}");
  const std::string raw = w.values("c/pre.safetensors", "fc.weight");
  const std::string average = w.values("c/pre.safetensors", "optim.ema.fc.weight");
  REQUIRE(raw != average);
  const auto start = [&](const std::vector<std::string>& more) {
    const Finished run =
        w.run_well({"train", "c/tune.yaml", kStill, "--run-dir", "r", "--overwrite"}, more);
    return std::pair(w.values("r/best.safetensors", "fc.weight"), run.err);
  };
  const auto usual = start({});
  CHECK(usual.first == average);
  check_contains(usual.second, "pre.safetensors (moving average): 2 loaded");
  CHECK(start({"weights.use=ema"}).first == average);
  const auto asked = start({"weights.use=raw"});
  CHECK(asked.first == raw);
  check_contains(asked.second, "pre.safetensors (raw, not the average): 2 loaded");
  // --weights also takes the average if the config has no `weights`.
  const Finished plain = w.run_well(
      {"train", "small.yaml", kStill, "--run-dir", "p", "--weights", "c/pre.safetensors"});
  check_contains(plain.err, "(moving average)");
  CHECK(w.values("p/best.safetensors", "fc.weight") == average);
}

TEST_CASE("weights: another number of classes, and what a config gets wrong") {
  const Tuning w;
  const std::vector<std::string> wider = {"train",          "c/tune.yaml",
                                          "data.classes=5", "model.layers.fc.out_features=5",
                                          "--max-steps",    "1"};
  const Finished run = w.run_well(wider);
  check_contains(run.err, "  head 'fc': the rows of 3 of 5 classes, by name; initial values for ");
  const Finished whole = w.run(wider, {"weights.head=null", "--resume", "never"});
  CHECK(whole.exit_code == 3);
  check_contains(whole.err, "pre.safetensors: tensor 'fc.weight': expected the shape [5, 16] of");
  w.run_well(wider, {"weights.head=null", "weights.expect_missing=fc.*",
                     "weights.expect_left_over=fc.*", "--resume", "never"});
  const auto refused = [&](const std::string& weights, const std::string& text) {
    w.write_config("weights: " + weights + "\n");
    const Finished bad = w.run({"config", "check", "c/tune.yaml"});
    CHECK(bad.exit_code == 2);
    check_contains(bad.err, text);
  };
  refused("[pre.safetensors]", "expected a path, a URL or pretrained, or a mapping, found a list");
  refused("{file: pre.safetensors, sha256: ABC}",
          "sha256: expected 64 hexadecimal digits in lower");
  refused("{path: pre.safetensors}",
          "unknown key 'path' in weights, did you mean 'file'? Known "
          "keys: file, sha256, key, map, expect_missing, expect_left_over, head, use");
  refused("{file: x, map: [a]}", "expected a mapping from strings to strings, found a list of 1");
  refused("{file: x, map: {a: 1}}", "expected a string, found 1; put it into quotes");
  refused("{file: x, head: by_name}", "expected one of by_class_name, new, found 'by_name'");
  refused("{file: x, use: best}", "expected one of ema, swa, raw, found 'best'");
  refused("{map: {a: b}}", "missing key 'file' in weights");
  // A plain value means the file.
  w.write_config("weights: pre.safetensors\n");
  check_contains(w.run_well({"config", "check", "c/tune.yaml"}).out, "pre.safetensors: 2 loaded");
  w.write_config("pretrained: {file: x}\n");
  check_contains(w.run({"config", "check", "c/tune.yaml"}).err,
                 "unknown key 'pretrained' in the config, did you mean 'weights'?");
}

TEST_CASE("weights: config check compares the names of classes, as the dry run does") {
  const Workplace w("");
  const auto config = [&](const std::string& name, const std::string& classes) {
    return "version: 1\nname: " + name + "\ndata:\n  batch_size: 8\n" +
           npy_data(w.dir.path(), "labels", false) + "  classes: " + classes +
           "\nmodel:\n  input: [1, 8, 8]\n  layers: [{type: Flatten}, {type: Linear, name: fc, "
           "out_features: 4}]\noptimizer: {type: SGD, lr: 0.1}\ntrain: {epochs: 1}\n"
           "devices: [cpu]\n";
  };
  write_file(w.dir.file("small.yaml"), config("small", "[sky, sea, land, sand]"));
  w.run_well({"train", "small.yaml"});
  const std::string weights = "weights: {file: runs/small, head: by_class_name}\n";
  write_file(w.dir.file("tune.yaml"), config("tune", "[cat, sea, dog, cow]") + weights);
  check_contains(w.run_well({"config", "check", "tune.yaml"}).out, ": 2 loaded, 0 missing");
  write_file(w.dir.file("tune.yaml"), config("tune", "[cat, ox, dog, cow]") + weights);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"config", "check", "tune.yaml"},
        std::vector<std::string>{"train", "tune.yaml", "--dry-run"}}) {
    const Finished bad = w.run(command);
    CHECK(bad.exit_code == 3);
    check_contains(bad.err, "none of its classes (sky, sea, land, sand) is a class of the data");
  }
}

TEST_CASE("weights: a run folder means its best checkpoint; other folders and files are named") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.epochs=2"});
  const Finished run = w.run_well(
      {"train", "small.yaml", "--run-dir", "r", "--weights", "runs/tiny", "--max-steps", "1"});
  check_contains(run.err, "weights from runs/tiny/best.safetensors: 2 loaded");
  // For other commands, too, a run folder means its best checkpoint.
  check_contains(w.run_well({"inspect", "runs/tiny"}).out, "integrity: good");
  write_file(w.dir.file("tune.yaml"), "extends: small.yaml\nname: t\nweights: {file: runs/tiny}\n");
  check_contains(w.run_well({"config", "check", "tune.yaml"}).out,
                 "runs/tiny/best.safetensors: 2 loaded");

  fs::create_directory(w.dir.file("hub"));
  const auto refused = [&](const std::vector<std::string>& command, const std::string& text) {
    const Finished bad = w.run(command);
    CHECK(bad.exit_code == 3);
    check_contains(bad.err, text);
  };
  const auto weights = [](const std::string& file) {
    return std::vector<std::string>{"train", "small.yaml", "--run-dir", "n", "--weights", file};
  };
  refused(weights("hub"),
          "hub: expected a run folder or a file to start from, found a folder without checkpoints");
  fs::copy_file(w.dir.file("runs/tiny/best.safetensors"), w.dir.file("hub/model.safetensors"));
  refused(weights("hub"),
          "hub: expected a run folder or a file, found a folder with hub/model.safetensors: name "
          "the file to start from");
  // New users often have a PyTorch file.
  write_file(w.dir.file("w.pt"), torch_archive(pickle(pickled::ordered({})), {}));
  const std::string torch =
      "w.pt: expected a safetensors file, found a PyTorch file (torch.save), ";
  refused(weights("w.pt"), "w.pt: expected a dictionary of tensors, such as a state_dict, found a");
  refused({"train", "small.yaml", "--run-dir", "n", "--resume", "w.pt"}, torch);
  refused({"eval", "w.pt"}, torch);
  refused({"eval", "w.pt"},
          "start from its weights: dpt train CONFIG --weights w.pt. dpt inspect w");
  refused({"export", "w.pt", "--onnx", "w.onnx"}, torch);
  refused({"inspect", "w.pt"}, "w.pt: expected a dictionary of tensors");
  CHECK_FALSE(fs::exists(w.dir.file("n/checkpoints/step-00000005.safetensors")));
}

TEST_CASE("weights: of many names that do not fit, ten of a kind are listed") {
  const Tiny w;
  std::vector<TensorView> tensors;
  for (int i = 0; i < 60; ++i) tensors.push_back({fmt::format("e.{}.w", i), "F32", {0}, nullptr});
  write_safetensors(w.dir.file("many.safetensors"), {}, tensors);
  const Finished bad =
      w.run({"train", "small.yaml", "--weights", "many.safetensors", "--expect-missing", "fc.*"});
  CHECK(bad.exit_code == 3);
  CHECK(count_of(bad.err, "left over in the file: e.") == 10);
  check_contains(bad.err, "\n  left over in the file: and 50 more\n");
  const Finished good = w.run_well({"train", "small.yaml", "--weights", "many.safetensors",
                                    "--expect-missing", "fc.*", "--expect-left-over", "e.*"});
  CHECK(count_of(good.err, " (expected)\n") == 2 + 10 + 1);
  check_contains(good.err, "  left over in the file: and 50 more (expected)\n");
}

namespace {

/// Returns a pickled state_dict for the tiny network's layer. Its tensors are views of one storage
/// of 51 numbers, and their names begin with `prefix`.
std::string torch_state(const std::string& prefix, std::int64_t outputs = 3) {
  return pickled::ordered(
      {{prefix + "fc.weight", PickledTensor{{outputs, 16}, {1, 3}, "0", 51}.text()},
       {prefix + "fc.bias", PickledTensor{{outputs}, {1}, "0", 51, 48}.text()}});
}
std::string torch_file(const pickled::Pairs& dictionaries) {
  return torch_archive(pickle(pickled::dictionary(dictionaries)), {{"0", counted(51)}});
}

}  // namespace

TEST_CASE("weights: a file of PyTorch starts a run, and inspect shows it") {
  const Tiny w;
  write_file(w.dir.file("w.pth"), torch_file({{"epoch", pickled::integer(3)},
                                              {"state_dict", torch_state("")},
                                              {"ema", torch_state("module.")}}));
  const Finished run = w.run_well({"train", "small.yaml", kStill, "--weights", "w.pth"});
  check_contains(run.err, "weights from w.pth (state_dict; not ema): 2 loaded, 0 missing, 0 left");
  const SafetensorsFile best = SafetensorsFile::open(w.dir.file("runs/tiny/best.safetensors"));
  const std::vector<float> weight = best.read_floats(*best.find("fc.weight"));
  CHECK(weight[1] == 3);   // one step along the inputs
  CHECK(weight[16] == 1);  // one step along the outputs
  CHECK(best.read_floats(*best.find("fc.bias")) == std::vector<float>{48, 49, 50});

  const std::string shown = w.run_well({"inspect", "w.pth"}).out;
  check_contains(shown, "state_dict: 2 tensors (used unless weights.key names another)\n");
  check_contains(shown, "ema: 2 tensors\n");
  check_contains(shown, "fc.weight                                F32    [3, 16]");
  check_contains(shown, "integrity: good: the values have the archive's checksums (CRC-32)\n");
  const std::string listed = w.run_well({"inspect", "w.pth", "--json"}).out;
  check_contains(listed, R"("usual":"state_dict")");
  check_contains(listed, R"("key":"ema")");

  // The message begins with the prefix that would make the file fit, and gives no other advice.
  const std::vector<std::string> check = {"config", "check", "tune.yaml"};
  write_file(w.dir.file("tune.yaml"),
             "extends: small.yaml\nname: t\nweights: {file: w.pth, key: ema}\n");
  const Finished prefix = w.run(check);
  CHECK(prefix.exit_code == 3);
  check_contains(
      prefix.err,
      "w.pth does not fit the model: its names differ by a prefix. To map them, add to the "
      "config's `weights`:\n  map: {\"module.\": \"\"}\n  missing from the file: fc.w");
  CHECK_FALSE(contains(prefix.err, "expect_missing"));
  check_contains(w.run_well(check, {"weights.map={module.: ''}"}).out,
                 "w.pth (ema; not state_dict): 2 loaded, 0 missing, 0 left over");
  // The name of a dictionary is not a secret.
  const Finished named = w.run(check, {"weights.key=state_dict"});
  CHECK(!contains(named.out + named.err, "***"));
  const Finished unknown = w.run(check, {"weights.key=em"});
  CHECK(unknown.exit_code == 3);
  check_contains(unknown.err,
                 "weights.key: found no dictionary of tensors 'em'. The file has these "
                 "dictionaries of tensors:\n  state_dict: 2 tensors\n  ema: 2 tensors");
}

TEST_CASE("weights: head: new replaces the last layer in one word") {
  const Tiny w;
  write_file(w.dir.file("w.pth"), torch_file({{"model", torch_state("", 2)}}));
  write_file(w.dir.file("tune.yaml"), "extends: small.yaml\nname: t\nweights: {file: w.pth}\n");
  const Finished bad = w.run({"config", "check", "tune.yaml"});
  CHECK(bad.exit_code == 3);
  check_contains(
      bad.err,
      "w.pth: tensor 'fc.weight': expected the shape [3, 16] of the config's model, found [2, 16]. "
      "To keep this layer's initial values, add to the config's `weights`:\n  head: new\n");
  // The fields of `weights` also work with --weights.
  check_contains(w.run_well({"train", "small.yaml", "--weights", "w.pth", "weights.head=new",
                             "--dry-run", "name=other"})
                     .err,
                 "  head 'fc': new, with initial values");
  const Finished good = w.run_well({"train", "tune.yaml", "weights.head=new"});
  check_contains(good.err, "w.pth (model): 0 loaded, 0 missing, 0 left over");
  check_contains(
      good.err,
      "  head 'fc': new, with initial values; fc.weight, fc.bias of the file: not read\n");
}
