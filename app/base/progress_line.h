// Progress of long work, on stderr: a line that is redrawn on a terminal, and occasional lines
// elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dpt {

/// Used by one thread. The destructor removes the line from a terminal.
class ProgressLine {
 public:
  /// Outputs that show the line. Commands that soon print results show it only on a terminal.
  enum class Shown : std::uint8_t { anywhere, terminal, nowhere };

  explicit ProgressLine(Shown shown = Shown::anywhere);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows "read 1200 of 60000 samples (2 %), 0:12 left", with "read" for `done_what` and "samples"
  /// for `things`. Estimates the remaining time from the progress since the first call. May be
  /// called often: it redraws a terminal at most ten times per second.
  void update(const std::string& done_what, std::int64_t done, std::int64_t total,
              const std::string& things) noexcept;
  /// Removes the line from the terminal until the next update, to make room for other output.
  void clear() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(const std::string& done_what, std::int64_t done, std::int64_t total,
                   const std::string& things, Clock::time_point now);
  void draw(const std::string& text);

  Shown shown_;
  bool is_terminal_;
  std::size_t drawn_columns_ = 0;  ///< width of the line on the terminal; 0 = not shown
  Clock::time_point next_;         ///< earliest time of the next line
  std::string phase_;              ///< the last `done_what`
  std::int64_t phase_done_ = 0;    ///< progress at the first call of the phase
  Clock::time_point phase_begun_{};
};

}  // namespace dpt
