// The log survives disk errors and crashes.
#include "engine/run/run_log.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include <fmt/format.h>

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

/// Returns the text of a log with "T" in place of each time, which must have the right form.
std::string without_times(const std::string& path) {
  return std::regex_replace(
      read_whole_file(path),
      std::regex(
          R"re("time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","elapsed_s":\d+\.\d{1,3}\b)re"),
      "T");
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
  const rlimit small{120, usual.rlim_max};  // in the middle of the second line
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
  // The gap is reported once.
  log.event("e", {{"x", 5}});
  REQUIRE(lines_of(path).size() == 4);
  Json last = lines_of(path)[3];
  CHECK(last.erase("time") == 1);
  CHECK(last.erase("elapsed_s") == 1);
  CHECK(last == Json({{"v", 1}, {"event", "e"}, {"x", 5}}));
  // A log whose file cannot be created.
  RunLog nowhere(folder.file("none/metrics.jsonl"),
                 [&](const std::string& text) { warnings.push_back(text); });
  nowhere.event("a", {});
  CHECK(warnings.size() == 2);
}

TEST_CASE("each line has the time in UTC, also where the process has another time zone") {
  const TempDir folder;
  const std::string zone = std::getenv("TZ") ? std::getenv("TZ") : "";
  setenv("TZ", "Asia/Tokyo", 1);
  tzset();
  const std::time_t before = std::time(nullptr);
  RunLog(folder.file("l")).event("a", Json::object());
  const std::time_t after = std::time(nullptr);
  zone.empty() ? unsetenv("TZ") : setenv("TZ", zone.c_str(), 1);
  tzset();
  const std::string text = lines_of(folder.file("l"))[0]["time"];
  std::tm utc = {};
  REQUIRE(strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc) != nullptr);
  CHECK(timegm(&utc) >= before);
  CHECK(timegm(&utc) <= after);
}

TEST_CASE("each line has the seconds since its log was opened, which never fall") {
  const TempDir folder;
  RunLog log(folder.file("l"));
  log.event("a", Json::object());
  const auto before = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - before < std::chrono::milliseconds(2)) {
  }
  log.event("b", {{"x", 1}});
  const auto lines = lines_of(folder.file("l"));
  CHECK(lines[0]["elapsed_s"].get<double>() >= 0);
  CHECK(lines[1]["elapsed_s"].get<double>() > lines[0]["elapsed_s"].get<double>());
}

TEST_CASE("text that is not UTF-8 and numbers that are not finite stand in the log all the same") {
  const TempDir folder;
  RunLog(folder.file("l")).event("a", {{"name", "caf\xe9"}, {"loss", NAN}});
  const auto lines = lines_of(folder.file("l"));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["name"] == "caf\xef\xbf\xbd");
  CHECK(lines[0]["nonfinite"] == Json({"loss"}));
  CHECK(lines[0]["loss"].is_null());
  RunLog(folder.file("l")).event("b", {{"loss", 0.5}, {"n", 3}});
  CHECK_FALSE(lines_of(folder.file("l"))[1].contains("nonfinite"));
  RunLog(folder.file("l"))
      .event("c", {{"x", 1}, {"norms", {{"fc.weight", NAN}, {"fc.bias", 2.5}}}});
  CHECK(lines_of(folder.file("l"))[2]["norms"] == Json({{"fc.weight", nullptr}, {"fc.bias", 2.5}}));
  CHECK(lines_of(folder.file("l"))[2]["nonfinite"] == Json({"norms.fc.weight"}));
}

TEST_CASE("half a line is gone as soon as a log is opened, and a replaced file is left at once") {
  const TempDir folder;
  const std::string path = folder.file("l");
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("{\"event\":\"a\"}\n{\"event\":\"b");
  RunLog log(path);
  CHECK(read_whole_file(path) == "{\"event\":\"a\"}\n");
  log.event("c", Json::object());
  CHECK(without_times(path) == "{\"event\":\"a\"}\n{\"v\":1,\"event\":\"c\",T}\n");
  write_file_atomically(path, "{\"event\":\"d\"}\n");
  log.reopen();
  log.event("e", Json::object());
  CHECK(without_times(path) == "{\"event\":\"d\"}\n{\"v\":1,\"event\":\"e\",T}\n");
  write("no line at all");
  RunLog again(path);
  CHECK(read_whole_file(path).empty());
  // Without a path there is no file and no warning.
  RunLog nothing;
  nothing.event("a", Json::object());
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
  // After a crash between the two writes, the lines are not appended a second time.
  write(kept + moved);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 5);
  CHECK(read_whole_file(folder.file("metrics.abandoned.jsonl")) == moved);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 0);
  // Unless its process finished, a test result at the end of the log moves: it is measured again.
  const std::string test = "{\"event\":\"eval\",\"epoch\":1,\"step\":10,\"split\":\"test\"}\n";
  write(test + kept);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 0);
  write(kept + test);
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 1);
  write(kept + test + "{\"event\":\"run_end\",\"status\":\"failed\"}\n");
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 1);
  write(kept + test + "{\"event\":\"run_end\",\"status\":\"ok\"}\n");
  CHECK(abandon_log_lines(folder.path(), 10, 1) == 0);
}

