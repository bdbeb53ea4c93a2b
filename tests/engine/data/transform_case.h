// Cases of tests/golden/make_golden_transforms.py: an image, an operation with its parameters, and
// torchvision's result.
#pragma once

#include <nlohmann/json.hpp>

#include "kernels/image/image.h"

namespace dpt::data_test {

/// Reads {"size": [height, width, channels], "pixels": "hexadecimal"}.
Image image_of(const nlohmann::json& value);
nlohmann::json json_of(const Image& image);

/// Runs the case with our functions and returns the resulting image.
Image run_case(const nlohmann::json& test_case, const Image& picture);

}  // namespace dpt::data_test
