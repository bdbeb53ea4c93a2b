// The log bears what a disk and a crash do to it.
#include "engine/training/run_log.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/temp_dir.h"

using namespace dpt;
using dpt::testing::TempDir;

namespace {

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a log that cannot be written warns once, and says later how much is missing") {
  const TempDir folder;
  const std::string path = folder.file("metrics.jsonl");
  std::vector<std::string> warnings;
  RunLog log(path, [&](const std::string& text) { warnings.push_back(text); });
  log.event("a", {{"x", 1}});
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{40, usual.rlim_max};  // in the middle of the second line
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  log.event("b", {{"x", 2}});
  log.event("c", {{"x", 3}});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  ::signal(SIGXFSZ, old_handler);
  log.event("d", {{"x", 4}});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("File too large") != std::string::npos);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1]["event"] == "log_gap");
  CHECK(lines[1]["lines"] == 2);
  CHECK(lines[2]["event"] == "d");
  // A log whose file cannot even be made.
  RunLog nowhere(folder.file("none/metrics.jsonl"),
                 [&](const std::string& text) { warnings.push_back(text); });
  nowhere.event("a", {});
  CHECK(warnings.size() == 2);
}

TEST_CASE("text that is not UTF-8 and numbers that are not finite stand in the log all the same") {
  const TempDir folder;
  RunLog(folder.file("l")).event("a", {{"name", "caf\xe9"}, {"loss", NAN}});
  const auto lines = lines_of(folder.file("l"));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["name"] == "caf\xef\xbf\xbd");
  CHECK(lines[0]["nonfinite"] == Json({"loss"}));
}

TEST_CASE("lines past the moment of the resume move, once") {
  const TempDir folder;
  const std::string path = folder.file("metrics.jsonl");
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  const std::string kept =
      "{\"event\":\"run_start\",\"step\":0}\n"
      "{\"event\":\"step\",\"step\":10}\n"
      "{\"event\":\"epoch\",\"epoch\":1,\"step\":10}\n"
      "{\"event\":\"run_end\"}\n";
  const std::string moved =
      "{\"event\":\"run_start\",\"step\":12}\n"
      "{\"event\":\"replica\"}\n"
      "{\"event\":\"step\",\"step\":20}\n"
      "{\"event\":\"run_end\"}\n"
      "{\"event\":\"epoch\",\"epoch\":2,\"step\":10}\n";
  write(kept + moved + "{\"event\":\"st");
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 5);
  CHECK(read_whole_file(path) == kept);
  CHECK(read_whole_file(folder.file("metrics.abandoned.jsonl")) == moved);
  // A crash between the two writes: they are not appended a second time.
  write(kept + moved);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 5);
  CHECK(read_whole_file(folder.file("metrics.abandoned.jsonl")) == moved);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 0);
  // The test set is measured again only by a process that did not come to its end.
  const std::string test = "{\"event\":\"eval\",\"epoch\":1,\"step\":10,\"split\":\"test\"}\n";
  write(test + kept);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 0);
  write(kept + test);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 1);
}
