#include "kernels/base/message_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace dpt {

bool MessageWriter::is_ready(std::chrono::milliseconds patience) const noexcept {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd wanted = {descriptor_, POLLOUT, 0};
    const int count =
        poll(&wanted, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX)));
    if (count >= 0 || errno != EINTR) return count != 0;
  }
}

bool MessageWriter::put(std::string_view text, std::chrono::milliseconds patience) noexcept {
  while (!text.empty()) {
    if (!is_ready(patience)) return false;
    // A pipe that is ready accepts this many bytes at once.
    const ssize_t written =
        ::write(descriptor_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      return true;  // no reader is left
    }
  }
  return true;
}

void MessageWriter::write(std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  std::chrono::milliseconds patience = dropped_ > 0 ? std::chrono::milliseconds(0) : patience_;
  if (dropped_ > 0 && is_ready(patience)) {
    std::array<char, 200> line;
    const auto end = fmt::format_to_n(
        line.data(), line.size(),
        "dpt: {} message{} before this line {} not shown: nobody read stderr for {:g} s\n",
        dropped_, dropped_ == 1 ? "" : "s", dropped_ == 1 ? "is" : "are",
        std::chrono::duration<double>(patience_).count());
    if (put({line.data(), std::min(end.size, line.size())}, patience)) {
      dropped_ = 0;
      patience = patience_;  // the descriptor is writable again
    }
  }
  if (!put(text, patience)) ++dropped_;
}

void MessageWriter::write_if_ready(std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  if (dropped_ == 0) put(text, std::chrono::milliseconds(0));
}

MessageWriter& stderr_writer() {
  static MessageWriter writer(STDERR_FILENO, std::chrono::seconds(5));
  return writer;
}

}  // namespace dpt
