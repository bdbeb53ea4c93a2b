// Finds the changes that overrides on the command line make to the model of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"

namespace dpt {

/// Lists changes of a config: the first 20, and the number of others.
std::string list_of_changes(const std::vector<std::string>& changes, const std::string& separator);

/// Returns the overrides. Leaves out data.normalize=auto if the config of the checkpoint's run has
/// it too, so that the numbers of that run are used.
std::vector<std::string> without_known_numbers(const CheckpointHeader& header,
                                               const std::string& path,
                                               std::vector<std::string> overrides);

/// Lists the changes that `overrides` make to the model in a checkpoint's `header`, as lines "path:
/// old -> new". Counts all fields (network, loss, transforms, arithmetic, ...) except those for the
/// location and reading of the data, held-out samples, batch size, metrics and devices.
/// Does not compare the data itself (see difference_from_run). `path` is the checkpoint. Throws as
/// load_stored_spec does.
std::vector<std::string> changes_of_model(const CheckpointHeader& header, const std::string& path,
                                          const std::vector<std::string>& overrides);

/// Throws ErrorKind::usage if there are `changes`, unless they are `allowed`. `path` is the
/// checkpoint, and `command` is the command that would use it ("eval"). `way_out` is a sentence
/// about the option that allows the changes, or empty.
void check_model_changes(const std::string& path, const std::vector<std::string>& changes,
                         const std::string& command, bool allowed, const std::string& way_out);

/// Joins the changes into one text for a warning, a verdict or the metadata of a file; empty if
/// there are none.
std::string text_of_changes(const std::vector<std::string>& changes);

}  // namespace dpt
