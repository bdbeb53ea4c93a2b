// Secrets in the environment and the command line: they appear in no file of a run and in no
// output.
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/tiny.h"
#include "tests/cli/workplace.h"
#include "tests/support/events.h"
#include "tests/support/npy_data.h"
#include "tests/support/text.h"

namespace dpt::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCanary = "canary4711";

/// Arrays in a folder whose name comes only from the environment.
struct SecretData : Workplace {
  std::string root = dir.file("canary4711-bucket");

  SecretData() : Workplace("") {
    fs::create_directories(root);
    for (const char* part : {"train", "test"}) write_npy_part(root, part, "labels", 24, 1);
    write_file(dir.file("small.yaml"), R"(version: 1
name: small
data:
  dataset: npy
  train:
    images: ${S3_SECRET}/train_x.npy
    targets: ${S3_SECRET}/train_y.npy
  test:
    images: ${S3_SECRET}/test_x.npy
    targets: ${S3_SECRET}/test_y.npy
  classes: [a, b, c, d]
  val_split: 4
  batch_size: 4
model: {input: [1, 8, 8], layers: [{type: Flatten}, {type: Linear, name: key, out_features: 4}]}
optimizer: {type: SGD, lr: 0.01}
train: {epochs: 1}
log: {every: 1, tensorboard: true}
devices: [cpu]
)");
  }

  Finished run_with(const std::vector<std::string>& arguments, bool set = true) const {
    const std::string value = root;
    Finished finished = run_dpt(arguments, dir.path(), [&] {
      if (set) setenv("S3_SECRET", value.c_str(), 1);
      setenv("DPT_TOKEN", kCanary, 1);
    });
    INFO(finished.err);
    CHECK(count_of(finished.out, kCanary) == 0);
    CHECK(count_of(finished.err, kCanary) == 0);
    return finished;
  }

  void check_files(const std::string& folder) const {
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir.file(folder))) {
      if (!entry.is_regular_file()) continue;
      INFO(entry.path().string());
      CHECK(count_of(read_file(entry.path().string()), kCanary) == 0);
      ++files;
    }
    CHECK(files > 0);
  }
};

}  // namespace

TEST_CASE("secrets of the environment: a run, its files and every command that reads them") {
  const SecretData w;
  CHECK(w.run_with({"train", "small.yaml", "train.epochs=3", "--max-steps", "7"}).exit_code == 0);
  // The same command resumes: paths are compared as written.
  CHECK(w.run_with({"train", "small.yaml", "train.epochs=3", "--verdict", "v.md", "--junit",
                    "j.xml", "--require", "test/loss<1000"})
            .exit_code == 0);
  check_contains(read_file(w.dir.file("runs/small/config.yaml")), "${S3_SECRET}/train_x.npy");
  fs::copy_file(w.dir.file("runs/small/best.safetensors"), w.root + "/w.safetensors");
  const std::string weights = "weights={file: '${S3_SECRET}/w.safetensors'}";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"config", "check", "small.yaml", weights},
           {"train", "small.yaml", "--run-dir", "runs/tuned", weights},
           {"eval", "runs/small", "--predictions", "runs/small/p.csv"},
           {"eval", "runs/small", "--json"},
           {"predict", "runs/small", "--split", "test", "--out", "runs/small/q.jsonl"},
           {"inspect", "runs/small/best.safetensors"},
           {"inspect", "runs/small/best.safetensors", "--json"},
           {"report", "runs/small"},
           {"runs", "runs", "--json"},
           {"compare", "runs/small", "runs/small"},
           {"export", "runs/small", "--onnx", "runs/small/m.onnx", "--torch",
            "runs/small/m.safetensors"},
           {"config", "show", "small.yaml"},
           {"config", "show", "small.yaml", "--origins"},
           {"config", "check", "small.yaml"},
           {"data", "check", "small.yaml"},
           {"data", "check", "small.yaml", "--json"},
           {"data", "stats", "small.yaml"},
           {"data", "show", "small.yaml", "--out", "runs/sheet.png"},
           {"train", "runs/small/config.yaml", "--run-dir", "runs/again"}}) {
    INFO(arguments[0] << " " << arguments[1]);
    const Finished finished = w.run_with(arguments);
    INFO(finished.err);
    const bool finds_copies = arguments[1] == "check" && arguments[0] == "data";
    CHECK(finished.exit_code == (finds_copies ? 3 : 0));
  }
  w.check_files("runs");
}

TEST_CASE("secrets of the environment: errors of every command name the variable") {
  const SecretData w;
  CHECK(w.run_with({"train", "small.yaml"}).exit_code == 0);
  fs::remove(w.root + "/test_x.npy");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"train", "small.yaml", "train.epochs=2", "--verdict", "v.md", "--junit", "j.xml",
            "--require", "test/loss<1"},
           {"eval", "runs/small"},
           {"data", "check", "small.yaml"},
           {"data", "check", "small.yaml", "--json"},
           {"bench", "small.yaml"}}) {
    INFO(arguments[0] << " " << arguments[1]);
    const Finished finished = w.run_with(arguments);
    CHECK(finished.exit_code == 3);
    check_contains(finished.out + finished.err, "${S3_SECRET}/test_x.npy");
  }
  w.check_files("runs");
  CHECK(count_of(read_file(w.dir.file("v.md")) + read_file(w.dir.file("j.xml")), kCanary) == 0);
  // Commands that need no data still work without the variable.
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"inspect", "runs/small/best.safetensors"},
           {"runs", "runs"},
           {"compare", "runs/small", "runs/small"},
           {"export", "runs/small", "--torch", "m.safetensors"}}) {
    INFO(arguments[0]);
    const Finished finished = w.run_with(arguments, false);
    INFO(finished.err);
    CHECK(finished.exit_code == 0);
  }
  const Finished eval = w.run_with({"eval", "runs/small"}, false);
  CHECK(eval.exit_code == 2);
  check_contains(eval.err, "data.test.images: the environment variable S3_SECRET is not set");
}

