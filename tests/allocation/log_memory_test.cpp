// A resume reads the log of the run line by line. The test is in this program because the
// allocators of sanitizers keep freed memory.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "engine/run/run_log.h"
#include "tests/support/temp_dir.h"

using namespace dpt;
using dpt::testing::TempDir;

namespace {

/// Returns the peak memory of this process, in bytes.
std::int64_t peak_memory() {
  rusage usage{};
  REQUIRE(::getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss * 1024;
}

}  // namespace

TEST_CASE("the memory that a resume needs for the log does not depend on its length") {
  const TempDir folder;
  constexpr std::int64_t kSteps = 50'000;
  {
    std::ofstream log(folder.file("metrics.jsonl"));
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      log << R"({"v":1,"event":"step","epoch":1,"step":)" << step
          << R"(,"loss":0.8125,"accuracy":0.7125,"lr":0.05,"grad_norm":1.9,"images_per_s":13210})"
          << "\n";
    }
  }
  const auto bytes =
      static_cast<std::int64_t>(std::filesystem::file_size(folder.file("metrics.jsonl")));
  REQUIRE(bytes > 5'000'000);
  const std::int64_t before = peak_memory();
  CHECK(abandon_log_lines(folder.path(), kSteps, 1) == 0);
  CHECK(abandon_log_lines(folder.path(), 1, 1) == kSteps - 1);
  CHECK(peak_memory() - before < bytes / 4);
}
