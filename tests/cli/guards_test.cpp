// Guards that no other test covers: a run that must be refused, a bound that is exactly met, a loss
// that is infinite but not NaN.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/base/command_support.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/processes/process_devices.h"
#include "kernels/devices.h"
#include "tests/cli/tiny.h"
#include "tests/cli/workplace.h"
#include "tests/support/text.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

void put_be32(std::string& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
}

/// Writes 24 images of 4x4 pixels in three classes as IDX files; `first` is the first pixel of the
/// first image.
void write_idx(const TempDir& dir, int first) {
  std::string images("\0\0\x08\x03", 4), labels("\0\0\x08\x01", 4);
  for (const std::uint32_t size : {24, 4, 4}) put_be32(images, size);
  put_be32(labels, 24);
  for (int i = 0; i < 24 * 16; ++i) images += static_cast<char>(i == 0 ? first : i * 37 % 251);
  for (int i = 0; i < 24; ++i) labels += static_cast<char>(i % 3);
  write_file(dir.file("train-images-idx3-ubyte"), images);
  write_file(dir.file("train-labels-idx1-ubyte"), labels);
}

}  // namespace

TEST_CASE("a device with more threads than OpenMP may start is refused, and does not hang") {
  const Workplace w;
  setenv("OMP_THREAD_LIMIT", "1", 1);
  const Finished refused = w.run({"train", "small.yaml", "devices=[\"cpu:2\"]"});
  const Finished one = w.run({"train", "small.yaml", "devices=[cpu,cpu]", "--max-steps", "2"});
  unsetenv("OMP_THREAD_LIMIT");
  CHECK(refused.exit_code == 2);
  check_contains(refused.err,
                 "cpu:2: expected 2 threads, but the environment variable "
                 "OMP_THREAD_LIMIT allows 1: unset it");
  CHECK(one.exit_code == 0);
  // dpt must override OMP_DYNAMIC: otherwise oneDNN waits for threads that OpenMP did not start.
  setenv("OMP_DYNAMIC", "true", 1);
  const Finished dynamic =
      w.run({"train", "small.yaml", "devices=[\"cpu:64\"]", "--max-steps", "2", "--run-dir", "d"});
  unsetenv("OMP_DYNAMIC");
  CHECK(dynamic.exit_code == 0);
}

TEST_CASE("durations: an error names the option") {
  const Tiny w;
  for (const char* option : {"--max-time", "--join-timeout"}) {
    const Finished finished = w.run({"train", "small.yaml", option, "1x"});
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, fmt::format("dpt: error: {}: '1x' is not a duration", option));
  }
}

TEST_CASE("durations: units in falling order, each once") {
  using dpt::parse_duration;
  CHECK(parse_duration("90") == 90);
  CHECK(parse_duration("0s") == 0);
  CHECK(parse_duration("1m30s") == 90);
  CHECK(parse_duration("3h50m") == 13800);
  CHECK(parse_duration("1:30") == 90);
  CHECK(parse_duration("0:05") == 5);
  CHECK(parse_duration("90:00") == 5400);
  CHECK(parse_duration("3:50:00") == 13800);
  CHECK(parse_duration("2d1h1m1s") == 2 * 86400 + 3600 + 61);
  CHECK(parse_duration("2000000") == 2'000'000);
  CHECK(parse_duration("365d") == 365 * 86400);
  for (const char* long_one : {"366d", "365d1s", "8761h", "31536001", "99999999999999999999d"}) {
    try {
      parse_duration(long_one);
      FAIL("accepted ", long_one);
    } catch (const dpt::Error& error) {
      CHECK(error.kind() == dpt::ErrorKind::usage);
      CHECK(std::string(error.what()).find("is longer than a year: expected at most 365d") !=
            std::string::npos);
    }
  }
  for (const char* bad :
       {"", "s", "1x", "1s1m", "1m1m", "-1s", "1 h", "1.5h", "0.001", "1m30", "1h2m3"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_duration(bad), dpt::Error);
  }
  CHECK_THROWS_WITH(parse_duration("1m30"),
                    "'1m30' ends with a number without a unit: expected d, h, m or s after it");
}

