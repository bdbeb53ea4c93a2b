// dpt data check, stats and show, from the user's view: planted defects are found and named.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "kernels/image/decode.h"
#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/support/npy.h"

using namespace dpt::testing;
using dpt::data_test::Bytes;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kSide = 32;

/// Returns a smooth RGB image, a different one for each seed; adds `brighter` to every value.
Bytes picture(unsigned seed, int brighter = 0) {
  unsigned state = seed * 2654435761U + 1;
  const auto random = [&] {
    state = state * 1664525U + 1013904223U;
    return static_cast<double>(state >> 8) / (1 << 24);
  };
  double waves[8][3];
  for (auto& wave : waves) {
    wave[0] = 10 * random() - 5;
    wave[1] = 10 * random() - 5;
    wave[2] = 6.28 * random();
  }
  Bytes pixels;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      for (int c = 0; c < 3; ++c) {
        double value = 120 + brighter;
        for (const auto& wave : waves) {
          value += 12 * std::cos(6.28 * (wave[0] * x + wave[1] * y) / kSide + wave[2] + 0.4 * c);
        }
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

Bytes png_of(unsigned seed) {
  return dpt::data_test::png(kSide, kSide, 3, picture(seed));
}

constexpr const char* kImagesConfig = R"(version: 1
name: pictures
data:
  dataset: image_folder
  root: pictures
  batch_size: 4
  transforms: {train: [{type: RandomCrop, size: 32, padding: 4}, {type: RandomHorizontalFlip}]}
model:
  input: [3, 32, 32]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.05}
train: {epochs: 1}
devices: [cpu]
)";

/// A data set of three classes with 12 training and 4 test images each, all different.
struct Images : Workplace {
  Images() : Workplace(kImagesConfig) {
    unsigned seed = 0;
    for (const std::string part : {"train", "test"}) {
      for (const std::string name : {"ant", "bee", "cow"}) {
        for (int i = 0; i < (part == "train" ? 12 : 4); ++i) {
          put(part + "/" + name + "/" + std::to_string(100 + i) + ".png", png_of(seed++));
        }
      }
    }
  }
  void put(const std::string& name, const Bytes& bytes) const {
    const std::string path = dir.file("pictures/" + name);
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, std::string(bytes.begin(), bytes.end()));
  }
  Bytes get(const std::string& name) const {
    const std::string bytes = read_file(dir.file("pictures/" + name));
    return {bytes.begin(), bytes.end()};
  }
  json check(int exit_code, const std::vector<std::string>& more = {}) const {
    const Finished finished = run({"data", "check", "small.yaml", "--json"}, more);
    INFO(finished.err);
    CHECK(finished.exit_code == exit_code);
    return json::parse(finished.out);
  }
};

