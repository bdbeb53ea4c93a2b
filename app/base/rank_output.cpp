#include "app/base/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace dpt {
namespace {

/// Maximum length of a line (longer ones are split), and of the messages that wait for a slow
/// reader before reading pauses.
constexpr std::size_t kLongestLine = 1 << 16, kMostWaiting = 1 << 20;

}  // namespace

void RankMessages::add(const std::string& line) {
  if (is_lost_) return;
  // Rank 0 may have drawn a progress bar where the line begins.
  lines_.push_back((is_terminal_ ? "\r\x1b[K" : "") + line + "\n");
  size_ += lines_.back().size();
}

bool RankMessages::is_full() const {
  return size_ > kMostWaiting;
}

void RankMessages::write_some() {
  if (lines_.empty()) return;
  std::string& line = lines_.front();
  const ssize_t written =
      write(STDERR_FILENO, line.data(), std::min<std::size_t>(line.size(), PIPE_BUF));
  if (written < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    // Messages that nobody reads change nothing, as for a run.
    is_lost_ = true;
    lines_.clear();
    size_ = 0;
    return;
  }
  size_ -= static_cast<std::size_t>(written);
  line.erase(0, static_cast<std::size_t>(written));
  if (line.empty()) lines_.pop_front();
}

RankOutput::RankOutput(int rank, FileHandle pipe)
    : prefix_(fmt::format("[rank {}] ", rank)), pipe_(std::move(pipe)) {
  fcntl(pipe_.fd(), F_SETFL, O_NONBLOCK);
}

bool RankOutput::read_into(RankMessages& messages) {
  std::array<char, 1 << 14> buffer;
  while (is_open()) {
    if (messages.is_full()) return false;
    const ssize_t got = read(pipe_.fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      end_line(messages);
      pipe_ = FileHandle();
      return true;
    }
    split({buffer.data(), static_cast<std::size_t>(got)}, messages);
  }
  return true;
}

void RankOutput::end_line(RankMessages& messages) {
  if (line_.empty()) return;
  messages.add(prefix_ + line_);
  line_.clear();
}

void RankOutput::split(std::string_view text, RankMessages& messages) {
  for (const char c : text) {
    if (c == '\n' || line_.size() == kLongestLine) {
      messages.add(prefix_ + line_);
      line_.clear();
    }
    if (c != '\n') line_ += c;
  }
}

}  // namespace dpt
