// Options that networks of the zoo share: all networks have `classes`, and those with batch norm
// have `sync`.
#pragma once

#include "engine/config/fields.h"

namespace dpt::zoo {

template <class S>
Field classes_field() {
  return field("classes", &S::classes,
               "Number of outputs of the last layer: one for each class or target, or 1 for a "
               "single number or a single sigmoid. The default is the number of classes or targets "
               "of the training samples, unless the data set leaves it to the model (idx, "
               "synthetic without classes).")
      .given_by_data()
      .range(1, 1'000'000);
}

template <class S>
Field sync_field() {
  return field("sync", &S::sync,
               "BatchNorm2d's `sync`: use the statistics of the whole batch over all replicas, "
               "instead of those of each replica's or shard's part.");
}

}  // namespace dpt::zoo
