// Messages to the user on stderr, which must not hold up the work: the reader of a pipe may stand
// still, a terminal may be stopped (Ctrl-S).
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace dpt {

/// Writes texts to a descriptor. Drops a text that cannot be written within `patience`. From then
/// on it drops texts without waiting until the descriptor is writable again, and first writes a
/// line with the number of dropped texts. Callable from any thread.
class MessageWriter {
 public:
  MessageWriter(int descriptor, std::chrono::milliseconds patience)
      : descriptor_(descriptor), patience_(patience) {}
  MessageWriter(const MessageWriter&) = delete;

  /// Writes a message, up to PIPE_BUF bytes in one piece, so that the lines of several processes
  /// stay whole. Does nothing if the descriptor is closed or broken.
  void write(std::string_view text) noexcept;
  /// Writes what a later text replaces, such as a progress bar, if it can be done without waiting.
  void write_if_ready(std::string_view text) noexcept;
  /// Returns false if the descriptor takes nothing for `patience`.
  bool is_ready(std::chrono::milliseconds patience) const noexcept;

 private:
  bool put(std::string_view text, std::chrono::milliseconds patience) noexcept;

  const int descriptor_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::int64_t dropped_ = 0;  ///< messages since the last one that was written; guarded by mutex_
};

/// Returns the writer of stderr, whose patience is 5 s.
MessageWriter& stderr_writer();

}  // namespace dpt
