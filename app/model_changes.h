// What the command line may replace of a checkpoint's config without making another model of it.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"

namespace dpt {

/// What `overrides` change of the config in a checkpoint's `header`, as lines "path: old -> new":
/// the network, the loss, transforms, arithmetic, and all that is not in this list: where the data
/// is and how it is read, which samples are held out, the batch size, metrics and devices. Other
/// data is not its matter (difference_from_run). `path` is the checkpoint. Throws as
/// load_stored_spec.
std::vector<std::string> changes_of_model(const CheckpointHeader& header, const std::string& path,
                                          const std::vector<std::string>& overrides);

/// Throws ErrorKind::usage for `changes` unless they are `allowed`. `path` is the checkpoint,
/// `command` the one that would use it ("eval"), `way_out` a sentence on the option that allows
/// them, or empty.
void check_model_changes(const std::string& path, const std::vector<std::string>& changes,
                         const std::string& command, bool allowed, const std::string& way_out);

/// The changes as one text, for a warning, a verdict or the metadata of a file; empty for none.
std::string text_of_changes(const std::vector<std::string>& changes);

}  // namespace dpt
