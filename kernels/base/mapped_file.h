// Read-only files mapped into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dpt {

/// Maps a regular file. Its pages are read when first accessed. Throws ErrorKind::data with its
/// path.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {at_, size_}; }

 private:
  const std::byte* at_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dpt
