// Tar shards: their names, members and labels, and every way in which one can be invalid.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/npy.h"
#include "tests/support/skip.h"
#include "tests/support/tar.h"
#include "tests/support/text.h"

namespace dpt::data_test {
namespace {

using testing::check_contains;
using testing::kTarEnd;
using testing::pax_header;
using testing::tar;
using testing::tar_member;
using testing::write_bytes;

const DataRequirements kShardRequirements{{4, 4, 1}, 3};

/// Returns a PNG file with a single grey value.
std::string grey_file(std::uint8_t value) {
  const Bytes bytes = png(8, 8, 1, Bytes(64, value));
  return {bytes.begin(), bytes.end()};
}

/// Returns the members of a sample.
std::string pair_of(const std::string& key, int value) {
  return tar_member(key + ".cls", fmt::format("{}\n", value % 3)) +
         tar_member(key + ".png", grey_file(static_cast<std::uint8_t>(value)));
}

DataSets open_shards(const TempDir& dir, const std::string& shards, const Fields& more = {},
                     const DataRequirements& requirements = kShardRequirements) {
  Fields fields = {{"train.shards", dir / shards}};
  fields.insert(fields.end(), more.begin(), more.end());
  return open("webdataset", fields, requirements);
}

/// Returns the message for a shard with these bytes.
std::string shard_error(const TempDir& dir, const std::string& bytes) {
  write_bytes(dir / "s.tar", bytes);
  return error_of([&] { open_shards(dir, "s.tar"); }, dir);
}

}  // namespace

TEST_CASE("webdataset: samples of several shards, in any order of members") {
  const TempDir dir;
  write_bytes(dir / "s-00.tar", pair_of("a/000", 0) + pair_of("a/001", 1) + kTarEnd);
  write_bytes(dir / "s-01.tar", tar({{"./x.PNG", grey_file(2)},
                                     {"./x.json", "{\"caption\": \"a cat\", \"label\": 2}"},
                                     {"./x.txt", "a cat"},
                                     {"./._x.png", "of another system"},
                                     {"y.json", "no label here"},
                                     {"y.png", grey_file(4)},
                                     {"y.seg.png", "a mask"},
                                     {"y.cls", " 1 "},
                                     {"z.jpg", grey_file(5)},
                                     {"z.json", "{\"cls\": 0}"}}));
  for (const std::int64_t cache : {0, 1}) {
    const DataSets sets = open_shards(dir, "s-{00..01}.tar", {{"cache_mib", cache}});
    CHECK(!sets.test);
    CHECK(sets.train->resizes());
    CHECK(sets.train->classes() == std::vector<std::string>{"0", "1", "2"});
    REQUIRE(sets.train->size() == 5);
    const std::vector<std::pair<int, int>> expected = {{0, 0}, {1, 1}, {2, 2}, {4, 1}, {5, 0}};
    // The order of reading differs from that of the files.
    for (const int i : {4, 0, 3, 1, 2, 0, 4}) {
      const auto& [grey, label] = expected[i];
      CHECK(sample(*sets.train, i) == std::pair(Bytes(16, static_cast<std::uint8_t>(grey)), label));
    }
    CHECK(sets.train->describe(1) == dir / "s-00.tar" + ", a/001.png");
    CHECK(sets.train->describe(2) == dir / "s-01.tar" + ", ./x.PNG");
    CHECK(sets.train->samples_to_try().size() == 5);
  }
  const DataSets named = open_shards(
      dir, "s-00.tar",
      {{"test.shards", dir / "s-01.tar"}, {"classes", std::vector<std::string>{"a", "b", "c"}}});
  CHECK(named.train->size() == 2);
  CHECK(named.test->size() == 3);
  CHECK(named.test->classes()[2] == "c");
  CHECK(!named.val);
  const DataSets validated = open_shards(dir, "s-01.tar", {{"val.shards", dir / "s-00.tar"}});
  CHECK(validated.val->size() == 2);
  CHECK(!validated.test);
  // Without a model, the number of classes comes from the training data. The test set adds no
  // class.
  CHECK(open_shards(dir, "s-00.tar", {}, {{4, 4, 1}, 0}).train->classes().size() == 2);
  CHECK(error_of(
            [&] {
              open_shards(dir, "s-00.tar", {{"test.shards", dir / "s-01.tar"}}, {{4, 4, 1}, 0});
            },
            dir) ==
        "$/s-01.tar, ./x.json: label 2 is out of range: with 2 classes, labels go from 0 to 1");
}

TEST_CASE("webdataset: shards by braces, in their order") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "d");
  for (int i = 8; i < 12; ++i) {
    write_bytes(dir / fmt::format("d/s-{:03}.tar", i), pair_of("k", i) + kTarEnd);
  }
  const auto greys = [&](const std::string& shards) {
    const DataSets sets = open_shards(dir, shards);
    std::vector<int> all;
    for (std::int64_t i = 0; i < sets.train->size(); ++i) {
      all.push_back(sample(*sets.train, i).first[0]);
    }
    return all;
  };
  CHECK(greys("d/s-{008..011}.tar") == std::vector<int>{8, 9, 10, 11});
  CHECK(greys("d/s-{009,011}.tar") == std::vector<int>{9, 11});
}

