// Checks of a model's data requirements, shared by all formats, with the same messages.
#pragma once

#include <string>

#include "engine/data/data_sets.h"

namespace dpt {

/// "28x28 with 1 channel".
std::string shape_text(SampleShape shape);

/// Fails unless samples of `shape` fit requirements.input; `name` says what the samples are.
void check_shape(const std::string& name, SampleShape shape, const DataRequirements& requirements);

/// Fails unless the data set's own `classes` are as many as the last layer's outputs.
void check_classes(const std::string& name, std::size_t classes,
                   const DataRequirements& requirements);

/// Fails for a label outside 0..classes-1. `where` names file and sample.
void check_label(std::int64_t label, std::size_t classes, const std::string& where);

/// Fails with ErrorKind::data unless `root` is a folder; `expected` lists what should be in it and
/// `fetch` is the name for scripts/fetch-data, or empty.
void check_root(const std::string& dataset, const std::string& root, const std::string& expected,
                const std::string& fetch);

/// " (`scripts/fetch-data NAME` fetches them)", or nothing for an empty name.
std::string fetch_hint(const std::string& fetch);

/// "0", "1", ... for data whose classes have no names.
std::vector<std::string> numbered_classes(std::int64_t count);

}  // namespace dpt
