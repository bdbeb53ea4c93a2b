// What is wrong with a command line is said before anything runs; each option reaches its command.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/safetensors.h"
#include "tests/cli/workplace.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

/// 40 samples in five steps of one small layer.
constexpr const char* kTinyConfig = R"(version: 1
name: tiny
data: {dataset: synthetic, size: 48, test_size: 6, classes: 3, val_split: 8, batch_size: 8}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
log: {every: 1}
devices: [cpu]
)";

struct Tiny : Workplace {
  Tiny() : Workplace(kTinyConfig) {}
};

/// "loss N VALUE" lines as `bench --losses` prints them.
std::vector<std::string> loss_lines(const std::string& out) {
  std::vector<std::string> lines;
  std::istringstream in(out);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("loss ", 0) == 0) lines.push_back(line);
  }
  return lines;
}

/// The same lines from the log of a run that logs every step.
std::vector<std::string> logged_losses(const std::string& log) {
  std::vector<std::string> lines;
  for (const json& step : events(log, "step")) {
    lines.push_back(
        fmt::format("loss {} {:.7g}", step["step"].get<int>(), step["loss"].get<double>()));
  }
  return lines;
}

}  // namespace

TEST_CASE("a word that a command does not know gets a suggestion, as an unknown command does") {
  const Tiny w;
  const auto refused = [&](const std::vector<std::string>& words, const std::string& message) {
    const Finished finished = w.run(words);
    CHECK(finished.exit_code == 2);
    CHECK(finished.err == "dpt: error: unexpected argument " + message + "\n");
    CHECK(finished.out.empty());
  };
  refused({"train", "small.yaml", "--max-step", "3"},
          "'--max-step' of dpt train, did you mean '--max-steps'? See dpt train --help");
  refused({"train", "small.yaml", "--max_tiem=3h", "--nonsense"},
          "'--max_tiem=3h' of dpt train, did you mean '--max-time'? See dpt train --help");
  // Also where something else is missing.
  refused({"eval", "--jsno"}, "'--jsno' of dpt eval, did you mean '--json'? See dpt eval --help");
  refused({"config", "show", "small.yaml", "--origin"},
          "'--origin' of dpt config show, did you mean '--origins'? See dpt config show --help");
  refused({"bench", "small.yaml", "--frobnicate"},
          "'--frobnicate' of dpt bench. See dpt bench --help");
  refused({"devices", "jsno"}, "'jsno' of dpt devices. See dpt devices --help");
  refused({"--versoin"}, "'--versoin' of dpt, did you mean '--version'? See dpt --help");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
}

TEST_CASE("what a command line lacks, and numbers out of range, are usage errors") {
  const Tiny w;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"config"},
                                                {"model"},
                                                {"eval"},
                                                {"inspect"},
                                                {"bench"},
                                                {"config", "check"},
                                                {"config", "show"},
                                                {"model", "summary"},
                                                {"train", "small.yaml", "--max-steps", "0"},
                                                {"train", "small.yaml", "--max-steps", "-1"},
                                                {"train", "small.yaml", "--max-steps", "x"},
                                                {"train", "small.yaml", "--max-time"},
                                                {"bench", "small.yaml", "--steps", "0"},
                                                {"bench", "small.yaml", "--rounds", "0"},
                                                {"bench", "small.yaml", "--rounds", "-2"}}) {
    CAPTURE(words[0]);
    CAPTURE(words.back());
    const Finished finished = w.run(words);
    CHECK(finished.exit_code == 2);
    CHECK_FALSE(finished.err.empty());
    CHECK(finished.out.empty());
  }
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
}

TEST_CASE("--require of a split that the run does not have is refused before it trains") {
  const Tiny w;
  const Finished val =
      w.run({"train", "small.yaml", "data.val_split=0", "--require", "val/accuracy>=0"});
  CHECK(val.exit_code == 2);
  check_contains(val.err, "data.val_split");
  const Finished test =
      w.run({"train", "small.yaml", "data.test_size=0", "--require", "test/accuracy>=0"});
  CHECK(test.exit_code == 2);
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
  // Training samples there are always.
  w.run_well({"train", "small.yaml", "data.val_split=0", "--require", "train/accuracy>=0"});
}

