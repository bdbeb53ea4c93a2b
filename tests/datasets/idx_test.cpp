// IDX files, valid and invalid, and the data sets built from them.
#include <array>
#include <numeric>

#include "datasets/fingerprint.h"
#include "datasets/idx.h"
#include "engine/data/data_sets.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

const DataRequirements kIdxRequirements{{2, 3, 1}, 10};

/// A folder with four files of 2x3 images: 5 for training, 2 for testing.
struct IdxDir : TempDir {
  IdxDir() {
    write("train-images-idx3-ubyte", images(5));
    write("train-labels-idx1-ubyte", idx({5}, {0, 1, 2, 9, 4}));
    write("t10k-images-idx3-ubyte.gz", gzip(images(2)));
    write("t10k-labels-idx1-ubyte.gz", gzip(idx({2}, {7, 8})));
  }
  static Bytes images(std::uint32_t count) { return idx({count, 2, 3}, noise(count * 6)); }
  DataSets read(const DataRequirements& requirements = kIdxRequirements) const {
    return open("idx", {{"root", path()}}, requirements);
  }
  /// Replaces a file with `bytes` and returns the error of reading the data set.
  std::string with(const std::string& name, const Bytes& bytes) const {
    write(name, bytes);
    return error_of([&] { read(); }, *this);
  }
};

TEST_CASE("IDX files are read, plain and compressed") {
  const IdxDir dir;
  const DataSets sets = dir.read();
  REQUIRE(sets.train->size() == 5);
  REQUIRE(sets.test->size() == 2);
  CHECK(sets.train->shape() == SampleShape{2, 3, 1});
  CHECK(sets.train->type() == DType::u8);
  CHECK(sets.train->classes().size() == 10);
  CHECK(sets.train->classes()[3] == "3");
  const Bytes all = noise(30);
  const auto [pixels, label] = sample(*sets.train, 3);
  CHECK(pixels == Bytes(all.begin() + 18, all.begin() + 24));
  CHECK(label == 9);
  CHECK(sample(*sets.test, 1).second == 8);
  CHECK(sets.train->describe(3) == dir / "train-images-idx3-ubyte, sample 3");
  const auto resident = sets.test->resident();
  REQUIRE(resident);
  CHECK(resident->pixels.size() == 12);
  CHECK(resident->labels[0] == 7);
}

TEST_CASE("IDX: four dimensions are height, width, channels") {
  const IdxDir dir;
  dir.write("train-images-idx3-ubyte", idx({5, 1, 2, 3}, noise(30)));
  dir.write("t10k-images-idx3-ubyte.gz", gzip(idx({2, 1, 2, 3}, noise(12))));
  CHECK(dir.read({{1, 2, 3}, 10}).train->shape() == SampleShape{1, 2, 3});
}

TEST_CASE("IDX: classes follow the model, or the labels where nobody asks") {
  const IdxDir dir;
  CHECK(dir.read({{2, 3, 1}, 12}).train->classes().size() == 12);
  CHECK(dir.read({{2, 3, 1}, 0}).train->classes().size() == 10);
  CHECK(dir.read({{2, 3, 1}, 0}).test->classes().size() == 9);
}

TEST_CASE("IDX: the test pair may be missing as a whole") {
  const IdxDir dir;
  std::filesystem::remove(dir / "t10k-images-idx3-ubyte.gz");
  CHECK(error_of([&] { dir.read(); }, dir) ==
        "idx: $ has no file t10k-images-idx3-ubyte; expected t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, plain or with .gz");
  std::filesystem::remove(dir / "t10k-labels-idx1-ubyte.gz");
  CHECK(dir.read().test == nullptr);
}

TEST_CASE("IDX: parts may name their own files, validation samples too") {
  const IdxDir dir;
  dir.write("v-images", IdxDir::images(3));
  dir.write("v-labels", idx({3}, {1, 2, 3}));
  const Fields val = {{"val.images", dir / "v-images"}, {"val.labels", dir / "v-labels"}};
  Fields fields = val;
  fields.emplace_back("root", dir.path());
  const DataSets sets = open("idx", fields, kIdxRequirements);
  CHECK(sets.train->size() == 5);
  CHECK(sets.test->size() == 2);
  REQUIRE(sets.val);
  CHECK(sets.val->size() == 3);
  CHECK(sample(*sets.val, 2).second == 3);
  // Without a root, only the named parts exist.
  const DataSets named = open("idx",
                              {{"train.images", dir / "train-images-idx3-ubyte"},
                               {"train.labels", dir / "train-labels-idx1-ubyte"},
                               {"test.images", dir / "v-images"},
                               {"test.labels", dir / "v-labels"}},
                              kIdxRequirements);
  CHECK(named.train->size() == 5);
  CHECK(named.test->size() == 3);
  CHECK(!named.val);
  CHECK(named.train->fingerprint() == sets.train->fingerprint());
}

