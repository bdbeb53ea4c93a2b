// Messages to the user on stderr. They must not block the work, although the reader of a pipe may
// be stuck, or a terminal may be stopped (Ctrl-S).
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace dpt {

/// Writes texts to a descriptor. Drops a text that cannot be written within `patience`. From then
/// on, drops each text at once until the descriptor is writable again, and then first writes a line
/// with the number of dropped texts. Callable from any thread.
class MessageWriter {
 public:
  MessageWriter(int descriptor, std::chrono::milliseconds patience)
      : descriptor_(descriptor), patience_(patience) {}
  MessageWriter(const MessageWriter&) = delete;

  /// Writes a message. Up to PIPE_BUF bytes are written at once, so that lines of several processes
  /// do not mix. Does nothing if the descriptor is closed or broken.
  void write(std::string_view text) noexcept;
  /// Writes a text that later texts replace, such as a progress bar. Drops it if it cannot be
  /// written without waiting.
  void write_if_ready(std::string_view text) noexcept;
  /// Waits until the descriptor accepts bytes. Returns false if it does not within `patience`.
  bool is_ready(std::chrono::milliseconds patience) const noexcept;

 private:
  bool put(std::string_view text, std::chrono::milliseconds patience) noexcept;

  const int descriptor_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::int64_t dropped_ = 0;  ///< messages dropped since the last one was written; guarded by
                              ///< mutex_
};

/// Returns the writer of stderr, whose patience is 5 s.
MessageWriter& stderr_writer();

}  // namespace dpt
