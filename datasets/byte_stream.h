// Sequential reader of a data file, which inflates gzip files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/base/text.h"

namespace dpt {

/// A file or a block of memory that is read once, front to back. Offsets in messages count the
/// bytes that it returns: for gzip, they are offsets in the inflated data. Used by one thread.
/// Throws ErrorKind::data with the name of the file.
class ByteStream {
 public:
  /// Opens a regular file, and inflates it if its name ends in ".gz".
  explicit ByteStream(const std::string& path);
  /// Reads gzip data in memory, which must outlive the stream. `name` is used in messages.
  ByteStream(std::span<const std::byte> gzip, const std::string& name);
  ~ByteStream();
  ByteStream(ByteStream&&) noexcept;

  const std::string& name() const;
  /// Returns the number of bytes read so far.
  std::uint64_t position() const;

  /// Fills `to`, or throws if the data ends too early. `what` names the part being read.
  void read(std::span<std::byte> to, const std::string& what);
  /// Throws unless `bytes` more bytes can follow; call it before allocating memory for them. The
  /// rest of a plain file must have exactly this size. The rest of a gzip file is limited by the
  /// maximum expansion of deflate.
  void expect(std::uint64_t bytes, const std::string& what) const;
  /// Throws unless everything was read.
  void expect_end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
