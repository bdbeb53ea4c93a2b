// The counts and measurements of bench, and its message about bf16 on CPUs.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/image_folders.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
using nlohmann::json;

namespace {

/// Returns the "loss N VALUE" lines that `bench --losses` prints.
std::vector<std::string> loss_lines(const std::string& out) {
  std::vector<std::string> lines;
  std::istringstream in(out);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("loss ", 0) == 0) lines.push_back(line);
  }
  return lines;
}

/// Returns the losses in the log of a run that logs every step, as loss_lines() returns them.
std::vector<std::string> logged_losses(const std::string& log) {
  std::vector<std::string> lines;
  for (const json& step : events(log, "step")) {
    lines.push_back(
        fmt::format("loss {} {:.7g}", step["step"].get<int>(), step["loss"].get<double>()));
  }
  return lines;
}

}  // namespace

TEST_CASE("bench counts the samples that were run: batches that the data does not fill") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());  // 180 samples for training
  const auto samples = [&](const std::string& batch_size, const std::string& steps) {
    const Finished bench = run_dpt({"bench", "small.yaml", "data.batch_size=" + batch_size,
                                    "--steps", steps, "--rounds", "3", "--json"},
                                   dir.path());
    INFO(bench.err);
    REQUIRE(bench.exit_code == 0);
    const json result = json::parse(bench.out);
    CHECK(result["rounds"] == 3);
    return result["samples"].get<int>();
  };
  CHECK(samples("100000", "2") == 3 * 2 * 180);
  // Steps alternate between 100 and 80 samples; the first one is the warm-up.
  CHECK(samples("100", "1") == 80 + 100 + 80);
  const Finished text =
      run_dpt({"bench", "small.yaml", "data.batch_size=100000", "--steps", "1", "--rounds", "1"},
              dir.path());
  CHECK(text.out.find("batch 180,") != std::string::npos);
}

TEST_CASE("bf16 on a CPU: dpt devices and a run say if it is slower") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const std::string slower = "bf16 is slower than fp32 on this CPU";
  const json devices = json::parse(run_dpt({"devices", "--json"}, dir.path()).out);
  const bool has_bf16 = devices["cpu"]["bf16"].get<bool>();
  const bool is_slower = devices["cpu"]["bf16_is_slower_than_fp32"].get<bool>();
  CHECK((has_bf16 || !is_slower));
  const std::string text = run_dpt({"devices"}, dir.path()).out;
  CHECK((text.find(slower) != std::string::npos) == is_slower);
  CHECK((text.find("train.precision=bf16 is faster") != std::string::npos) ==
        (has_bf16 && !is_slower));
  const Finished usual = run_dpt({"train", "small.yaml", "train.epochs=1"}, dir.path());
  CHECK(usual.err.find(slower) == std::string::npos);
  if (!has_bf16) {
    skip_test("this processor has neither AVX512-BF16 nor AMX");
    return;
  }
  const Finished run = run_dpt(
      {"train", "small.yaml", "train.epochs=1", "train.precision=bf16", "--run-dir", "bf16"},
      dir.path());
  CHECK(run.exit_code == 0);
  CHECK((run.err.find(slower) != std::string::npos) == is_slower);
}

TEST_CASE("bench runs the steps of a run, from the weights that it is given") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.epochs=3", "--max-steps", "12"});
  const std::vector<std::string> whole = logged_losses(w.dir.file("runs/tiny/metrics.jsonl"));
  REQUIRE(whole.size() == 12);
  const std::vector<std::string> bench = {"bench", "small.yaml", "--losses", "--steps",
                                          "6",     "--rounds",   "1"};
  // One round warms up, and one is timed. Their steps cross from epoch to epoch.
  const Finished fresh = w.run_well(bench);
  CHECK(loss_lines(fresh.out) == whole);
  check_contains(fresh.out, " images/s (median of 1 round of 6 steps; ");
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

TEST_CASE("bench: the rate is samples per second, by default over 9 rounds of 200 steps") {
  const Tiny w;
  check_contains(w.run_well({"bench", "small.yaml"}).out, "(median of 9 rounds of 200 steps; ");
  const auto begin = std::chrono::steady_clock::now();
  const json bench = json::parse(
      w.run_well({"bench", "small.yaml", "--steps", "40", "--rounds", "3", "--json"}).out);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(bench["samples"] == 3 * 40 * 8);
  // The rounds are part of the time that the program took.
  CHECK(bench["samples"].get<double>() / bench["max"].get<double>() <= seconds);
}

