#include "app/base/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>

#include "app/base/console.h"
#include "engine/run/progress.h"
#include "kernels/base/message_writer.h"
#include "kernels/base/terminal.h"

namespace dpt {
namespace {

constexpr std::chrono::seconds kBetweenLines{10};
constexpr std::chrono::milliseconds kBetweenDrawings{100};

}  // namespace

ProgressLine::ProgressLine(Shown shown)
    : shown_(shown),
      is_terminal_(stderr_redraws()),
      next_(Clock::now() + (is_terminal_ ? Clock::duration(kBetweenDrawings) : kBetweenLines)) {}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::clear() noexcept {
  if (drawn_columns_ == 0) return;
  try {
    stderr_writer().write_if_ready(erasure(drawn_columns_, terminal_columns(STDERR_FILENO)));
  } catch (const std::exception&) {  // out of memory: part of the line may remain
  }
  drawn_columns_ = 0;
}

void ProgressLine::update(const std::string& done_what, std::int64_t done, std::int64_t total,
                          const std::string& things) noexcept {
  const bool is_hidden = shown_ == Shown::nowhere || (shown_ == Shown::terminal && !is_terminal_);
  if (total == 0 || is_hidden) return;
  const auto now = Clock::now();
  try {
    if (phase_ != done_what) {
      phase_ = done_what;
      phase_done_ = done;
      phase_begun_ = now;
    }
    if (now < next_) return;
    const std::string line = text(done_what, done, total, things, now);
    if (is_terminal_) {
      draw(line);
    } else {
      say(line);
    }
    next_ = now + (is_terminal_ ? Clock::duration(kBetweenDrawings) : kBetweenLines);
  } catch (const std::exception&) {  // out of memory: continue the work without the line
  }
}

std::string ProgressLine::text(const std::string& done_what, std::int64_t done, std::int64_t total,
                               const std::string& things, Clock::time_point now) {
  std::string line =
      fmt::format("{} {} of {} {} ({} %)", done_what, done, total, things, 100 * done / total);
  const double seconds = std::chrono::duration<double>(now - phase_begun_).count();
  // Make no estimate in the first second: it would be unreliable.
  if (done > phase_done_ && seconds > 1) {
    const double each = seconds / static_cast<double>(done - phase_done_);
    line += fmt::format(", {} left", format_duration(each * static_cast<double>(total - done)));
  }
  return line;
}

void ProgressLine::draw(const std::string& line) {
  const std::size_t columns = terminal_columns(STDERR_FILENO);
  // Shorten the line to whole words.
  const std::vector<std::string> lines = wrapped(line, columns - 1);
  const std::string& shown = lines.empty() ? line : lines[0];
  stderr_writer().write_if_ready(erasure(drawn_columns_, columns) + shown);
  drawn_columns_ = display_columns(shown);
}

}  // namespace dpt
