// How far long work has come, on stderr: a line that changes on a terminal, elsewhere a line now
// and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dpt {

/// Used by one thread. Its destructor takes the line off a terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// "read 1200 of 60000 samples (2 %)"; `done_what`: "read", `things`: "samples".
  void update(const std::string& done_what, std::int64_t done, std::int64_t total,
              const std::string& things) noexcept;

 private:
  bool is_terminal_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_;  ///< elsewhere than on a terminal
};

}  // namespace dpt
