#include "engine/run/progress.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "engine/config/secrets.h"
#include "engine/run/run_log.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/message_writer.h"
#include "kernels/base/terminal.h"

namespace dpt {

namespace {

/// Sink that writes to stderr with a bar as its last line.
struct Terminal : spdlog::sinks::base_sink<std::mutex> {
  bool is_silent = false;
  bool is_terminal = false;
  std::string bar;

  void draw(const std::string& line) {
    const std::lock_guard lock(mutex_);
    const std::string before = bar.empty() ? "\r\x1b[K" : removal();
    bar = line;
    stderr_writer().write_if_ready(before + bar);
  }
  void erase() {
    const std::lock_guard lock(mutex_);
    if (!bar.empty()) stderr_writer().write_if_ready(removal());
    bar.clear();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (is_silent) return;
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    const std::string text = highlighted({formatted.data(), formatted.size()});
    stderr_writer().write(bar.empty() ? text : removal() + text + bar);
  }
  void flush_() override {}

 private:
  /// Returns a message with the colours of a terminal.
  static std::string highlighted(const std::string& message) {
    if (!has_colours(STDERR_FILENO)) return message;
    constexpr std::string_view kBest = "(best)";
    std::string text = with_coloured_kind(message);
    const std::size_t at = text.find(kBest);
    if (text.starts_with("epoch ") && at != std::string::npos) {
      text.replace(at, kBest.size(), coloured(kBest, TextColour::green, true));
    }
    return text;
  }

  std::string removal() const {
    return erasure(display_columns(bar), terminal_columns(STDERR_FILENO));
  }
};

/// Sink that appends to a file.
struct MessageFile : spdlog::sinks::base_sink<std::mutex> {
  FileHandle file;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    const int error =
        write_all(file.fd(), std::as_bytes(std::span(formatted.data(), formatted.size())));
    if (error != 0) spdlog::throw_spdlog_ex("cannot write", error);
  }
  void flush_() override {}
};

/// Returns true if the terminal rewraps its lines when it becomes narrower. Terminals that cut
/// lines identify themselves.
bool is_reflowing() {
  const char* terminal = std::getenv("TERM");
  return !std::getenv("XTERM_VERSION") && !std::getenv("STY") &&
         (!terminal || std::string_view(terminal) != "linux");
}

std::string joined(const std::vector<StatusPart>& parts, const std::vector<std::size_t>& chosen,
                   const char* between) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (chosen[i] < parts[i].forms.size()) texts.push_back(parts[i].forms[chosen[i]]);
  }
  return fmt::format("{}", fmt::join(texts, between));
}

}  // namespace

std::string bar_line(double done_fraction, const std::vector<StatusPart>& parts, std::size_t room) {
  constexpr std::size_t kMaxCells = 24, kMinCells = 8, kFrame = 3;
  std::vector<std::size_t> chosen(parts.size(), 0);
  std::string text = joined(parts, chosen, "  ");
  while (display_columns(text) > room) {
    // Find the least important part that is still shown.
    std::size_t shortened = parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool is_shown = chosen[i] < parts[i].forms.size();
      if (is_shown &&
          (shortened == parts.size() || parts[i].importance < parts[shortened].importance)) {
        shortened = i;
      }
    }
    ++chosen[shortened];
    text = joined(parts, chosen, "  ");
  }
  const std::size_t used = display_columns(text);
  if (used + kFrame + kMinCells > room) return text;
  const std::size_t cells = std::min(kMaxCells, room - used - kFrame);
  const auto full =
      static_cast<std::size_t>(std::clamp(done_fraction, 0.0, 1.0) * static_cast<double>(cells));
  return "[" + std::string(full, '=') + std::string(cells - full, ' ') + "] " + text;
}

std::string erasure(std::size_t used, std::size_t columns) {
  const std::size_t rows = used > columns && is_reflowing() ? (used - 1) / columns : 0;
  return rows == 0 ? "\r\x1b[K" : fmt::format("\r\x1b[{}A\x1b[J", rows);
}

struct Progress::Impl {
  std::shared_ptr<Terminal> terminal = std::make_shared<Terminal>();
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("dpt", terminal);
  std::chrono::milliseconds between_lines{};
  std::atomic<std::chrono::steady_clock::time_point> last_line{std::chrono::steady_clock::now()};
};

bool stderr_redraws() {
  return can_redraw(STDERR_FILENO);
}

Progress::Progress(bool silent, std::chrono::milliseconds between_lines)
    : impl_(std::make_unique<Impl>()) {
  impl_->between_lines = between_lines;
  impl_->terminal->is_silent = silent;
  impl_->terminal->is_terminal = !silent && stderr_redraws();
  impl_->terminal->set_pattern("%v");
  impl_->logger->set_error_handler([said = false](const std::string& reason) mutable {
    if (!std::exchange(said, true)) {
      stderr_writer().write(fmt::format(
          "warning: train.log: {}; the run continues, but messages are missing there\n", reason));
    }
  });
}

Progress::~Progress() {
  clear();
}

void Progress::also_to(const HeldPath& path) {
  const auto go_without = [&](const std::string& why) {
    // Treat the failure like a disk that becomes full later: a log never ends a run.
    warn(fmt::format("{}: cannot write: {}; the run continues without it", path.text(), why));
  };
  const std::string why = why_no_log(path);
  if (!why.empty()) return go_without(why);
  auto file = std::make_shared<MessageFile>();
  file->file = open_file(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (!file->file.is_open()) return go_without(std::strerror(errno));
  file->set_pattern("%Y-%m-%dT%H:%M:%S%z %l %v");
  impl_->logger->sinks().push_back(file);
}

void Progress::info(const std::string& text) {
  impl_->last_line = std::chrono::steady_clock::now();
  impl_->logger->info("{}", hide_secrets(text));
}
void Progress::warn(const std::string& text) {
  impl_->logger->warn("warning: {}", hide_secrets(text));
}

void Progress::warn_always(const std::string& text) {
  if (impl_->terminal->is_silent) {
    stderr_writer().write(with_coloured_kind(fmt::format("warning: {}\n", hide_secrets(text))));
  }
  warn(text);
}

void Progress::status(double done_fraction, const std::vector<StatusPart>& parts) {
  if (impl_->terminal->is_terminal) {
    // Keep one column free, because after a full line the cursor is in the next line.
    const std::size_t room = terminal_columns(STDERR_FILENO) - 1;
    return impl_->terminal->draw(bar_line(done_fraction, parts, room));
  }
  if (impl_->terminal->is_silent) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - impl_->last_line.load() < impl_->between_lines) return;
  info(joined(parts, std::vector<std::size_t>(parts.size(), 0), ", "));
}

void Progress::clear() {
  impl_->terminal->erase();
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto total = static_cast<long long>(seconds + 0.5);
  if (total >= 3600) {
    return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  }
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

std::string format_rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.1f}M", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

}  // namespace dpt
