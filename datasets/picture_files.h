// Pictures without labels, from a list of files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/data/source.h"
#include "engine/data/unreadable_samples.h"

namespace dpt {

/// The files that `paths` name, in their order; of a folder all pictures below it, sorted by path.
/// Hidden files and folders, and links to folders below it, are left out. Other paths are taken as
/// they are, whether or not they can be read. Throws ErrorKind::data for a folder that cannot be
/// listed or has no pictures.
std::vector<std::string> list_pictures(const std::vector<std::string>& paths);

/// One sample for each file, as open_unlabelled. Throws ErrorKind::data for a model whose input is
/// no picture.
std::shared_ptr<const DataSource> open_picture_files(std::vector<std::string> paths,
                                                     const DataRequirements& requirements,
                                                     const ModelOutputs& outputs,
                                                     std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
