#include "datasets/csv_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include <fmt/ranges.h>

#include "engine/config/fields.h"
#include "engine/config/paths.h"
#include "engine/config/suggest.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/utf8.h"

namespace dpt {
namespace {

/// Maximum size of a line. A longer one is probably a quote that is not closed.
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxNames = 20;  ///< maximum number of names in a message

}  // namespace

struct CsvReader::Input {
  static constexpr int kEnd = -1;

  explicit Input(const std::string& a_path) : path(a_path) {
    // O_NONBLOCK, because opening a pipe without a writer would block; pipes are refused below.
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
      const std::string why = std::strerror(errno);
      fail(ErrorKind::data, "{}: cannot be opened: {}{}", path, why, hint_of_default(path));
    }
    struct stat status = {};
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
      close(fd);
      fail(ErrorKind::data, "{}: not a file", path);
    }
    size = static_cast<std::uint64_t>(status.st_size);
  }
  Input(const Input&) = delete;
  ~Input() { close(fd); }

  int peek() {
    if (at == end && !fill()) return kEnd;
    return static_cast<unsigned char>(buffer[at]);
  }
  int take() {
    const int c = peek();
    at += c == kEnd ? 0 : 1;
    return c;
  }
  bool fill() {
    const ssize_t count =
        uninterrupted([this] { return ::read(fd, buffer.data(), buffer.size()); });
    if (count < 0) fail(ErrorKind::data, "{}: cannot be read: {}", path, std::strerror(errno));
    before += end;
    at = 0;
    end = static_cast<std::size_t>(count);
    return count > 0;
  }

  std::string path;
  int fd = -1;
  std::uint64_t size = 0, before = 0;  ///< size of the file; offset of the buffer in it
  std::size_t at = 0, end = 0;
  std::array<char, std::size_t{1} << 16> buffer;
};

CsvReader::CsvReader(const std::string& path, char delimiter)
    : path_(path), delimiter_(delimiter), input_(std::make_unique<Input>(path)) {
  const auto starts_with = [&](std::string_view bytes) {
    input_->peek();
    return std::string_view(input_->buffer.data(), input_->end).starts_with(bytes);
  };
  if (starts_with("\xef\xbb\xbf")) input_->at = 3;
  if (starts_with("\xff\xfe") || starts_with("\xfe\xff")) {
    fail(ErrorKind::data, "{}: expected UTF-8, found UTF-16: save it as UTF-8", path);
  }
  if (starts_with("\x1f\x8b")) {
    fail(ErrorKind::data, "{}: expected text, found gzip: gunzip it first", path);
  }
  if (!read_record()) {
    fail(ErrorKind::data, "{}: expected a line with the names of the columns, found an empty file",
         path);
  }
  std::map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    header_.emplace_back(field(i));
    const auto [it, is_new] = first.emplace(header_.back(), i);
    if (is_new) continue;
    refuse(line_, fmt::format("expected columns with different names, found '{}' as column {} and "
                              "as column {}",
                              header_.back(), it->second + 1, i + 1));
  }
}
CsvReader::~CsvReader() = default;

void CsvReader::refuse(std::int64_t line, const std::string& problem) const {
  fail(ErrorKind::data, "{}, line {}: {}", path_, line, problem);
}

