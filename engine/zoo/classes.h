// Options that networks of the zoo share: every one has classes, those with batch norm have sync.
#pragma once

#include "engine/spec/fields.h"

namespace dpt::zoo {

template <class S>
Field classes_field() {
  return field("classes", &S::classes,
               "Outputs of the last layer: the number of classes, or of the targets; 1 for one "
               "number "
               "or one sigmoid. What the training samples have if not given, unless the data set "
               "leaves that to the model (idx, synthetic without classes).")
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
