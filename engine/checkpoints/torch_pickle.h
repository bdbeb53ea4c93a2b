// The pickle in a file of torch.save: a reader that knows data only. It makes tensors,
// dictionaries, lists, tuples, strings and numbers; it calls nothing, and refuses every other
// opcode and every other Python object by its name. Sources: CPython's Lib/pickletools.py
// (opcodes), PyTorch's torch/_utils.py and torch/serialization.py (how tensors and storages are
// pickled)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoints/pickle_tree.h"

namespace dpt {

/// Reads a pickle of protocol 2 to 5. `path` is the archive, for messages. Throws ErrorKind::data
/// with the offset of what it does not know, and says how to convert the file.
PickleTree read_torch_pickle(std::span<const std::byte> bytes, const std::string& path);

}  // namespace dpt
