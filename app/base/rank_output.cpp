#include "app/base/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "engine/run/progress.h"
#include "kernels/base/error.h"
#include "kernels/base/message_writer.h"
#include "kernels/base/start_thread.h"

namespace dpt {

RankOutput::~RankOutput() {
  is_ending_ = true;
  own_ = FileHandle();
  if (thread_.joinable()) thread_.join();
}

FileHandle RankOutput::add_pipe(const std::string& prefix) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    fail(ErrorKind::unexpected, "--nproc: pipe failed: {}", std::strerror(errno));
  }
  streams_.push_back({prefix, FileHandle(ends[0]), {}});
  return FileHandle(ends[1]);
}

void RankOutput::start() {
  thread_ = start_thread("the output of the processes", [this] { run(); });
}

void RankOutput::add(const std::string& line) {
  dprintf(own_.fd(), "%s\n", line.c_str());
}

void RankOutput::run() {
  constexpr std::size_t kMaxLine = 1 << 16;  // longer lines are split
  // Erase a progress bar that rank 0 may have drawn on the current line.
  const std::string erasure = stderr_redraws() ? "\r\x1b[K" : "";
  const auto end_line = [&](Stream& stream) {
    while (!is_ending_ && !stderr_writer().is_ready(std::chrono::seconds(1))) {
    }
    stderr_writer().write(erasure + stream.prefix + std::exchange(stream.line, {}) + "\n");
  };
  std::vector<pollfd> polled;
  for (const Stream& stream : streams_) polled.push_back({stream.pipe.fd(), POLLIN, 0});
  std::array<char, 1 << 16> buffer;
  // Once the launcher's stream has ended, read only what the other pipes contain now: a process
  // that a rank has started may keep them open.
  while (poll(polled.data(), polled.size(), polled[0].fd < 0 ? 0 : -1) != 0) {
    // The launcher's stream is polled first and read last, because it reports on the others.
    for (std::size_t i = streams_.size(); i-- > 0;) {
      if (std::exchange(polled[i].revents, 0) == 0) continue;
      Stream& stream = streams_[i];
      const ssize_t got = read(polled[i].fd, buffer.data(), buffer.size());
      for (ssize_t at = 0; at < got; ++at) {
        const char c = buffer[static_cast<std::size_t>(at)];
        if (c == '\n' || stream.line.size() == kMaxLine) end_line(stream);
        if (c != '\n') stream.line += c;
      }
      if (got <= 0) {
        polled[i].fd = -1;
        if (!stream.line.empty()) end_line(stream);
      }
    }
  }
  for (Stream& stream : streams_) {
    if (!stream.line.empty()) end_line(stream);
  }
}

}  // namespace dpt
