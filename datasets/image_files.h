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

/// Files that dpt predict was asked for.
struct ListedImages {
  std::vector<std::string> paths;
  std::vector<std::string> notes;  ///< files in the folders that were left out
};

/// Lists the files that `paths` name, in their order; of a folder all images below it, sorted by
/// path. Links are followed; hidden files and folders are ignored. Other paths are taken as they
/// are, whether or not they can be read. Throws ErrorKind::data for a folder that cannot be listed
/// or has no images.
ListedImages list_images(const std::vector<std::string>& paths);

/// One sample for each file, as open_unlabelled. Throws ErrorKind::data for a model whose input is
/// no image.
std::shared_ptr<const DataSource> open_image_files(std::vector<std::string> paths,
                                                   const DataRequirements& requirements,
                                                   const ModelOutputs& outputs,
                                                   std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
