// Cases of tests/golden/make_golden_transforms.py: a image, an operation and its parameters, and
// what torchvision makes of it.
#pragma once

#include <nlohmann/json.hpp>

#include "kernels/image/image.h"

namespace dpt::data_test {

/// {"size": [height, width, channels], "pixels": "hexadecimal"}
Image image_of(const nlohmann::json& value);
nlohmann::json json_of(const Image& image);

/// What our functions make of the image.
Image run_case(const nlohmann::json& test_case, const Image& picture);

}  // namespace dpt::data_test
