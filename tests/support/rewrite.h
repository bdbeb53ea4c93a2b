// Writes checkpoints that are well-formed but differ from what dpt would write.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/checkpoints/safetensors.h"
#include "engine/checkpoints/tensor_view.h"

namespace dpt::testing {

/// Writes the checkpoint `from` to `to`, which may be the same file, after `change(metadata,
/// views)` has modified its metadata and tensors. The checksum is correct.
template <class Change>
void rewrite_checkpoint(const std::string& from, const std::string& to, Change change) {
  const SafetensorsFile file = SafetensorsFile::open(from);
  Metadata metadata = file.metadata();
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorView> views;
  for (const TensorEntry& entry : file.tensors()) {
    if (entry.name == "dpt.integrity") continue;
    data.push_back(file.read(entry));
    views.push_back({entry.name, entry.dtype, entry.shape, data.back().data()});
  }
  change(metadata, views);
  write_safetensors(to, metadata, views);
}

}  // namespace dpt::testing
