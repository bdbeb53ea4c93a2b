// Reader for the pickle in a file of torch.save, restricted to data. It creates tensors,
// dictionaries, lists, tuples, strings and numbers. It calls nothing. It refuses every other opcode
// and every other Python object, naming it. Sources: CPython's Lib/pickletools.py (opcodes),
// PyTorch's torch/_utils.py and torch/serialization.py (how tensors and storages are pickled).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoints/pickle_tree.h"

namespace dpt {

/// Reads a pickle of protocols 2 to 5. `path` is the archive, for messages. Throws ErrorKind::data
/// with the offset of unknown content and instructions for converting the file.
PickleTree read_torch_pickle(std::span<const std::byte> bytes, const std::string& path);

}  // namespace dpt