/// Returns the sample names of all findings of a kind, one line per finding, sorted.
std::string found(const json& report, const std::string& kind) {
  std::vector<std::string> lines;
  for (const json& finding : report["findings"]) {
    if (finding["kind"] != kind) continue;
    std::string line;
    for (const json& sample : finding["samples"]) {
      const std::string name = sample["name"];
      const std::string root = "pictures/";
      const std::size_t at = name.rfind(root);
      line += (line.empty() ? "" : " ") +
              (at == std::string::npos ? name : name.substr(at + root.size()));
    }
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string message_of(const json& report, const std::string& kind, const std::string& part) {
  for (const json& finding : report["findings"]) {
    const std::string message = finding["message"];
    if (finding["kind"] == kind && contains(message, part)) return message;
  }
  return {};
}

/// Writes an IDX data set of 8x8 noise with these labels.
void write_labelled_idx(const std::string& folder, const std::string& part,
                        const std::vector<int>& labels, unsigned seed) {
  const auto count = static_cast<std::uint32_t>(labels.size());
  const Bytes pixels = dpt::data_test::noise(count * 64U, seed);
  const Bytes images = dpt::data_test::idx({count, 8, 8}, pixels);
  const Bytes classes = dpt::data_test::idx({count}, Bytes(labels.begin(), labels.end()));
  fs::create_directories(folder);
  write_file(folder + "/" + part + "-images-idx3-ubyte", {images.begin(), images.end()});
  write_file(folder + "/" + part + "-labels-idx1-ubyte", {classes.begin(), classes.end()});
}

std::string config_of(const std::string& data, int classes,
                      const std::string& input = "[1, 8, 8]") {
  return "version: 1\nname: small\ndata: {" + data + ", batch_size: 4}\nmodel:\n  input: " + input +
         "\n  layers: [{type: Flatten}, {type: Linear, "
         "name: fc, out_features: " +
         std::to_string(classes) +
         "}]\noptimizer: {type: SGD, lr: 0.05}\ntrain: {epochs: 1}\ndevices: [cpu]\n";
}

}  // namespace

TEST_CASE("data check: a good data set has no findings, and the numbers are right") {
  const Images w;
  const json report = w.check(0);
  CHECK(report["errors"] == 0);
  CHECK(report["warnings"] == 0);
  CHECK(report["findings"].empty());
  CHECK(report["shape"] == json({3, 32, 32}));
  CHECK(report["splits"]["train"]["samples"] == 36);
  CHECK(report["splits"]["train"]["class_counts"] == json({12, 12, 12}));
  CHECK(report["splits"]["test"]["class_counts"] == json({4, 4, 4}));
  CHECK(report["splits"]["train"]["sizes"]["commonest"] == json({{"height", 32}, {"width", 32}}));
  CHECK(report["near_duplicates"]["looked_for"] == true);
  // Compute the expected mean and deviation over all training images.
  double sum[3] = {}, squares[3] = {};
  for (unsigned seed = 0; seed < 36; ++seed) {
    const Bytes pixels = picture(seed);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      sum[i % 3] += pixels[i] / 255.0;
      squares[i % 3] += pixels[i] / 255.0 * pixels[i] / 255.0;
    }
  }
  const json& statistics = report["splits"]["train"]["statistics"];
  constexpr double kCount = 36 * kSide * kSide;
  for (std::size_t c = 0; c < 3; ++c) {
    const double mean = sum[c] / kCount;
    CHECK(statistics["mean"][c].get<double>() == doctest::Approx(mean).epsilon(1e-9));
    CHECK(statistics["std"][c].get<double>() ==
          doctest::Approx(std::sqrt(squares[c] / kCount - mean * mean)).epsilon(1e-6));
  }

  const Finished text = w.run_well({"data", "check", "small.yaml", "--workers", "1"});
  check_contains(text.out, "0 errors, 0 warnings");
  check_contains(text.out, "train          36          0  0 to 2      32x32");
  check_contains(text.err, "reading 48 samples with 1 thread\n");
  // The line can be pasted into a config.
  const Finished stats = w.run_well({"data", "stats", "small.yaml"});
  check_contains(text.out, stats.out);
  const auto numbers = [&](const char* name) {
    const json& each = statistics[name];
    return fmt::format("{:.6g}, {:.6g}, {:.6g}", each[0].get<double>(), each[1].get<double>(),
                       each[2].get<double>());
  };
  CHECK(stats.out == fmt::format("{{type: Normalize, mean: [{}], std: [{}]}}\n", numbers("mean"),
                                 numbers("std")));
  w.run_well({"config", "check", "small.yaml",
              "data.transforms.eval=[" + stats.out.substr(0, stats.out.size() - 1) + "]"});
  CHECK(json::parse(w.run_well({"data", "stats", "small.yaml", "--json"}).out) == statistics);
  // The validation samples are not among the training samples.
  const json split = w.check(0, {"data.val_split=4"});
  CHECK(split["splits"]["train"]["samples"] == 32);
  CHECK(split["splits"]["val"]["samples"] == 4);
}