TEST_CASE("a run that will go on is judged at its end, not when it is stopped") {
  const Tiny w;
  const std::vector<std::string> command = {"train", "small.yaml", "--require",
                                            "train/accuracy>=2"};
  const Finished stopped = w.run(command, {"--max-time", "0s"});
  CHECK(stopped.exit_code == 75);
  check_contains(stopped.err,
                 " (--max-time), checkpoint saved; run the same command again to resume\n");
  const Finished limited = w.run(command, {"--max-steps", "4"});
  CHECK(limited.exit_code == 7);
  check_contains(limited.err, "stopped at step 4 (--max-steps), checkpoint saved; to resume: ");
  CHECK(w.run(command).exit_code == 7);
}

TEST_CASE("a dry run counts replicas and what the optimizer keeps") {
  const Tiny w;
  const std::string out = w.run_well({"train", "small.yaml", "--dry-run", "devices=[cpu, cpu]",
                                      "optimizer={type: Adam}"})
                              .out;
  check_contains(out, "Per image: 192 FLOP forward and backward");
  check_contains(
      out, "(4 of 8 images on 2 replicas): parameters 256 B, gradients 320 B, optimizer 512 B");
  check_contains(out,
                 "train 40 samples, val 8, test 6; 5 steps per epoch, 5 in total; 2 replica(s): ");
  check_contains(out, "; 2 x cpu\n");
}

TEST_CASE("what a run says of itself") {
  const Tiny w;
  const Finished first = w.run_well({"train", "small.yaml", "data.val_split=0", "--run-dir", "r",
                                     "data.test_size=0", "--max-steps", "2"});
  check_contains(first.err, "run folder r\n");
  check_contains(first.err, "51 parameters, 48 training samples, batch 8 on 1 replica(s) (cpu)\n");
  check_contains(first.err, "no validation samples (data.val_split is 0)\n");
  const Finished whole = w.run_well({"train", "small.yaml", "train.epochs=2"});
  CHECK_FALSE(contains(whole.err, "no validation samples"));
  CHECK_FALSE(contains(whole.err, "resuming"));
  const json summary = json::parse(read_file(w.dir.file("runs/tiny/summary.json")));
  check_contains(whole.err, "done: 2 epochs, 10 steps in 0:0");
  check_contains(whole.err, fmt::format("; test accuracy {:.4f}, loss {:.4f}\n",
                                        summary["test"]["accuracy"].get<double>(),
                                        summary["test"]["loss"].get<double>()));
  const json end = events(w.dir.file("runs/tiny/metrics.jsonl"), "run_end").at(0);
  CHECK(end["status"] == "ok");
  CHECK(end["best"] == summary["best"]);
  CHECK(end["test"] == summary["test"]);
  CHECK(events(w.dir.file("runs/tiny/metrics.jsonl"), "run_start").at(0)["device_weights"] ==
        json::array({1}));
  // Of two spaces, for people who look into them.
  CHECK(read_file(w.dir.file("runs/tiny/summary.json")).starts_with("{\n  \"v\": 1,\n"));
  CHECK(read_file(w.dir.file("runs/tiny/env.json")).starts_with("{\n  \"version\": "));
  // The same messages with times in the folder.
  const std::string log = read_file(w.dir.file("runs/tiny/train.log"));
  check_contains(log, "done: 2 epochs");
  check_contains(log, "run folder runs/tiny");

  const Finished complete = w.run_well({"train", "small.yaml", "train.epochs=2"});
  CHECK(complete.err ==
        "runs/tiny is complete: 2 epochs. To continue training, raise train.epochs, or start a new "
        "run with "
        "--overwrite or --resume never\n");
  const Finished more = w.run_well({"train", "small.yaml", "train.epochs=3", "--max-steps", "11"});
  check_contains(more.err,
                 "resuming runs/tiny/checkpoints/step-00000010.safetensors at step 10 "
                 "(epoch 3)\n");
}

