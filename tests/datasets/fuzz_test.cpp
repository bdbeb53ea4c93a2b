// Random damage to every kind of file: a reader either succeeds or throws dpt::Error, without
// excessive memory use. The damage is seeded, so that failures are reproducible. The sanitizer
// builds run this test.
#include <algorithm>
#include <filesystem>
#include <random>

#include "datasets/csv_reader.h"
#include "datasets/idx.h"
#include "datasets/npy_array.h"
#include "engine/data/data_sets.h"
#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/metadata_orientation.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/golden_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/fuzz.h"
#include "tests/support/npy.h"
#include "tests/support/tar.h"
#include "tests/support/zip.h"

namespace dpt {
namespace {

using namespace data_test;

using testing::fuzz;

/// Decodes a whole image or a part of it, with options that depend only on its bytes and the size
/// in its header.
void decode_some(const Bytes& bytes, const std::string& name) {
  std::uint32_t sum = 0;
  for (const std::uint8_t byte : bytes) sum = sum * 31 + byte;
  std::mt19937 random(sum);
  const std::int64_t channels = random() % 2 != 0 ? 1 : 3;
  DecodeOptions options;
  options.salvage = random() % 4 == 0;
  options.applies_orientation = random() % 2 == 0;
  if (random() % 4 == 0) {
    decode_image(std::as_bytes(std::span(bytes)), name, channels, options);
    return;
  }
  const auto up_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most));
  };
  const auto box_in = [&](std::int64_t height, std::int64_t width) {
    const std::int64_t h = up_to(height), w = up_to(width);
    return PixelBox{up_to(height - h + 1) - 1, up_to(width - w + 1) - 1, h, w};
  };
  ImagePart part;
  const Image image = decode_part(
      std::as_bytes(std::span(bytes)), name, channels,
      [&](std::int64_t height, std::int64_t width) {
        part.box = box_in(height, width);
        part.height = up_to(40);
        part.width = up_to(40);
        part.window = box_in(part.height, part.width);
        part.exact = random() % 2 != 0;
        return part;
      },
      options);
  CHECK(image.height == part.window.height);
  CHECK(image.width == part.window.width);
  CHECK(image.channels == channels);
}

TEST_CASE("fuzz: PNG") {
  std::vector<Bytes> seeds = {png(5, 7, 3, noise(105)), png(9, 3, 1, noise(27))};
  for (const PngKind kind : {PngKind::palette, PngKind::deep, PngKind::bits, PngKind::interlaced,
                             PngKind::alpha, PngKind::transparent_palette}) {
    seeds.push_back(odd_png(kind));
  }
  fuzz(seeds, 4000, [](const Bytes& bytes) { decode_some(bytes, "x.png"); });
}

TEST_CASE("fuzz: JPEG") {
  std::vector<Bytes> seeds = {jpeg(20, 17, 3, noise(1020)), jpeg(9, 16, 1, noise(144)),
                              jpeg(8, 8, 4, noise(256))};
  for (const int style : {0, 1, 2, 3}) {
    const JpegStyle how{2, 1 + style % 2, style == 1, style == 2, style == 3 ? 2 : 0, 60};
    seeds.push_back(jpeg(83, 70, 3, noise(83 * 70 * 3), how));
  }
  fuzz(seeds, 6000, [](const Bytes& bytes) { decode_some(bytes, "x.jpg"); });
}

TEST_CASE("fuzz: WebP, BMP, GIF, TIFF and PNM") {
  for (const char* format : {"WEBP", "BMP", "GIF", "TIFF", "PNM"}) {
    CAPTURE(format);
    std::vector<Bytes> seeds;
    for (const GoldenImage& each : golden_images()) {
      if (each.format() == format) seeds.push_back(each.file);
    }
    fuzz(seeds, 3000, [](const Bytes& bytes) { decode_some(bytes, "x.img"); });
  }
}

TEST_CASE("fuzz: images that are stored turned") {
  for (const char* format : {"JPEG", "PNG", "WEBP"}) {
    CAPTURE(format);
    std::vector<Bytes> seeds;
    for (const GoldenImage& each : golden_orientations()) {
      if (each.format() == format) seeds.push_back(each.file);
    }
    fuzz(seeds, 3000, [](const Bytes& bytes) {
      decode_some(bytes, "x.img");
      static_cast<void>(facts_of_file(std::as_bytes(std::span(bytes)), "x.img", true));
    });
  }
}

