// What bench counts, and what is said of bf16 on CPUs.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
using nlohmann::json;

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
  // Steps of 100 and 80 samples in turn; the first one warms up.
  CHECK(samples("100", "1") == 80 + 100 + 80);
  const Finished text =
      run_dpt({"bench", "small.yaml", "data.batch_size=100000", "--steps", "1", "--rounds", "1"},
              dir.path());
  CHECK(text.out.find("batch 180,") != std::string::npos);
}

TEST_CASE("bf16 on a CPU: dpt devices and a run say that it is slower") {
  const TempDir dir;
  write_file(dir.file("small.yaml"), program_config());
  const std::string slower = "bf16 is slower than fp32 on a CPU";
  const json devices = json::parse(run_dpt({"devices", "--json"}, dir.path()).out);
  const bool has_bf16 = devices["cpu"]["bf16"].get<bool>();
  CHECK(devices["cpu"]["bf16_is_slower_than_fp32"] == has_bf16);
  const std::string text = run_dpt({"devices"}, dir.path()).out;
  CHECK((text.find(slower) != std::string::npos) == has_bf16);
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
  CHECK(run.err.find(slower) != std::string::npos);
}
