// Values in a pickle of torch.save.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dpt {

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  number,  ///< a float, or an integer of more than 64 bits
  text,
  list,
  tuple,
  dictionary,
  object,   ///< a known Python class or function
  storage,  ///< a member of the archive
  tensor
};

/// Index of a value in PickleTree::values. Values may contain each other, or themselves.
using PickleRef = std::uint32_t;

struct PickleValue {
  PickleKind kind = PickleKind::none;
  std::int64_t integer = 0;      ///< boolean, integer: value; storage, tensor: its index
  std::string_view text;         ///< text; object: its name
  std::vector<PickleRef> items;  ///< list, tuple; dictionary: each key, followed by its value
};

/// A member of the archive that holds elements of one type.
struct TorchStorage {
  std::string_view dtype;  ///< name in safetensors
  std::string_view key;    ///< KEY of the member "data/KEY"
  std::uint64_t elements = 0;
};

/// A view of a storage. Its shape and strides have been checked: every element is in the storage.
struct TorchTensor {
  TorchStorage storage;
  std::uint64_t offset = 0;  ///< offset in elements
  std::vector<std::int64_t> shape, strides;
  std::uint64_t bytes = 0;
};

/// Content of a pickle. Its texts are views of the pickle's bytes, which must outlive the tree.
struct PickleTree {
  std::vector<PickleValue> values;
  std::vector<TorchTensor> tensors;
  PickleRef root = 0;
};

}  // namespace dpt