TEST_CASE("data check: every unreadable file is named, with the reason") {
  const Images w;
  Bytes whole = dpt::data_test::jpeg(kSide, kSide, 3, picture(500));
  w.put("train/ant/truncated.jpg", Bytes(whole.begin(), whole.begin() + 400));
  Bytes corrupt = png_of(501);
  for (std::size_t i = corrupt.size() / 2; i < corrupt.size() / 2 + 40; ++i) corrupt[i] ^= 0x5a;
  w.put("train/ant/corrupt.png", corrupt);
  w.put("train/bee/empty.png", {});
  const std::string text = "this is no picture";
  w.put("train/bee/text.jpg", Bytes(text.begin(), text.end()));
  w.put("train/cow/huge.png", dpt::data_test::png_header(60000, 60000));
  Bytes huge = dpt::data_test::jpeg(kSide, kSide, 3, picture(502));
  dpt::data_test::set_jpeg_size(huge, 16000, 16000);
  w.put("test/cow/huge.jpg", huge);
  const json report = w.check(3);
  CHECK(report["errors"] == 6);
  CHECK(found(report, "unreadable") ==
        "test/cow/huge.jpg\ntrain/ant/corrupt.png\ntrain/ant/truncated.jpg\n"
        "train/bee/empty.png\ntrain/bee/text.jpg\ntrain/cow/huge.png\n");
  CHECK(!message_of(report, "unreadable", "empty.png: the file is empty").empty());
  CHECK(!message_of(report, "unreadable", "text.jpg: expected an image (JPEG, ").empty());
  CHECK(!message_of(report, "unreadable", "huge.png: 60000x60000 pixels").empty());
  CHECK(!message_of(report, "unreadable", "huge.jpg: 16000x16000 pixels").empty());
  CHECK(report["splits"]["train"]["unreadable"] == 5);
  CHECK(report["splits"]["train"]["statistics"]["samples"] == 36);
  CHECK(report["splits"]["train"]["class_counts"] == json({12, 12, 12}));

  const Finished printed = w.run({"data", "check", "small.yaml"});
  CHECK(printed.exit_code == 3);
  check_contains(printed.out, "error: unreadable (6)");
  check_contains(printed.out, "6 errors, 0 warnings");
  const Finished stats = w.run({"data", "stats", "small.yaml"});
  CHECK(stats.exit_code == 3);
  CHECK(stats.out.empty());
  check_contains(stats.err, "5 of 41 training samples cannot be used");
  CHECK(w.run({"data", "check", "small.yaml", "--allow", "unreadable"}).exit_code == 0);
}

TEST_CASE("data check: 16-bit images whose values need fewer bits") {
  const Images w;
  // Writes a big-endian PGM with `largest` as its largest value.
  const auto put = [&](const std::string& name, int largest) {
    std::string file = "P5\n32 32\n65535\n";
    for (int i = 0; i < kSide * kSide; ++i) {
      const int value = i * largest / (kSide * kSide - 1);
      file += static_cast<char>(value >> 8);
      file += static_cast<char>(value & 255);
    }
    w.put(name, {file.begin(), file.end()});
  };
  const std::string message =
      "16-bit images have values of at most 12 bits (0 to 4095). Only the upper 8 of 16 bits are "
      "kept: they become 0 to 15 of 255, nearly black. Multiply the values by 16 first";
  put("train/ant/a.pgm", 4095);
  put("train/bee/b.pgm", 2500);
  json report = w.check(0);
  CHECK(found(report, "few_bits") == "train/ant/a.pgm train/bee/b.pgm\n");
  check_contains(message_of(report, "few_bits", ""), "2 " + message);
  // A dark image among images that use all bits is no finding, unless it is nearly black.
  put("test/cow/c.pgm", 65535);
  put("test/cow/d.pgm", 20000);
  CHECK(found(w.check(0), "few_bits") == "train/ant/a.pgm train/bee/b.pgm\n");
  fs::remove(w.dir.file("pictures/test/cow/c.pgm"));
  report = w.check(0);
  CHECK(found(report, "few_bits") == "train/ant/a.pgm train/bee/b.pgm test/cow/d.pgm\n");
  check_contains(
      message_of(report, "few_bits", ""),
      "values of at most 15 bits (0 to 32767). Only the upper 8 of 16 bits are kept: they "
      "become 0 to 127 of 255, dark. Multiply the values by 2 first");
}

