// The commands, their outputs and exit codes.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/outcome.h"
#include "tests/cli/workplace.h"
#include "tests/support/rewrite.h"

using namespace dpt::testing;
using nlohmann::json;

TEST_CASE("help and version") {
  const Workplace w;
  CHECK(w.run({"--help"}).exit_code == 0);
  check_contains(w.run({"--help"}).out, "Exit codes");
  check_contains(w.run({"train", "--help"}).out, "--max-time");
  const Finished version = w.run({"--version"});
  CHECK(version.exit_code == 0);
  check_contains(version.out, "oneDNN");
  CHECK(w.run({}).exit_code == 2);
  const Finished unknown = w.run({"trian", "small.yaml"});
  CHECK(unknown.exit_code == 2);
  check_contains(unknown.err, "unknown command 'trian', did you mean 'train'?");
  const Finished nothing_near = w.run({"frobnicate"});
  CHECK(nothing_near.exit_code == 2);
  check_contains(nothing_near.err,
                 "unknown command 'frobnicate'. Commands: train, eval, predict, export, runs, "
                 "compare, report, config, data, model");
  const Finished nested = w.run({"config", "chekc", "small.yaml"});
  CHECK(nested.exit_code == 2);
  check_contains(nested.err, "unknown command 'chekc' of dpt config, did you mean 'check'?");
  CHECK(w.run({"train"}).exit_code == 2);
  CHECK(w.run({"train", "small.yaml", "--no-such-option"}).exit_code == 2);
}

