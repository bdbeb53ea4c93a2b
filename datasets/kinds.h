// One function per kind of data set, and the list of them.
#pragma once

#include "datasets/dataset.h"

namespace dpt {

DatasetKind digits_dataset();
DatasetKind idx_dataset();
DatasetKind mnist_dataset();
DatasetKind fashion_mnist_dataset();
DatasetKind cifar10_dataset();
DatasetKind cifar100_dataset();
DatasetKind image_folder_dataset();
DatasetKind csv_dataset();
DatasetKind npy_dataset();
DatasetKind synthetic_dataset();
DatasetKind webdataset_dataset();

/// Returns all kinds, in the order of the reference.
inline std::vector<DatasetKind> all_datasets() {
  return {digits_dataset(),  idx_dataset(),       mnist_dataset(),        fashion_mnist_dataset(),
          cifar10_dataset(), cifar100_dataset(),  image_folder_dataset(), csv_dataset(),
          npy_dataset(),     synthetic_dataset(), webdataset_dataset()};
}

}  // namespace dpt
