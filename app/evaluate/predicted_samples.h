// The samples that dpt predict is asked for: images, or some of a data set.
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

/// The command line's samples.
struct PredictInputs {
  std::vector<std::string> images;  ///< files and folders; none: a data set is predicted
  DataToPredict data;
  bool are_data() const { return images.empty(); }
};

/// Classifies the words of the command line; "-" means the paths on stdin, which only a single
/// process reads. Throws ErrorKind::usage for words that exclude each other.
PredictInputs sort_inputs(const PredictOptions& options, bool is_alone);

/// Samples that are predicted one after another.
struct PredictedPart {
  std::shared_ptr<const DataSource> source;
  std::vector<std::int64_t> indices;  ///< in ascending order
  std::shared_ptr<UnreadableSamples> unreadable;
  std::int64_t first_index = 0;  ///< number in messages of the source's sample 0
};

/// Opens the images. If `reports`, says which files of the folders are left out.
PredictedPart open_images(const std::vector<std::string>& paths,
                          const DataRequirements& requirements, const ModelOutputs& outputs,
                          bool reports);

/// The samples of a data set in its order: one part, or those of the training files and of the test
/// files. `spec` is that of the data. With `reports`, a word on which they are where --split does
/// not say it, and on files that are left out. Throws ErrorKind::data where there are none.
std::vector<PredictedPart> open_data(const PredictOptions& options, const PredictInputs& inputs,
                                     const TrainSpec& spec, DataRequirements requirements,
                                     const ModelOutputs& outputs, bool reports);

}  // namespace dpt
