// The fields `train` and `test` of data sets whose files are named for each of the two.
#pragma once

#include <optional>

#include "engine/spec/fields.h"

namespace dpt {

/// `files` is the table of what a data set has for each.
template <class Options, class Files>
Field train_files_field(Files Options::*member, const ObjectTable& files) {
  return object_field("train", member, files, "The training samples.").required();
}
template <class Options, class Files>
Field test_files_field(std::optional<Files> Options::*member, const ObjectTable& files) {
  return object_field("test", member, files, "The test samples; none by default.");
}

}  // namespace dpt