TEST_CASE("a run that stopped early says what to change") {
  const Tiny w;
  const std::vector<std::string> command = {
      "train", "small.yaml", "train.epochs=9",
      "train.early_stopping={monitor: val/accuracy, patience: 1}", "optimizer.lr=0"};
  w.run_well(command);
  CHECK(w.run_well(command).err ==
        "runs/tiny is complete: 2 epochs, stopped early. Change train.early_stopping in a new "
        "run, or start a new run with --overwrite or --resume never\n");
}

TEST_CASE("results of another end than this are not taken for the run's") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const std::string file = w.dir.file("runs/tiny/summary.json");
  const json whole = json::parse(read_file(file));
  const auto with = [&](const std::string& key, const json& value) {
    json changed = whole;
    changed[key] = value;
    write_file(file, changed.dump());
    w.run_well({"train", "small.yaml"});
    const json now = json::parse(read_file(file));
    CHECK(now[key] == whole[key]);
    CHECK(now["test"] == whole["test"]);
  };
  with("status", "stopped");
  with("steps", 4);
  write_file(file, "[1, 2");
  w.run_well({"train", "small.yaml"});
  CHECK(json::parse(read_file(file))["status"] == "ok");
}

TEST_CASE("a run that goes on leaves files alone that say already what they should") {
  const Tiny w;
  const std::vector<std::string> command = {"train", "small.yaml", "train.epochs=3"};
  const auto begin = [&] {
    w.run_well(command, {"--overwrite", "--max-time", "1000d", "--max-steps", "2"});
  };
  begin();
  const std::string folder = w.dir.file("runs/tiny/");
  // A file that is written anew is another one: the second name keeps the old.
  for (const char* name : {"config.yaml", "env.json"}) {
    fs::create_hard_link(folder + name, w.dir.file(name));
  }
  w.run_well(command);
  for (const char* name : {"config.yaml", "env.json"}) {
    CAPTURE(name);
    CHECK(fs::hard_link_count(folder + name) == 2);
  }
  check_contains(read_file(folder + "command.txt"), "dpt train small.yaml train.epochs=3\n");
  const json env = json::parse(read_file(folder + "env.json"));
  const json devices = json::parse(w.run_well({"devices", "--json"}).out);
  CHECK(env["cpu"]["model"] == devices["cpu"]["model"]);
  CHECK(env["cpu"]["instruction_set"] == devices["cpu"]["instruction_set"]);
  CHECK(env["cpu"]["cores_allowed"] == devices["cpu"]["logical_cores_allowed"]);
  check_contains(env["made_by"], "; 1 x cpu");
  CHECK(env["version"].get<std::string>() + "\n" == w.run_well({"--version"}).out);
}

TEST_CASE("a name that is too long for a file is that of no file") {
  const Tiny w;
  const std::string name(5000, 'x');
  const Finished eval = w.run({"eval", name});
  CHECK(eval.exit_code == 3);
  check_contains(eval.err, ": no such run folder or checkpoint\n");
  const Finished train = w.run({"train", "small.yaml", "--resume", name});
  CHECK(train.exit_code == 2);
  check_contains(train.err, "found no such file\n");
  CHECK(w.run({"train", name}).exit_code == 2);
  CHECK(w.run({"inspect", name}).exit_code == 3);
  CHECK(w.run({"train", "small.yaml", "--weights", name}).exit_code == 3);
  CHECK(w.run({"train", "small.yaml", "--run-dir", name}).exit_code == 3);
}

