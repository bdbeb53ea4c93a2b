// Parts that several threads process. Each part is processed once. If several parts fail, the error
// of the first of them is thrown.
#include "datasets/parallel_parts.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>

namespace dpt::data_test {

TEST_CASE("for_each_part: each part once, whatever the threads") {
  std::array<std::atomic<int>, 300> calls{};
  for_each_part(calls.size(), "tester", [&](std::size_t i) { ++calls[i]; });
  for (const std::atomic<int>& each : calls) CHECK(each == 1);
  for_each_part(0, "tester", [](std::size_t) { FAIL("there is none"); });
  for_each_part(1, "tester", [](std::size_t i) { CHECK(i == 0); });
}

TEST_CASE("for_each_part: the error of the first part, whichever comes first") {
  for (const std::size_t earlier : {3, 7}) {
    const std::size_t later = 10 - earlier;
    std::atomic<bool> has_failed{false}, has_begun{false};
    try {
      for_each_part(10, "tester", [&](std::size_t i) {
        if (i == later) {
          has_begun = true;
          while (!has_failed) std::this_thread::yield();
          throw std::runtime_error(std::to_string(i));
        }
        if (i != earlier) return;
        while (!has_begun) std::this_thread::yield();
        has_failed = true;
        throw std::runtime_error(std::to_string(i));
      });
      FAIL("no error was thrown");
    } catch (const std::runtime_error& error) {
      CHECK(error.what() == std::string("3"));
    }
  }
}

}  // namespace dpt::data_test