TEST_CASE("IDX: a plain file is preferred to its compressed copy; two different ones are refused") {
  const IdxDir dir;
  dir.write("train-images-idx3-ubyte.gz", gzip(IdxDir::images(4)));
  CHECK(dir.read().train->size() == 5);
  dir.write("train-images.idx3-ubyte", IdxDir::images(4));
  CHECK(error_of([&] { dir.read(); }, dir) ==
        "$: several files could be train-images: train-images-idx3-ubyte, "
        "train-images-idx3-ubyte.gz, train-images.idx3-ubyte; keep only one of them");
}

TEST_CASE("IDX: gzip in several members is one stream") {
  const IdxDir dir;
  const Bytes all = IdxDir::images(5);
  const Bytes first(all.begin(), all.begin() + 20), second(all.begin() + 20, all.end());
  std::filesystem::remove(dir / "train-images-idx3-ubyte");
  dir.write("train-images-idx3-ubyte.gz", concat(gzip(first), gzip(second)));
  CHECK(sample(*dir.read().train, 4).first == sample(*IdxDir().read().train, 4).first);
}

TEST_CASE("IDX: the fingerprint follows pixels and labels, not names") {
  const IdxDir a, b;
  CHECK(a.read().train->fingerprint() == b.read().train->fingerprint());
  b.write("train-labels-idx1-ubyte", idx({5}, {0, 1, 2, 9, 5}));
  CHECK(a.read().train->fingerprint() != b.read().train->fingerprint());
  CHECK(a.read().test->fingerprint() == b.read().test->fingerprint());
  CHECK(a.read().test->fingerprint().starts_with("xxh3:"));
}

TEST_CASE("bad IDX files are refused by name and offset") {
  const IdxDir dir;
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const Bytes good = IdxDir::images(5);
  SUBCASE("magic") {
    Bytes bad = good;
    bad[2] = 0x0d;
    CHECK(dir.with(images, bad) ==
          "$/train-images-idx3-ubyte: not an IDX file of images: at offset 0, expected the magic "
          "number 00000803 or 00000804, found 00000d03");
  }
  SUBCASE("labels for images") {
    CHECK(dir.with(images, idx({5}, {0, 1, 2, 3, 4})) ==
          "$/train-images-idx3-ubyte: not an IDX file of images: at offset 0, expected the magic "
          "number 00000803 or 00000804, found 00000801");
    CHECK(IdxDir()
              .with(labels, good)
              .find("not an IDX file of labels: at offset 0, expected the "
                    "magic number 00000801, found 00000803") != std::string::npos);
  }
  SUBCASE("gzip without its ending") {
    CHECK(dir.with(labels, gzip(idx({5}, {0, 1, 2, 3, 4}))) ==
          "$/train-labels-idx1-ubyte: not an IDX file of labels: at offset 0, expected the magic "
          "number 00000801, found 1f8b0800 (this is gzip: rename it so that it ends in .gz)");
  }
  SUBCASE("empty") {
    CHECK(dir.with(images, {}) ==
          "$/train-images-idx3-ubyte: expected 4 bytes for the IDX magic number from offset 0, but "
          "the "
          "data ends at offset 0");
  }
  SUBCASE("header cut off") {
    CHECK(dir.with(images, Bytes(good.begin(), good.begin() + 10)) ==
          "$/train-images-idx3-ubyte: expected 4 bytes for the IDX header from offset 8, but the "
          "data "
          "ends at offset 10");
  }
  SUBCASE("truncated") {
    CHECK(dir.with(images, Bytes(good.begin(), good.end() - 1)) ==
          "$/train-images-idx3-ubyte: expected 30 bytes for 5 images of 2x3 with 1 channel from "
          "offset "
          "16, but 29 bytes remain");
  }
  SUBCASE("trailing byte") {
    CHECK(dir.with(images, concat(good, {0})) ==
          "$/train-images-idx3-ubyte: expected 30 bytes for 5 images of 2x3 with 1 channel from "
          "offset "
          "16, but 31 bytes remain");
  }
  SUBCASE("counts differ") {
    CHECK(dir.with(labels, idx({4}, {0, 1, 2, 3})) ==
          "$/train-images-idx3-ubyte has 5 images, but $/train-labels-idx1-ubyte has 4 labels: "
          "they do not belong together");
  }
  SUBCASE("no samples") {
    CHECK(dir.with(images, idx({0, 2, 3}, {})) ==
          "$/train-images-idx3-ubyte: the header at offset 4 says 0 samples; expected 1 to "
          "2147483647");
  }
  SUBCASE("more samples than can be counted") {
    CHECK(dir.with(images, idx({0xffffffff, 2, 3}, {})) ==
          "$/train-images-idx3-ubyte: the header at offset 4 says 4294967295 samples; expected 1 "
          "to 2147483647");
  }
  SUBCASE("absurd sides") {
    CHECK(dir.with(images, idx({5, 70000, 3}, {})) ==
          "$/train-images-idx3-ubyte: the header at offset 8 says images of 70000x3 with 1 channel "
          "(height x width); expected 1 to 16384 pixels per side and 1 to 64 channels");
    CHECK(IdxDir().with(images, idx({5, 2, 0}, {})).find("images of 2x0") != std::string::npos);
  }
  SUBCASE("label out of range") {
    CHECK(dir.with(labels, idx({5}, {0, 1, 10, 3, 4})) ==
          "$/train-labels-idx1-ubyte, sample 2 at offset 10: label 10 is out of range: with 10 "
          "classes, labels go from 0 to 9");
  }
  SUBCASE("other shape than the model's") {
    CHECK(error_of(
              [&] {
                dir.read({{28, 28, 1}, 10});
              },
              dir) ==
          "$/train-images-idx3-ubyte: the images are 2x3 with 1 channel, but model.input is [1, "
          "28, 28] (channels, height, width): write model.input: [1, 2, 3]");
  }
  SUBCASE("a folder in place of a file") {
    std::filesystem::remove(dir / images);
    std::filesystem::create_directory(dir / images);
    CHECK(error_of([&] { dir.read(); }, dir) == "$/train-images-idx3-ubyte: not a regular file");
  }
}

