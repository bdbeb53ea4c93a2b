// The config that a run keeps, and the fields of it that may differ when the run is resumed.
#pragma once

#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns the config as text for flat_config and diff_specs, in one form for one run: as today's
/// dpt writes it, so that fields unknown to an older dpt have their defaults; each layer under its
/// full name, with the names of its inputs, written or not; without what has no effect.
std::string show_to_compare(const Catalog& catalog, const TrainSpec& spec);

/// The dotted paths of the fields that may differ between the parts of a resumed run (those marked
/// .changeable() in the tables); each stands for all below it.
std::vector<std::string> changeable_fields(const Catalog& catalog);

/// Returns the values of the stored run, as overrides, of fields that are newer than some stored
/// configs (Field::stored_as), where `spec` does not set them and has others. `stored` was read
/// from `file`. A run is resumed with them, whatever their defaults are today.
std::vector<std::string> values_of_run(const Catalog& catalog, const TrainSpec& spec,
                                       const std::string& stored, const std::string& file);

/// Returns the changes that a resumed run may not have, as lines "path: old -> new". `stored` was
/// read from `file`; `resolved` is the run's config of today (from show_spec).
std::vector<std::string> refused_changes(const Catalog& catalog, const std::string& stored,
                                         const std::string& file, const std::string& resolved);

}  // namespace dpt
