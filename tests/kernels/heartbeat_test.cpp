// Signs of life, and the threads that give them.
#include "kernels/heartbeat.h"

#include <doctest/doctest.h>

#include "kernels/start_thread.h"

namespace dpt::testing {
namespace {

TEST_CASE("a heartbeat tells the step and what was done last") {
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

}  // namespace
}  // namespace dpt::testing
