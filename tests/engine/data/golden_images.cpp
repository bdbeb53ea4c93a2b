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

nlohmann::json golden_json(const std::string& name) {
  std::ifstream file(testing::source_dir() + "/tests/golden/" + name);
  return nlohmann::json::parse(file);
}

std::vector<GoldenImage> images_of(const std::string& name) {
  std::vector<GoldenImage> all;
  const nlohmann::json json = golden_json(name);
  for (const nlohmann::json& each : json.at("cases")) {
    all.push_back({each.at("name"), bytes_of_hex(each.at("file")), bytes_of_hex(each.at("rgb")),
                   bytes_of_hex(each.at("grey")), each.at("height"), each.at("width")});
  }
  return all;
}

}  // namespace

const std::vector<GoldenImage>& golden_images() {
  static const std::vector<GoldenImage> images = images_of("image_formats.json");
  return images;
}

const std::vector<GoldenImage>& golden_orientations() {
  static const std::vector<GoldenImage> images = images_of("orientations.json");
  return images;
}

std::vector<GoldenExif> golden_exif() {
  std::vector<GoldenExif> all;
  const nlohmann::json json = golden_json("orientations.json");
  for (const nlohmann::json& each : json.at("exif")) {
    all.push_back({bytes_of_hex(each.at(0)), std::nullopt});
    if (!each.at(1).is_null()) all.back().orientation = each.at(1).get<int>();
  }
  return all;
}

const GoldenImage& golden_image(const std::string& name) {
  const auto found = std::find_if(golden_images().begin(), golden_images().end(),
                                  [&](const GoldenImage& each) { return each.name == name; });
  REQUIRE(found != golden_images().end());
  return *found;
}

}  // namespace dpt::data_test