TEST_CASE("IDX: magic numbers that are wrong in one byte, and which of them is gzip's") {
  const IdxDir dir;
  const std::string expected =
      "$/train-images-idx3-ubyte: not an IDX file of images: at offset 0, expected the magic "
      "number 00000803 or 00000804, found ";
  for (const auto& [magic, found] : {std::pair<Bytes, std::string>({1, 0, 8, 3}, "01000803"),
                                     {{0, 1, 8, 3}, "00010803"},
                                     {{0, 0, 9, 3}, "00000903"},
                                     {{0, 0, 8, 2}, "00000802"},
                                     {{0, 0, 8, 5}, "00000805"},
                                     {{0x1f, 0, 8, 3}, "1f000803"},
                                     {{0, 0x8b, 8, 3}, "008b0803"}}) {
    CHECK(dir.with("train-images-idx3-ubyte", concat(magic, Bytes(12))) == expected + found);
  }
}

TEST_CASE("IDX: the fewest and the most samples") {
  const IdxDir dir;
  const std::string images = "train-images-idx3-ubyte";
  // The first two sizes are valid: they only differ from the number of labels.
  CHECK(dir.with(images, idx({1, 2, 3}, noise(6))) ==
        "$/train-images-idx3-ubyte has 1 image, but $/train-labels-idx1-ubyte has 5 labels: they "
        "do not belong together");
  CHECK(dir.with(images, idx({2147483647, 2, 3}, {})) ==
        "$/train-images-idx3-ubyte has 2147483647 images, but $/train-labels-idx1-ubyte has 5 "
        "labels: they do not belong together");
  CHECK(dir.with(images, idx({2147483648, 2, 3}, {})) ==
        "$/train-images-idx3-ubyte: the header at offset 4 says 2147483648 samples; expected 1 to "
        "2147483647");
}