TEST_CASE("data check: copies in a split, across splits, with another label, and nearly the same") {
  const Images w;
  w.put("train/cow/black.png", dpt::data_test::png(40, 20, 3, Bytes(2400, 7)));
  w.put("train/ant/copy.png", w.get("train/ant/100.png"));
  w.put("test/bee/copy.png", w.get("train/bee/101.png"));
  w.put("train/cow/other.png", w.get("train/bee/102.png"));
  // Image 27 is train/cow/103.png; this copy is brighter and compressed.
  w.put("test/cow/bright.jpg", dpt::data_test::jpeg(kSide, kSide, 3, picture(27, 12)));
  const json report = w.check(3);
  CHECK(found(report, "constant") == "train/cow/black.png\n");
  CHECK(found(report, "duplicate") == "train/ant/100.png train/ant/copy.png\n");
  CHECK(found(report, "duplicate_across_splits") == "train/bee/101.png test/bee/copy.png\n");
  CHECK(found(report, "label_conflict") == "train/bee/102.png train/cow/other.png\n");
  CHECK(found(report, "near_duplicate_across_splits") == "train/cow/103.png test/cow/bright.jpg\n");
  CHECK(found(report, "near_duplicate").empty());
  CHECK(report["errors"] == 2);
  CHECK(report["warnings"] == 3);
  CHECK(report["copies"] == json::array({{{"of", "test"}, {"in", "train"}, {"samples", 1}}}));
  const json sizes = report["splits"]["train"]["sizes"];
  CHECK(sizes["smallest"] == json({{"height", 20}, {"width", 40}}));
  CHECK(sizes["distinct"] == 2);
  check_contains(w.run({"data", "check", "small.yaml"}).out,
                 "1 of 14 test samples is equal to a train sample");

  // Allowed kinds become warnings; an unknown kind is refused.
  const json allowed = w.check(0, {"--allow", "label_conflict,duplicate_across_splits"});
  CHECK(allowed["errors"] == 0);
  CHECK(allowed["warnings"] == 5);
  CHECK(w.check(3, {"--allow", "label_conflict"})["errors"] == 1);
  const Finished unknown = w.run({"data", "check", "small.yaml", "--allow", "dupes"});
  CHECK(unknown.exit_code == 2);
  check_contains(unknown.err, "--allow dupes: expected one of unreadable, not_finite");
}

TEST_CASE("data check: an error on opening is a finding too") {
  const Images w;
  w.put("test/dog/1.png", png_of(600));
  const json report = w.check(3);
  CHECK(report["errors"] == 1);
  REQUIRE(report["findings"].size() == 1);
  CHECK(report["findings"][0]["kind"] == "not_opened");
  check_contains(report["findings"][0]["message"], "pictures/test/dog: ");
  check_contains(report["findings"][0]["message"], "pictures/train has no class 'dog'");
  const Finished text = w.run({"data", "check", "small.yaml"});
  CHECK(text.exit_code == 3);
  check_contains(text.out, "error: not_opened");
  fs::remove_all(w.dir.file("pictures/test/dog"));
  // The other files are checked, too.
  w.put("train/ant/1.heic", {1});
  w.put("train/bee/2.avif", {1});
  w.put("train/bee/Thumbs.db", {1});
  w.put("train/cow/text.webp", {'n', 'o', 'n', 'e'});
  const json both = w.check(3);
  CHECK(both["errors"] == 2);
  REQUIRE(both["findings"].size() == 2);
  CHECK(both["findings"][0]["kind"] == "not_opened");
  check_contains(both["findings"][0]["message"], "2 problems with the files:\n");
  check_contains(both["findings"][0]["message"], "1.heic: a HEIC image");
  check_contains(both["findings"][0]["message"], "2.avif: an AVIF image");
  CHECK(found(both, "unreadable") == "train/cow/text.webp\n");
  const Finished listed = w.run({"data", "check", "small.yaml"});
  check_contains(listed.out, "error: not_opened (1)\n  image_folder: ");
  check_contains(listed.out, "pictures/train/ant/1.heic: a HEIC image");
  check_contains(listed.err, "1 file that is not an image is left out: 1 Thumbs.db");
  // config check reports it, too.
  const Finished config = w.run({"config", "check", "small.yaml"});
  CHECK(config.exit_code == 3);
  for (const char* name :
       {"1.heic: a HEIC image", "2.avif: an AVIF image", "text.webp: expected"}) {
    check_contains(config.err, name);
  }
  check_contains(w.run({"data", "check", "small.yaml"}, {"data.on_bad_sample=skip"}).out,
                 "(a run leaves these out, because data.on_bad_sample is skip)");
  const json left_out = w.check(3, {"data.on_bad_sample=skip"});
  CHECK(left_out["errors"] == 1);
  for (const char* name : {"train/ant/1.heic", "train/bee/2.avif", "train/cow/text.webp"}) {
    fs::remove(w.dir.file("pictures/" + std::string(name)));
  }
  // An invalid config is not a finding about the data.
  CHECK(w.run({"data", "check", "small.yaml", "data.val_split=1000"}).exit_code == 2);
}

