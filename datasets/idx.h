// IDX files, the format of MNIST: two zero bytes, the element type (0x08: unsigned byte), the
// number of dimensions, each dimension in four bytes, big-endian, then the elements in C order.
// Images are (count, height, width) or (count, height, width, channels), labels (count). Source:
// http://yann.lecun.com/exdb/mnist/
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/byte_stream.h"
#include "datasets/dataset.h"
#include "engine/data/data_sets.h"
#include "engine/data/source.h"

namespace dpt {

/// Properties of a named data set that are known before its files are read.
struct IdxFacts {
  std::vector<std::string> classes;
  std::int64_t train_size = 0, test_size = 0;
  std::string fetch;  ///< name of the data set in scripts/fetch-data
};

/// Reads one pair of files. `classes` names the labels; if it is empty, the names are numbers.
/// `size` is the number of samples, if known. Without `labels` (samples to be predicted), all
/// labels are 0.
std::shared_ptr<const DataSource> read_idx_pair(ByteStream images, std::optional<ByteStream> labels,
                                                const std::vector<std::string>& classes,
                                                std::optional<std::int64_t> size,
                                                const DataRequirements& requirements);

/// Opens the train-* and t10k-* pairs under `root`. Messages call the data set `name`. Without
/// facts, a missing t10k-* pair means that there is no test set.
DataSets open_idx(const std::string& name, const std::string& root, const IdxFacts* facts,
                  const DataRequirements& requirements);

/// Files of one part of a data set.
struct IdxFiles {
  std::string images, labels;
};

/// Fields of the data set `idx`.
struct IdxOptions {
  std::string root;
  std::optional<IdxFiles> train, val, test;  ///< replace the files under the root
};

/// Opens the parts of a data set `idx`: the files that the options name for a part, otherwise those
/// under the root.
DataSets open_idx_files(const IdxOptions& options, const DataRequirements& requirements);

/// Opens the images of one part of a data set `idx`, for DatasetKind::open_unlabelled.
std::shared_ptr<const DataSource> open_idx_file_images(const IdxOptions& options, DataPart part,
                                                       const DataRequirements& requirements);

/// Opens the images of one part of a published data set, for DatasetKind::open_unlabelled.
std::shared_ptr<const DataSource> open_idx_images(const std::string& name, const std::string& root,
                                                  const IdxFacts* facts, DataPart part,
                                                  const DataRequirements& requirements);

}  // namespace dpt
