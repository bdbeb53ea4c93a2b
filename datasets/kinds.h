// One function per kind of data set; registry.cpp lists them.
#pragma once

#include "engine/data/source.h"

namespace dpt {

DatasetKind digits_kind();
DatasetKind idx_kind();
DatasetKind mnist_kind();
DatasetKind fashion_mnist_kind();
DatasetKind cifar10_kind();
DatasetKind cifar100_kind();
DatasetKind image_folder_kind();
DatasetKind csv_kind();
DatasetKind npy_kind();
DatasetKind synthetic_kind();
DatasetKind webdataset_kind();

}  // namespace dpt
