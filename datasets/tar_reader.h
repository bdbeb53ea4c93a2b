// The members of a tar archive, found by seeking from header to header: ustar, with long names and
// sizes as pax or GNU tar write them. Archives that are compressed as a whole are refused.
// Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

struct TarMember {
  std::string name;
  std::uint64_t offset = 0, size = 0;  ///< place of its content in the archive
};

/// An open file. Throws ErrorKind::data naming it.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const std::string& path);
  RandomAccessFile(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< when it was opened
  /// Reads from an offset until `to` is full or the file ends; returns how many bytes.
  std::size_t read(std::uint64_t offset, std::byte* to, std::size_t count) const;

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
};

/// Goes through an archive front to back. Used by one thread. Throws ErrorKind::data naming the
/// file and the offset of what is wrong.
class TarReader {
 public:
  explicit TarReader(const std::string& path);

  /// The next regular file; false at the end of the archive. Links are refused, all else is
  /// skipped.
  bool next(TarMember& member);
  /// The content of a small member. REQUIRES: member.size is at most 1 MiB.
  std::string content(const TarMember& member);

 private:
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& problem) const;
  void read(std::uint64_t offset, char* to, std::size_t count);
  std::string text(std::uint64_t offset, std::uint64_t size, const char* what);
  void check_rest();

  RandomAccessFile file_;
  std::uint64_t at_ = 0;  ///< position of the next header
  /// Headers and labels are close to each other: one read gets several.
  std::array<std::byte, 4096> window_{};
  std::uint64_t window_begin_ = 0;
  std::size_t window_bytes_ = 0;
};

}  // namespace dpt
