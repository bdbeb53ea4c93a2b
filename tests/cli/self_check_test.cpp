// The self check in the program: train.self_check, its cache and log line, dpt devices --check.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny.h"

namespace dpt::testing {
namespace {

using json = nlohmann::json;

/// Sets the folder of the cache for the programs that a test starts.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& path) {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", path.c_str(), 1);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  ~CacheFolder() {
    before_.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

/// Trains and returns the log's lines about the self check.
std::vector<json> checks_of(const Workplace& w, const std::string& run,
                            const std::vector<std::string>& overrides = {}) {
  w.run_well({"train", "small.yaml", "--run-dir", run}, overrides);
  return events(w.dir.file(run + "/metrics.jsonl"), "self_check");
}

TEST_CASE("a run checks only the operations that no run has checked before") {
  const Tiny w;
  const CacheFolder cache(w.dir.file("cache"));
  const std::vector<json> first = checks_of(w, "a");
  REQUIRE(first.size() == 1);
  CHECK(first[0]["operations"] == 1);
  CHECK(first[0]["checked"] == 1);
  CHECK(first[0]["seconds"] > 0);
  CHECK(std::filesystem::exists(w.dir.file("cache/dpt/checked-kernels.json")));
  CHECK(checks_of(w, "b").empty());
  CHECK(checks_of(w, "c", {"train.self_check=always"}).size() == 1);
  CHECK(checks_of(w, "d", {"data.batch_size=1"}).size() == 1);
  CHECK(checks_of(w, "e", {"data.batch_size=2", "train.self_check=never"}).empty());
}

TEST_CASE("a cache that cannot be written is noted, and the run trains") {
  const Tiny w;
  write_file(w.dir.file("cache"), "a file, not a folder");
  const CacheFolder cache(w.dir.file("cache"));
  for (const char* run : {"a", "b"}) {
    const Finished finished = w.run_well({"train", "small.yaml", "--run-dir", run});
    CHECK((finished.out + finished.err)
              .find("the self check passed, but each run repeats it, because its result cannot be "
                    "saved: ") != std::string::npos);
  }
}

TEST_CASE("dpt devices --check checks a device once, and with --seconds at least twice") {
  const Tiny w;
  const std::string text = w.run_well({"devices", "--check", "--devices", "cpu"}).out;
  CHECK(text.find(" operations, 1 pass: passed, ") != std::string::npos);
  const json out = json::parse(
      w.run_well({"devices", "--check", "--devices", "cpu", "--seconds", "0.01", "--json"}).out);
  CHECK(out["passed"] == true);
  REQUIRE(out["devices"].size() == 1);
  const json& device = out["devices"][0];
  CHECK(device["device"] == "cpu");
  CHECK(device["operations"] > 200);
  CHECK(device["passes"] == 2);
  CHECK(device["wrong"].empty());
  CHECK(!device.contains("failure"));
  CHECK(w.run({"devices", "--seconds", "3"}).exit_code == 2);
  CHECK(w.run({"devices", "--check", "--seconds", "0"}).exit_code == 2);
  CHECK(w.run({"devices", "--check", "--devices", "cuda:99"}).exit_code == 4);
  CHECK(w.run({"devices", "--check", "--devices", "tpu"}).exit_code == 2);
}

}  // namespace
}  // namespace dpt::testing