TEST_CASE("data check: a label out of range, in idx and npy, and a class that the test lacks") {
  const Workplace idx(config_of("dataset: idx, root: data", 4));
  write_labelled_idx(idx.dir.file("data"), "train", {0, 1, 2, 3, 0, 1, 2, 9}, 1);
  write_labelled_idx(idx.dir.file("data"), "t10k", {0, 1, 2}, 2);
  const Finished out_of_range = idx.run({"data", "check", "small.yaml", "--json"});
  CHECK(out_of_range.exit_code == 3);
  const json report = json::parse(out_of_range.out);
  CHECK(report["findings"][0]["kind"] == "not_opened");
  check_contains(report["findings"][0]["message"],
                 "sample 7 at offset 15: label 9 is out of range");

  write_labelled_idx(idx.dir.file("data"), "train", {0, 1, 2, 3, 0, 1, 2, 3}, 1);
  const json lacks = json::parse(idx.run_well({"data", "check", "small.yaml", "--json"}).out);
  CHECK(message_of(lacks, "class_not_measured", "class 3:") ==
        "class 3: test has no samples of it, but train has 2");
  CHECK(!message_of(lacks, "few_samples", "class 0:").empty());

  const Workplace npy(config_of("dataset: npy, train: {images: x.npy, targets: y.npy}", 2));
  write_bytes(npy.dir.file("x.npy"), dpt::testing::npy<std::uint8_t>({3, 8, 8}, Bytes(192)));
  write_bytes(npy.dir.file("y.npy"), dpt::testing::npy<std::int64_t>({3}, {0, 1, 2}));
  const Finished label = npy.run({"data", "check", "small.yaml"});
  CHECK(label.exit_code == 3);
  check_contains(label.out, "y.npy, sample 2: label 2 is out of range");
}

TEST_CASE("data check: equal rows of a table are not errors") {
  const Workplace w(
      config_of("dataset: csv, train: {file: t.csv}, features: [age, rank], label: saved,"
                " val_split: 0",
                2, "[2, 1, 1]"));
  std::string table = "age,rank,saved\n";
  for (int i = 0; i < 12; ++i) table += fmt::format("{},1,{}\n", i % 3, i % 2 ? "yes" : "no");
  write_file(w.dir.file("t.csv"), table);
  const Finished finished = w.run({"data", "check", "small.yaml"});
  CHECK(finished.exit_code == 0);
  check_contains(finished.out, "warning: equal_rows (3)");
  check_contains(finished.out, "4 rows have equal features and different targets: ");
  check_contains(finished.out, "  features\n");
  CHECK_FALSE(contains(finished.out, "8x8 pixels"));
}

TEST_CASE("data check: NaN and infinity in float arrays; targets that are not labels") {
  const Workplace w(
      config_of("dataset: npy, target: values, train: {images: x.npy, targets: y.npy}", 1) +
      "loss: {type: mse}\n");
  std::vector<float> images;
  const Bytes values = dpt::data_test::noise(6 * 64);
  for (const std::uint8_t value : values) images.push_back(static_cast<float>(value) / 100 - 1);
  std::copy_n(images.begin(), 64, images.begin() + 128);  // makes sample 2 equal to sample 0
  images[64 + 5] = std::numeric_limits<float>::quiet_NaN();
  images[192 + 9] = std::numeric_limits<float>::infinity();
  write_bytes(w.dir.file("x.npy"), dpt::testing::npy<float>({6, 8, 8}, images));
  write_bytes(w.dir.file("y.npy"), dpt::testing::npy<float>({6}, {0, 1, 0.5F, 3, 4, 5}));
  const Finished finished = w.run({"data", "check", "small.yaml", "--json"});
  CHECK(finished.exit_code == 3);
  const json report = json::parse(finished.out);
  CHECK(!message_of(report, "not_finite", "x.npy, sample 1 ").empty());
  CHECK(!message_of(report, "not_finite", "x.npy, sample 3 ").empty());
  // Equal samples with different target values are a conflict.
  CHECK(!message_of(report, "label_conflict", "x.npy, sample 2").empty());
  CHECK(report["errors"] == 3);
  CHECK(report["splits"]["train"]["class_counts"].is_null());
  CHECK(report["splits"]["train"]["statistics"]["samples"] == 4);
  CHECK(w.run({"data", "stats", "small.yaml"}).exit_code == 3);
}

