#include "kernels/base/file_handle.h"

#include <unistd.h>
#include <utility>

namespace dpt {

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

int FileHandle::release() noexcept {
  return std::exchange(fd_, -1);
}

}  // namespace dpt
