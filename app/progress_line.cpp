#include "app/progress_line.h"

#include <exception>

#include <fmt/format.h>

#include "app/console.h"
#include "engine/training/progress.h"
#include "kernels/message_writer.h"

namespace dpt {
namespace {

constexpr std::chrono::seconds kBetweenLines{10};

}  // namespace

ProgressLine::ProgressLine()
    : is_terminal_(stderr_redraws()), next_(std::chrono::steady_clock::now() + kBetweenLines) {}

ProgressLine::~ProgressLine() {
  if (is_drawn_) stderr_writer().write_if_ready("\r\x1b[K");
}

void ProgressLine::update(const std::string& done_what, std::int64_t done, std::int64_t total,
                          const std::string& things) noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (total == 0 || (!is_terminal_ && now < next_)) return;
  try {
    const std::string text =
        fmt::format("{} {} of {} {} ({} %)", done_what, done, total, things, 100 * done / total);
    if (is_terminal_) {
      stderr_writer().write_if_ready("\r" + text + "\x1b[K");
      is_drawn_ = true;
    } else {
      say(text);
      next_ = now + kBetweenLines;
    }
  } catch (const std::exception&) {  // out of memory: the work is what matters
  }
}

}  // namespace dpt
