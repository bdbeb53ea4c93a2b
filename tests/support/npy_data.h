// A small data set of arrays with learnable targets of every kind: the brightness of the four
// quarters of an 8x8 image decides them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/base/philox.h"
#include "tests/support/npy.h"
#include "tests/support/temp_dir.h"

namespace dpt::testing {

/// Returns the kinds of targets: "labels", "soft_labels", "multi_hot" and "values".
inline const std::vector<std::string>& npy_kinds() {
  static const std::vector<std::string> kinds = {"labels", "soft_labels", "multi_hot", "values"};
  return kinds;
}

/// Returns a loss for this kind of targets.
inline std::string loss_of_kind(const std::string& kind) {
  return kind == "multi_hot" ? "bce_with_logits" : kind == "values" ? "mse" : "cross_entropy";
}

/// Writes FOLDER/PART_x.npy, PART_y.npy with targets of that kind, and PART_w.npy with weights,
/// some of which are 0.
inline void write_npy_part(const std::string& folder, const std::string& part,
                           const std::string& kind, std::int64_t n, std::uint64_t seed) {
  std::vector<std::uint8_t> images;
  std::vector<std::int64_t> labels;
  std::vector<float> targets, weights;
  for (std::int64_t k = 0; k < n; ++k) {
    float quarters[4], sum = 0;
    std::int64_t label = 0;
    for (std::uint64_t c = 0; c < 4; ++c) {
      const auto at = static_cast<std::uint64_t>(k);
      const float u = philox::uniform(philox::block(seed, philox::Use::synthesis, at, c).v[0]);
      quarters[c] = std::round(255 * u);
      sum += quarters[c] * quarters[c] + 1;
      if (quarters[c] > quarters[label]) label = static_cast<std::int64_t>(c);
    }
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) {
        images.push_back(static_cast<std::uint8_t>(quarters[y / 4 * 2 + x / 4]));
      }
    }
    for (const float value : quarters) {
      targets.push_back(kind == "soft_labels" ? (value * value + 1) / sum
                        : kind == "multi_hot" ? (value > 127 ? 1.0F : 0.0F)
                                              : value / 64 - 2);
    }
    labels.push_back(label);
    weights.push_back(static_cast<float>((k * 3 + 2) % 5) / 4);
  }
  const std::string start = folder + "/" + part;
  write_bytes(start + "_x.npy", npy<std::uint8_t>({n, 8, 8}, images));
  write_bytes(start + "_y.npy", kind == "labels" ? npy({n}, labels) : npy({n, 4}, targets));
  write_bytes(start + "_w.npy", npy({n}, weights));
}

/// Writes the files of 60 training and 23 test samples. Returns the lines of a config that name
/// them.
inline std::string npy_data(const std::string& folder, const std::string& kind, bool weighted) {
  write_npy_part(folder, "train", kind, 60, 1);
  write_npy_part(folder, "test", kind, 23, 2);
  std::string text = "  dataset: npy\n  target: " + kind + "\n";
  for (const std::string part : {"train", "test"}) {
    const std::string start = folder + "/" + part;
    text += "  " + part + ": {images: " + start + "_x.npy, targets: " + start + "_y.npy" +
            (weighted ? ", weights: " + start + "_w.npy" : "") + "}\n";
  }
  return text;
}

}  // namespace dpt::testing
