// dpt export: files that appear complete or not at all, the weights in them, and their use by other
// programs.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/safetensors.h"
#include "tests/cli/tiny.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

dpt::Metadata metadata_of(const std::string& path) {
  return dpt::SafetensorsFile::open(path).metadata();
}

std::vector<float> weight_of(const std::string& path) {
  const dpt::SafetensorsFile file = dpt::SafetensorsFile::open(path);
  return file.read_floats(*file.find("fc.weight"));
}

}  // namespace

TEST_CASE("export: - is not a file") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const Finished refused = w.run({"export", "runs/small", "--onnx", "-"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "the model is not written to stdout; write ./- for a file of that");
}

TEST_CASE("export leaves files that say what they are, and replaces none unasked") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.epochs=2"});
  const Finished done =
      w.run_well({"export", "runs/tiny", "--torch", "t.safetensors", "--onnx", "m.onnx"});
  check_contains(done.out, "runs/tiny/best.safetensors: step ");
  check_contains(done.out,
                 "t.safetensors: 2 tensors, a state_dict of PyTorch in a safetensors file\n");
  check_contains(done.out, "m.onnx: ONNX, opset 17, input of N x 1 x 4 x 4\n");
  const dpt::Metadata metadata = metadata_of(w.dir.file("t.safetensors"));
  CHECK(metadata.at("run") == "tiny");
  CHECK(metadata.at("weights") == "raw");
  check_contains(w.run_well({"inspect", "t.safetensors"}).out, "integrity: unknown");
  // A new run can also start from the weights in the file.
  w.run_well({"train", "small.yaml", "--weights", "t.safetensors", "--dry-run"});

  const std::string model = read_file(w.dir.file("m.onnx"));
  for (const char* option : {"--torch", "--onnx"}) {
    const Finished refused = w.run({"export", "runs/tiny", option, "m.onnx"});
    CHECK(refused.exit_code == 2);
    check_contains(refused.err,
                   "m.onnx: already exists: name another file, or replace it with "
                   "--overwrite");
  }
  CHECK(read_file(w.dir.file("m.onnx")) == model);
  const auto said = nlohmann::json::parse(
      w.run_well({"export", "runs/tiny", "--onnx", "m.onnx", "--overwrite", "--json"}).out);
  CHECK(said["onnx"] == "m.onnx");
  CHECK(said["params"] == 51);
  // The same weights give the same bytes.
  CHECK(read_file(w.dir.file("m.onnx")) == model);
}

TEST_CASE("export refuses impossible requests before it writes") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const std::string best = "runs/tiny/best.safetensors";
  const auto refused = [&](const std::vector<std::string>& words, int code, const char* text) {
    CAPTURE(text);
    const Finished done = w.run(words);
    CHECK(done.exit_code == code);
    check_contains(done.err, text);
  };
  refused({"export", "runs/tiny"}, 2, "expected a file to write: --onnx FILE or --torch FILE");
  refused({"export", "runs/tiny", "--torch", "x", "--onnx", "x"}, 2, "expected two files");
  refused({"export", "runs/tiny", "--torch", "x", "--include-normalisation"}, 2, "--onnx");
  refused({"export", "runs/none", "--torch", "x"}, 3, "runs/none: no such run folder");
  refused({"export", best, "--torch", best, "--overwrite"}, 2,
          "expected a file to write, found the checkpoint itself");
  for (const char* name :
       {"config.yaml", "metrics.jsonl", "checkpoints/step-00000001.safetensors"}) {
    refused({"export", "runs/tiny", "--torch", std::string("runs/tiny/") + name, "--overwrite"}, 2,
            "a run uses this name for its own files");
  }
  refused({"export", "runs/tiny", "--torch", "x", "--use", "ema"}, 2, "--use ema: ");
  refused({"export", "runs/tiny", "--onnx", "no/folder/x"}, 3, "no/folder");
  // A full disk leaves the old file in place.
  write_file(w.dir.file("old.onnx"), "old");
  refused({"export", "runs/tiny", "--onnx", "/dev/full"}, 2, "already exists");
  refused({"export", "runs/tiny", "--onnx", "/dev/full", "--overwrite"}, 3, "No space left");
  // A target that is replaced by renaming must be a regular file.
  refused({"export", "runs/tiny", "--torch", "/dev/full", "--overwrite"}, 2,
          "/dev/full: expected a file to replace, found a device, pipe or socket");
  refused({"export", "runs/tiny", "--torch", "runs", "--overwrite"}, 2, "found a folder");
  refused({"export", "runs/tiny", "--torch", "runs"}, 2, "found a folder");
  refused({"export", "runs/tiny", "--torch", "x.pth"}, 2, "torch.load does not), found .pth");
  CHECK(fs::is_character_file("/dev/full"));
  fs::create_symlink("old.onnx", w.dir.file("link"));
  w.run_well({"export", "runs/tiny", "--torch", "link", "--overwrite"});
  CHECK(fs::is_symlink(w.dir.file("link")));
  CHECK(metadata_of(w.dir.file("old.onnx")).at("run") == "tiny");

  w.run_well({"train", "small.yaml", "--run-dir", "b",
              "model.layers=[{type: BatchNorm2d, name: bn, track_running_stats: false}, {type: "
              "Flatten}, {type: Linear, name: fc, out_features: 3}]"});
  refused({"export", "b", "--torch", "x", "--onnx", "y"}, 2,
          "layer 'bn' (BatchNorm2d): track_running_stats: false normalises");
  CHECK_FALSE(fs::exists(w.dir.file("x")));
  CHECK_FALSE(fs::exists(w.dir.file("y")));
  w.run_well({"export", "b", "--torch", "x"});
}