TEST_CASE("webdataset: wildcards, and patterns that are refused") {
  const TempDir dir;
  for (int i = 8; i < 12; ++i) {
    write_bytes(dir / fmt::format("s-{:03}.tar", i), pair_of("k", i) + kTarEnd);
  }
  CHECK(open_shards(dir, "s-*.tar").train->size() == 4);
  CHECK(open_shards(dir, "s-0?[89].tar").train->size() == 2);
  CHECK(open_shards(dir, "s-{00,01}*.tar").train->size() == 4);
  const auto problem = [&](const std::string& shards, ErrorKind kind = ErrorKind::usage) {
    return error_of([&] { open_shards(dir, shards); }, dir, kind);
  };
  for (const char* braces : {"{}", "{1}", "{2..1}", "{a..b}", "{1..}", "{0..99999999}"}) {
    CHECK(problem(fmt::format("s-{}.tar", braces)) ==
          fmt::format("data.train.shards: expected braces as in shard-{{000..099}}.tar or "
                      "{{a,b}}.tar, in ascending order and with at most 100000 shards, found '{}'",
                      braces));
  }
  check_contains(problem("s-{0.tar"), "found '{0.tar'");
  check_contains(problem("{0..999}{0..999}.tar"), "expected at most 100000 shards, found more");
  CHECK(problem("s-00{8,8}.tar") ==
        "data.train.shards: expected each shard once, found $/s-008.tar twice");
  CHECK(problem("t-*.tar", ErrorKind::data) == "data.train.shards: $/t-*.tar: no such file");
  CHECK(problem("s-{008..012}.tar", ErrorKind::data) ==
        "$/s-012.tar: cannot be opened: No such file or directory");
}

TEST_CASE(
    "webdataset: long names of ustar, pax and GNU tar, sizes of pax, members of other kinds") {
  const TempDir dir;
  const std::string folder(120, 'f'), long_name(150, 'n');
  const std::string picture = grey_file(7);
  std::string sized = tar_member("e.png", picture);
  write_bytes(
      dir / "s.tar",
      tar_member("folder/", "", '5') + pax_header({{"comment", "of one member"}}) +
          tar_member("a.cls", "1", '0', folder) + tar_member("a.png", picture, '0', folder) +
          pax_header({{"mtime", "1.5"}, {"path", long_name + ".cls"}}) + tar_member("cut", "2") +
          pax_header({{"path", long_name + ".png"}}) + tar_member("cut", picture) +
          tar_member("././@LongLink", long_name + "g.cls" + '\0', 'L') + tar_member("cut", "0") +
          tar_member("././@LongLink", long_name + "g.png" + '\0', 'L') +
          tar_member("cut", picture) + tar_member("e.cls", "1") +
          pax_header({{"size", fmt::format("{}", picture.size())}}) + sized + kTarEnd);
  const DataSets sets = open_shards(dir, "s.tar");
  REQUIRE(sets.train->size() == 4);
  CHECK(sets.train->describe(0) == dir / "s.tar" + ", " + folder + "/a.png");
  CHECK(sets.train->describe(1) == dir / "s.tar" + ", " + long_name + ".png");
  CHECK(sets.train->describe(2) == dir / "s.tar" + ", " + long_name + "g.png");
  for (int i = 0; i < 4; ++i) CHECK(sample(*sets.train, i).first == Bytes(16, 7));
  CHECK(sets.train->label(1) == 2);
}