TEST_CASE("data check: a signal ends it, with the project's exit code") {
  const Workplace w(config_of("dataset: synthetic, size: 300000, classes: 4", 4));
  for (const auto& [signal, exit_code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    CAPTURE(signal);
    // A process that finishes before the signal reaches it proves nothing, so it is repeated.
    for (int tries = 0;; ++tries) {
      REQUIRE(tries < 10);
      const TempDir logs;
      Program program({"data", "check", "small.yaml", "--workers", "1"}, w.dir.path(), logs);
      REQUIRE(wait_until([&] { return contains(program.messages(), "reading 300256 samples"); }));
      program.send(signal);
      const Finished finished = program.wait();
      if (finished.exit_code == 0) continue;
      CHECK(finished.exit_code == exit_code);
      CHECK(finished.out.empty());
      check_contains(finished.err, "before all samples were read");
      break;
    }
  }
}

TEST_CASE("data show writes an image, and never over a file unless told to") {
  const Images w;
  const std::vector<std::string> show = {"data", "show", "small.yaml", "--out", "sheet.png"};
  const Finished first = w.run_well(show, {"--samples", "6", "--columns", "3"});
  check_contains(first.out, "sheet.png: 6 of 36 train samples, epoch 1");
  const std::string bytes = read_file(w.dir.file("sheet.png"));
  const auto decode = [&](const std::string& file) {
    return dpt::decode_image(std::as_bytes(std::span(file)), "sheet.png", 3);
  };
  // The sheet has two rows of three 32x32 images, enlarged 3 times and 8 pixels apart. Two lines of
  // text are below each image.
  const dpt::Image sheet = decode(bytes);
  CHECK(sheet.width == 8 + 3 * (96 + 8));
  CHECK(sheet.height == 8 + 2 * (96 + 3 + 18 + 8));

  const Finished again = w.run(show);
  CHECK(again.exit_code == 2);
  check_contains(again.err, "sheet.png: the file exists");
  CHECK(read_file(w.dir.file("sheet.png")) == bytes);
  w.run_well(show, {"--overwrite", "--samples", "6", "--columns", "3"});
  CHECK(read_file(w.dir.file("sheet.png")) == bytes);

  // Test samples are drawn unchanged: the first one equals the image in its file.
  w.run_well({"data", "show", "small.yaml", "--out", "test.png", "--split", "test"});
  const dpt::Image test = decode(read_file(w.dir.file("test.png")));
  const Bytes expected = picture(36);
  bool is_equal = true;
  for (int y = 0; y < 96; ++y) {
    for (int x = 0; x < 96 * 3; ++x) {
      const std::size_t at = static_cast<std::size_t>(((8 + y) * test.width + 8) * 3 + x);
      const std::size_t of = static_cast<std::size_t>((y / 3 * kSide + x / 3 / 3) * 3 + x % 3);
      is_equal = is_equal && test.pixels[at] == expected[of];
    }
  }
  CHECK(is_equal);
  // Other epochs have other crops.
  w.run_well({"data", "show", "small.yaml", "--out", "v.png", "--versions", "3", "--samples", "2"});
  const dpt::Image versions = decode(read_file(w.dir.file("v.png")));
  REQUIRE(versions.width == 8 + 6 * (96 + 8));
  const auto cell = [&](int column) {
    Bytes pixels;
    for (int y = 0; y < 96; ++y) {
      const auto row = versions.pixels.begin() + ((8 + y) * versions.width + 8 + column * 104) * 3;
      pixels.insert(pixels.end(), row, row + 96 * 3);
    }
    return pixels;
  };
  CHECK(cell(0) != cell(1));
  CHECK(cell(1) != cell(2));
  CHECK(w.run({"data", "show", "small.yaml", "--out", "x.png", "--split", "val"}).exit_code == 3);
  CHECK(w.run({"data", "show", "small.yaml"}).exit_code == 2);
  const Finished large = w.run(
      {"data", "show", "small.yaml", "--out", "x.png", "--versions", "64", "--columns", "10000"});
  CHECK(large.exit_code == 2);
  CHECK(!fs::exists(w.dir.file("x.png")));
}