TEST_CASE("--expect-missing and --expect-left-over take lists") {
  const Tiny w;
  const std::vector<float> values(6);
  dpt::write_safetensors(w.dir.file("w.safetensors"), {},
                         {{"a.x", "F32", {6}, values.data()}, {"b.x", "F32", {6}, values.data()}});
  const std::vector<std::string> command = {"train", "small.yaml", "--max-steps",
                                            "1",     "--weights",  "w.safetensors"};
  w.run_well(command, {"--expect-missing", "fc.weight,fc.bias", "--expect-left-over", "a.x,b.*"});
  const Finished refused = w.run(
      command, {"--run-dir", "r", "--expect-missing", "fc.weight", "--expect-left-over", "a.x"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err,
                 "does not fit the model:\n  missing from the file: fc.bias\n  left over in the "
                 "file: b.x\nIf this is intended");
}

TEST_CASE("eval: the newest checkpoint where there is no best, val where there is no test") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "data.test_size=0", "train.epochs=2"});
  const Finished best = w.run_well({"eval", "runs/tiny"});
  check_contains(best.out, "runs/tiny/best.safetensors: val split, 8 samples: loss ");
  fs::remove(w.dir.file("runs/tiny/best.safetensors"));
  const Finished newest = w.run_well({"eval", "runs/tiny"});
  check_contains(newest.out, "runs/tiny/checkpoints/step-00000010.safetensors: val split, 8 ");
  // One that is damaged is passed over, and that is said.
  write_file(w.dir.file("runs/tiny/checkpoints/step-00000010.safetensors"), "x");
  const Finished older = w.run_well({"eval", "runs/tiny"});
  check_contains(older.out, "step-00000005.safetensors: val split");
  check_contains(older.err, "dpt: warning: ");
  write_file(w.dir.file("runs/tiny/checkpoints/step-00000005.safetensors"), "x");
  const Finished none = w.run({"eval", "runs/tiny"});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "runs/tiny: the run folder has no good checkpoint");
}

TEST_CASE("eval: bounds of the loss, and predictions of a part of the samples") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const json val = json::parse(w.run_well({"eval", "runs/tiny", "--json", "--split", "val"}).out);
  const std::string loss = val["loss"].dump();
  w.run_well({"eval", "runs/tiny", "--split", "val", "--require", "val/loss<=" + loss});
  const Finished missed =
      w.run({"eval", "runs/tiny", "--split", "val", "--require", "val/loss<" + loss});
  CHECK(missed.exit_code == 7);
  check_contains(missed.err, fmt::format("--require val/loss<{}: not met: the value is {:.6g}\n",
                                         loss, val["loss"].get<double>()));
  const Finished elsewhere = w.run({"eval", "runs/tiny", "--require", "val/loss<1"});
  CHECK(elsewhere.exit_code == 2);
  check_contains(elsewhere.err,
                 "--require val/loss<1: expected a metric of the evaluated split, test");

  w.run_well({"eval", "runs/tiny", "--split", "val", "--predictions", "val.csv"});
  w.run_well({"eval", "runs/tiny", "--split", "train", "--predictions", "train.csv"});
  std::vector<int> all;
  const auto add = [&](const std::string& file) {
    std::istringstream csv(read_file(w.dir.file(file)));
    std::string line;
    std::getline(csv, line);
    double sum = 0;
    int n = 0, right = 0;
    for (; std::getline(csv, line); ++n) {
      int index = 0, label = 0, prediction = 0, label_name = 0, prediction_name = 0;
      char comma = 0;
      double loss_of_sample = 0;
      std::istringstream(line) >> index >> comma >> label >> comma >> prediction >> comma >>
          label_name >> comma >> prediction_name >> comma >> loss_of_sample;
      // Classes of synthetic data are called by their numbers, and follow one another.
      CHECK(label == index % 3);
      CHECK(label_name == label);
      CHECK(prediction_name == prediction);
      right += prediction == label ? 1 : 0;
      sum += loss_of_sample;
      all.push_back(index);
    }
    return std::tuple(n, sum / n, static_cast<double>(right) / n);
  };
  const auto [n, mean, accuracy] = add("val.csv");
  CHECK(n == 8);
  CHECK(mean == doctest::Approx(val["loss"].get<double>()).epsilon(1e-6));
  CHECK(accuracy == val["accuracy"].get<double>());
  CHECK(std::get<0>(add("train.csv")) == 40);
  // Each of the training files' samples is in one of the two.
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 48; ++i) CHECK(all.at(static_cast<std::size_t>(i)) == i);
}