TEST_CASE("webdataset: members after more than 8 GiB are read, however their size is written") {
  const std::uint64_t size = (std::uint64_t{9} << 30) + 17;
  // One member gives its size in binary, as GNU tar does, and another in an extended header.
  std::string binary = tar_member("a.bin", "").substr(0, 512);
  for (std::size_t i = 0; i < 12; ++i) {
    binary[124 + i] = static_cast<char>(i < 4 ? 0 : size >> (8 * (11 - i)));
  }
  binary[124] = '\x80';
  binary.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : binary) sum += static_cast<unsigned char>(c);
  binary.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  const std::string extended =
      pax_header({{"size", fmt::format("{}", size)}}) + tar_member("a.bin", "").substr(0, 512);
  for (const std::string& header : {binary, extended}) {
    const TempDir dir;
    const std::string start = pair_of("a", 0) + header;
    const std::uint64_t behind = start.size() + (size + 511) / 512 * 512;
    write_bytes(dir / "s.tar", start);
    std::error_code error;
    std::filesystem::resize_file(dir / "s.tar", behind, error);  // a hole
    if (error) return testing::skip_test("needs a file system with sparse files");
    std::ofstream(dir / "s.tar", std::ios::app | std::ios::binary) << pair_of("b", 1) << kTarEnd;
    const DataSets sets = open_shards(dir, "s.tar");
    REQUIRE(sets.train->size() == 2);
    CHECK(sets.train->label(1) == 1);
    std::vector<std::byte> pixels(16);
    std::int32_t label = -1;
    sets.train->read(1, pixels, label);
    CHECK(label == 1);
    CHECK(pixels[0] == std::byte{1});
  }
}

