// The four gzip files of datasets/digits, embedded in the program. embed.cmake generates the
// definition.
#pragma once

#include <cstddef>
#include <span>

namespace dpt {

struct EmbeddedDigits {
  std::span<const std::byte> train_images, train_labels, test_images, test_labels;
};

const EmbeddedDigits& embedded_digits();

}  // namespace dpt
