#include "tests/engine/data/golden_images.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/places.h"

namespace dpt::data_test {
namespace {

Bytes bytes_of_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace

const std::vector<GoldenImage>& golden_images() {
  static const std::vector<GoldenImage> images = [] {
    std::ifstream file(testing::source_dir() + "/tests/golden/image_formats.json");
    const nlohmann::json json = nlohmann::json::parse(file);
    std::vector<GoldenImage> all;
    for (const nlohmann::json& each : json.at("cases")) {
      all.push_back({each.at("name"), bytes_of_hex(each.at("file")), bytes_of_hex(each.at("rgb")),
                     bytes_of_hex(each.at("grey")), each.at("height"), each.at("width")});
    }
    return all;
  }();
  return images;
}

const GoldenImage& golden_image(const std::string& name) {
  const auto found = std::find_if(golden_images().begin(), golden_images().end(),
                                  [&](const GoldenImage& each) { return each.name == name; });
  REQUIRE(found != golden_images().end());
  return *found;
}

}  // namespace dpt::data_test
