#pragma once

namespace dpt {

/// Owns a file descriptor. Move-only.
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
