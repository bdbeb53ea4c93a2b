// An open data set: its parts, and the requirements of the model for which it was opened.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/source.h"
#include "kernels/base/types.h"

namespace dpt {

/// Part of a data set that has its own files.
enum class DataPart : std::uint8_t { train, test, val };

/// Requirements of a model on its data: the size of samples and the labels that are allowed.
struct DataRequirements {
  SampleShape input;         ///< the model's input: image formats resize to it, others must match
  std::int64_t classes = 0;  ///< width of the last layer
  bool salvage = false;      ///< damaged JPEGs are used as far as they can be decoded
  bool any_size = false;  ///< transforms on the host may change the size: only channels must match
  /// The column that training samples are grouped by; empty = none.
  std::string group = {};
  /// Classes of the checkpoint that the data is for; empty = the data decides.
  std::vector<std::string> known_classes = {};
  /// Features and type of the samples of the checkpoint's run, if known; for samples to predict.
  std::vector<std::string> features = {};
  std::optional<DType> type = {};
  bool applies_orientation = false;  ///< images are turned by the orientation in their files
  /// True if files that cannot be samples are left out with a note. Otherwise they are an error.
  bool leaves_out_files = false;
  /// The only part to open: the files of other parts need not exist. Unset: all parts. REQUIRES:
  /// known_classes is set, and so is `features` for tables.
  std::optional<DataPart> only = {};

  bool wants(DataPart part) const { return !only || *only == part; }
};

/// Parts of a data set: the training set, the test set and the validation set. Without a validation
/// set, data.val_split holds samples out of the training set. All parts have the same class table.
struct DataSets {
  std::shared_ptr<const DataSource> train;  ///< null only if only another part is opened
  std::shared_ptr<const DataSource> test = {}, val = {};  ///< may be null
  std::vector<std::string> notes = {};                    ///< notes to report to the user once
};

}  // namespace dpt
