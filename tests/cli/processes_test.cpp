// One run over several processes: the same bits as in one process, failures that every process
// reports, and resuming with other processes.
#include "tests/cli/processes.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/workplace.h"

namespace dpt {
namespace {

using namespace testing;

/// Config whose steps need more than sums of gradients: batch norm, synchronised batch norm, a
/// moving average of the weights and dropout.
const char* const kWorldConfig = R"(version: 1
name: world
seed: 3
data:
  dataset: synthetic
  size: 200
  test_size: 40
  classes: 4
  val_split: 20
  batch_size: 16
  transforms:
    train: [{type: RandomHorizontalFlip}, {type: Normalize, mean: [0.5], std: [0.3]}]
    eval: [{type: Normalize, mean: [0.5], std: [0.3]}]
model:
  input: [1, 8, 8]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: BatchNorm2d, name: bn1, sync: true}
    - {type: ReLU}
    - {type: Conv2d, name: conv2, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: BatchNorm2d, name: bn2}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Dropout, p: 0.2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 4}
optimizer: {type: Adam, lr: 0.01}
train: {epochs: 4, shards: 4, ema: {decay: 0.9}, stall_timeout: 5}
checkpoint: {every_steps: 5}
log: {every: 10}
devices: [cpu]
)";

struct InWorld : Workplace {
  InWorld() : Workplace(kWorldConfig) {}

  std::vector<std::string> train(const std::string& run) const {
    return {"train", "small.yaml", "--run-dir", dir.file(run)};
  }
  std::string bits(const std::string& name) const { return tensor_bytes(dir.file(name)); }
  void train_on(const std::string& name, const std::vector<std::string>& devices,
                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = train(name);
    command.insert(command.end(), more.begin(), more.end());
    Processes processes(on_devices(command, devices), dir.path());
    for (const Finished& finished : processes.wait()) {
      CAPTURE(finished.err);
      CHECK(finished.exit_code == 0);
    }
  }
};

TEST_CASE_FIXTURE(InWorld, "Exact mode gives the same bits on every layout of processes") {
  std::vector<std::string> alone = train("alone");
  alone.insert(alone.end(), {"--devices", "cpu,cpu,cpu,cpu"});
  const Finished one = run_dpt(alone, dir.path());
  CAPTURE(one.err);
  REQUIRE(one.exit_code == 0);
  const std::string expected = bits("alone");
  train_on("two", {"cpu,cpu", "cpu,cpu"});
  CHECK((bits("two") == expected));
  train_on("uneven", {"cpu", "cpu,cpu", "cpu"});
  CHECK((bits("uneven") == expected));
  // The two halves of the run use different layouts.
  train_on("four", {"cpu", "cpu", "cpu", "cpu"}, {"--max-steps", "17"});
  train_on("four", {"cpu,cpu", "cpu"});
  CHECK((bits("four") == expected));
}

TEST_CASE_FIXTURE(InWorld, "Samples are mixed with the same partners on every layout") {
  const std::vector<std::string> mixed = {
      "train.epochs=2", "data.transforms.batch=[{type: MixUp}, {type: CutMix}]",
      "data.transforms.train=[{type: RandomHorizontalFlip}, {type: RandomErasing}]"};
  std::vector<std::string> alone = train("alone");
  alone.insert(alone.end(), mixed.begin(), mixed.end());
  const Finished one = run_dpt(alone, dir.path());
  CAPTURE(one.err);
  REQUIRE(one.exit_code == 0);
  train_on("uneven", {"cpu", "cpu,cpu"}, mixed);
  CHECK((bits("uneven") == bits("alone")));
}

