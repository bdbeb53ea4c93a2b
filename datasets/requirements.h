// Checks of a model's data requirements, shared by all formats, with the same messages.
#pragma once

#include <string>

#include "engine/data/data_sets.h"

namespace dpt {

/// Returns "28x28 with 1 channel".
std::string shape_text(SampleShape shape);

/// Throws unless samples of `shape` fit requirements.input. Messages call the samples `name`.
void check_shape(const std::string& name, SampleShape shape, const DataRequirements& requirements);

/// Throws unless the number of the data set's classes equals the number of the model's outputs.
void check_classes(const std::string& name, std::size_t classes,
                   const DataRequirements& requirements);

/// Throws for a label outside 0..classes-1. `where` is the place of the sample, for the message.
void check_label(std::int64_t label, std::size_t classes, const std::string& where);

/// Throws ErrorKind::data unless `root` is a folder. `expected` lists the files that it should
/// contain; `fetch` is the data set's name in scripts/fetch-data, or empty.
void check_root(const std::string& dataset, const std::string& root, const std::string& expected,
                const std::string& fetch);

/// Returns " (`scripts/fetch-data NAME` fetches them)", or an empty string for an empty name.
std::string fetch_hint(const std::string& fetch);

/// Returns "0", "1", ... for data whose classes have no names.
std::vector<std::string> numbered_classes(std::int64_t count);

}  // namespace dpt
