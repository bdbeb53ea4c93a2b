// Output of the processes of `--nproc` on its way to stderr: line by line, after "[rank N] ".
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "engine/run/progress.h"
#include "kernels/base/file_handle.h"

namespace dpt {

/// Whole lines on their way to stderr, whose reader may be slow or gone.
class RankMessages {
 public:
  void add(const std::string& line);
  bool empty() const { return lines_.empty(); }
  /// Returns true if no more should be read until some of it is written.
  bool is_full() const;
  /// Writes one piece, which a pipe that poll has found ready takes without waiting.
  void write_some();

 private:
  std::deque<std::string> lines_;
  std::size_t size_ = 0;
  bool is_lost_ = false, is_terminal_ = stderr_redraws();
};

/// Output of one process to one of its streams.
class RankOutput {
 public:
  RankOutput(int rank, FileHandle pipe);
  bool is_open() const { return pipe_.is_open(); }
  int descriptor() const { return pipe_.get(); }
  /// Takes what is there, as long as `messages` has room; returns false if there was more.
  bool read_into(RankMessages& messages);
  /// Ends the last line, which need not have an end.
  void end_line(RankMessages& messages);

 private:
  void split(std::string_view text, RankMessages& messages);

  std::string prefix_, line_;
  FileHandle pipe_;
};

}  // namespace dpt