TEST_CASE_FIXTURE(InWorld,
                  "Fast mode overlaps sums over processes with backward, with equal bits") {
  // Two replicas have only one order of additions, so the sums are comparable with those of one
  // process.
  const std::vector<std::string> wide = {"train.shards=0", "model.layers.conv2.out_channels=200",
                                         "model.layers.conv1.out_channels=40"};
  std::vector<std::string> alone = train("threads");
  alone.insert(alone.end(), {"--devices", "cpu,cpu"});
  alone.insert(alone.end(), wide.begin(), wide.end());
  REQUIRE(run_dpt(alone, dir.path()).exit_code == 0);
  train_on("processes", {"cpu", "cpu"}, wide);
  CHECK((bits("processes") == bits("threads")));
  CHECK(read_file(dir.file("processes/metrics.jsonl")).find("overlapped with backward") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(InWorld, "Rank 0 alone writes the run folder and speaks of it") {
  Processes processes(on_devices(train("run"), {"cpu", "cpu"}), dir.path());
  const auto finished = processes.wait();
  CHECK(finished[0].exit_code == 0);
  CHECK(finished[1].exit_code == 0);
  CHECK(finished[0].err.find("rank 1: ") != std::string::npos);
  CHECK(finished[0].err.find("done: 4 epochs") != std::string::npos);
  CHECK(finished[1].err == "");
  const std::string log = read_file(dir.file("run/metrics.jsonl"));
  CHECK(log.find("\"event\":\"processes\"") != std::string::npos);
  CHECK(log.find("\"devices\":[\"cpu\",\"cpu\"]") != std::string::npos);
  // All processes see that the run is complete.
  Processes again(on_devices(train("run"), {"cpu", "cpu"}), dir.path());
  for (const Finished& each : again.wait()) CHECK(each.exit_code == 0);
}

TEST_CASE_FIXTURE(InWorld, "The survivors of a killed process name it, save, and end with 6") {
  for (const int victim : {1, 0}) {
    CAPTURE(victim);
    const std::string name = "killed-" + std::to_string(victim);
    std::vector<std::string> command = train(name);
    command.insert(command.end(), {"train.epochs=4000", "checkpoint.keep_last=2"});
    Processes processes(on_devices(command, {"cpu", "cpu", "cpu"}), dir.path());
    REQUIRE(wait_for_checkpoint(dir.file(name)));
    const std::string pid = std::to_string(processes[victim].pid());
    processes[victim].send(SIGKILL);
    const auto finished = processes.wait();
    for (int rank = 0; rank < 3; ++rank) {
      const Finished& each = finished[rank];
      CAPTURE(each.err);
      if (rank == victim) {
        CHECK(each.exit_code == -SIGKILL);
        continue;
      }
      CHECK(each.exit_code == 6);
      CHECK(each.err.find("rank " + std::to_string(victim)) != std::string::npos);
      CHECK(each.err.find(pid) != std::string::npos);
      CHECK(each.err.find("This process was at step ") != std::string::npos);
      CHECK(each.err.find(" continues from the newest checkpoint") != std::string::npos);
    }
    // The newest checkpoint is good, and the run continues from it, here without other processes.
    std::vector<std::string> resume = command;
    resume.insert(resume.end(), {"--devices", "cpu,cpu,cpu", "--max-steps", "1"});
    const Finished resumed = run_dpt(resume, dir.path());
    CAPTURE(resumed.err);
    CHECK(resumed.err.find("resuming") != std::string::npos);
  }
}

TEST_CASE_FIXTURE(InWorld, "No step is lost with a process, and the bits stay those of the run") {
  std::vector<std::string> command = train("lost");
  // The run saves no checkpoint until its end.
  command.insert(command.end(), {"train.epochs=60", "checkpoint.every_steps=0",
                                 "checkpoint.every=0", "log.every=1"});
  Processes processes(on_devices(command, {"cpu,cpu", "cpu,cpu"}), dir.path());
  REQUIRE(wait_for_log(dir.file("lost"), "\"step\":20,"));
  processes[1].send(SIGKILL);
  const auto finished = processes.wait();
  CAPTURE(finished[0].err);
  CHECK(finished[0].exit_code == 6);
  CHECK(finished[0].err.find("before exiting") != std::string::npos);
  const auto saved = list_checkpoints(dir.file("lost/checkpoints"));
  REQUIRE(saved.size() == 1);
  CHECK(step_of_checkpoint(saved[0].substr(saved[0].rfind('/') + 1)) >= 20);
  const Finished resumed = run_dpt(command, dir.path());
  CAPTURE(resumed.err);
  CHECK(resumed.exit_code == 0);
  command[3] = dir.file("undisturbed");
  REQUIRE(run_dpt(command, dir.path()).exit_code == 0);
  CHECK((bits("lost") == bits("undisturbed")));
}

TEST_CASE_FIXTURE(InWorld,
                  "The error promises no checkpoint if a process is lost before the first one") {
  std::vector<std::string> command = train("without");
  command.insert(command.end(), {"train.epochs=4000", "checkpoint.every_steps=0",
                                 "checkpoint.every=0", "log.every=1"});
  Processes processes(on_devices(command, {"cpu", "cpu"}), dir.path());
  REQUIRE(wait_for_log(dir.file("without"), "\"step\":20,"));
  processes[0].send(SIGKILL);  // the process that would save
  const auto finished = processes.wait();
  CAPTURE(finished[1].err);
  CHECK(finished[1].exit_code == 6);
  CHECK(finished[1].err.find(". Run the same command again, with any number of processes\n") !=
        std::string::npos);
  CHECK(list_checkpoints(dir.file("without/checkpoints")).empty());
}

TEST_CASE_FIXTURE(InWorld, "Differences between processes are named before the first sum") {
  const std::vector<std::pair<std::string, std::string>> differences = {
      {"seed=4", "seed"},
      {"train.precision=bf16", "train.precision"},
      {"train.shards=8", "train.shards"},
      {"train.epochs=5", "train.epochs"},
      {"data.batch_size=8", "data.batch_size"},
      {"data.val_split=40", "data.val_split"},
      {"optimizer={type: SGD, lr: 0.01}", "optimizer"},
      {"optimizer.lr=0.02", "optimizer.lr"},
      {"loss={type: cross_entropy, label_smoothing: 0.1}", "loss.label_smoothing"},
      {"model.layers.conv2.out_channels=9", "number of parameters"},
      {"data.size=220", "training data"},
      {"data.test_size=41", "test data"},
      {"optimizer.betas=[0.9, 0.99]", "optimizer.betas"},
      {"checkpoint.every_steps=7", "checkpoint.every_steps"}};
  for (const auto& [change, name] : differences) {
    CAPTURE(change);
    auto arguments = on_devices(train("differ"), {"cpu", "cpu", "cpu"});
    arguments[1].push_back(change);
    Processes processes(arguments, dir.path());
    for (const Finished& each : processes.wait()) {
      CAPTURE(each.err);
      CHECK(each.exit_code == 2);
      CHECK(each.err.find(name) != std::string::npos);
      CHECK(each.err.find("rank 1") != std::string::npos);
    }
    CHECK(list_checkpoints(dir.file("differ/checkpoints")).empty());
  }
}

TEST_CASE_FIXTURE(InWorld, "An error of one process is every process' cause") {
  auto arguments = on_devices(train("bad"), {"cpu", "cpu"});
  arguments[1][1] = "no-such-config.yaml";
  Processes processes(arguments, dir.path());
  const auto finished = processes.wait();
  CAPTURE(finished[0].err);
  CAPTURE(finished[1].err);
  CHECK(finished[1].exit_code == 2);
  CHECK(finished[0].exit_code == 2);
  CHECK(finished[0].err.find("rank 1") != std::string::npos);
  CHECK(finished[0].err.find("no-such-config.yaml") != std::string::npos);
}

TEST_CASE_FIXTURE(InWorld, "A signal to one process stops all, with its exit code on each") {
  std::vector<std::string> command = train("stopped");
  command.insert(command.end(), {"train.epochs=4000", "checkpoint.keep_last=2"});
  Processes processes(on_devices(command, {"cpu", "cpu"}), dir.path());
  REQUIRE(wait_for_checkpoint(dir.file("stopped")));
  processes[1].send(SIGTERM);
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 143);
  }
}

