// Arrays of NumPy in .npy files, versions 1 to 3: "\x93NUMPY", the version in two bytes, the length
// of the header (little-endian; two bytes in version 1, four in later versions), the header, and
// the elements. The header is a Python dictionary with 'descr' (element type), 'fortran_order',
// 'shape'. Source: numpy.lib.format. An array may also be a member of an .npz archive, which holds
// .npy files (zip_archive.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dpt {

/// An array of numbers, little-endian and in C order, mapped into memory, so its pages are read
/// from the file on demand. The file must not change while the array is in use. Const and
/// thread-safe.
class NpyArray {
 public:
  enum class Kind : std::uint8_t { floating, integer, natural, boolean };

  /// `path` is a .npy file, FILE.npz:NAME, or FILE.npz with a single array. Copies members of an
  /// archive into memory if they are deflated or not aligned, and verifies their checksums. Throws
  /// ErrorKind::data, with the file, for an invalid file.
  explicit NpyArray(const std::string& path);
  ~NpyArray();
  NpyArray(NpyArray&&) noexcept;

  const std::string& path() const;
  const std::vector<std::int64_t>& shape() const;
  Kind kind() const;
  std::size_t item_bytes() const;  ///< size of an element
  bool is_integral() const { return kind() == Kind::integer || kind() == Kind::natural; }
  /// Returns "an array (100, 3) of float64".
  std::string text() const;
  /// Returns all elements, aligned for a type of item_bytes().
  std::span<const std::byte> elements() const;

  double number(std::size_t index) const;
  /// Returns an element; numbers above the maximum of std::int64_t become that maximum. REQUIRES:
  /// the type is not floating.
  std::int64_t integer(std::size_t index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