TEST_CASE("eval: other devices than the run's, whatever their weights and shards were") {
  const Tiny w;
  w.run_well(
      {"train", "small.yaml", "devices=[cpu, cpu]", "device_weights=[1, 2]", "train.shards=2"});
  const json one = json::parse(w.run_well({"eval", "runs/tiny", "--json", "--devices", "cpu"}).out);
  const json three =
      json::parse(w.run_well({"eval", "runs/tiny", "--json", "--devices", "cpu,cpu,cpu"}).out);
  CHECK(one["accuracy"] == three["accuracy"]);
  // What is told on the command line counts, and --devices comes last.
  const Finished bad = w.run(
      {"eval", "runs/tiny", "device_weights=[1, 2]", "devices=[cpu, cpu]", "--devices", "cpu"});
  CHECK(bad.exit_code == 2);
  check_contains(bad.err, "device_weights");
}

TEST_CASE("inspect: a file without a checksum is good for what it is") {
  const Tiny w;
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_file(w.dir.file("foreign.safetensors"), bytes + header + std::string(4, '\0'));
  check_contains(w.run_well({"inspect", "foreign.safetensors"}).out,
                 "\nintegrity: unknown: the file has no dpt.integrity checksum");
  CHECK(json::parse(w.run_well({"inspect", "foreign.safetensors", "--json"}).out)["integrity"] ==
        "absent");
}

TEST_CASE("inspect: what a damaged file and a good one are called") {
  const Tiny w;
  const float one = 1;
  const std::string file = w.dir.file("a.safetensors");
  dpt::write_safetensors(file, {}, {{"x", "F32", {1}, &one}});
  check_contains(w.run_well({"inspect", "a.safetensors"}).out,
                 "\nintegrity: good: every byte is as it was written\n");
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  const Finished damaged = w.run({"inspect", "a.safetensors"});
  CHECK(damaged.exit_code == 3);
  check_contains(damaged.out,
                 "\nintegrity: MISMATCH: bytes have changed since the file was written\n");
}

TEST_CASE("config check counts, and --origins says where values come from") {
  const Tiny w;
  CHECK(w.run_well({"config", "check", "small.yaml"}).out ==
        "small.yaml: ok: 2 layers, 51 parameters\n");
  const std::string plain = w.run_well({"config", "show", "small.yaml", "seed=4"}).out;
  check_contains(plain, "\nseed: 4\n");
  CHECK_FALSE(contains(plain, "#"));
  const std::string origins =
      w.run_well({"config", "show", "small.yaml", "--origins", "seed=4"}).out;
  check_contains(origins, "# command line\n");
  check_contains(origins, "# small.yaml:2\n");
}

TEST_CASE("model summary counts the replicas and the optimizer of the config") {
  const Tiny w;
  const std::vector<std::string> command = {"model", "summary", "small.yaml", "--json"};
  const auto with = [&](const std::string& override_text) {
    return json::parse(w.run_well(command, {override_text}).out);
  };
  CHECK(with("devices=[cpu, cpu, cpu]")["replicas"] == 3);
  const json adam = with("optimizer={type: Adam}")["memory_per_replica"];
  CHECK(adam["optimizer"] == 2 * adam["parameters"].get<int>());
  CHECK(with("seed=1")["memory_per_replica"]["optimizer"] == 0);
}