TEST_CASE("webdataset: many threads read the same shards") {
  const TempDir dir;
  std::string shard;
  for (int i = 0; i < 12; ++i) shard += pair_of(fmt::format("{:04}", i), i);
  write_bytes(dir / "s.tar", shard + kTarEnd);
  const DataSets sets = open_shards(dir, "s.tar", {{"cache_mib", std::int64_t{0}}});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        Bytes pixels(16);
        std::int32_t label = -1;
        sets.train->read(i % 12, std::as_writable_bytes(std::span(pixels)), label);
        wrong[t] += pixels != Bytes(16, static_cast<std::uint8_t>(i % 12)) || label != i % 12 % 3;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("webdataset: the fingerprint follows names, sizes, labels and shape, not the shards") {
  const TempDir dir;
  const auto hash = [&](const std::string& shards, SampleShape shape = {4, 4, 1}) {
    return open_shards(dir, shards, {}, {shape, 3}).train->fingerprint();
  };
  write_bytes(dir / "s.tar", pair_of("a", 0) + pair_of("b", 1) + kTarEnd);
  const std::string before = hash("s.tar");
  CHECK(hash("s.tar", {5, 4, 1}) != before);
  write_bytes(dir / "t-0.tar", pair_of("a", 0) + kTarEnd);
  write_bytes(dir / "t-1.tar", pair_of("b", 1) + kTarEnd);
  CHECK(hash("t-{0..1}.tar") == before);
  write_bytes(dir / "s.tar", pair_of("a", 0) + pair_of("c", 1) + kTarEnd);
  CHECK(hash("s.tar") != before);
  write_bytes(dir / "s.tar", pair_of("a", 0) + pair_of("b", 2) + kTarEnd);
  CHECK(hash("s.tar") != before);
}

TEST_CASE(
    "webdataset: shards that are damaged, truncated, compressed, joined, or of something else") {
  const TempDir dir;
  CHECK(shard_error(dir, "") == "$/s.tar: expected a tar archive, found an empty file");
  CHECK(shard_error(dir, "\x1f\x8b\x08") ==
        "$/s.tar: expected an uncompressed tar archive, whose samples can be read in any order, "
        "found a compressed one: decompress it with gzip -d (compression hardly makes images "
        "smaller)");
  check_contains(shard_error(dir, "\x28\xb5\x2f\xfd"),
                 "found a compressed one: decompress it with zstd -d");
  CHECK(shard_error(dir, std::string(600, 'x')) ==
        "$/s.tar, offset 0: expected the header of a member, found other bytes (its checksum is "
        "wrong): not a tar archive, or a damaged one");
  const std::string good = pair_of("a", 1);
  const std::size_t bytes = grey_file(1).size();
  CHECK(shard_error(dir, good.substr(0, 1600)) ==
        fmt::format("$/s.tar, offset 1600: the archive is truncated: expected {} bytes of a.png "
                    "from 1536 on, found 64",
                    bytes));
  for (const auto& [end, at] : {std::pair(300, 0), {1024, 1024}, {1200, 1024}, {2048, 2048}}) {
    CHECK(
        shard_error(dir, good.substr(0, static_cast<std::size_t>(end))) ==
        fmt::format("$/s.tar, offset {}: the archive is truncated: expected a header, or zeros as "
                    "its end, at {}, found the end of the file",
                    end, at));
  }
  std::string bad = good + kTarEnd;
  bad[1024 + 3] = 'X';
  check_contains(shard_error(dir, bad),
                 "$/s.tar, offset 1024: expected the header of a member, found");
  CHECK(shard_error(dir, good + kTarEnd + good + kTarEnd) ==
        "$/s.tar, offset 3072: found bytes after the end of the archive, which is at 2048: "
        "archives that "
        "were joined (cat) are not read as one; create one with tar");
  CHECK(shard_error(dir, tar_member("a.cls", "1") + tar_member("a.png", "", '2') + kTarEnd) ==
        "$/s.tar, offset 1024: a.png is a link, which is not supported: store the file itself (tar "
        "--dereference --hard-dereference)");
  check_contains(shard_error(dir, tar_member("a.png", "", 'S') + kTarEnd),
                 "stored as a sparse file");
  check_contains(shard_error(dir, tar_member("x", "99 path=a\n", 'x') + kTarEnd),
                 "offset 0: found an extended header that is damaged");
  CHECK(shard_error(dir, kTarEnd) == "$/s.tar: expected samples, found none in 1 shard");
  // Truncate the shard while it is in use.
  write_bytes(dir / "s.tar", good + kTarEnd);
  const DataSets sets = open_shards(dir, "s.tar");
  std::filesystem::resize_file(dir / "s.tar", 1550);
  CHECK(error_of([&] { sample(*sets.train, 0); }, dir) ==
        fmt::format("$/s.tar, a.png: only 14 of {} bytes could be read at offset 1536: the "
                    "shard was truncated after it had been opened",
                    bytes));
}

TEST_CASE("webdataset: images of other formats, which are descriptions next to a JPEG or PNG") {
  const TempDir dir;
  const auto pgm = [](char value) { return "P5 4 4 255\n" + std::string(16, value); };
  write_bytes(dir / "s.tar", tar({{"a.pgm", pgm(7)},
                                  {"a.cls", "1"},
                                  {"b.tif", "II*"},
                                  {"b.png", grey_file(4)},
                                  {"b.gif", "GIF"},
                                  {"b.cls", "2"},
                                  {"c.seg.gif", "GIF"},
                                  {"c.PGM", pgm(9)},
                                  {"c.cls", "0"}}));
  const DataSets sets = open_shards(dir, "s.tar");
  REQUIRE(sets.train->size() == 3);
  CHECK(sample(*sets.train, 0) == std::pair(Bytes(16, 7), 1));
  CHECK(sample(*sets.train, 1) == std::pair(Bytes(16, 4), 2));
  CHECK(sample(*sets.train, 2) == std::pair(Bytes(16, 9), 0));
}

TEST_CASE("webdataset: samples that are incomplete, duplicated, or without a good label") {
  const TempDir dir;
  const std::string picture = grey_file(1);
  CHECK(shard_error(dir, tar({{"a.png", picture}, {"b.cls", "1"}, {"b.png", picture}})) ==
        "$/s.tar, sample a: expected a label (.cls or .json), found .png (the members of a sample "
        "follow each other and have the same base name, which ends at the first dot)");
  check_contains(shard_error(dir, tar({{"a.cls", "1"}, {"a.txt", "GIF"}})),
                 "sample a: expected one image (.jpg, .jpeg, .jpe, .jfif, .png, .webp, .bmp, .gif, "
                 ".tif, .tiff, .pbm, .pgm, .ppm, .pnm), found .cls, .txt (the");
  // Next to a JPEG or PNG, images of other formats are ignored, as in earlier releases. Two images
  // of other formats without a JPEG or PNG are an error.
  check_contains(shard_error(dir, tar({{"a.cls", "1"}, {"a.gif", "GIF"}, {"a.bmp", "BM"}})),
                 "sample a: expected one image (");
  check_contains(shard_error(dir, tar({{"a.png", picture}, {"a", "1"}})),
                 "found .png, no extension (the");
  // The images precede all labels.
  check_contains(shard_error(dir, tar({{"a.png", picture}, {"b.png", picture}, {"a.cls", "1"}})),
                 "sample a: expected a label");
  CHECK(shard_error(dir, tar({{"a.cls", "1"}, {"a.png", picture}, {"a.jpg", picture}})) ==
        "$/s.tar, a.jpg: expected one image and one label for each sample, found a second image "
        "for a (the base name of a sample ends at the first dot)");
  // Files with a dot before the number in their names form one sample. The message lists only some
  // of them.
  std::vector<std::pair<std::string, std::string>> dotted;
  for (int i = 0; i < 20; ++i) dotted.emplace_back(fmt::format("img.{:02}.jpg", i), picture);
  const std::string many = shard_error(dir, tar(dotted));
  check_contains(many, "sample img: expected one image (");
  check_contains(many,
                 "found .00.jpg, .01.jpg, .02.jpg, .03.jpg, .04.jpg, .05.jpg, .06.jpg, "
                 ".07.jpg, .08.jpg, .09.jpg and 10 more (the members of a sample");
  CHECK(shard_error(dir, tar({{"a.png", picture}, {"a.cls", "s\xe9tosa"}})) ==
        "$/s.tar, a.cls: expected UTF-8, found the byte 0xE9");
  const auto of_cls = [&](const std::string& text) {
    return shard_error(dir, tar({{"a.png", picture}, {"a.cls", text}}));
  };
  CHECK(of_cls("cat") ==
        "$/s.tar (cat): expected samples of at least two classes, found one class");
  CHECK(of_cls("") == "$/s.tar, a.cls: expected the number of a class, found ''");
  CHECK(of_cls("1.0") == "$/s.tar, a.cls: expected the number of a class, found '1.0'");
  CHECK(of_cls("-1") == "$/s.tar, a.cls: label -1 is out of range: labels start at 0");
  CHECK(of_cls("3") ==
        "$/s.tar, a.cls: label 3 is out of range: with 3 classes, labels go from 0 to 2");
  const auto of_json = [&](const std::string& text) {
    return shard_error(dir, tar({{"a.png", picture}, {"a.json", text}}));
  };
  CHECK(of_json("{") == "$/s.tar, a.json: not valid JSON");
  CHECK(of_json("[1]") == "$/s.tar, a.json: expected an object with \"label\" or \"cls\"");
  CHECK(of_json("{\"label\": [1]}") ==
        "$/s.tar, a.json: expected an integer or the name of a class as \"label\", found [1]");
  CHECK(of_json("{\"label\": 18446744073709551615}") ==
        "$/s.tar, a.json: expected the number of a class, found '18446744073709551615'");
  check_contains(of_json("{\"cls\": -3}"), "label -3 is out of range");
  check_contains(error_of(
                     [&] {
                       open_shards(dir, "s.tar", {}, {{4, 4, 2}, 3});
                     },
                     dir),
                 "webdataset: $/s.tar: images are read as 1 channel (grey) or 3 (RGB), but "
                 "model.input has 2 channels");
}

}  // namespace dpt::data_test
