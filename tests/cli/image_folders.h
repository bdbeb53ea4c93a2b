// Folders of small images, one folder for each class.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"

namespace dpt::testing {

/// Returns an image of one of three classes that differ only in brightness.
inline std::string image_of(const std::string& name, int number) {
  const int base = name == "dark" ? 10 : name == "grey" ? 120 : 230;
  const dpt::data_test::Bytes bytes = dpt::data_test::png(
      2, 2, 1, dpt::data_test::Bytes(4, static_cast<std::uint8_t>(base + number)));
  return {bytes.begin(), bytes.end()};
}

inline std::string config_of(const std::string& data) {
  return "version: 1\nname: small\ndata:\n  batch_size: 6\n" + data +
         "model:\n  input: [1, 2, 2]\n  layers:\n    - {type: Flatten}\n"
         "    - {type: Linear, name: fc1, out_features: 8}\n    - {type: ReLU}\n"
         "    - {type: Linear, name: fc2, out_features: 3}\n"
         "optimizer: {type: Adam, lr: 0.05}\ntrain: {epochs: 40}\ndevices: [cpu]\n";
}

/// A workplace whose config reads such images from the folder `photos`.
struct FolderWorkplace : Workplace {
  FolderWorkplace() : Workplace(config_of("  dataset: image_folder\n  root: photos\n")) {}
  void put(const std::string& folder, const std::vector<std::string>& classes) const {
    std::filesystem::remove_all(dir.file(folder));
    for (const std::string& name : classes) {
      std::filesystem::create_directories(dir.file(folder + "/" + name));
      for (int i = 0; i < 6; ++i) {
        write_file(dir.file(fmt::format("{}/{}/{}.png", folder, name, i)), image_of(name, i));
      }
    }
  }
};

}  // namespace dpt::testing
