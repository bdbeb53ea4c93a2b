// The safetensors file format with dpt's integrity tensor. Files are treated as hostile until
// verified. See docs/guide/checkpoints.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoints/tensor_file.h"
#include "engine/checkpoints/tensor_view.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"
#include "kernels/base/types.h"

namespace dpt {

class FileHandle;

/// Receiver of tensors while their file is verified.
class TensorReceiver {
 public:
  virtual ~TensorReceiver() = default;
  /// Returns the destination of the values as stored: TensorEntry::bytes() bytes, which stay valid
  /// until received(). Returns an empty span if the tensor is not wanted.
  virtual std::span<std::byte> place_for(const TensorEntry& entry) = 0;
  /// Called when the destination is filled.
  virtual void received(const TensorEntry& entry) = 0;
};

/// A safetensors file whose header has been checked completely: lengths, dtypes, shapes, offsets,
/// duplicates.
class SafetensorsFile : public TensorFile {
 public:
  /// Opens a file. Throws ErrorKind::data with file, byte offset, expected and found content.
  static SafetensorsFile open(const HeldPath& place);

  /// Checks that dpt.integrity matches the bytes before it. Reads the whole file unless this
  /// process has already verified the same bytes (VerifiedFiles).
  Integrity check_integrity() const override;
  /// Does the same, but always reads the file, exactly once, and stores each tensor that `receiver`
  /// wants at its destination. Received tensors are valid only if the result is Integrity::good.
  Integrity check_integrity(TensorReceiver& receiver) const;
  /// Returns the stored value of dpt.integrity, 32 hexadecimal digits, without verifying it; empty
  /// if absent. Two intact files with the same value hold the same bytes.
  std::string stored_checksum() const;

 private:
  explicit SafetensorsFile(const std::string& path) : TensorFile(path) {}
  void read_to(const TensorEntry& entry, std::span<std::byte> to) const override;

  // Held open, so that a file that is replaced or removed meanwhile can still be read consistently.
  std::shared_ptr<const FileHandle> file_;
  std::uint64_t data_start_ = 0, file_size_ = 0;
};

/// Function that returns the values of the tensor with this index, valid until the next call.
using TensorValues = std::function<const void*(std::size_t)>;

/// Choice to append dpt.integrity to a file; `none` is for readers that refuse unknown tensors.
enum class Checksum : std::uint8_t { append, none };
/// Writes a file so that a crash leaves the old file or the new one: temporary file in the same
/// folder, fsync, rename, fsync of the folder. Appends dpt.integrity (XXH3-128 of all bytes before
/// it), and returns its value, like stored_checksum() of the new file. With Checksum::none, appends
/// nothing and returns an empty string. Throws ErrorKind::data, naming the file and the system's
/// reason, after removing the temporary file. If `values` is given, it is called for one tensor
/// after the other, and TensorView::data is not used.
std::string write_safetensors(const HeldPath& place, const Metadata& metadata,
                              const std::vector<TensorView>& tensors,
                              const TensorValues& values = {},
                              Checksum checksum = Checksum::append);

}  // namespace dpt
