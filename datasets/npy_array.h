// Arrays of NumPy in .npy files, versions 1 to 3: "\x93NUMPY", the version in two bytes, the length
// of the header (two bytes little-endian, from version 2 on four), the header, which is a Python
// dictionary with 'descr' (the element type), 'fortran_order' and 'shape', and the elements.
// Source: numpy.lib.format
// An array may also be a member of an .npz archive, which holds .npy files (zip_archive.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dpt {

/// An array of numbers, little-endian and in C order, mapped into memory: its pages are read from
/// the file when they are needed. The file must not change as long as the array is in use. Const
/// and thread-safe.
class NpyArray {
 public:
  enum class Kind : std::uint8_t { floating, integer, natural, boolean };

  /// `path` is that of a .npy file, or FILE.npz:NAME; FILE.npz alone means its only array. Of an
  /// archive, deflated members and those whose elements are not aligned are copied into memory, and
  /// checksums are checked. Throws ErrorKind::data naming the file for anything wrong with it.
  explicit NpyArray(const std::string& path);
  ~NpyArray();
  NpyArray(NpyArray&&) noexcept;

  const std::string& path() const;
  const std::vector<std::int64_t>& shape() const;
  Kind kind() const;
  std::size_t item_bytes() const;  ///< size of an element
  bool is_integral() const { return kind() == Kind::integer || kind() == Kind::natural; }
  /// "an array (100, 3) of float64".
  std::string text() const;
  /// All elements; a type of that size can be read from them.
  std::span<const std::byte> elements() const;

  double number(std::size_t index) const;
  /// REQUIRES: not floating. Numbers above the largest std::int64_t are that.
  std::int64_t integer(std::size_t index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
