// The option that every network of the zoo has.
#pragma once

#include "engine/spec/fields.h"

namespace dpt::zoo {

template <class S>
Field classes_field() {
  return field("classes", &S::classes, "Number of classes: outputs of the last layer.")
      .required()
      .range(2, 1'000'000);
}

}  // namespace dpt::zoo
