// A deadline for every test case. A case that hangs ends its program with a message that names the
// case, long before ctest's limit, which could only name the program. Only main.cpp includes this.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dpt::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kDefaultDeadline = 360;
#else
inline constexpr int kDefaultDeadline = 180;
#endif

/// Returns the seconds that a test case may take. DPT_TEST_DEADLINE overrides the number; 0
/// disables the deadline, for use in a debugger.
inline int deadline_of_a_case() {
  const char* text = std::getenv("DPT_TEST_DEADLINE");
  return text ? std::atoi(text) : kDefaultDeadline;
}

/// Message that the signal handler prints; written before the timer is set.
inline char g_deadline_message[1024];

/// A timer with a dedicated signal: a watching thread would disturb tests that fork, and tests use
/// SIGALRM themselves.
class Deadline final : public doctest::IReporter {
 public:
  explicit Deadline(const doctest::ContextOptions&) {
    if (seconds_ <= 0) return;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      [[maybe_unused]] const auto written =
          ::write(STDERR_FILENO, g_deadline_message, std::strlen(g_deadline_message));
      std::abort();
    };
    sigemptyset(&action.sa_mask);
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMAX - 1;
    is_made_ = sigaction(event.sigev_signo, &action, nullptr) == 0 &&
               timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  Deadline(const Deadline&) = delete;
  ~Deadline() override {
    if (is_made_) timer_delete(timer_);
  }

  void test_case_start(const doctest::TestCaseData& test) override {
    std::snprintf(g_deadline_message, sizeof g_deadline_message,
                  "\n%s:%u: the test case '%s' did not end within %d s: aborted "
                  "(DPT_TEST_DEADLINE sets another limit)\n",
                  test.m_file.c_str(), test.m_line, test.m_name, seconds_);
    set(seconds_);
  }
  void test_case_end(const doctest::CurrentTestCaseStats&) override { set(0); }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  void set(int seconds) {
    itimerspec when = {};
    when.it_value.tv_sec = seconds;
    if (is_made_) timer_settime(timer_, 0, &when, nullptr);
  }

  const int seconds_ = deadline_of_a_case();
  timer_t timer_ = {};
  bool is_made_ = false;
};

REGISTER_LISTENER("deadline", 1, Deadline);

}  // namespace dpt::testing