TEST_CASE("secrets of the command line: words that are refused, and words that are kept") {
  const Tiny w;
  const auto run = [&](const std::vector<std::string>& arguments, int code) {
    const Finished finished = w.run(arguments);
    INFO(finished.err);
    CHECK(finished.exit_code == code);
    CHECK(count_of(finished.out + finished.err, kCanary) == 0);
    return finished;
  };
  const std::string canary = kCanary;
  run({"train", "small.yaml", "--token=" + canary}, 2);
  run({"train", "small.yaml", "--token", canary}, 2);
  run({"train", "small.yaml", "--api-key", canary, "--nproc", "2"}, 2);
  run({"train", "small.yaml", "S3_SECRET=" + canary}, 2);
  run({"train", "small.yaml", "data.password=" + canary}, 2);
  run({"train", "small.yaml", "data.seed.key=" + canary}, 2);
  run({"train", "small.yaml", "data.cache=https://me:" + canary + "@host/x"}, 2);
  run({"train", "https://me:" + canary + "@host/small.yaml"}, 2);
  run({"train", "small.yaml", "--run-dir", "https://me:" + canary + "@host/x"}, 2);
  run({"train", "small.yaml", "--weights", "https://me:" + canary + "@host/x"}, 2);
  run({"eval", "https://me:" + canary + "@host/x"}, 2);
  run({"predict", "runs/tiny", "https://me:" + canary + "@host/x.jpg"}, 2);
  CHECK(!fs::exists(w.dir.file("https:")));
  CHECK(!fs::exists(w.dir.file("runs")));

  // A layer may be named `key`: its option is a normal setting, and command.txt has its value.
  const std::string fc =
      "model.layers=[{type: Flatten}, {type: Linear, name: key, out_features: 1}]";
  run({"train", "small.yaml", fc, "model.layers.key.out_features=3", "--max-steps", "2"}, 0);
  check_contains(read_file(w.dir.file("runs/tiny/command.txt")), "model.layers.key.out_features=3");
}

TEST_CASE("a tilde in an option's value is the home folder") {
  const Tiny w;
  fs::create_directories(w.dir.file("home"));
  const std::string home = w.dir.file("home");
  const auto with_home = [&] { setenv("HOME", home.c_str(), 1); };
  const auto run = [&](const std::vector<std::string>& arguments) {
    return run_dpt(arguments, w.dir.path(), with_home);
  };
  CHECK(run({"train", "small.yaml", "--run-dir=~/runs/a"}).exit_code == 0);
  CHECK(fs::exists(home + "/runs/a/best.safetensors"));
  CHECK(!fs::exists(w.dir.file("~")));
  CHECK(run({"eval", "~/runs/a", "--predictions", "~/p.csv"}).exit_code == 0);
  CHECK(fs::exists(home + "/p.csv"));
  // Only configs expand variables: no folder with that literal name is created.
  const Finished variable = run({"train", "small.yaml", "--run-dir", "${HOME}/b"});
  CHECK(variable.exit_code == 2);
  check_contains(variable.err, "variables are not expanded in options");
  CHECK(!fs::exists(w.dir.file("${HOME}")));
  CHECK(
      run({"train", "~/runs/a/config.yaml", "--run-dir", "b", "--resume=~/runs/a/best.safetensors"})
          .exit_code == 0);
  const Finished other = run({"train", "small.yaml", "--run-dir=~root/runs"});
  CHECK(other.exit_code == 2);
  check_contains(other.err,
                 "--run-dir: expected a path, found one that begins with '~root': only ~/ is "
                 "expanded, to the home folder of this user");
  CHECK(!fs::exists(w.dir.file("~root")));
  const Finished none = run_dpt({"eval", "~/runs/a"}, w.dir.path(), [] { unsetenv("HOME"); });
  CHECK(none.exit_code == 2);
  check_contains(none.err, "the environment variable HOME, which '~/' stands for, is not set");
}

// Sanitizers need more memory than the limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("aliases in one another take no memory for each level") {
  const Tiny w;
  std::string list = "1";
  for (int i = 1; i < 98'000; ++i) list += ",1";
  std::string text = kTinyConfig;
  text += "x: ";
  for (int level = 0; level < 60; ++level) text += "&a" + std::to_string(level) + " [";
  write_file(w.dir.file("small.yaml"), text + list + std::string(60, ']') + "\n");
  const auto with_600_mib = [] {
    const rlimit limit{rlim_t{600} << 20, rlim_t{600} << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(124);
  };
  const Finished run = run_dpt({"config", "check", "small.yaml"}, w.dir.path(), with_600_mib);
  CHECK(run.exit_code == 2);
  check_contains(run.err, "unknown key 'x' in the config");
}
#endif

}  // namespace dpt::testing