TEST_CASE("train leaves a run folder that scripts can read") {
  const Workplace w;
  const Finished run = w.run({"train", "small.yaml"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.empty());
  const std::string folder = w.dir.file("runs/small");
  for (const char* name : {"config.yaml", "command.txt", "env.json", "train.log", "metrics.jsonl",
                           "summary.json", "best.safetensors"}) {
    CAPTURE(name);
    CHECK(std::filesystem::exists(folder + "/" + name));
  }
  const std::string log = folder + "/metrics.jsonl";
  const auto start = events(log, "run_start");
  REQUIRE(start.size() == 1);
  CHECK(start[0]["devices"] == json({"cpu", "cpu"}));
  CHECK(start[0]["train_samples"] == 180);
  CHECK(start[0]["steps_per_epoch"] == 12);
  const auto steps = events(log, "step");
  REQUIRE(!steps.empty());
  CHECK(steps.front()["step"] == 1);
  CHECK(steps[1]["step"] == 10);
  for (const char* key :
       {"epoch", "loss", "accuracy", "lr", "grad_norm", "images_per_s", "data_wait"}) {
    CHECK(steps[1].contains(key));
  }
  CHECK(steps[1]["grad_norm"] > 0);
  CHECK(events(log, "eval").size() == 31);  // 30 of val, one of test
  const auto end = events(log, "run_end");
  REQUIRE(end.size() == 1);
  CHECK(end[0]["status"] == "ok");
  CHECK(end[0]["exit_code"] == 0);
  CHECK(end[0]["test"]["n"] == 40);

  SUBCASE("the resolved config runs again as it is and means the same") {
    const Finished show = w.run({"config", "show", "runs/small/config.yaml"});
    CHECK(show.exit_code == 0);
    CHECK(show.out == read_file(folder + "/config.yaml"));
  }
  SUBCASE("the same command again has nothing to do") {
    const Finished again = w.run({"train", "small.yaml"});
    CHECK(again.exit_code == 0);
    check_contains(again.err, "is complete");
    CHECK(w.run({"train", "small.yaml", "--require", "test/accuracy>=2"}).exit_code == 7);
  }
  SUBCASE("more epochs go on") {
    const Finished more = w.run({"train", "small.yaml", "train.epochs=31"});
    INFO(more.err);
    CHECK(more.exit_code == 0);
    check_contains(more.err, "resuming");
    CHECK(json::parse(read_file(folder + "/summary.json"))["epochs"] == 31);
  }
  SUBCASE("another config is refused with a diff") {
    const Finished other = w.run({"train", "small.yaml", "optimizer.lr=0.01"});
    CHECK(other.exit_code == 2);
    check_contains(other.err, "optimizer.lr: 0.05 -> 0.01");
  }
  SUBCASE("--resume never takes a new folder, --overwrite the old one") {
    CHECK(w.run({"train", "small.yaml", "--resume", "never", "--max-steps", "2"}).exit_code == 0);
    CHECK(std::filesystem::exists(w.dir.file("runs/small-2/summary.json")));
    CHECK(w.run({"train", "small.yaml", "--overwrite", "--max-steps", "2"}).exit_code == 0);
    CHECK(json::parse(read_file(folder + "/summary.json"))["steps"] == 2);
  }
  SUBCASE("eval reads the run and writes predictions in data set order") {
    const Finished eval = w.run(
        {"eval", "runs/small", "--json", "--predictions", "p.csv", "--devices", "cpu,cpu,cpu"});
    INFO(eval.err);
    REQUIRE(eval.exit_code == 0);
    const json result = json::parse(eval.out);
    CHECK(result["split"] == "test");
    CHECK(result["n"] == 40);
    CHECK(result["accuracy"] == end[0]["test"]["accuracy"]);
    CHECK(result["loss"] == end[0]["test"]["loss"]);
    std::istringstream csv(read_file(w.dir.file("p.csv")));
    std::string line;
    std::getline(csv, line);
    CHECK(line == "index,label,prediction,label_name,prediction_name,loss,probability");
    int n = 0, correct = 0;
    while (std::getline(csv, line)) {
      int index = -1, label = -1, prediction = -1;
      char comma = 0;
      std::istringstream(line) >> index >> comma >> label >> comma >> prediction;
      CHECK(index == n++);
      correct += label == prediction ? 1 : 0;
    }
    CHECK(n == 40);
    CHECK(result["accuracy"] == doctest::Approx(correct / 40.0));
    CHECK(w.run({"eval", "runs/small", "--split", "val"}).exit_code == 0);
    CHECK(w.run({"eval", "runs/small", "--require", "test/accuracy>=2"}).exit_code == 7);
    CHECK(w.run({"eval", "runs/small", "--require", "accuracy>2"}).exit_code == 2);
    CHECK(w.run({"eval", "runs/none"}).exit_code == 3);
  }
  SUBCASE("inspect gives a verdict on intact and on damaged files") {
    CHECK(w.run({"inspect", "runs/small/best.safetensors"}).exit_code == 0);
    std::string bytes = read_file(folder + "/best.safetensors");
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file(w.dir.file("flipped.safetensors"), bytes);
    CHECK(w.run({"inspect", "flipped.safetensors"}).exit_code == 3);
    CHECK(w.run({"eval", "flipped.safetensors"}).exit_code == 3);
    write_file(w.dir.file("short.safetensors"), bytes.substr(0, 100));
    CHECK(w.run({"inspect", "short.safetensors"}).exit_code == 3);
  }
  SUBCASE("weights: all fit, or a surprise is refused unless it was announced") {
    const std::vector<std::string> base = {"train", "small.yaml",  "--run-dir",
                                           "w",     "--overwrite", "--max-steps",
                                           "1",     "--weights",   "runs/small/best.safetensors"};
    const auto with = [&](std::vector<std::string> more) {
      std::vector<std::string> all = base;
      all.insert(all.end(), more.begin(), more.end());
      return w.run(all);
    };
    CHECK(with({}).exit_code == 0);
    const Finished renamed = with({"model.layers.fc1.name=head"});
    CHECK(renamed.exit_code == 3);
    check_contains(renamed.err, "missing from the file: head.weight");
    check_contains(renamed.err, "left over in the file: fc1.weight");
    const Finished announced = with({"model.layers.fc1.name=head", "--expect-missing", "head.*",
                                     "--expect-left-over", "fc1.*"});
    INFO(announced.err);
    CHECK(announced.exit_code == 0);
    const Finished shape = with({"model.layers.conv1.out_channels=9"});
    CHECK(shape.exit_code == 3);
    check_contains(shape.err, "conv1.weight");
  }
}

TEST_CASE("exit codes tell a script what happened") {
  const Workplace w;
  CHECK(w.run({"train", "none.yaml"}).exit_code == 2);
  CHECK(w.run({"train", "small.yaml", "train.epochz=3"}).exit_code == 2);
  CHECK(w.run({"train", "small.yaml", "--max-time", "soon"}).exit_code == 2);
  CHECK(w.run({"train", "small.yaml", "--resume", "must"}).exit_code == 3);
  CHECK(w.run({"train", "small.yaml", "--resume", "no-such-file"}).exit_code == 2);
  CHECK(w.run({"train", "small.yaml", "--weights", "no-such-file"}).exit_code == 3);
  const Finished cuda = w.run({"train", "small.yaml", "--devices", "cuda:7"});
  CHECK(cuda.exit_code == 4);
  check_contains(cuda.err, "cuda");
  const Finished diverged =
      w.run({"train", "small.yaml", "--run-dir", "d", "optimizer.lr=1e20", "train.epochs=2"});
  CHECK(diverged.exit_code == 5);
  check_contains(diverged.err, "diverged at step");
  CHECK(events(w.dir.file("d/metrics.jsonl"), "run_end").at(0)["exit_code"] == 5);
  const Finished shards = w.run({"train", "small.yaml", "--devices", "cpu,cpu,cpu,cpu,cpu"});
  CHECK(shards.exit_code == 2);
  check_contains(shards.err, "shard");
}

TEST_CASE("arithmetic that the processor does not have is refused before anything is written") {
  const Workplace w;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& says) {
    std::vector<std::string> words = {"train", "small.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished finished = w.run(words);
    CHECK(finished.exit_code == 4);
    check_contains(finished.err, says);
    CHECK_FALSE(std::filesystem::exists(w.dir.file("runs")));
  };
  const std::string tf32 = "layer 'conv1', set-up: cpu: a convolution in tf32 is not available";
  refused({"train.precision=tf32"}, tf32);
  refused({"train.precision=tf32", "--dry-run"}, tf32);
  // Simulate a processor without bf16 instructions.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  refused({"train.precision=bf16"}, "bf16 is not available: this processor (AVX2)");
  unsetenv("ONEDNN_MAX_CPU_ISA");

  // An existing run stays unchanged.
  CHECK(w.run({"train", "small.yaml", "--run-dir", "r", "--max-steps", "3"}).exit_code == 0);
  const std::string log = read_file(w.dir.file("r/train.log"));
  for (const char* how : {"--resume=must", "--overwrite"}) {
    CAPTURE(how);
    CHECK(w.run({"train", "small.yaml", "--run-dir", "r", how, "train.precision=tf32"}).exit_code ==
          4);
    CHECK(read_file(w.dir.file("r/train.log")) == log);
  }
}

TEST_CASE("dry run trains nothing and leaves nothing") {
  const Workplace w;
  const Finished dry = w.run({"train", "small.yaml", "--dry-run"});
  CHECK(dry.exit_code == 0);
  check_contains(dry.out, "conv1");
  CHECK_FALSE(std::filesystem::exists(w.dir.file("runs")));
}

TEST_CASE("--overfit: 0 where the model learns a batch, 7 where it does not, and nothing is left") {
  const Workplace w;
  const Finished learned = w.run_well({"train", "small.yaml", "--overfit", "1"});
  check_contains(learned.err, "the model can learn: the loss of the same 16 samples was ");
  const Finished stuck =
      w.run({"train", "small.yaml", "optimizer.lr=1.0e-9", "--overfit", "2", "--max-steps", "4"});
  CHECK(stuck.exit_code == 7);
  check_contains(stuck.err, "--overfit 2: the loss of the same 32 samples was ");
  check_contains(stuck.err, "It has hardly changed");
  for (const char* other : {"--overwrite", "--dry-run", "--resume=never", "--run-dir=r"}) {
    CHECK(w.run({"train", "small.yaml", "--overfit", "1", other}).exit_code == 2);
  }
  CHECK_FALSE(std::filesystem::exists(w.dir.file("runs")));
}

TEST_CASE("log.noise_scale: a run that cannot measure it says so before it begins") {
  const Workplace w;
  const Finished refused =
      w.run({"train", "small.yaml", "devices=cpu", "train.shards=auto", "log.noise_scale=true"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "Use two devices, or train.shards=2 (exact mode), or");
  CHECK_FALSE(std::filesystem::exists(w.dir.file("runs")));
  w.run_well({"train", "small.yaml", "log.noise_scale=true", "--max-steps", "10"});
  const auto steps = events(w.dir.file("runs/small/metrics.jsonl"), "step");
  REQUIRE(steps.size() == 2);
  CHECK(steps[1]["grad_variance"] > 0);
  CHECK(steps[1].contains("noise_scale") == (steps[1]["grad_sq"] > 0));
}

TEST_CASE("exact mode: a resume with other libraries or on another processor is reported") {
  const Workplace w;
  w.run_well({"train", "small.yaml", "--max-steps", "5"});
  const std::string path = w.dir.file("runs/small/checkpoints/step-00000005.safetensors");
  CHECK_FALSE(contains(w.run_well({"train", "small.yaml", "--max-steps", "5"}).err, "exact mode"));
  dpt::testing::rewrite_checkpoint(path, path, [](dpt::Metadata& metadata, auto&) {
    metadata["dpt.made_by"] = "oneDNN 0.0.1, no CUDA; sse41; 2 x cpu";
  });
  check_contains(w.run_well({"train", "small.yaml", "--max-steps", "6"}).err,
                 "warning: exact mode: the run was trained with oneDNN 0.0.1 on sse41 and "
                 "continues with oneDNN ");
}

TEST_CASE("limits: --max-steps ends with 0, --max-time with 75, and both continue later") {
  const Workplace w;
  CHECK(w.run({"train", "small.yaml", "--max-steps", "7"}).exit_code == 0);
  CHECK(std::filesystem::exists(w.dir.file("runs/small/checkpoints/step-00000007.safetensors")));
  const Finished gated =
      w.run({"train", "small.yaml", "--max-steps", "8", "--require", "test/accuracy>=0"});
  CHECK(gated.exit_code == 7);
  check_contains(gated.err, "this run has no test result");
  const Finished timed = w.run({"train", "small.yaml", "--max-time", "0s"});
  CHECK(timed.exit_code == 75);
  check_contains(timed.err, "--max-time");
  CHECK(w.run({"train", "small.yaml"}).exit_code == 0);
}

TEST_CASE("early stopping ends a run, and the same command again has nothing to do") {
  const Workplace w;
  const std::vector<std::string> command = {
      "train", "small.yaml", "train.early_stopping={monitor: val/accuracy, patience: 2}",
      "optimizer.lr=0.000001"};
  const Finished stopped = w.run(command);
  INFO(stopped.err);
  CHECK(stopped.exit_code == 0);
  const json summary = json::parse(read_file(w.dir.file("runs/small/summary.json")));
  // At this learning rate no evaluation improves on the first.
  CHECK(summary["early_stopped"] == true);
  CHECK(summary["epochs"] == 3);
  const Finished again = w.run(command);
  CHECK(again.exit_code == 0);
  check_contains(again.err, "is complete");
}

TEST_CASE(
    "a run that stopped early goes on with more patience, as one that had it from the start") {
  const Workplace w;
  const auto train = [&](const char* folder, const char* early) {
    return w.run_well({"train", "small.yaml", "--run-dir", folder, "optimizer.lr=0.000001", early});
  };
  const auto epochs = [&](const char* folder) {
    return json::parse(read_file(w.dir.file(folder) + "/summary.json"))["epochs"];
  };
  train("whole", "train.early_stopping={monitor: val/accuracy, patience: 4}");
  train("raised", "train.early_stopping={monitor: val/accuracy, patience: 2}");
  CHECK(epochs("raised") == 3);
  const Finished more =
      train("raised", "train.early_stopping={monitor: val/accuracy, patience: 4}");
  check_contains(more.err, "resuming raised/checkpoints/");
  CHECK(epochs("raised") == 5);
  CHECK((outcome_of(w.dir.file("raised")) == outcome_of(w.dir.file("whole"))));
  // Another monitor restarts the count, and without early stopping the run reaches its end.
  train("raised", "train.early_stopping={monitor: val/accuracy, smoothing: 0.5, patience: 2}");
  CHECK(epochs("raised") > 5);
  train("raised", "train.early_stopping=null");
  CHECK(epochs("raised") == 30);
}

TEST_CASE("config and model commands") {
  const Workplace w;
  CHECK(w.run({"config", "check", "small.yaml"}).exit_code == 0);
  const Finished two = w.run({"config", "check", "small.yaml", "a=1", "train.epochs=-1"});
  CHECK(two.exit_code == 2);
  check_contains(two.err, "a");
  check_contains(two.err, "epochs");
  write_file(w.dir.file("first.yaml"), w.run({"config", "init"}).out);
  CHECK(w.run({"config", "check", "first.yaml"}).exit_code == 0);
  CHECK(json::parse(w.run({"config", "schema"}).out).contains("$schema"));
  CHECK(json::parse(w.run({"model", "summary", "small.yaml", "--json"}).out).is_object());
  check_contains(w.run({"model", "summary", "small.yaml"}).out, "conv1");
  CHECK(json::parse(w.run({"devices", "--json"}).out).contains("cpu"));
  CHECK(json::parse(w.run({"bench", "small.yaml", "--steps", "5", "--rounds", "2", "--json"}).out)
            .contains("images_per_s"));
}
