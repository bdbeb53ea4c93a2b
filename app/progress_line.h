// How far long work has come, on stderr: a line that changes on a terminal, elsewhere a line now
// and then.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dpt {

/// Used by one thread. Its destructor takes the line off a terminal.
class ProgressLine {
 public:
  /// Places where the line is shown: a command whose results are on stderr or stdout soon enough
  /// shows it on a terminal only.
  enum class Shown : std::uint8_t { anywhere, terminal, nowhere };

  explicit ProgressLine(Shown shown = Shown::anywhere);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// "read 1200 of 60000 samples (2 %), 0:12 left"; `done_what`: "read", `things`: "samples". The
  /// time that is left follows from what was done since the first call. May be called often: a
  /// terminal is redrawn ten times a second.
  void update(const std::string& done_what, std::int64_t done, std::int64_t total,
              const std::string& things) noexcept;
  /// Takes the line off the terminal until the next update, for output of another kind.
  void clear() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(const std::string& done_what, std::int64_t done, std::int64_t total,
                   const std::string& things, Clock::time_point now);
  void draw(const std::string& text);

  Shown shown_;
  bool is_terminal_;
  std::size_t drawn_columns_ = 0;  ///< of the line on the terminal; 0 = it is not there
  Clock::time_point next_;         ///< the earliest time of the next line
  std::string phase_;              ///< the last `done_what`
  std::int64_t phase_done_ = 0;    ///< at its first call
  Clock::time_point phase_begun_{};
};

}  // namespace dpt
