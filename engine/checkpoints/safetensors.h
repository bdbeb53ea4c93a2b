// The safetensors file format, treated as hostile until verified, with dpt's integrity tensor. See
// docs/checkpoints.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoints/held_path.h"
#include "kernels/types.h"

namespace dpt {

class FileHandle;

using Metadata = std::map<std::string, std::string>;

/// A tensor to write: `data` is borrowed.
struct TensorView {
  std::string name;
  std::string dtype;  ///< "F32", "I64", "U8", ...
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

/// A tensor of an open file.
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< in the data section
  std::uint64_t bytes() const { return end - begin; }
};

enum class Integrity : std::uint8_t { good, mismatch, absent };

/// Receiver of tensors while their file is verified.
class TensorReceiver {
 public:
  virtual ~TensorReceiver() = default;
  /// Returns TensorEntry::bytes() bytes for the values as stored, valid until received(); empty if
  /// the tensor is not wanted.
  virtual std::span<std::byte> place_for(const TensorEntry& entry) = 0;
  /// Called when these bytes are filled.
  virtual void received(const TensorEntry& entry) = 0;
};

/// A safetensors file, its header checked entirely: lengths, dtypes, shapes, offsets, duplicates.
class SafetensorsFile {
 public:
  /// Throws ErrorKind::data with file, byte offset, what was expected and found.
  static SafetensorsFile open(const HeldPath& place);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  /// In the order of the data section; dpt.integrity included.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// Returns the tensor of that name, or null. Takes logarithmic time.
  const TensorEntry* find(std::string_view name) const;
  /// Checks that dpt.integrity matches the bytes before it. Reads the whole file unless this
  /// process has found these bytes good before (VerifiedFiles).
  Integrity check_integrity() const;
  /// Does the same, but always reads, and reads each tensor that `receiver` wants to its place on
  /// the way, so that the file is read once. Received tensors count only if the result is
  /// Integrity::good.
  Integrity check_integrity(TensorReceiver& receiver) const;
  /// What dpt.integrity says, as 32 hexadecimal digits, without comparing; empty without it. Two
  /// files with the same one hold the same bytes.
  std::string stored_checksum() const;
  /// Bytes of one tensor, as stored.
  std::vector<std::byte> read(const TensorEntry& entry) const;
  /// A tensor of dtype F32 (F16, BF16 and F64 are converted). Throws on others, by name.
  std::vector<float> read_floats(const TensorEntry& entry) const;
  /// A tensor of dtype I64. Throws on others, by name.
  std::vector<std::int64_t> read_integers(const TensorEntry& entry) const;

 private:
  std::string path_;
  // Held open, so that a file which is replaced or removed meanwhile is still read as one.
  std::shared_ptr<const FileHandle> file_;
  Metadata metadata_;
  std::vector<TensorEntry> tensors_;
  std::vector<std::size_t> by_name_;  ///< indices of tensors_, sorted by name
  std::uint64_t data_start_ = 0, file_size_ = 0;
};

/// Gives the values of the tensor with this index, valid until the next call.
using TensorValues = std::function<const void*(std::size_t)>;

/// Writes `path` so that a crash leaves the old file or the new one: temporary file in the same
/// folder, fsync, rename, fsync of the folder. dpt.integrity (XXH3-128 of every byte before it) is
/// appended, and returned as stored_checksum() of the new file. Throws ErrorKind::data naming the
/// file and the system's reason; the temporary file is gone then. With `values`, TensorView::data
/// is not used: the values are asked for one tensor after the other. For readers that refuse
/// tensors they do not know, Checksum::none leaves dpt.integrity out; the result is then empty.
enum class Checksum : std::uint8_t { append, none };
std::string write_safetensors(const HeldPath& place, const Metadata& metadata,
                              const std::vector<TensorView>& tensors,
                              const TensorValues& values = {},
                              Checksum checksum = Checksum::append);

}  // namespace dpt