TEST_CASE_FIXTURE(InWorld, "A condition that is not met is the result of every process") {
  std::vector<std::string> command = train("required");
  command.insert(command.end(), {"--require", "val/accuracy>=1.5"});
  Processes processes(on_devices(command, {"cpu", "cpu"}), dir.path());
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 7);
    CHECK(each.err.find("val/accuracy>=1.5") != std::string::npos);
  }
}

TEST_CASE_FIXTURE(InWorld, "A stopped process is named after the stall timeout") {
  std::vector<std::string> command = train("stalled");
  command.insert(command.end(),
                 {"train.epochs=4000", "checkpoint.keep_last=2", "train.stall_timeout=1"});
  Processes processes(on_devices(command, {"cpu", "cpu", "cpu"}), dir.path());
  REQUIRE(wait_for_checkpoint(dir.file("stalled")));
  processes[2].send(SIGSTOP);
  for (const int rank : {0, 1}) {
    const Finished each = processes[rank].wait();
    CAPTURE(each.err);
    CHECK(each.exit_code == 6);
    CHECK(each.err.find("rank 2") != std::string::npos);
  }
  // Once resumed, the suspended process notices that the others have ended.
  processes[2].send(SIGCONT);
  CHECK(processes[2].wait().exit_code == 6);
}

TEST_CASE_FIXTURE(InWorld, "A stop of --overfit reaches the processes that got no signal") {
  Processes processes(on_devices({"train", "small.yaml", "--overfit", "1", "optimizer.lr=0",
                                  "--max-steps", "1000000000"},
                                 {"cpu", "cpu"}),
                      dir.path());
  REQUIRE(wait_until([&] { return processes[0].messages().find("step 64") != std::string::npos; }));
  processes[1].send(SIGINT);
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 130);
  }
}

TEST_CASE_FIXTURE(InWorld, "Options that processes must share are compared, too") {
  for (const std::vector<std::string>& option :
       {std::vector<std::string>{"--overfit", "2"}, {"--max-steps", "9"}}) {
    auto arguments = on_devices(train("options"), {"cpu", "cpu"});
    if (option[0] == "--overfit") {
      arguments = on_devices({"train", "small.yaml", "--overfit", "1"}, {"cpu", "cpu"});
      arguments[1] = {"train", "small.yaml", "--devices", "cpu"};
    }
    arguments[1].insert(arguments[1].end(), option.begin(), option.end());
    Processes processes(arguments, dir.path());
    for (const Finished& each : processes.wait()) {
      CAPTURE(each.err);
      CHECK(each.exit_code == 2);
      CHECK(each.err.find(option[0]) != std::string::npos);
    }
  }
}