std::size_t CsvReader::column(const std::string& name, const std::string& asked_by) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found != header_.end()) return static_cast<std::size_t>(found - header_.begin());
  const std::string near = closest(name, header_);
  const std::size_t shown = std::min(header_.size(), kMaxNames);
  fail(ErrorKind::data, "{}: expected a column '{}', which {} names, found {}{}{}", path_, name,
       asked_by,
       fmt::join(header_.begin(), header_.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
       shown < header_.size() ? fmt::format(" and {} more", header_.size() - shown) : "",
       near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

std::string_view CsvReader::field(std::size_t column) const {
  const std::size_t begin = column == 0 ? 0 : ends_[column - 1];
  return std::string_view(text_).substr(begin, ends_[column] - begin);
}

std::string CsvReader::place(std::int64_t line, std::size_t column) const {
  return fmt::format("{}, line {}, column {} ({})", path_, line, column + 1, header_[column]);
}

std::uint64_t CsvReader::bytes() const {
  return input_->size;
}
std::uint64_t CsvReader::position() const {
  return input_->before + input_->at;
}

bool CsvReader::next() {
  check_stop();
  if (!read_record()) return false;
  if (ends_.size() == header_.size()) return true;
  refuse(line_, fmt::format("expected {} field{}, like the header, found {}", header_.size(),
                            header_.size() == 1 ? "" : "s", ends_.size()));
}

void CsvReader::read_quoted() {
  const std::int64_t opened = next_line_;
  input_->take();
  while (true) {
    const int c = input_->take();
    if (c == Input::kEnd) refuse(opened, "a field begins with a quote that is not closed");
    if (c == '"') {
      if (input_->peek() != '"') return;
      input_->take();
    }
    if (c == '\n') ++next_line_;
    if (c == '\0') refuse(next_line_, "expected text, found a zero byte");
    text_ += static_cast<char>(c);
    if (text_.size() > kMaxLineBytes) {
      refuse(opened, fmt::format("a field that begins with a quote is not closed within {} MiB",
                                 kMaxLineBytes >> 20));
    }
  }
}

void CsvReader::check_utf8() const {
  const std::size_t bad = find_bad_utf8(text_);
  if (bad == std::string_view::npos) return;
  const auto column = std::upper_bound(ends_.begin(), ends_.end(), bad) - ends_.begin();
  refuse(line_,
         fmt::format("expected UTF-8, found the byte 0x{:02X} in column {}: save the file "
                     "as UTF-8 (iconv -f LATIN1 -t UTF-8 IN.csv > OUT.csv, if it is Latin-1)",
                     static_cast<unsigned char>(text_[bad]), column + 1));
}

bool CsvReader::read_record() {
  text_.clear();
  ends_.clear();
  line_ = next_line_;
  const auto end_of_line = [&] {
    if (input_->peek() == '\r') {
      input_->take();
      if (input_->peek() != '\n' && input_->peek() != Input::kEnd) {
        refuse(next_line_,
               "expected LF after CR, found a CR by itself: lines end with LF or CR LF");
      }
    }
    if (input_->take() == '\n') ++next_line_;
  };
  const auto is_end_of_line = [&](int c) { return c == '\n' || c == '\r' || c == Input::kEnd; };

  // Empty lines are allowed only at the end of the file.
  if (input_->peek() != Input::kEnd && is_end_of_line(input_->peek())) {
    while (input_->peek() == '\n' || input_->peek() == '\r') end_of_line();
    if (input_->peek() != Input::kEnd) refuse(line_, "expected fields, found an empty line");
  }
  if (input_->peek() == Input::kEnd) return false;

  while (true) {
    const bool is_quoted = input_->peek() == '"';
    if (is_quoted) read_quoted();
    for (int c = input_->peek(); c != delimiter_ && !is_end_of_line(c); c = input_->peek()) {
      if (is_quoted) {
        refuse(next_line_,
               fmt::format("expected a delimiter ('{}') or the end of the line after a closing "
                           "quote, found '{}' (a quote inside quotes is doubled)",
                           delimiter_, static_cast<char>(c)));
      }
      if (c == '"') {
        refuse(next_line_,
               "found a quote in the middle of a field: put the whole field in quotes, and "
               "double the quotes inside it");
      }
      if (c == '\0') refuse(next_line_, "expected text, found a zero byte");
      if (text_.size() >= kMaxLineBytes) {
        refuse(line_, fmt::format("the line is longer than {} MiB", kMaxLineBytes >> 20));
      }
      text_ += static_cast<char>(input_->take());
    }
    ends_.push_back(text_.size());
    if (input_->peek() != delimiter_) break;
    input_->take();
  }
  check_utf8();
  end_of_line();
  return true;
}

}  // namespace dpt
