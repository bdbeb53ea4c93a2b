// An owner for a file descriptor, and a way to repeat system calls that a signal interrupts.
#pragma once

#include <cerrno>

namespace dpt {

/// Repeats a system call as long as a signal interrupts it. Returns what the last call returned.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Owns a file descriptor and closes it in its destructor. Move-only.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(other.release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() noexcept;

 private:
  int fd_ = -1;
};

}  // namespace dpt
