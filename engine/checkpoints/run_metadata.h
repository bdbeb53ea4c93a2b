// The part of a checkpoint that is not tensors: counters and texts as safetensors metadata.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint_content.h"
#include "engine/checkpoints/tensor_file.h"

namespace dpt {

/// Version of what dpt writes. A file with the same major and any minor can be read; a minor adds
/// things that an older reader may leave out.
inline constexpr int kSchemaMajor = 1;
inline constexpr int kSchemaMinor = 8;

struct SchemaVersion {
  int major = 0, minor = 0;
};

/// Throws ErrorKind::data when there is none (not a checkpoint of dpt) or it is too new.
SchemaVersion read_version(const std::string& path, const Metadata& metadata);

Metadata to_metadata(const Checkpoint& checkpoint);
/// The counters alone, for a process that has no file: what one writes the other reads.
Metadata state_metadata(const RunState& state);
RunState parse_state_metadata(const Metadata& metadata);
/// Throws ErrorKind::data naming the key that is missing or malformed.
CheckpointHeader from_metadata(const std::string& path, const Metadata& metadata);

/// u8 or f32 by its name, as headers have it.
std::optional<DType> sample_type_of(const std::string& name);

/// The names of the classes of the data that the file's weights were trained on.
std::vector<std::string> stored_classes(const std::string& path, const Metadata& metadata);

/// Names of the optimizer's states, in the order in which they were saved.
std::vector<std::string> optimizer_states(const std::string& path, const Metadata& metadata);

}  // namespace dpt
