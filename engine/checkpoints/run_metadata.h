// Conversion between safetensors metadata and everything in a checkpoint except its tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint_content.h"
#include "engine/checkpoints/tensor_file.h"

namespace dpt {

/// Version of the format that dpt writes. Files with the same major and any minor version can be
/// read; a minor version adds entries that an older reader may ignore.
inline constexpr int kSchemaMajor = 1;
inline constexpr int kSchemaMinor = 8;

struct SchemaVersion {
  int major = 0, minor = 0;
};

/// Reads the version. Throws ErrorKind::data if it is absent (not a checkpoint of dpt) or too new.
SchemaVersion read_version(const std::string& path, const Metadata& metadata);

Metadata to_metadata(const Checkpoint& checkpoint);
/// Returns only the counters, to send them to a process that has no file and parses them with
/// parse_state_metadata.
Metadata state_metadata(const RunState& state);
RunState parse_state_metadata(const Metadata& metadata);
/// Parses the metadata of a checkpoint. Throws ErrorKind::data naming a key that is missing or
/// malformed.
CheckpointHeader from_metadata(const std::string& path, const Metadata& metadata);

/// Returns the sample type with this name in a checkpoint's metadata; nothing for any other name.
std::optional<DType> sample_type_of(const std::string& name);

/// Returns the class names of the data on which the file's weights were trained.
std::vector<std::string> stored_classes(const std::string& path, const Metadata& metadata);

/// Returns the names of the optimizer's states, in the order in which they were saved.
std::vector<std::string> optimizer_states(const std::string& path, const Metadata& metadata);

}  // namespace dpt
