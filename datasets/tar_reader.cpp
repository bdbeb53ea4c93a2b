#include "datasets/tar_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMaxText = std::uint64_t{1}
                                   << 20;  ///< maximum size of an extended header or a label

using TarHeader = std::array<char, kBlock>;

std::string_view text_field(const TarHeader& header, std::size_t begin, std::size_t count) {
  const std::string_view field(header.data() + begin, count);
  return field.substr(0, field.find('\0'));
}

/// Reads octal digits or, if the first bit is set, a big-endian binary number. Returns nothing for
/// other bytes.
std::optional<std::uint64_t> number_field(const TarHeader& header, std::size_t begin,
                                          std::size_t count) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(header[begin + i]); };
  std::uint64_t value = 0;
  if ((byte(0) & 0x80) != 0) {
    for (std::size_t i = 0; i < count; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | (i == 0 ? byte(0) & 0x7fU : byte(i));
    }
    return value;
  }
  std::string_view digits = text_field(header, begin, count);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value, 8);
  if (!digits.empty() && (error != std::errc{} || at != end)) return std::nullopt;
  return value;
}

/// Returns the sum of the header's bytes, in which blanks replace the checksum field.
std::uint64_t sum_of(const TarHeader& header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

/// Fields of an extended header. They describe the next member.
struct PaxFields {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
};

/// Reads lines "LENGTH KEY=VALUE\n". Returns false for other text.
bool read_pax(std::string_view text, PaxFields& fields) {
  while (!text.empty() && text[0] != '\0') {
    std::size_t length = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(at - text.data());
    if (error != std::errc{} || length > text.size() || length < digits + 3 ||
        text[digits] != ' ' || text[length - 1] != '\n') {
      return false;
    }
    const std::string_view line = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    if (key == "path") fields.path = std::string(value);
    if (key.starts_with("GNU.sparse.")) return false;
    if (key == "size") {
      std::uint64_t size = 0;
      const char* end = value.data() + value.size();
      const auto result = std::from_chars(value.data(), end, size);
      if (result.ec != std::errc{} || result.ptr != end) return false;
      fields.size = size;
    }
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

RandomAccessFile::RandomAccessFile(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  // Opened with O_NONBLOCK, because a pipe without a writer would block; pipes are refused below.
  if (fd_ < 0) fail(ErrorKind::data, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status = {};
  if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd_);
    fail(ErrorKind::data, "{}: not a file", path);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

RandomAccessFile::~RandomAccessFile() {
  close(fd_);
}

std::size_t RandomAccessFile::read(std::uint64_t offset, std::byte* to, std::size_t count) const {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = pread(fd_, to + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      fail(ErrorKind::data, "{}: cannot be read at offset {}: {}", path_, offset + done,
           std::strerror(errno));
    }
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

TarReader::TarReader(const std::string& path) : file_(path) {
  std::array<std::byte, 4> start{};
  const std::size_t count = file_.read(0, start.data(), start.size());
  if (count == 0) fail(ErrorKind::data, "{}: expected a tar archive, found an empty file", path);
  const std::string_view magic(reinterpret_cast<const char*>(start.data()), count);
  const char* tool = magic.starts_with("\x1f\x8b")           ? "gzip -d"
                     : magic.starts_with("\x28\xb5\x2f\xfd") ? "zstd -d"
                     : magic.starts_with("BZh")              ? "bzip2 -d"
                     : magic.starts_with(
                           "\xfd"
                           "7zX")
                         ? "xz -d"
                         : nullptr;
  if (!tool) return;
  fail(ErrorKind::data,
       "{}: expected an uncompressed tar archive, whose samples can be read in any order, found a "
       "compressed one: decompress it with {} (compression hardly makes images smaller)",
       path, tool);
}

void TarReader::refuse(std::uint64_t offset, const std::string& problem) const {
  fail(ErrorKind::data, "{}, offset {}: {}", file_.path(), offset, problem);
}

void TarReader::read(std::uint64_t offset, char* to, std::size_t count) {
  if (offset < window_begin_ || offset + count > window_begin_ + window_bytes_) {
    if (count > window_.size()) {
      const std::size_t got = file_.read(offset, reinterpret_cast<std::byte*>(to), count);
      if (got != count)
        refuse(offset, fmt::format("only {} of {} bytes could be read", got, count));
      return;
    }
    window_begin_ = offset;
    window_bytes_ = file_.read(offset, window_.data(), window_.size());
    if (window_bytes_ < count) {
      refuse(offset, fmt::format("only {} of {} bytes could be read", window_bytes_, count));
    }
  }
  std::memcpy(to, window_.data() + (offset - window_begin_), count);
}

std::string TarReader::text(std::uint64_t offset, std::uint64_t size, const char* what) {
  if (size > kMaxText) {
    refuse(offset, fmt::format("expected {} of at most {} bytes, found {}", what, kMaxText, size));
  }
  std::string found(static_cast<std::size_t>(size), '\0');
  read(offset, found.data(), found.size());
  return found;
}

std::string TarReader::content(const TarMember& member) {
  return text(member.offset, member.size, "a member");
}

void TarReader::check_rest() {
  std::vector<std::byte> bytes(std::size_t{1} << 16);
  for (std::uint64_t at = at_; at < file_.size();) {
    const std::size_t count = file_.read(at, bytes.data(), bytes.size());
    if (count == 0) return;
    const auto found =
        std::find_if(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count),
                     [](std::byte b) { return b != std::byte{}; });
    if (found != bytes.begin() + static_cast<std::ptrdiff_t>(count)) {
      refuse(at + static_cast<std::uint64_t>(found - bytes.begin()),
             fmt::format(
                 "found bytes after the end of the archive, which is at {}: archives that were "
                 "joined (cat) are not read as one; create one with tar",
                 at_));
    }
    at += count;
  }
}

bool TarReader::next(TarMember& member) {
  PaxFields extended;
  while (true) {
    const std::uint64_t begin = at_, end = file_.size();
    if (end - std::min(begin, end) < kBlock) {
      refuse(end,
             fmt::format("the archive is truncated: expected a header, or zeros as its end, at "
                         "{}, found the end of the file",
                         begin));
    }
    TarHeader header;
    read(begin, header.data(), header.size());
    if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) {
      check_rest();
      return false;
    }
    const std::optional<std::uint64_t> sum = number_field(header, 148, 8);
    if (sum != sum_of(header)) {
      refuse(begin,
             "expected the header of a member, found other bytes (its checksum is wrong): "
             "not a tar archive, or a damaged one");
    }
    std::optional<std::uint64_t> size = number_field(header, 124, 12);
    if (!size) refuse(begin, "the size in the header is not a number: the archive is damaged");
    const char type = header[156];
    const bool is_about_next = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (!is_about_next && extended.size) size = extended.size;
    std::string name(text_field(header, 0, 100));
    if (std::string_view(header.data() + 257, 5) == "ustar" && header[345] != '\0' &&
        header[262] == '\0') {
      name = std::string(text_field(header, 345, 155)) + "/" + name;
    }
    if (!is_about_next && extended.path) name = *extended.path;
    const std::uint64_t from = begin + kBlock;
    // The size field of links and folders does not describe the bytes that follow.
    const bool has_content = !(type >= '1' && type <= '6');
    if (has_content && *size > end - from) {
      refuse(end, fmt::format("the archive is truncated: expected {} bytes of {} from {} on, found "
                              "{}",
                              *size, name, from, end - from));
    }
    const std::uint64_t blocks = has_content ? (*size + kBlock - 1) / kBlock : 0;
    at_ = from + blocks * kBlock;
    if (is_about_next) {
      if (type == 'L') {
        const std::string long_name = text(from, *size, "a long name");
        extended.path = long_name.substr(0, long_name.find('\0'));
      }
      if (type == 'x' && !read_pax(text(from, *size, "an extended header"), extended)) {
        refuse(begin, "found an extended header that is damaged or belongs to a sparse file");
      }
      continue;
    }
    if (type == '1' || type == '2') {
      refuse(begin, fmt::format("{} is a link, which is not supported: store the file itself (tar "
                                "--dereference --hard-dereference)",
                                name));
    }
    if (type == 'S')
      refuse(begin, fmt::format("{} is stored as a sparse file, which is not supported", name));
    if (type == '0' || type == '\0' || type == '7') {
      member = {std::move(name), from, *size};
      return true;
    }
    extended = {};
  }
}

}  // namespace dpt