TEST_CASE("IDX: the largest sides and the most channels") {
  const IdxDir dir;
  std::filesystem::remove(dir / "t10k-images-idx3-ubyte.gz");
  std::filesystem::remove(dir / "t10k-labels-idx1-ubyte.gz");
  const auto read = [&](std::uint32_t h, std::uint32_t w, std::uint32_t c) {
    dir.write("train-images-idx3-ubyte", idx({5, h, w, c}, Bytes(std::size_t{5} * h * w * c)));
    return dir.read({{h, w, c}, 10}).train->shape() == SampleShape{h, w, c};
  };
  CHECK(read(16384, 1, 1));
  CHECK(read(1, 16384, 1));
  CHECK(read(1, 1, 64));
  const auto refused = [&](const std::vector<std::uint32_t>& dims) {
    return dir.with("train-images-idx3-ubyte", idx(dims, {})).find("expected 1 to 16384 pixels") !=
           std::string::npos;
  };
  CHECK(refused({5, 16385, 1, 1}));
  CHECK(refused({5, 1, 16385, 1}));
  CHECK(refused({5, 1, 1, 65}));
  CHECK(refused({5, 1, 1, 0}));
  CHECK(refused({5, 0, 1, 1}));
}

TEST_CASE("IDX: which file is meant, and which one is not there") {
  const IdxDir dir;
  std::filesystem::remove(dir / "train-labels-idx1-ubyte");
  CHECK(error_of([&] { dir.read(); }, dir)
            .starts_with("idx: $ has no file train-labels-idx1-ubyte; expected"));
  dir.write("train-labels-b", idx({5}, {0, 1, 2, 3, 4}));
  CHECK(dir.read().train->size() == 5);
  dir.write("train-labels-a", idx({5}, {0, 1, 2, 3, 4}));
  CHECK(error_of([&] { dir.read(); }, dir) ==
        "$: several files could be train-labels: train-labels-a, train-labels-b; keep only one "
        "of them");
}

