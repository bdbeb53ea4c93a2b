// Images without labels, from a list of files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/data/data_sets.h"
#include "engine/data/source.h"
#include "engine/data/unreadable_samples.h"

namespace dpt {

/// Files to be predicted.
struct ListedImages {
  std::vector<std::string> paths;
  std::vector<std::string> notes;  ///< files in the folders that were left out
};

/// Lists the files that `paths` name, in their order. A folder stands for all images below it,
/// sorted by path: links are followed, hidden files and folders are ignored. Paths of files are not
/// checked. Throws ErrorKind::data for a folder that cannot be listed or has no images.
ListedImages list_images(const std::vector<std::string>& paths);

/// Opens the files as open_unlabelled does, one sample each. Throws ErrorKind::data if the model's
/// input is not an image.
std::shared_ptr<const DataSource> open_image_files(std::vector<std::string> paths,
                                                   const DataRequirements& requirements,
                                                   const ModelOutputs& outputs,
                                                   std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