TEST_CASE("devices: the text tells what the JSON does") {
  const Tiny w;
  const json out = json::parse(w.run_well({"devices", "--json"}).out);
  const json& cpu = out["cpu"];
  const std::string text = w.run_well({"devices"}).out;
  CHECK(text.find(fmt::format(
            "cpu     {}, {} usable cores ({} physical), {}, bf16: {}, {:.1f} "
            "GiB\n",
            cpu["model"].get<std::string>(), cpu["logical_cores_allowed"].get<int>(),
            cpu["physical_cores_allowed"].get<int>(), cpu["instruction_set"].get<std::string>(),
            cpu["bf16"].get<bool>() ? "yes" : "no",
            cpu["memory_bytes"].get<double>() / 1073741824.0)) == 0);
  const std::string driver = out["cuda_driver"];
  CHECK(out["cuda_runtime"].is_string());
  CHECK(out["cuda_libraries"].is_array());
  CHECK(contains(text, "        driver for CUDA " + driver + ", runtime ") == !driver.empty());
  if (out.contains("cuda_unavailable")) {
    CHECK(out["cuda"].empty());
    check_contains(text, "cuda    none: " + out["cuda_unavailable"].get<std::string>() + "\n");
    CHECK(out["auto"].size() == cpu["physical_cores_allowed"].get<std::size_t>());
    CHECK(out["auto"][0] == "cpu");
    check_contains(text, fmt::format("`devices: auto` means {} replica(s) on the CPU here\n",
                                     out["auto"].size()));
  }
}

TEST_CASE("bench runs the steps of a run, from the weights that it is given") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.epochs=3", "--max-steps", "12"});
  const std::vector<std::string> whole = logged_losses(w.dir.file("runs/tiny/metrics.jsonl"));
  REQUIRE(whole.size() == 12);
  const std::vector<std::string> bench = {"bench", "small.yaml", "--losses", "--steps",
                                          "6",     "--rounds",   "1"};
  // A round to warm up and one to time, from epoch to epoch.
  const Finished fresh = w.run_well(bench);
  CHECK(loss_lines(fresh.out) == whole);
  check_contains(fresh.out, " images/s (median of 1 rounds of 6 steps; ");
  check_contains(fresh.out, "), batch 8, ");
  check_contains(fresh.out, "; 1 x cpu\n");
  const std::string weights = "runs/tiny/checkpoints/step-00000010.safetensors";
  w.run_well({"train", "small.yaml", "--run-dir", "w", "--weights", weights, "--max-steps", "2"});
  const auto from_weights = logged_losses(w.dir.file("w/metrics.jsonl"));
  const auto lines = loss_lines(w.run_well(bench, {"--weights", weights}).out);
  REQUIRE(lines.size() == 12);
  CHECK(lines[0] == from_weights.at(0));
  CHECK(lines[1] == from_weights.at(1));
  CHECK(lines[0] != whole[0]);
  check_contains(w.run_well(bench, {"--devices", "cpu,cpu"}).out, "; 2 x cpu\n");
  CHECK(
      loss_lines(w.run_well({"bench", "small.yaml", "--steps", "1", "--rounds", "1"}).out).empty());
}

TEST_CASE("bench: the rate is samples by seconds, of 9 rounds of 200 steps where nothing is said") {
  const Tiny w;
  check_contains(w.run_well({"bench", "small.yaml"}).out, "(median of 9 rounds of 200 steps; ");
  const auto begin = std::chrono::steady_clock::now();
  const json bench = json::parse(
      w.run_well({"bench", "small.yaml", "--steps", "40", "--rounds", "3", "--json"}).out);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(bench["samples"] == 3 * 40 * 8);
  // The rounds are a part of the time that the program took.
  CHECK(bench["samples"].get<double>() / bench["max"].get<double>() <= seconds);
}

TEST_CASE("bench: of two rounds the median is the faster one") {
  const Tiny w;
  const std::vector<std::string> command = {"bench", "small.yaml", "--steps",
                                            "20",    "--rounds",   "2"};
  const json bench = json::parse(w.run_well(command, {"--json"}).out);
  CHECK(bench["images_per_s"] == bench["max"]);
  CHECK(bench["min"] <= bench["max"]);
  double median = 0, least = 0, most = 0;
  const std::string text = w.run_well(command).out;
  REQUIRE(std::sscanf(text.c_str(),
                      "%lf images/s (median of 2 rounds of 20 steps; %lf to %lf), batch 8, ",
                      &median, &least, &most) == 3);
  CHECK(median == most);
  CHECK(least <= most);
}

