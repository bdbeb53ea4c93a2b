// The fields `train`, `val` and `test` of data sets whose config names the files of each part.
#pragma once

#include <optional>

#include "engine/config/fields.h"
#include "engine/data/data_sets.h"

namespace dpt {

/// Returns the field `train`. `files` is the field table of the files of one part.
template <class Options, class Files>
Field train_files_field(Files Options::*member, const ObjectTable& files) {
  return object_field("train", member, files, "The training samples.").required();
}
template <class Options, class Files>
Field test_files_field(std::optional<Files> Options::*member, const ObjectTable& files) {
  return object_field("test", member, files, "The test samples; none by default.");
}

template <class Options, class Files>
Field val_files_field(std::optional<Files> Options::*member, const ObjectTable& files) {
  return object_field("val", member, files,
                      "Validation samples, instead of data.val_split; none by default.");
}

/// Returns the files of a part; null if the options name none.
template <class Options>
auto files_of(const Options& options, DataPart part) {
  if (part == DataPart::train) return &options.train;
  const auto& files = part == DataPart::test ? options.test : options.val;
  return files ? &*files : nullptr;
}

}  // namespace dpt