TEST_CASE("fuzz: Exif and XMP data") {
  std::mt19937 random(4711);
  const std::vector<GoldenExif> exif = golden_exif();
  for (int i = 0; i < 20000; ++i) {
    const Bytes bytes = testing::damaged(exif[random() % exif.size()].data, random);
    const std::span<const std::byte> data = std::as_bytes(std::span(bytes));
    const int orientation = orientation_in_exif(data).value_or(1) + orientation_in_xmp(data);
    CHECK((2 <= orientation && orientation <= 16));
  }
}

TEST_CASE("fuzz: IDX, plain and compressed") {
  const TempDir dir;
  const std::vector<Bytes> images = {idx({4, 3, 2}, noise(24)), idx({4, 1, 2, 3}, noise(24))};
  const Bytes labels = idx({4}, {0, 1, 2, 3});
  const auto read = [&](const std::string& image_file, const std::string& label_file) {
    read_idx_pair(ByteStream(dir / image_file), ByteStream(dir / label_file), {}, std::nullopt,
                  {{3, 2, 1}, 10});
  };
  dir.write("labels", labels);
  dir.write("images", images[0]);
  fuzz(images, 1000, [&](const Bytes& bytes) {
    dir.write("bad", bytes);
    read("bad", "labels");
  });
  fuzz({labels}, 500, [&](const Bytes& bytes) {
    dir.write("bad", bytes);
    read("images", "bad");
  });
  fuzz({gzip(images[0]), concat(gzip(images[0]), gzip({}))}, 1500, [&](const Bytes& bytes) {
    dir.write("bad.gz", bytes);
    read("bad.gz", "labels");
  });
}

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST_CASE("fuzz: CSV") {
  const TempDir dir;
  std::string numbers = "a,kind,b\n", quoted = "\xef\xbb\xbf\"a\",kind,\"b\"\r\n";
  for (int i = 0; i < 8; ++i) {
    numbers += fmt::format("{},k{},{}\n", i, i % 3, i * 0.5);
    quoted += fmt::format("\"{}\",\"k\"\"{}, or\n\",-{}e-2\r\n", i, i % 3, i);
  }
  fuzz({bytes_of(numbers), bytes_of(quoted)}, 3000, [&](const Bytes& bytes) {
    dir.write("bad.csv", bytes);
    const DataSets sets = open(
        "csv", {{"train.file", dir / "bad.csv"}, {"label", std::string("kind")}}, {{1, 1, 2}, 0});
    sample(*sets.train, sets.train->size() - 1);
  });
}

TEST_CASE("fuzz: NPY and NPZ") {
  const TempDir dir;
  const std::string array = testing::npy<float>({4, 3}, std::vector<float>(12, 0.5F));
  fuzz({bytes_of(array)}, 1500, [&](const Bytes& bytes) {
    dir.write("bad.npy", bytes);
    NpyArray(dir / "bad.npy").text();
  });
  std::vector<Bytes> seeds;
  for (const bool deflated : {false, true}) {
    for (const bool zip64 : {false, true}) {
      seeds.push_back(bytes_of(testing::zip({{"x.npy", array}}, {deflated, zip64})));
    }
  }
  fuzz(seeds, 3000, [&](const Bytes& bytes) {
    dir.write("bad.npz", bytes);
    NpyArray(dir / "bad.npz").text();
  });
}

TEST_CASE("fuzz: tar shards") {
  const TempDir dir;
  const Bytes picture = png(5, 7, 1, noise(35));
  const std::string content(picture.begin(), picture.end());
  const std::string plain =
      testing::tar_member("a.cls", "1") + testing::tar_member("a.png", content);
  const std::string extended =
      testing::tar_member("b.json", "{\"label\": 2, \"x\": [1, \"y\"]}") +
      testing::pax_header({{"path", "b.png"}, {"size", fmt::format("{}", content.size())}}) +
      testing::tar_member("cut", content);
  fuzz({bytes_of(plain + testing::kTarEnd), bytes_of(extended + plain + testing::kTarEnd)}, 4000,
       [&](const Bytes& bytes) {
         dir.write("bad.tar", bytes);
         const DataSets sets =
             open("webdataset", {{"train.shards", dir / "bad.tar"}}, {{5, 7, 1}, 0});
         for (std::int64_t i = 0; i < sets.train->size(); ++i) sample(*sets.train, i);
       });
}

}  // namespace
}  // namespace dpt