TEST_CASE("export takes the weights that eval takes, or those it is asked for") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.ema={decay: 0.9}"});
  const auto exported = [&](const std::vector<std::string>& more) {
    const std::string path = w.dir.file("out.safetensors");
    w.run_well({"export", "runs/tiny", "--torch", path, "--overwrite"}, more);
    return std::pair(metadata_of(path).at("weights"), weight_of(path));
  };
  const auto usual = exported({}), average = exported({"--use", "ema"}),
             raw = exported({"--use", "raw"});
  CHECK(usual == average);
  CHECK(usual.first == "ema");
  CHECK(raw.first == "raw");
  CHECK(raw.second != usual.second);
  CHECK(raw.second == weight_of(w.dir.file("runs/tiny/best.safetensors")));
}

TEST_CASE("export writes a model that takes images of any size and gives probabilities") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const auto exported = [&](const std::vector<std::string>& more) {
    return w.run_well({"export", "runs/tiny", "--onnx", "m.onnx", "--overwrite"}, more).out;
  };
  check_contains(
      exported({"--include-preprocessing", "--softmax"}),
      "m.onnx: ONNX, opset 17, images of any size as input, nhwc, probabilities as output\n");
  const std::string model = read_file(w.dir.file("m.onnx"));
  // Without a transform that gives images a size, predict resizes them to the network's input.
  for (const char* text : {"\"type\":\"Resize\",\"size\":[4,4]", "preprocess/If",
                           "probabilities/Softmax", "preprocessing_included", "softmax_included"}) {
    CAPTURE(text);
    check_contains(model, text);
  }
  check_contains(exported({"--include-preprocessing", "nchw"}), "any size as input, nchw\n");
  check_contains(exported({}), "opset 17, input");
  CHECK(read_file(w.dir.file("m.onnx")).find("preprocess/If") == std::string::npos);

  const auto refused = [&](const std::vector<std::string>& more, const char* text) {
    CAPTURE(text);
    const Finished done = w.run({"export", "runs/tiny", "--onnx", "n.onnx"}, more);
    CHECK(done.exit_code == 2);
    check_contains(done.err, text);
    CHECK_FALSE(fs::exists(w.dir.file("n.onnx")));
  };
  refused({"--include-preprocessing", "hwc"}, "nhwc");
  refused({"--include-preprocessing", "--include-normalisation"}, "excludes");
  refused({"--include-preprocessing", "--allow-other-model",
           "data.transforms.eval=[{type: Pad, padding: 1, padding_mode: symmetric}, {type: "
           "CenterCrop, size: 4}]"},
          "has Pad with padding_mode: symmetric, which an ONNX model cannot express");
}

TEST_CASE("onnxruntime and PyTorch compute what dpt does") {
  const char* chosen = std::getenv("DPT_PYTHON");
  const std::string python = chosen && *chosen ? chosen : "python3";
  const TempDir dir;
  const auto run = [&](const std::string& words) {
    return std::system((python + " " + words + " > '" + dir.file("out") + "' 2>&1").c_str());
  };
  std::string nets = "layers lenet";
  if (run("-c 'import numpy, onnx, onnxruntime'") != 0) {
    return skip_test("python3 (DPT_PYTHON) lacks numpy, onnx or onnxruntime");
  }
  if (run("-c 'import safetensors, torch, torchvision'") == 0) {
    nets += " resnet18 mobilenet_v2";
    if (run("-c 'import PIL'") == 0) {
      nets += " pictures --pictures 40";
    } else {
      skip_test("python3 (DPT_PYTHON) lacks PIL");
    }
  } else {
    skip_test("python3 (DPT_PYTHON) lacks safetensors, torch or torchvision");
  }
  const int status = run("'" + source_dir() + "/scripts/check/export' --images 320 --dpt '" +
                         dpt_program() + "' " + nets);
  INFO(read_file(dir.file("out")));
  CHECK(status == 0);
}

TEST_CASE("export writes the checkpoint's model, or a file that says that it is another") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const std::string change = "loss.label_smoothing=0.25";
  const Finished refused = w.run({"export", "runs/tiny", "--torch", "t.safetensors", change});
  CHECK(refused.exit_code == 2);
  check_contains(
      refused.err,
      "\n  loss.label_smoothing: 0 -> 0.25\ndpt export may change only the location of the data");
  CHECK_FALSE(fs::exists(w.dir.file("t.safetensors")));
  CHECK(w.run({"export", "runs/tiny", "--torch", "t.safetensors", "name=other"}).exit_code == 2);
  w.run_well({"export", "runs/tiny", "--torch", "t.safetensors", "data.size=100"});
  CHECK(metadata_of(w.dir.file("t.safetensors")).count("other_model") == 0);
  const Finished allowed = w.run_well({"export", "runs/tiny", "--torch", "o.safetensors", "--onnx",
                                       "o.onnx", change, "--allow-other-model", "--json"});
  const std::string text =
      "not the model of the checkpoint (--allow-other-model): loss.label_smoothing: 0 -> 0.25";
  check_contains(allowed.err, "dpt: warning: runs/tiny/best.safetensors: " + text);
  CHECK(nlohmann::json::parse(allowed.out)["other_model"].size() == 1);
  CHECK(metadata_of(w.dir.file("o.safetensors")).at("other_model") == text);
  check_contains(read_file(w.dir.file("o.onnx")), text);
}