TEST_CASE("--overwrite removes nothing from a folder that holds something else") {
  const Workplace w;
  REQUIRE(w.run({"train", "small.yaml", "--run-dir", "r", "--max-steps", "5"}).exit_code == 0);
  write_file(w.dir.file("r/thesis.tex"), "years of work");
  const std::string log = read_file(w.dir.file("r/metrics.jsonl"));
  const Finished refused = w.run({"train", "small.yaml", "--run-dir", "r", "--overwrite"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "thesis.tex");
  CHECK(read_file(w.dir.file("r/thesis.tex")) == "years of work");
  CHECK(read_file(w.dir.file("r/metrics.jsonl")) == log);
  CHECK(std::filesystem::exists(w.dir.file("r/checkpoints/step-00000005.safetensors")));
  // --overwrite is also refused if a subfolder of the run contains a foreign file.
  std::filesystem::remove(w.dir.file("r/thesis.tex"));
  for (const char* file : {"checkpoints/mine.safetensors", "replaced/notes.txt"}) {
    CAPTURE(file);
    std::filesystem::create_directories(w.dir.file("r/replaced"));
    write_file(w.dir.file(std::string("r/") + file), "mine");
    const Finished again = w.run({"train", "small.yaml", "--run-dir", "r", "--overwrite"});
    CHECK(again.exit_code == 2);
    check_contains(again.err, "which is not part of a run; nothing was changed");
    CHECK(read_file(w.dir.file(std::string("r/") + file)) == "mine");
    std::filesystem::remove(w.dir.file(std::string("r/") + file));
  }
  // --overwrite is also refused for a folder that no run has created.
  std::filesystem::create_directory(w.dir.file("mine"));
  write_file(w.dir.file("mine/notes.txt"), "mine");
  const Finished foreign = w.run({"train", "small.yaml", "--run-dir", "mine", "--overwrite"});
  CHECK(foreign.exit_code == 2);
  CHECK(read_file(w.dir.file("mine/notes.txt")) == "mine");
}

TEST_CASE("a link to nothing in the place of the run folder is called that") {
  const Tiny w;
  fs::create_symlink("nowhere/else", w.dir.file("r"));
  const Finished run = w.run({"train", "small.yaml", "--run-dir", "r"});
  CHECK(run.exit_code == 3);
  check_contains(run.err, "expected a folder, found a link to nowhere/else, which is not a folder");
}

TEST_CASE("more threads than cores are a warning, once") {
  const std::vector<dpt::DeviceName> devices = {dpt::parse_device("cpu:2"),
                                                dpt::parse_device("cpu")};
  CHECK(dpt::why_cores_are_short(devices, 3).empty());
  check_contains(dpt::why_cores_are_short(devices, 2),
                 "compute with 3 threads together, but share 2 cores: ");
  check_contains(dpt::why_cores_are_short(devices, 1), "Use up to 1 thread in all");
  const Tiny w;
  const auto on_one_core = [] {
    cpu_set_t one;
    sched_getaffinity(0, sizeof one, &one);
    int first = 0;
    while (!CPU_ISSET(first, &one)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof one, &one);
  };
  const Finished few = run_dpt({"train", "small.yaml", "--devices", "cpu", "--max-steps", "1"},
                               w.dir.path(), on_one_core);
  CHECK(few.err.find("threads together") == std::string::npos);
  const Finished many = run_dpt({"train", "small.yaml", "--devices", "cpu,cpu", "--max-steps", "2"},
                                w.dir.path(), on_one_core);
  check_contains(many.err, "warning: the replicas on this machine compute with 2 threads together");
}

TEST_CASE("a pipe in the place of a log does not hold a run up") {
  for (const char* name : {"train.log", "metrics.jsonl"}) {
    CAPTURE(name);
    const Tiny w;
    const std::string path = w.dir.file(std::string("r/") + name);
    fs::create_directory(w.dir.file("r"));
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    for (const char* steps : {"2", "4"}) {
      const Finished finished =
          w.run_well({"train", "small.yaml", "--run-dir", "r", "--max-steps", steps});
      check_contains(finished.err, path.substr(w.dir.path().size() + 1) +
                                       ": cannot write: expected a file, found a device, pipe");
    }
    CHECK(fs::is_fifo(path));
  }
}

TEST_CASE("a run does not replace the config that it was given") {
  const Tiny w;
  const std::string own = "# Mine.\n" + std::string(kTinyConfig);
  fs::create_directory(w.dir.file("d"));
  write_file(w.dir.file("d/config.yaml"), own);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--overwrite"}, {"--dry-run"}}) {
    const Finished refused = run_dpt(
        [&] {
          std::vector<std::string> words = {"train", "config.yaml", "--run-dir", "."};
          words.insert(words.end(), more.begin(), more.end());
          return words;
        }(),
        w.dir.file("d"));
    CHECK(refused.exit_code == 2);
    check_contains(refused.err,
                   "config.yaml is in the run folder ., where the run would replace it");
    check_contains(refused.err, "Choose another folder with --run-dir");
  }
  CHECK(read_file(w.dir.file("d/config.yaml")) == own);
  CHECK(std::distance(fs::directory_iterator(w.dir.file("d")), {}) == 1);
  // A run may replace the config.yaml that it wrote itself.
  w.run_well({"train", "d/config.yaml", "--run-dir", "r", "--max-steps", "2"});
  w.run_well({"train", "r/config.yaml", "--run-dir", "r", "train.epochs=2"});
  w.run_well({"train", "r/config.yaml", "--run-dir", "r", "--overwrite"});
}

