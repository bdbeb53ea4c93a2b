// The samples for dpt predict: image files, or samples of a data set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/evaluate/predict_options.h"
#include "datasets/dataset.h"
#include "engine/config/read_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/unreadable_samples.h"
#include "engine/job/job.h"

namespace dpt {

/// Samples on a command line.
struct PredictInputs {
  std::vector<std::string> images;  ///< files and folders; empty: predict a data set
  DataToPredict data;
  bool are_data() const { return images.empty(); }
};

/// Classifies the words of the command line. The word "-" stands for the paths on stdin. Throws
/// ErrorKind::usage for words that exclude each other, and for "-" unless this process `is_alone`.
PredictInputs sort_inputs(const PredictOptions& options, bool is_alone);

/// Samples of one source, to be predicted in order.
struct PredictedPart {
  std::shared_ptr<const DataSource> source;
  std::vector<std::int64_t> indices;  ///< in ascending order
  std::shared_ptr<UnreadableSamples> unreadable;
  std::int64_t first_index = 0;  ///< index of the source's first sample in the output
};

/// Opens the images. If `reports`, prints which files of the folders are left out.
PredictedPart open_images(const std::vector<std::string>& paths,
                          const DataRequirements& requirements, const ModelOutputs& outputs,
                          bool reports);

/// Opens samples of a data set, in its order: those of one split, or, with `--split all`, those of
/// the training, validation and test files. `spec` is the config of the data. If `reports`, prints
/// which part was chosen without --split, and which files are left out. Throws ErrorKind::data if
/// there are no samples.
std::vector<PredictedPart> open_data(const PredictOptions& options, const PredictInputs& inputs,
                                     const TrainSpec& spec, DataRequirements requirements,
                                     const ModelOutputs& outputs, bool reports);

}  // namespace dpt