TEST_CASE("how much a compressed file may hold, to the byte") {
  const auto holds = [](std::size_t stored, std::uint64_t bytes) -> std::string {
    const Bytes file(stored);
    try {
      ByteStream(std::as_bytes(std::span(file)), "x").expect(bytes, "it");
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.find("bomb") != std::string::npos ? "bomb" : text;
    }
    return "yes";
  };
  CHECK(holds(1000, 1032 * 1001 - 1) == "yes");
  CHECK(holds(1000, 1032 * 1001) ==
        "x: expected 1033032 bytes for it, more than a gzip file of 1000 bytes can hold");
  // The limit is 64 MiB, or 200 times the file's size if that is more.
  constexpr std::uint64_t kSmall = 64 << 20;
  CHECK(holds(100'000, kSmall) == "yes");
  CHECK(holds(100'000, kSmall + 1) == "bomb");
  CHECK(holds(400'000, 200 * 400'001 - 1) == "yes");
  CHECK(holds(400'000, 200 * 400'001) == "bomb");
}

TEST_CASE("a plain file: its rest, to the byte") {
  const TempDir dir;
  dir.write("one", {7, 8, 9});
  ByteStream file(dir / "one");
  file.expect(3, "it");
  std::array<std::byte, 2> two;
  file.read(two, "two bytes");
  CHECK(file.position() == 2);
  CHECK(error_of([&] { file.expect(2, "it"); }, dir) ==
        "$/one: expected 2 bytes for it from offset 2, but 1 byte remains");
  CHECK(error_of([&] { file.expect(0, "it"); }, dir) ==
        "$/one: expected 0 bytes for it from offset 2, but 1 byte remains");
  CHECK(error_of([&] { file.expect_end(); }, dir) ==
        "$/one: the data should end at offset 2, but more follows");
  ByteStream other(dir / "one");
  other.read(two, "two bytes");
  CHECK(error_of([&] { other.read(two, "two more"); }, dir) ==
        "$/one: expected 2 bytes for two more from offset 2, but the data ends at offset 3");
}

TEST_CASE("IDX: compressed files of many pieces") {
  // Noise is incompressible: the file exceeds one read buffer.
  const TempDir dir;
  const Bytes pixels = noise(50 * 64 * 64);
  dir.write("train-images.gz", gzip(idx({50, 64, 64}, pixels)));
  dir.write("train-labels.gz", gzip(idx({50}, noise(50))));
  REQUIRE(std::filesystem::file_size(dir / "train-images.gz") > 3 * 65536);
  const DataSets sets = open("idx", {{"root", dir.path()}}, {{64, 64, 1}, 256});
  CHECK(sample(*sets.train, 49).first == Bytes(pixels.end() - 64 * 64, pixels.end()));
  // Two members, the second of which begins in the middle of a read buffer.
  const Bytes all = idx({50, 64, 64}, pixels);
  const Bytes first(all.begin(), all.begin() + 100'000), second(all.begin() + 100'000, all.end());
  dir.write("train-images.gz", concat(gzip(first), gzip(second)));
  CHECK(open("idx", {{"root", dir.path()}}, {{64, 64, 1}, 256}).train->fingerprint() ==
        sets.train->fingerprint());
}

TEST_CASE("the fingerprint follows the shape too, and texts end where they end") {
  const IdxDir a;
  const std::string before = a.read().train->fingerprint();
  a.write("train-images-idx3-ubyte", idx({5, 3, 2}, noise(30)));
  a.write("t10k-images-idx3-ubyte.gz", gzip(idx({2, 3, 2}, noise(12))));
  CHECK(a.read({{3, 2, 1}, 10}).train->fingerprint() != before);
  const auto print = [](const std::vector<std::string>& texts) {
    Fingerprint hash;
    for (const std::string& text : texts) hash.add(text);
    return hash.text();
  };
  CHECK(print({"ab", "c"}) == print({"ab", "c"}));
  CHECK(print({"ab", "c"}) != print({"a", "bc"}));
  CHECK(print({}) != print({""}));
}

TEST_CASE("bad gzip is refused") {
  const IdxDir dir;
  std::filesystem::remove(dir / "train-images-idx3-ubyte");
  const std::string name = "train-images-idx3-ubyte.gz";
  const Bytes good = gzip(IdxDir::images(5));
  dir.write(name, good);
  REQUIRE(dir.read().train->size() == 5);
  SUBCASE("not gzip") {
    CHECK(dir.with(name, IdxDir::images(5)) ==
          "$/train-images-idx3-ubyte.gz: corrupt gzip near byte 2 of the file: incorrect header "
          "check");
  }
  SUBCASE("empty file") {
    CHECK(dir.with(name, {}) ==
          "$/train-images-idx3-ubyte.gz: truncated gzip: the file ends at byte 0 in the middle of "
          "its data");
  }
  SUBCASE("truncated, in the data or in the checksum") {
    for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, good.size() / 2}) {
      CHECK(dir.with(name, Bytes(good.begin(), good.end() - static_cast<long>(cut))) ==
            fmt::format("$/train-images-idx3-ubyte.gz: truncated gzip: the file ends at byte {} in "
                        "the middle of its data",
                        good.size() - cut));
    }
  }
  SUBCASE("checksum") {
    Bytes bad = good;
    bad[bad.size() - 6] ^= 1;
    CHECK(dir.with(name, bad).find("incorrect data check") != std::string::npos);
  }
  SUBCASE("bytes after it") {
    CHECK(dir.with(name, concat(good, {1, 2, 3})) ==
          fmt::format("$/train-images-idx3-ubyte.gz: other bytes follow the gzip data, from byte "
                      "{} of the file",
                      good.size()));
  }
  SUBCASE("less inside than the header says") {
    CHECK(dir.with(name, gzip(idx({5, 2, 3}, noise(29)))) ==
          "$/train-images-idx3-ubyte.gz: expected 30 bytes for the pixels from offset 16, but the "
          "data "
          "ends at offset 45");
  }
  SUBCASE("more inside than the header says: it is not inflated") {
    CHECK(dir.with(name, gzip(idx({5, 2, 3}, Bytes(50'000'000)))) ==
          "$/train-images-idx3-ubyte.gz: the data should end at offset 46, but more follows");
  }
  SUBCASE("a header that no file of this size can fill") {
    const Bytes bad = gzip(idx({5, 16384, 16384}, {}));
    CHECK(dir.with(name, bad) ==
          fmt::format("$/train-images-idx3-ubyte.gz: expected 1342177280 bytes for 5 images of "
                      "16384x16384 with 1 channel, more than a gzip file of {} bytes can hold",
                      bad.size()));
  }
  SUBCASE("a bomb whose header agrees with it") {
    const Bytes bad = gzip(idx({5, 4096, 4096}, Bytes(5 * 4096 * 4096)));
    CHECK(dir.with(name, bad) ==
          fmt::format(
              "$/train-images-idx3-ubyte.gz: expected 83886080 bytes for 5 images of "
              "4096x4096 with 1 channel in a gzip file of {} bytes: refused as a decompression "
              "bomb (if it is not one, decompress it by hand)",
              bad.size()));
  }
}

TEST_CASE("a missing folder or file says what to fetch") {
  const TempDir dir;
  const auto read = [&](const std::string& name, const std::string& root) {
    return error_of([&] { open(name, {{"root", root}}, {{28, 28, 1}, 10}); }, dir);
  };
  CHECK(read("fashion_mnist", dir / "none") ==
        "fashion_mnist: $/none: no such folder; expected a folder with train-images-idx3-ubyte, "
        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or with "
        ".gz (`scripts/fetch-data fashion_mnist` fetches them). If it is elsewhere, give "
        "data.root=FOLDER");
  CHECK(read("mnist", dir.path()) ==
        "mnist: $ has no file train-images-idx3-ubyte; expected train-images-idx3-ubyte and "
        "train-labels-idx1-ubyte, plain or with .gz (`scripts/fetch-data mnist` fetches them)");
  dir.write("file", {});
  CHECK(
      read("idx", dir / "file").starts_with("idx: $/file: not a folder; expected a folder with "));
}

TEST_CASE("named sets know their sizes and classes") {
  const TempDir dir;
  dir.write("train-images-idx3-ubyte", idx({5, 28, 28}, noise(5 * 784)));
  dir.write("train-labels-idx1-ubyte", idx({5}, {0, 1, 2, 3, 4}));
  CHECK(error_of(
            [&] {
              open("mnist", {{"root", dir.path()}}, {{28, 28, 1}, 10});
            },
            dir) ==
        "$/train-images-idx3-ubyte: expected the 60000 images of the published data set, found 5 "
        "(for other files of this format, write dataset: idx)");
  CHECK(error_of(
            [&] {
              open("mnist", {{"root", dir.path()}}, {{28, 28, 1}, 12});
            },
            dir) ==
        "mnist ($): the data set has 10 classes, but the model's last layer has 12 outputs: give "
        "it 10");
}

TEST_CASE("digits are inside the program") {
  const DataSets sets = open("digits", {}, {{8, 8, 1}, 10});
  REQUIRE(sets.train->size() == 1437);
  REQUIRE(sets.test->size() == 360);
  const auto all = sets.train->resident()->pixels;
  double sum = 0;
  for (const std::byte b : all) sum += std::to_integer<int>(b);
  CHECK(sum / 255 / static_cast<double>(all.size()) == doctest::Approx(0.30543).epsilon(1e-4));
  CHECK(sets.train->describe(7) == "digits (built in): train-images, sample 7");
  CHECK(error_of([] {
          open("digits", {}, {{28, 28, 1}, 10});
        }) ==
        "digits (built in): train-images: the images are 8x8 with 1 channel, but model.input is "
        "[1, 28, 28] (channels, height, width): write model.input: [1, 8, 8]");
  CHECK(error_of([] {
          open("digits", {}, {{8, 8, 1}, 9});
        }) ==
        "digits: the data set has 10 classes, but the model's last layer has 9 outputs: give it "
        "10");
  // The folder in the repository holds the same samples.
  const DataSets files =
      open("digits", {{"root", testing::source_dir() + "/datasets/digits"}}, {{8, 8, 1}, 10});
  CHECK(files.train->fingerprint() == sets.train->fingerprint());
  CHECK(files.test->fingerprint() == sets.test->fingerprint());
}

TEST_CASE("a named set has a test set") {
  const TempDir dir;
  const std::filesystem::path from = testing::source_dir() + "/datasets/digits";
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("train-")) std::filesystem::copy_file(entry.path(), dir / name);
  }
  CHECK(error_of(
            [&] {
              open("digits", {{"root", dir.path()}}, {{8, 8, 1}, 10});
            },
            dir) ==
        "digits: $ has no file t10k-images-idx3-ubyte; expected t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, plain or with .gz");
}

TEST_CASE("Fashion-MNIST, the real files") {
  const std::string root = real_data("fashion-mnist");
  if (root.empty()) return;
  const DataSets sets = open("fashion_mnist", {{"root", root}}, {{28, 28, 1}, 10});
  REQUIRE(sets.train->size() == 60000);
  REQUIRE(sets.test->size() == 10000);
  CHECK(sets.train->classes()[9] == "Ankle boot");
  const ResidentSamples all = *sets.train->resident();
  double sum = 0;
  for (const std::byte b : all.pixels) sum += std::to_integer<int>(b);
  CHECK(sum / 255 / static_cast<double>(all.pixels.size()) ==
        doctest::Approx(0.28604).epsilon(1e-4));
  std::vector<int> counts(10);
  for (const std::int32_t label : all.labels) ++counts[label];
  CHECK(counts == std::vector<int>(10, 6000));
}

}  // namespace
}  // namespace dpt