TEST_CASE("a resumed run refuses other data under the same name") {
  const TempDir dir;
  write_idx(dir, 5);
  write_file(dir.file("idx.yaml"), R"(version: 1
data: {dataset: idx, root: ., batch_size: 8}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc1, out_features: 3}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 4}
devices: [cpu]
)");
  const std::vector<std::string> command = {"train", "idx.yaml", "--run-dir", "r"};
  std::vector<std::string> begin = command;
  begin.insert(begin.end(), {"--max-steps", "4"});
  const Finished begun = run_dpt(begin, dir.path());
  INFO(begun.err);
  REQUIRE(begun.exit_code == 0);
  write_idx(dir, 6);
  const Finished other = run_dpt(command, dir.path());
  CHECK(other.exit_code == 3);
  check_contains(other.err, "other data");
  write_idx(dir, 5);
  const Finished same = run_dpt(command, dir.path());
  INFO(same.err);
  CHECK(same.exit_code == 0);
}

TEST_CASE("half a line that a crash left in the log is gone after a resume") {
  const Workplace w;
  REQUIRE(w.run({"train", "small.yaml", "--run-dir", "r", "--max-steps", "24"}).exit_code == 0);
  const std::string log = w.dir.file("r/metrics.jsonl");
  const std::size_t evals = events(log, "eval").size();
  CHECK(evals == 2);
  write_file(log, read_file(log) + R"({"v":1,"event":"step","epo)");
  const Finished more = w.run({"train", "small.yaml", "--run-dir", "r", "--max-steps", "36"});
  INFO(more.err);
  REQUIRE(more.exit_code == 0);
  CHECK(events(log, "eval").size() == evals + 1);
}

TEST_CASE("an infinite loss is a divergence, as NaN is") {
  // Logits of +3e38 and -3e38: the loss of the second class exceeds any float, while the gradients
  // of softmax are ordinary numbers.
  const TempDir dir;
  write_file(dir.file("inf.yaml"), R"(version: 1
name: inf
data: {dataset: synthetic, size: 32, test_size: 0, classes: 2, batch_size: 32}
model:
  input: [1, 2, 2]
  layers: [{type: Flatten}, {type: Linear, name: fc1, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 2}
devices: [cpu]
)");
  const std::vector<float> weight(8, 0.0F), bias = {3e38F, -3e38F};
  dpt::write_safetensors(
      dir.file("w.safetensors"), {},
      {{"fc1.weight", "F32", {2, 4}, weight.data()}, {"fc1.bias", "F32", {2}, bias.data()}});
  const Finished run = run_dpt({"train", "inf.yaml", "--weights", "w.safetensors"}, dir.path());
  CHECK(run.exit_code == 5);
  check_contains(run.err, "diverged at step 1");
  CHECK(events(dir.file("runs/inf/metrics.jsonl"), "run_end").at(0)["exit_code"] == 5);
}

TEST_CASE("a foreign folder with the name of one of ours stays as it is") {
  const Workplace w;
  for (const char* folder : {"replaced", "replaced.tmp"}) {
    std::filesystem::create_directories(w.dir.file(std::string("r/") + folder));
    write_file(w.dir.file(std::string("r/") + folder + "/notes.txt"), "mine");
  }
  w.run_well({"train", "small.yaml", "--run-dir", "r"});
  CHECK(read_file(w.dir.file("r/replaced/notes.txt")) == "mine");
  CHECK(read_file(w.dir.file("r/replaced.tmp/notes.txt")) == "mine");
}
