// Images that cameras stored rotated: data.exif_orientation, and its value in earlier runs.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_files.h"
#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/support/rewrite.h"

using namespace dpt::testing;
using dpt::data_test::Bytes;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// A workplace with grey images of two classes: light on the left or at the top. Test images are
/// stored with a quarter turn, so that their stored pixels look like the other class.
struct PhoneWorkplace : Workplace {
  PhoneWorkplace()
      : Workplace(
            "version: 1\nname: small\ndata:\n  batch_size: 6\n  dataset: image_folder\n"
            "  root: photos\nmodel:\n  input: [1, 8, 8]\n  layers:\n"
            "    - {type: Flatten}\n    - {type: Linear, name: fc, out_features: 2}\n"
            "optimizer: {type: Adam, lr: 0.01}\ntrain: {epochs: 12}\ndevices: [cpu]\n") {
    for (int i = 0; i < 6; ++i) {
      put("train/left", i, lit(true, i), 1);
      put("train/top", i, lit(false, i), 1);
      put("test/left", i, lit(false, i), 8);
      put("test/top", i, lit(true, i), 6);
    }
  }
  json summary() const { return json::parse(read_file(dir.file("runs/small/summary.json"))); }
  double test_accuracy() const { return summary()["test"]["accuracy"].get<double>(); }
  double eval_accuracy() const {
    const Finished eval = run_well({"eval", "runs/small", "--json"});
    return json::parse(eval.out)["accuracy"].get<double>();
  }
  /// Returns the class predicted for a test image.
  std::string predicted(const std::string& picture) const {
    const Finished predict = run_well({"predict", "runs/small", "photos/test/" + picture});
    return contains(predict.out, ",left,") ? "left" : "top";
  }

 private:
  static Bytes lit(bool is_left, int i) {
    Bytes pixels;
    for (int at = 0; at < 64; ++at) {
      const int place = is_left ? at % 8 : at / 8;
      pixels.push_back(static_cast<std::uint8_t>(place < 4 ? 220 - 3 * i : 30 + 3 * i));
    }
    return pixels;
  }
  void put(const std::string& folder, int i, const Bytes& pixels, int orientation) const {
    Bytes file = dpt::data_test::jpeg(8, 8, 1, pixels);
    dpt::data_test::set_orientation(file, orientation);
    fs::create_directories(dir.file("photos/" + folder));
    write_file(dir.file(fmt::format("photos/{}/{}.jpg", folder, i)), {file.begin(), file.end()});
  }
};

/// Removes the field from a stored run, as if an earlier release had written it.
void make_earlier(const PhoneWorkplace& w) {
  const auto without = [](const std::string& text) {
    const std::string line = "  exif_orientation: ignore\n";
    const std::size_t at = text.find(line);
    REQUIRE(at != std::string::npos);
    return text.substr(0, at) + text.substr(at + line.size());
  };
  const std::string config = w.dir.file("runs/small/config.yaml");
  write_file(config, without(read_file(config)));
  for (const std::string& file : dpt::list_checkpoints(w.dir.file("runs/small/checkpoints"))) {
    rewrite_checkpoint(file, file, [&](dpt::Metadata& metadata, auto&) {
      metadata["dpt.config"] = without(metadata.at("dpt.config"));
    });
  }
}

}  // namespace

TEST_CASE("exif_orientation: images are turned upright in training, evaluation and prediction") {
  const PhoneWorkplace w;
  w.run_well({"train", "small.yaml"});
  check_contains(read_file(w.dir.file("runs/small/config.yaml")), "  exif_orientation: apply\n");
  CHECK(w.test_accuracy() == 1);
  CHECK(w.eval_accuracy() == 1);
  CHECK(w.predicted("top/3.jpg") == "top");
  CHECK(w.predicted("left/3.jpg") == "left");
  // Another orientation changes the evaluation.
  const Finished other = w.run({"eval", "runs/small", "data.exif_orientation=ignore"});
  CHECK(other.exit_code == 2);
  check_contains(other.err, "data.exif_orientation: apply -> ignore");
}

TEST_CASE("exif_orientation: data check counts images that are stored turned") {
  const PhoneWorkplace w;
  const Finished check = w.run_well(
      {"data", "check", "small.yaml", "--allow", "duplicate_across_splits,label_conflict"});
  check_contains(check.out,
                 "12 images are stored rotated or mirrored (Exif orientation: 6x 6, 6x 8), and are "
                 "turned upright\n");
  CHECK(!contains(check.out, "warning: exif_orientation"));
  const Finished ignored = w.run({"data", "check", "small.yaml", "data.exif_orientation=ignore"});
  check_contains(
      ignored.out,
      "warning: exif_orientation (1)\n  12 images are stored rotated or mirrored (Exif "
      "orientation) and read as stored. data.exif_orientation=apply turns them upright: test: ");
  CHECK(!contains(ignored.out, "and are turned upright"));
  const Finished text = w.run({"data", "check", "small.yaml", "--json"});
  const json splits = json::parse(text.out)["splits"];
  CHECK(splits["train"]["orientations"].empty());
  CHECK(splits["test"]["orientations"] == json({{"6", 6}, {"8", 6}}));
  CHECK(splits["test"]["turned_upright"] == json({{"6", 6}, {"8", 6}}));
}

TEST_CASE("exif_orientation: a run of an earlier release keeps reading images as stored") {
  const PhoneWorkplace w;
  w.run_well({"train", "small.yaml", "data.exif_orientation=ignore", "--max-steps", "20"});
  make_earlier(w);
  // The earlier release would have started the run with this config.
  const Finished resumed = w.run_well({"train", "small.yaml"});
  check_contains(resumed.err, "resuming");
  check_contains(read_file(w.dir.file("runs/small/config.yaml")), "  exif_orientation: ignore\n");
  CHECK(w.test_accuracy() == 0);
  make_earlier(w);
  CHECK(w.eval_accuracy() == 0);
  CHECK(w.predicted("top/3.jpg") == "left");
  // The run's value also applies with a config for other data.
  const Finished predict = w.run_well({"predict", "runs/small", "small.yaml", "--split", "test"});
  CHECK(!contains(predict.out, "test/top/3.jpg,1,top"));
  // A new run turns the images upright.
  w.run_well({"train", "small.yaml", "--overwrite"});
  CHECK(w.test_accuracy() == 1);
}
