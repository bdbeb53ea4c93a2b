// Bytes of a data file, front to back, inflated where the file is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/base/text.h"

namespace dpt {

/// A file or a block of memory that is read once. Offsets in its messages count the bytes that it
/// returns, so for gzip they are offsets in the inflated data. Used by one thread. Throws
/// ErrorKind::data naming the file.
class ByteStream {
 public:
  /// Opens a regular file; one whose name ends in ".gz" is inflated.
  explicit ByteStream(const std::string& path);
  /// Reads gzip data in memory, which must outlive the stream. `name` is used in messages.
  ByteStream(std::span<const std::byte> gzip, const std::string& name);
  ~ByteStream();
  ByteStream(ByteStream&&) noexcept;

  const std::string& name() const;
  /// Bytes returned so far.
  std::uint64_t position() const;

  /// Fills `to`, or fails saying that the data ends too early; `what` names the part being read.
  void read(std::span<std::byte> to, const std::string& what);
  /// Fails unless `bytes` more can follow; call it before allocating memory for them. For a plain
  /// file that means exactly its rest; gzip is bounded by what deflate can make of the file's size.
  void expect(std::uint64_t bytes, const std::string& what) const;
  /// Fails unless everything was read.
  void expect_end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
