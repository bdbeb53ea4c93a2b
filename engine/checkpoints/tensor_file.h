// A file of named tensors, in any format from which weights are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dpt {

using Metadata = std::map<std::string, std::string>;

/// A tensor of an open file.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< name in safetensors: "F32", "I64", "U8", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< position in the data section of a safetensors file
  std::uint64_t bytes() const { return end - begin; }
};

enum class Integrity : std::uint8_t { good, mismatch, absent };

/// An open file whose list of tensors has been checked completely.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  /// Returns the tensors in the order of the file.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// Returns the tensor with that name, or null. Takes logarithmic time.
  const TensorEntry* find(std::string_view name) const;
  /// Compares the values with the checksums of the file. Reads all bytes that the checksums cover.
  virtual Integrity check_integrity() const = 0;
  /// Returns the bytes of one tensor: little-endian, row-major.
  std::vector<std::byte> read(const TensorEntry& entry) const;
  /// Returns a tensor of dtype F32; converts F16, BF16 and F64. Throws on other dtypes, naming
  /// them.
  std::vector<float> read_floats(const TensorEntry& entry) const;
  /// Returns a tensor of dtype I64; converts counts in F16, BF16 and F32. Throws on other dtypes,
  /// naming them.
  std::vector<std::int64_t> read_integers(const TensorEntry& entry) const;

 protected:
  explicit TensorFile(std::string path) : path_(std::move(path)) {}
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;
  TensorFile(const TensorFile&) = default;
  TensorFile& operator=(const TensorFile&) = default;

  void set_contents(Metadata metadata, std::vector<TensorEntry> tensors);
  /// Reads all bytes of a tensor of this file to `to`, which has the same size.
  virtual void read_to(const TensorEntry& entry, std::span<std::byte> to) const = 0;

 private:
  std::string path_;
  Metadata metadata_;
  std::vector<TensorEntry> tensors_;
  std::vector<std::size_t> by_name_;  ///< indices of tensors_, sorted by name
};

}  // namespace dpt
