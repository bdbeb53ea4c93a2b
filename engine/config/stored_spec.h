// The config that a run keeps, and the fields that may differ when the run is resumed.
#pragma once

#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns the config as text for flat_config and diff_specs. Equal runs give equal texts: fields
/// unknown to an older dpt have their defaults, each layer has its full name and the names of its
/// inputs even if the config omits them, and fields without effect are left out.
std::string show_to_compare(const Catalog& catalog, const TrainSpec& spec);

/// Returns the dotted paths of the fields that a resumed run may change (those marked .changeable()
/// in the tables); each stands for all fields below it.
std::vector<std::string> changeable_fields(const Catalog& catalog);

/// Returns overrides that make a resumed run keep the stored run's values of the fields with a
/// Field::stored_as. These fields are newer than some stored configs. Covers the fields that the
/// config of `spec` does not set and whose default differs from the run's value. `stored` was read
/// from `file`.
std::vector<std::string> values_of_run(const Catalog& catalog, const TrainSpec& spec,
                                       const std::string& stored, const std::string& file);

/// Returns the changes that a resumed run must not have, as lines "path: old -> new". `stored` was
/// read from `file`; `resolved` is the run's present config (from show_spec).
std::vector<std::string> refused_changes(const Catalog& catalog, const std::string& stored,
                                         const std::string& file, const std::string& resolved);

}  // namespace dpt
