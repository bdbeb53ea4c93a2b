// Heartbeats, and the threads that emit them.
#include "kernels/base/heartbeat.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "kernels/base/error.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/text.h"

namespace dpt::testing {
namespace {

TEST_CASE("a heartbeat has the step and the last activity") {
  Heartbeat heartbeat;
  CHECK(heartbeat.text() == "before its first step");
  CHECK(heartbeat.beats() == 0);
  heartbeat.beat("reading samples");
  CHECK(heartbeat.text() == "before its first step, reading samples");
  heartbeat.set_step(1);
  CHECK(heartbeat.text() == "step 1, reading samples");
  heartbeat.beat("saving");
  heartbeat.set_step(17);
  CHECK(heartbeat.text() == "step 17, saving");
  CHECK(heartbeat.beats() == 2);
}

TEST_CASE("a thread beats for the replica that started it, and no other") {
  const auto mine = std::make_shared<Heartbeat>();
  const std::shared_ptr<Heartbeat> before = heartbeat_of_thread();
  set_heartbeat_of_thread(mine);
  start_thread("a test", [] { beat("in a thread"); }).join();
  CHECK(mine->beats() == 1);
  CHECK(mine->text() == "before its first step, in a thread");
  set_heartbeat_of_thread(nullptr);
  beat("nobody's");
  start_thread("a test", [] { beat("nobody's"); }).join();
  CHECK(mine->beats() == 1);
  set_heartbeat_of_thread(before);
}

TEST_CASE("threads that could be started have ended again") {
  for (const int count : {0, 1, 3}) CHECK_NOTHROW(require_threads("a test", count));
}

TEST_CASE("a thread that cannot be started: the limit of addresses is named if it is set") {
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // these need a fixed address layout
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{4} << 20);
    setrlimit(RLIMIT_AS, &limit);
    std::string text;
    try {
      require_threads("a test", 1000);
    } catch (const Error& error) {
      text = error.what();
    }
    _exit(text.find(" of addresses (ulimit -v)") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
#endif
}

TEST_CASE("a long call to the system is progress while it lasts, of the thread's own replica") {
  const auto mine = std::make_shared<Heartbeat>(), other = std::make_shared<Heartbeat>();
  set_heartbeat_of_thread(mine);
  {
    const SystemCall call("syncing a file to disk");
    std::uint64_t before = mine->beats();
    for (int look = 0; look < 3; ++look) {
      const std::uint64_t now = mine->beats();
      CHECK(now > before);
      before = now;
    }
    CHECK(mine->text() == "before its first step, syncing a file to disk");
    CHECK(other->beats() == 0);
  }
  CHECK(mine->text() == "before its first step");
  mine->beat("training");
  { const SystemCall call("renaming a file"); }
  CHECK(mine->text() == "before its first step, training");
  {
    const SystemCall call("renaming a file");
    mine->beat("reading samples");  // as a beat of another thread would
  }
  CHECK(mine->text() == "before its first step, reading samples");
  const std::uint64_t after = mine->beats();
  CHECK(mine->beats() == after);
  set_heartbeat_of_thread(nullptr);
  const SystemCall of_nobody("renaming a file");
  CHECK(mine->beats() == after);
}

TEST_CASE("control characters of texts from elsewhere are shown, not obeyed") {
  CHECK(printable("plain, \xc3\xa9 and \\") == "plain, \xc3\xa9 and \\");
  CHECK(printable("a\x1b[2J\x7f\n") == "a\\x1b[2J\\x7f\\x0a");
  CHECK(printable("two\nlines\r", "\n") == "two\nlines\\x0d");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
  CHECK(printable("\xc2\xa0\xc2") == "\xc2\xa0\xc2");
}

TEST_CASE("seconds in messages: three digits below one, tenths from there on") {
  using std::chrono::milliseconds;
  CHECK(seconds_text(milliseconds(10)) == "0.01 s");
  CHECK(seconds_text(milliseconds(250)) == "0.25 s");
  CHECK(seconds_text(milliseconds(0)) == "0 s");
  CHECK(seconds_text(milliseconds(1000)) == "1.0 s");
  CHECK(seconds_text(milliseconds(4567)) == "4.6 s");
}

}  // namespace
}  // namespace dpt::testing