TEST_CASE(
    "lines that move are found again in a log of many blocks, and compared with what is there") {
  const TempDir folder;
  const std::string path = folder.file("metrics.jsonl");
  const std::string abandoned = folder.file("metrics.abandoned.jsonl");
  const std::string test = "{\"event\":\"eval\",\"epoch\":1,\"step\":9,\"split\":\"test\"}\n";
  const std::string end = "{\"event\":\"run_end\"}\n";
  const auto steps = [](std::int64_t from, std::int64_t to) {
    std::string text;
    for (std::int64_t i = from; i < to; ++i) {
      text += fmt::format("{{\"event\":\"step\",\"step\":{},\"x\":\"{}\"}}\n", i,
                          std::string(static_cast<std::size_t>(i % 1000), 'x'));
    }
    return text;
  };
  const auto set = [&](const std::string& text) { std::ofstream(path) << text; };
  // One line is longer than a block; a test result of a finished process stays.
  const std::string longest = "{\"event\":\"note\",\"x\":\"" + std::string(200'000, 'y') + "\"}\n";
  const std::string kept = test + longest + end + steps(0, 10);
  set(kept + test + steps(10, 700));
  CHECK(abandon_log_lines(folder.path(), 9, 1) == 691);
  CHECK((read_whole_file(path) == kept));
  CHECK((read_whole_file(abandoned) == test + steps(10, 700)));
  // The same lines are not appended again, but other lines of the same length are.
  set(kept + test + steps(10, 700));
  CHECK(abandon_log_lines(folder.path(), 9, 1) == 691);
  CHECK((read_whole_file(abandoned) == test + steps(10, 700)));
  std::string others = steps(10, 700);
  others[others.size() - 4] = 'z';
  set(kept + test + others);
  CHECK(abandon_log_lines(folder.path(), 9, 1) == 691);
  CHECK((read_whole_file(path) == kept));
  CHECK((read_whole_file(abandoned) == test + steps(10, 700) + test + others));
}

TEST_CASE("which lines come again: by step, by epoch, and by the process that wrote them") {
  const TempDir folder;
  CHECK(abandon_log_lines(folder.path(), 0, 0) == 0);
  const auto moves = [&](const std::string& line, std::int64_t step, std::int64_t epoch,
                         const std::string& before = {}, std::int64_t rollbacks = 0) {
    std::ofstream(folder.file("metrics.jsonl")) << before + line + "\n";
    const bool moved = abandon_log_lines(folder.path(), step, epoch, rollbacks) > 0;
    CHECK(read_whole_file(folder.file("metrics.jsonl")) == before + (moved ? "" : line + "\n"));
    return moved;
  };
  CHECK_FALSE(moves(R"({"event":"step","step":10})", 10, 2));
  CHECK(moves(R"({"event":"step","step":11})", 10, 2));
  CHECK_FALSE(moves(R"({"event":"epoch","epoch":2,"step":10})", 10, 2));
  CHECK(moves(R"({"event":"epoch","epoch":2,"step":10})", 10, 1));
  CHECK(moves(R"({"event":"epoch","epoch":2,"step":11})", 10, 2));
  CHECK_FALSE(moves(R"({"event":"lr_reduced","epoch":2,"step":10})", 10, 2));
  CHECK(moves(R"({"event":"lr_reduced","epoch":2,"step":10})", 10, 1));
  CHECK_FALSE(moves(R"({"event":"eval","epoch":2,"step":10,"split":"val"})", 10, 2));
  CHECK(moves(R"({"event":"eval","epoch":2,"step":10,"split":"val"})", 10, 1));
  CHECK(moves(R"({"event":"eval","epoch":2,"step":10,"split":"test"})", 10, 2,
              "{\"event\":\"run_end\"}\n"));
  CHECK_FALSE(moves(R"({"event":"eval","epoch":1,"step":5,"split":"test"})", 10, 2));
  CHECK(moves(R"({"event":"eval","epoch":2,"step":10,"split":"test"})", 10, 2,
              "{\"event\":\"eval\",\"epoch\":1,\"step\":5}\n"));
  // A rollback event has the step to which the run went back. If the run was killed at that moment,
  // the event is logged again.
  const std::string rollback = R"({"event":"rollback","step":10,"rollbacks":2})";
  CHECK(moves(rollback, 10, 2, {}, 1));
  CHECK_FALSE(moves(rollback, 10, 2, {}, 2));
  CHECK_FALSE(moves(rollback, 12, 2, {}, 3));
  CHECK(moves(rollback, 9, 2, {}, 2));
  // Lines without a step belong to the process that began last.
  CHECK_FALSE(moves(R"({"event":"log_gap","lines":1})", 10, 2));
  CHECK_FALSE(
      moves(R"({"event":"log_gap","lines":1})", 10, 2, "{\"event\":\"run_start\",\"step\":10}\n"));
  CHECK_FALSE(moves(R"({"event":"checkpoint","step":8})", 10, 2));
  // A line that is not an event stays.
  for (const char* odd : {"7", "no JSON", "[1]", R"({"event":"step","step":"11"})", ""}) {
    CAPTURE(odd);
    CHECK_FALSE(moves(odd, 10, 2));
  }
  // A resume before the first step moves everything.
  std::ofstream(folder.file("metrics.jsonl"))
      << "{\"event\":\"run_start\",\"step\":0}\n{\"event\":\"run_end\"}\n";
  CHECK(abandon_log_lines(folder.path(), -1, -1) == 2);
  CHECK(read_whole_file(folder.file("metrics.jsonl")).empty());
}
