// Progress of long work, on stderr: a line that changes on a terminal, elsewhere a line now and
// then.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dpt {

/// Used by one thread. Its destructor takes the line off a terminal.
class ProgressLine {
 public:
  /// Outputs that show the line. A command whose results appear soon enough shows it only on a
  /// terminal.
  enum class Shown : std::uint8_t { anywhere, terminal, nowhere };

  explicit ProgressLine(Shown shown = Shown::anywhere);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// "read 1200 of 60000 samples (2 %), 0:12 left"; `done_what`: "read", `things`: "samples". The
  /// remaining time is estimated from the progress since the first call. May be called often: a
  /// terminal is redrawn ten times per second.
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