TEST_CASE_FIXTURE(InWorld, "A world that is suspended as a whole continues when it wakes") {
  std::vector<std::string> command = train("suspended");
  command.insert(command.end(), {"train.epochs=12", "train.stall_timeout=1", "log.every=1"});
  Processes processes(on_devices(command, {"cpu", "cpu"}), dir.path());
  REQUIRE(wait_for_log(dir.file("suspended"), "\"step\":5,"));
  for (const int rank : {0, 1}) processes[rank].send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  for (const int rank : {0, 1}) processes[rank].send(SIGCONT);
  for (const Finished& each : processes.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 0);
  }
}

/// A grey PNG image of 2 x 2 pixels.
const std::string kGrey(
    "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x02"
    "\x00\x00\x00\x02\x08\x00\x00\x00\x00\x57\xdd\x52\xf8\x00\x00\x00\x0e\x49\x44\x41"
    "\x54\x78\x9c\x63\x88\x8a\x62\x88\x8a\x02\x00\x04\x3e\x01\x69\xa4\x07\xf3\xe4\x00"
    "\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82",
    71);

TEST_CASE("A process reads its own samples only") {
  Workplace w(R"(version: 1
name: pictures
data: {dataset: image_folder, root: pictures, batch_size: 4, shuffle: false}
model:
  input: [1, 2, 2]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 2}]
optimizer: {type: SGD, lr: 0.05}
train: {epochs: 2}
devices: [cpu]
)");
  // Each process has a separate folder, in which the samples of the other process are unreadable.
  // Rank 0 reads two of every four samples. (Before a run, processes compare only names and sizes
  // of images.)
  for (const int rank : {0, 1}) {
    for (int i = 0; i < 16; ++i) {
      const std::string folder =
          w.dir.file("of-" + std::to_string(rank)) + "/train/" + (i < 8 ? "a" : "b");
      std::filesystem::create_directories(folder);
      const bool is_own = i % 4 / 2 == rank;
      write_file(folder + "/" + static_cast<char>('a' + i) + ".png",
                 is_own ? kGrey : std::string(kGrey.size(), 'x'));
    }
  }
  auto arguments = on_devices({"train", "small.yaml", "--run-dir", "run"}, {"cpu", "cpu"});
  for (const std::size_t rank : {0U, 1U}) {
    arguments[rank].push_back("data.root=of-" + std::to_string(rank));
  }
  Processes own(arguments, w.dir.path());
  for (const Finished& each : own.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 0);
  }
  // If the folders are swapped, every process finds an unreadable image.
  std::swap(arguments[0].back(), arguments[1].back());
  arguments[0][3] = arguments[1][3] = "other";
  Processes others(arguments, w.dir.path());
  for (const Finished& each : others.wait()) {
    CAPTURE(each.err);
    CHECK((each.exit_code == 3 || each.exit_code == 6));
    CHECK(each.err.find(".png") != std::string::npos);
  }
  // Only rank 1 finds an unreadable image. Rank 0 ends with the same exit code, and reports it to
  // Prometheus.
  arguments[0].back() = arguments[1].back();
  for (auto& words : arguments) {
    words[3] = "third";
    words.emplace_back("log.prometheus=third.prom");
  }
  Processes third(arguments, w.dir.path());
  for (const Finished& each : third.wait()) {
    CAPTURE(each.err);
    CHECK(each.exit_code == 3);
  }
  const std::string file = read_file(w.dir.file("third.prom"));
  const std::size_t at = file.find("\ndpt_exit_code{");
  REQUIRE(at != std::string::npos);
  CHECK(file.substr(file.find("} ", at), 4) == "} 3\n");
}

TEST_CASE_FIXTURE(InWorld, "eval over processes gives the results of one, in order") {
  train_on("evaluated", {"cpu", "cpu"});
  const auto eval = [&](const std::string& name) {
    return std::vector<std::string>{"eval",         dir.file("evaluated"), "--predictions",
                                    dir.file(name), "--probabilities",     "--json"};
  };
  Processes processes(on_devices(eval("many.csv"), {"cpu", "cpu,cpu"}), dir.path());
  const auto finished = processes.wait();
  CAPTURE(finished[0].err);
  CAPTURE(finished[1].err);
  CHECK(finished[0].exit_code == 0);
  CHECK(finished[1].exit_code == 0);
  CHECK(finished[1].out == "");
  const Finished one = run_dpt(eval("one.csv"), dir.path());
  CHECK(one.out == finished[0].out);
  CHECK(read_file(dir.file("one.csv")) == read_file(dir.file("many.csv")));
}

}  // namespace
}  // namespace dpt
