// Progress of a run for people: a progress bar on a terminal, plain lines elsewhere, and the same
// messages in train.log.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/held_path.h"

namespace dpt {

/// Part of the text next to a bar, in forms from the longest to the shortest. If there is not
/// enough room, the least important part becomes shorter and is finally left out.
struct StatusPart {
  std::vector<std::string> forms;
  int importance = 0;
};

/// Returns a bar and its text in up to `room` columns. The bar's cells shrink and vanish first,
/// then the parts. No part is cut off in the middle.
std::string bar_line(double done_fraction, const std::vector<StatusPart>& parts, std::size_t room);

/// Returns the control sequence that removes a line of `used` columns from a terminal that is now
/// `columns` wide, and moves the cursor to its beginning. A terminal that became narrower may have
/// wrapped the line.
std::string erasure(std::size_t used, std::size_t columns);

/// Returns true if stderr is a terminal whose lines can be redrawn (TERM is not "dumb").
bool stderr_redraws();

/// Writes messages to stderr and, once a file is set, to the file with time stamps. On a terminal
/// the last line is the bar. Used by one thread at a time, except for the logger, which is
/// thread-safe.
class Progress {
 public:
  /// `silent`: write to the file only, for tests and benchmarks. `between_lines`: see status.
  explicit Progress(bool silent = false,
                    std::chrono::milliseconds between_lines = std::chrono::seconds(30));
  ~Progress();

  /// Also appends every message to `path`.
  void also_to(const HeldPath& path);

  void info(const std::string& text);
  void warn(const std::string& text);
  /// Writes a warning that appears nowhere else: to stderr even if silent.
  void warn_always(const std::string& text);

  /// Shows the progress of the work: on a terminal as `bar_line`, otherwise as a line with the
  /// longest forms of all parts, at least `between_lines` after the last message.
  void status(double done_fraction, const std::vector<StatusPart>& parts);
  /// Removes the bar.
  void clear();

 private:
  struct Impl;  // out of the header because spdlog's headers are slow to compile
  std::unique_ptr<Impl> impl_;
};

/// Returns seconds as "1:02:03" or "4:05".
std::string format_duration(double seconds);
/// Returns a rate as "950", "12.3k" or "1.2M".
std::string format_rate(double per_second);

}  // namespace dpt