TEST_CASE("bench: the median of two rounds is the faster one") {
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
  // A round has at least 20 runs; the fastest is not slower than their mean.
  const auto is_possible = [&](double us) { return us * 1e-6 * 20 * kRounds <= seconds; };
  CHECK(is_possible(out["step_us"]));
  CHECK(is_possible(out["sum_us"]));
  const std::string last = "\n  whole step, without copies ";
  check_contains(text, last);
  const double told = std::stod(text.substr(text.find(last) + last.size()));
  CHECK(told > 0);
  CHECK(is_possible(told));
}

TEST_CASE("bench --serve: a line that is not a command is an error") {
  const Workplace w;
  for (const char* line : {"run abc", "run 0", "stop"}) {
    write_file(w.dir.file("commands"), std::string(line) + "\n");
    const Finished refused = run_dpt({"bench", "small.yaml", "--serve"}, w.dir.path(), [&] {
      dup2(open(w.dir.file("commands").c_str(), O_RDONLY), 0);
    });
    CHECK(refused.exit_code == 2);
    check_contains(refused.err,
                   fmt::format("--serve: expected 'run N' on stdin, found '{}'", line));
  }
}

TEST_CASE("bench --calls: the batch is one that a run has, and options of rounds are refused") {
  const Workplace w;  // 180 samples for training
  const std::vector<std::string> calls = {"bench", "small.yaml", "--calls", "--rounds", "1"};
  CHECK(json::parse(w.run_well(calls, {"data.batch_size=100000", "--json"}).out)["batch"] == 180);
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--losses"}, {"--serve"}, {"--steps", "3"}, {"--weights", "w"}}) {
    const Finished refused = w.run(calls, other);
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, "excludes");
    check_contains(refused.err, "--calls");
    check_contains(refused.err, other[0]);
  }
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
  // The printed numbers are consistent: the sum, and each call's count times its time.
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
    // The time has two decimals, the rate one.
    CHECK(std::abs(rate - flops / time / 1e3) <= 0.05 + rate * (0.006 / time));
  }
  REQUIRE(std::getline(lines, line));
  CHECK(line.rfind("  sum ", 0) == 0);
  CHECK(std::stod(line.substr(30)) == doctest::Approx(us).epsilon(0.01));
  check_contains(text, "\n  whole step, without copies ");
}

TEST_CASE("bench --data times the host's work on samples, by stage") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const std::string transforms = "data.transforms.train=[{type: RandomResizedCrop, size: 8}]";
  const Finished bench = run_dpt(
      {"bench", "small.yaml", "--data", "--steps", "12", "--rounds", "3", "--json", transforms},
      dir.path());
  INFO(bench.err);
  REQUIRE(bench.exit_code == 0);
  const json result = json::parse(bench.out);
  // 12 batches are an epoch of 180 samples.
  CHECK(result["samples"] == 3 * 180);
  CHECK(result["images_per_s"].get<double>() > 0);
  CHECK(result["us_per_image"]["other transforms"].get<double>() > 0);
  CHECK(result["us_per_image"]["read files"] == 0);
  const Finished text =
      run_dpt({"bench", "small.yaml", "--data", "--steps", "2", transforms}, dir.path());
  CHECK(text.out.find(" decoder thread") != std::string::npos);
  CHECK(text.out.find("other transforms") != std::string::npos);
  // Decoded images kept in memory would hide the cost of reading.
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "light"});
  const auto reading = [&](const std::vector<std::string>& more) {
    const Finished finished = w.run_well(
        {"bench", "small.yaml", "--data", "--steps", "12", "--rounds", "2", "--json"}, more);
    CHECK(contains(finished.err, "measured with data.cache_mib=0") == more.empty());
    return json::parse(finished.out)["us_per_image"]["read files"].get<double>();
  };
  CHECK(reading({}) > 0);
  CHECK(reading({"data.cache_mib=64"}) == 0);
  const Finished resident = run_dpt({"bench", "small.yaml", "--data"}, dir.path());
  CHECK(resident.exit_code == 2);
  CHECK(resident.err.find("there is nothing to time") != std::string::npos);
}
