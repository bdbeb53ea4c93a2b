// Options that networks of the zoo share: all have `classes`, those with batch norm have `sync`.
#pragma once

#include "engine/config/fields.h"

namespace dpt::zoo {

template <class S>
Field classes_field() {
  return field("classes", &S::classes,
               "Number of outputs of the last layer: one for each class or target; 1 for one "
               "number or one sigmoid. Defaults to the number in the training samples, unless the "
               "data set leaves it to the model (idx, synthetic without classes).")
      .given_by_data()
      .range(1, 1'000'000);
}

template <class S>
Field sync_field() {
  return field(
      "sync", &S::sync,
      "BatchNorm2d's `sync`: the statistics of the whole batch over all replicas, in place "
      "of those of each replica's or shard's part.");
}

}  // namespace dpt::zoo
