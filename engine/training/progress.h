// What a person sees of a run: a progress bar on a terminal, plain lines elsewhere, the same
// messages in train.log.
#pragma once

#include <memory>
#include <string>

#include "engine/checkpoints/held_path.h"

namespace dpt {

/// Messages go to stderr and, once a file is set, to it with time stamps. On a terminal the last
/// line is the bar. Used by one thread at a time, but for the logger, which is thread-safe.
class Progress {
 public:
  /// A silent one writes to its file only: for tests and benchmarks.
  explicit Progress(bool silent = false);
  ~Progress();

  /// Also writes every message to `path` (appended).
  void also_to(const HeldPath& path);

  void info(const std::string& text);
  void warn(const std::string& text);
  /// A warning that nobody else gives: a silent one writes it to stderr too.
  void warn_always(const std::string& text);

  /// Redraws the bar, at most ten times a second. Does nothing where stderr is no terminal.
  void bar(double done_fraction, const std::string& text);
  /// Removes the bar.
  void clear();

 private:
  struct Impl;  // spdlog's headers are slow to compile: they stay out of here
  std::unique_ptr<Impl> impl_;
};

/// "1:02:03", "4:05" from seconds.
std::string format_duration(double seconds);
/// "950", "12.3k", "1.2M".
std::string format_rate(double per_second);

}  // namespace dpt
