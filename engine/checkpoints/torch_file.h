// A file written by torch.save (.pth, .pt): a zip archive of a pickle and the bytes of the tensors.
// Nothing in it is executed (torch_pickle.h).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoints/tensor_file.h"

namespace dpt {

/// Returns true for a regular file that begins like a PyTorch zip archive.
bool is_torch_file(const std::string& path);

/// Tensors under one key of the file, such as "state_dict".
struct TorchDictionary {
  std::string key;  ///< keys that lead to it, joined by dots; empty: the file is this dictionary
  std::vector<TensorEntry> tensors;
  std::vector<std::string> others;  ///< up to 20 keys of values that are not tensors
};

/// The dictionaries of tensors in a file of torch.save. As a TensorFile, it has the tensors of the
/// chosen dictionary.
class TorchFile : public TensorFile {
 public:
  /// Reads and checks everything except the tensors' values. Throws ErrorKind::data with the
  /// content found and, for other kinds of PyTorch files, instructions for converting them.
  static TorchFile open(const std::string& path);

  /// Returns the dictionaries in the order of the file; there is at least one.
  const std::vector<TorchDictionary>& dictionaries() const;
  /// Returns the default dictionary: the file itself if no other holds more tensors, else the only
  /// other one, else "model" or "state_dict". Null if none of these applies.
  const TorchDictionary* usual() const;
  /// Returns the dictionary that tensors() lists.
  const TorchDictionary& chosen() const { return dictionaries()[chosen_]; }
  /// Chooses the dictionary of tensors() by its key, or the default one without a key. Throws
  /// ErrorKind::data, listing the dictionaries, if there is no such dictionary.
  void choose(const std::optional<std::string>& key);

  /// Compares the values of the chosen dictionary with the archive's checksums; throws
  /// ErrorKind::data if they differ. Returns Integrity::absent for a file without checksums.
  Integrity check_integrity() const override;

 private:
  struct Contents;
  explicit TorchFile(const std::string& path);
  void read_to(const TensorEntry& entry, std::span<std::byte> to) const override;

  std::shared_ptr<Contents> contents_;
  std::size_t chosen_ = 0;
};

}  // namespace dpt
