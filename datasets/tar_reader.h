// Reads the members of a tar archive by seeking from header to header. Supports ustar, with the
// long names and sizes of pax and GNU tar. Refuses compressed archives. Source: POSIX.1-2017, pax,
// "ustar Interchange Format" and "pax Extended Header"
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

/// An open file. Throws ErrorKind::data with its name.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const std::string& path);
  RandomAccessFile(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< size when the file was opened
  /// Reads `count` bytes at an offset, or fewer at the end of the file. Returns the number of bytes
  /// that were read.
  std::size_t read(std::uint64_t offset, std::byte* to, std::size_t count) const;

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
};

/// Reads an archive front to back. Used by one thread. Throws ErrorKind::data with the file and the
/// offset of the problem.
class TarReader {
 public:
  explicit TarReader(const std::string& path);

  /// Finds the next regular file. Returns false at the end of the archive. Throws for a link; skips
  /// other entries.
  bool next(TarMember& member);
  /// Returns the content of a small member. REQUIRES: member.size is at most 1 MiB.
  std::string content(const TarMember& member);

 private:
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& problem) const;
  void read(std::uint64_t offset, char* to, std::size_t count);
  std::string text(std::uint64_t offset, std::uint64_t size, const char* what);
  void check_rest();

  RandomAccessFile file_;
  std::uint64_t at_ = 0;  ///< position of the next header
  /// Buffer for a read: headers and labels are close to each other, so one read gets several.
  std::array<std::byte, 4096> window_{};
  std::uint64_t window_begin_ = 0;
  std::size_t window_bytes_ = 0;
};

}  // namespace dpt