TEST_CASE("bench --calls: no time is longer than the program took for all of its runs") {
  const Workplace w;
  constexpr int kRounds = 20;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> command = {
      "bench", "small.yaml",          "--calls",  "--devices",
      "cpu",   "data.batch_size=100", "--rounds", std::to_string(kRounds)};
  const json out = json::parse(w.run_well(command, {"--json"}).out);
  const std::string text = w.run_well(command).out;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // A round has at least 20 runs, the best of which is not slower than their mean.
  const auto is_possible = [&](double us) { return us * 1e-6 * 20 * kRounds <= seconds; };
  CHECK(is_possible(out["step_us"]));
  CHECK(is_possible(out["sum_us"]));
  const std::string last = "\n  whole step, without copies ";
  check_contains(text, last);
  const double told = std::stod(text.substr(text.find(last) + last.size()));
  CHECK(told > 0);
  CHECK(is_possible(told));
}

TEST_CASE("bench --calls: each call of a step, and their sum") {
  const Workplace w;
  const std::vector<std::string> command = {"bench",
                                            "small.yaml",
                                            "--calls",
                                            "--rounds",
                                            "1",
                                            "--devices",
                                            "cpu",
                                            "devices=[cpu:2]",
                                            "data.batch_size=12",
                                            "optimizer={type: AdamW, lr: 0.01, amsgrad: true}"};
  const json out = json::parse(w.run_well(command, {"--json"}).out);
  CHECK(out["batch"] == 12);
  CHECK(out["step_us"] > 0);
  std::vector<std::string> names;
  double sum = 0;
  for (const json& call : out["calls"]) {
    names.push_back(call["name"]);
    CHECK(call["us"] > 0);
    sum += call["us"].get<double>();
  }
  CHECK(names == std::vector<std::string>{"input", "conv1 forward", "fc1 forward", "loss",
                                          "fc1 backward", "conv1 backward", "update"});
  CHECK(out["sum_us"].get<double>() == doctest::Approx(sum));
  CHECK(out["calls"][0]["flops"] == 0);
  CHECK(out["calls"][1]["flops"] == 12 * 2 * 64 * 8 * 9);
  CHECK(out["calls"][2]["flops"] == 12 * 2 * 128 * 4);
  CHECK(!out["implementations"].empty());
  const std::string text = w.run_well(command).out;
  check_contains(text, "batch 12 on cpu, each call timed separately:\n");
  for (const std::string& name : names) check_contains(text, "  " + name + " ");
  CHECK(count_of(text, " GFLOP/s") == 4);
  CHECK(count_of(text, " us\n") == 5);
  // The text's numbers belong together: the sum, and the products of each call by its time.
  double us = 0;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  for (const json& call : out["calls"]) {
    REQUIRE(std::getline(lines, line));
    const double time = std::stod(line.substr(30));
    us += time;
    const double flops = call["flops"];
    if (flops == 0) continue;
    const double rate = std::stod(line.substr(line.find("us") + 2));
    CHECK(std::abs(rate - flops / time / 1e3) <= 0.05 + 0.02 * rate);
  }
  REQUIRE(std::getline(lines, line));
  CHECK(line.rfind("  sum ", 0) == 0);
  CHECK(std::stod(line.substr(30)) == doctest::Approx(us).epsilon(0.01));
  check_contains(text, "\n  whole step, without copies ");
}

// Sanitizers end a program that asks for too much.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("memory that the system does not give is a device's error, and says what helps") {
  const Tiny w;
  const auto with_8_gib = [] {
    const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(124);
  };
  // The order of so many samples alone takes 16 GiB.
  const Finished run =
      run_dpt({"train", "small.yaml", "data.size=2147483647"}, w.dir.path(), with_8_gib);
  CHECK(run.exit_code == 4);
  CHECK(run.err == "dpt: error: out of memory: try a smaller data.batch_size or fewer devices\n");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
}
#endif
