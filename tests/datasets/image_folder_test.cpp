// A folder per class: listing, labels, resizing, the cache, and folders that are refused.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "engine/data/data_sets.h"
#include "kernels/base/heartbeat.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/skip.h"

namespace dpt {
namespace {

using namespace data_test;
namespace fs = std::filesystem;

const DataRequirements kFolderRequirements{{4, 4, 3}, 2};

Bytes grey_png(std::uint8_t value, std::uint32_t size = 8) {
  return png(size, size, 1, Bytes(size * size, value));
}

/// A folder with two classes: cat with three images and dog with two, and a test set with one image
/// of each.
struct FolderDir : TempDir {
  FolderDir() {
    write("train/dog/b.png", grey_png(4));
    write("train/dog/a.JPG", jpeg(4, 4, 1, Bytes(16, 3)));
    write("train/cat/2.png", grey_png(1));
    write("train/cat/10.png", grey_png(0));
    write("train/cat/z.jpeg", jpeg(4, 4, 3, Bytes(48, 2)));
    write("train/cat/.hidden", {1});
    write("test/cat/1.png", grey_png(5));
    write("test/dog/1.png", grey_png(6));
  }
  DataSets read(const DataRequirements& requirements = kFolderRequirements,
                std::int64_t cache_mib = 1024) const {
    return open("image_folder", {{"root", path()}, {"cache_mib", cache_mib}}, requirements);
  }
  std::string error(const DataRequirements& requirements = kFolderRequirements) const {
    return error_of([&] { read(requirements); }, *this);
  }
  /// Returns the error message of reading a sample.
  std::string read_error(std::int64_t index) const {
    const DataSets sets = read();
    return error_of([&] { sample(*sets.train, index); }, *this);
  }
};

TEST_CASE("image_folder: files in byte order, labels by class") {
  const FolderDir dir;
  for (const std::int64_t cache : {0, 1024}) {
    const DataSets sets = dir.read(kFolderRequirements, cache);
    CHECK(sets.train->classes() == std::vector<std::string>{"cat", "dog"});
    CHECK(sets.train->shape() == SampleShape{4, 4, 3});
    REQUIRE(sets.train->size() == 5);
    REQUIRE(sets.test->size() == 2);
    CHECK(!sets.train->resident());
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t i = 0; i < 5; ++i) {
        const auto [pixels, label] = sample(*sets.train, i);
        CHECK(pixels == Bytes(48, static_cast<std::uint8_t>(i)));
        CHECK(label == (i < 3 ? 0 : 1));
      }
    }
    CHECK(sets.train->describe(0) == dir / "train/cat/10.png");
    CHECK(sets.train->describe(3) == dir / "train/dog/a.JPG");
  }
  CHECK(sample(*dir.read({{4, 4, 1}, 2}).test, 1).first == Bytes(16, 6));
}

TEST_CASE("image_folder: an image is decoded once if the cache can hold the data set") {
  const FolderDir dir;
  const DataSets kept = dir.read(), fresh = dir.read(kFolderRequirements, 0);
  const auto before = sample(*kept.train, 1);
  sample(*fresh.train, 1);
  fs::remove(dir / "train/cat/2.png");
  CHECK(sample(*kept.train, 1) == before);
  CHECK(error_of([&] { sample(*fresh.train, 1); }, dir) ==
        "$/train/cat/2.png: cannot be opened: No such file or directory");
}

TEST_CASE("image_folder: the reason why an image cannot be read") {
  const FolderDir dir;
  const DataSets sets = dir.read(kFolderRequirements, 0);
  const auto reason = [&](std::int64_t index) {
    return error_of([&] { sample(*sets.train, index); }, dir);
  };
  fs::remove(dir / "train/cat/10.png");
  fs::create_directory(dir / "train/cat/10.png");
  CHECK(reason(0) == "$/train/cat/10.png: not a file");
  // Root may read any file, so if the test runs as root, it switches to another user.
  const bool is_root = ::geteuid() == 0;
  fs::permissions(dir.path(), fs::perms(0755));
  fs::permissions(dir / "train/cat/2.png", fs::perms::none);
  constexpr uid_t kNobody = 65534;
  if (is_root && ::seteuid(kNobody) != 0) {
    testing::skip_test("cannot act as another user here");
    return;
  }
  const std::string found = reason(1);
  if (is_root) REQUIRE(::seteuid(0) == 0);
  CHECK(found == "$/train/cat/2.png: cannot be opened: Permission denied");
}

TEST_CASE("image_folder: many threads read the same images") {
  const FolderDir dir;
  const DataSets sets = dir.read();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        Bytes pixels(48);
        std::int32_t label = -1;
        sets.train->read(i % 5, std::as_writable_bytes(std::span(pixels)), label);
        wrong[t] += pixels != Bytes(48, static_cast<std::uint8_t>(i % 5));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("image_folder: the fingerprint follows names, sizes and shape") {
  const FolderDir a, b;
  const std::string before = a.read().train->fingerprint();
  CHECK(before == b.read().train->fingerprint());
  CHECK(before != a.read({{5, 4, 3}, 2}).train->fingerprint());
  b.write("train/cat/3.png", grey_png(1));
  CHECK(before != b.read().train->fingerprint());
  fs::rename(a / "train/cat/2.png", a / "train/cat/3.png");
  CHECK(before != a.read().train->fingerprint());
}

TEST_CASE("image_folder: the fingerprint follows sizes, and the cache its budget to the MiB") {
  const FolderDir dir;
  const std::string before = dir.read().train->fingerprint();
  dir.write("train/cat/2.png", grey_png(1, 40));
  CHECK(dir.read().train->fingerprint() != before);
  // Five images of 1 MiB each fit into a cache of 5 MiB, but not into one of 4 MiB.
  const DataRequirements large{{1024, 1024, 1}, 2};
  const DataSets kept = dir.read(large, 5), fresh = dir.read(large, 4);
  sample(*kept.train, 1);
  sample(*fresh.train, 1);
  fs::remove(dir / "train/cat/2.png");
  CHECK(sample(*kept.train, 1).first.front() == 1);
  CHECK(error_of([&] { sample(*fresh.train, 1); }, dir).ends_with("No such file or directory"));
}

TEST_CASE("image_folder: some images of each class are tried, all of a few") {
  const FolderDir dir;
  CHECK(dir.read().train->samples_to_try() == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  // One of the two classes has 300 images. It gets half of the 512 tries: 256, spread over the
  // class.
  for (int i = 0; i < 297; ++i) dir.write(fmt::format("train/cat/{:03}x.png", i), {1});
  const std::vector<std::int64_t> tried = dir.read().train->samples_to_try();
  REQUIRE(tried.size() == 256 + 2);
  CHECK(tried.front() == 0);
  CHECK(tried[1] == 1);
  CHECK(tried[128] == 150);
  CHECK(tried[255] == 299);
  CHECK(tried[256] == 300);
  CHECK(tried[257] == 301);
  for (std::size_t i = 1; i < tried.size(); ++i) CHECK(tried[i - 1] < tried[i]);
}

TEST_CASE("image_folder: the first and the last image of very many classes are tried") {
  const TempDir dir;
  for (int label = 0; label < 300; ++label) {
    // The first class has one image, the others three.
    for (const char* name : {"a", "b", "c"}) {
      dir.write(fmt::format("train/{:03}/{}.png", label, name), {1});
      if (label == 0) break;
    }
  }
  const std::vector<std::int64_t> tried =
      open("image_folder", {{"root", dir.path()}}, {{4, 4, 3}, 300}).train->samples_to_try();
  std::vector<std::int64_t> expected = {0};
  for (std::int64_t first = 1; first < 1 + 299 * 3; first += 3) {
    expected.push_back(first);
    expected.push_back(first + 2);
  }
  CHECK(tried == expected);
}

TEST_CASE("image_folder: a few of the classes' names in messages") {
  const FolderDir dir;
  for (const char* name : {"ant", "bee", "emu"}) dir.write(fmt::format("train/{}/1.png", name), {});
  CHECK(dir.error().starts_with("image_folder: $/train (ant, bee, cat, dog, emu): the data set"));
  dir.write("train/fox/1.png", {});
  CHECK(dir.error().starts_with("image_folder: $/train (ant, bee, cat, dog, emu, ...): the data"));
}

TEST_CASE(
    "image_folder: val is the validation set, under each of its names, and test the test set") {
  const FolderDir dir;
  CHECK(dir.read().val == nullptr);
  for (const char* name : {"val", "valid", "validation"}) {
    CAPTURE(name);
    dir.write(fmt::format("{}/dog/1.png", name), grey_png(7));
    const DataSets sets = dir.read();
    REQUIRE(sets.val);
    CHECK(sample(*sets.val, 0) == std::pair(Bytes(48, 7), 1));
    CHECK(sets.val->classes() == sets.train->classes());
    CHECK(sets.test->size() == 2);
    fs::remove_all(dir / name);
  }
  fs::rename(dir / "test", dir / "val");
  CHECK(dir.read().val->size() == 2);
  CHECK(dir.read().test == nullptr);
  dir.write("valid/cat/1.png", grey_png(1));
  CHECK(dir.error() ==
        "image_folder: $: expected one folder of validation samples, found val and valid: choose "
        "one, e.g. with data.val=val");
}

TEST_CASE("image_folder: data.val and data.test name other folders, or none") {
  const FolderDir dir;
  dir.write("val/cat/1.png", grey_png(1));
  const auto with = [&](const Fields& more) {
    Fields fields = {{"root", dir.path()}};
    fields.insert(fields.end(), more.begin(), more.end());
    return open("image_folder", fields, kFolderRequirements);
  };
  const auto error = [&](const Fields& more) { return error_of([&] { with(more); }, dir); };
  const DataSets tested = with({{"test", std::string("val")}});
  CHECK(tested.test->size() == 1);
  CHECK(tested.val == nullptr);
  const DataSets swapped = with({{"test", std::string("val")}, {"val", std::string("test")}});
  CHECK(swapped.val->size() == 2);
  const DataSets without = with({{"val", std::string("none")}});
  CHECK(without.val == nullptr);
  CHECK(without.test->size() == 2);
  CHECK(error({{"test", std::string("x")}}) ==
        "image_folder: $ has no folder x, which data.test names");
  CHECK(error({{"val", std::string("x")}}) ==
        "image_folder: $ has no folder x, which data.val names");
  // Results must not be measured on samples used for training or tuning.
  for (const char* train : {"train", "./train/", "val/../train"}) {
    for (const char* part : {"test", "val"}) {
      CHECK(error({{part, std::string(train)}})
                .starts_with(fmt::format("image_folder: $: expected a {} set in {}, found the "
                                         "training set itself",
                                         part == std::string("val") ? "validation" : part, train)));
    }
  }
  CHECK(error({{"val", std::string("test")}})
            .find("expected a test set in test, found the validation set itself") !=
        std::string::npos);
  // If data.val is none and there is no test/, val/ is the test set, as in earlier releases.
  fs::remove_all(dir / "test");
  const DataSets earlier = with({{"val", std::string("none")}});
  CHECK(earlier.test->size() == 1);
  CHECK(earlier.val == nullptr);
  fs::remove_all(dir / "val");
  CHECK(dir.read().test == nullptr);
  fs::create_directory_symlink("train", dir / "val");
  CHECK(dir.error().find("expected a validation set in val, found the training set itself") !=
        std::string::npos);
}

TEST_CASE("image_folder: folders that are not a split are named in a note") {
  const FolderDir dir;
  CHECK(dir.read().notes.empty());
  dir.write("Validate/cat/1.png", grey_png(1));
  dir.write(".git/x", {});
  dir.write("README.md", {});
  REQUIRE(dir.read().notes.size() == 1);
  CHECK(dir.read().notes[0].find(": not read: Validate; the splits are in train, val (or valid, "
                                 "validation) and test") != std::string::npos);
}

TEST_CASE("image_folder: folders that are refused") {
  const FolderDir dir;
  SUBCASE("no folder") {
    CHECK(
        error_of(
            [&] {
              open("image_folder", {{"root", dir / "none"}}, kFolderRequirements);
            },
            dir) ==
        "image_folder: $/none: no such folder; expected a folder with train/CLASS/IMAGE, and, if "
        "present, val/CLASS/IMAGE and test/CLASS/IMAGE. If it is elsewhere, give data.root=FOLDER");
    fs::remove_all(dir / "train");
    CHECK(dir.error() == "image_folder: $ has no folder train; expected $/train/CLASS/IMAGE");
  }
  SUBCASE("no classes") {
    fs::remove_all(dir / "train/cat");
    fs::remove_all(dir / "train/dog");
    CHECK(dir.error() == "$/train: no class folders; expected $/train/CLASS/IMAGE");
  }
  SUBCASE("empty class") {
    fs::create_directory(dir / "train/emu");
    CHECK(dir.error({{4, 4, 3}, 3}) ==
          "$/train/emu: an empty class folder: put images into it, or remove it");
  }
  SUBCASE("classes and outputs differ") {
    CHECK(dir.error({{4, 4, 3}, 10}) ==
          "image_folder: $/train (cat, dog): the data set has 2 classes, but the model's last "
          "layer has 10 outputs: give it 2");
  }
  SUBCASE("test classes differ") {
    dir.write("test/emu/1.png", grey_png(1));
    CHECK(dir.error() ==
          "$/test/emu: $/train has no class 'emu'"
          "; add samples to train on, or remove these");
    fs::remove_all(dir / "test/emu");
    fs::remove_all(dir / "test/dog");
    // The missing class is reported.
    CHECK(dir.read().notes ==
          std::vector<std::string>{"the test data has no samples of 1 of the 2 classes: dog"});
    fs::create_directory(dir / "test/dog");
    CHECK(dir.read().notes.size() == 1);
    fs::remove(dir / "test/cat/1.png");
    CHECK(dir.error() == "$/test: no images in the class folders; expected $/test/CLASS/IMAGE");
  }
  SUBCASE("an image next to the classes") {
    dir.write("train/1.png", grey_png(1));
    CHECK(
        dir.error() ==
        "$/train/1.png: an image next to the class folders: move it into the folder of its class");
  }
  SUBCASE("a pipe") {
    REQUIRE(mkfifo((dir / "train/cat/p.png").c_str(), 0600) == 0);
    CHECK(dir.error() ==
          "$/train/cat/p.png: not a regular file: remove it, or leave it out with "
          "data.on_bad_sample: skip");
  }
  SUBCASE("channels that images do not have") {
    CHECK(dir.error({{4, 4, 4}, 2}) ==
          "image_folder: $: images are read as 1 channel (grey) or 3 (RGB), but model.input has 4 "
          "channels");
  }
}

TEST_CASE("image_folder: parts that cannot be opened") {
  const FolderDir dir;
  const std::string expected = "expected a folder with one folder per class, or a link to one";
  const auto error = [&](const std::string& test) {
    return error_of(
        [&] {
          open("image_folder", {{"root", dir.path()}, {"test", test}}, kFolderRequirements);
        },
        dir);
  };
  SUBCASE("a name that is too long") {
    const std::string name(300, 'x');
    CHECK(error(name) ==
          "image_folder: $: cannot open " + name + " in it: File name too long; " + expected);
  }
  SUBCASE("links that lead to themselves") {
    for (const char* part : {"val", "test", "train"}) {
      CAPTURE(part);
      fs::remove_all(dir / part);
      fs::create_symlink(part, dir / part);
      const std::string problem = fmt::format(
          "image_folder: $: cannot open {} in it: Too many levels of symbolic links; {}", part,
          expected);
      CHECK(dir.error() == problem);
      if (part != std::string("train")) CHECK(error(part) == problem);
      fs::remove(dir / part);
    }
  }
  SUBCASE("a class that leads to itself") {
    fs::create_symlink("eel", dir / "train/eel");
    CHECK(dir.error() == "$/train/eel: Too many levels of symbolic links");
  }
}

TEST_CASE("image_folder: many files and folders are listed in order, by several threads") {
  const TempDir dir;
  constexpr int kClasses = 40, kMany = 2500;
  for (int c = 0; c < kClasses; ++c) dir.write(fmt::format("train/{:02}/0.png", c), {1});
  // One class has more files than one batch of the listing.
  for (int i = 0; i < kMany; ++i) dir.write(fmt::format("train/07/x{:04}.png", i), {1});
  const auto heartbeat = std::make_shared<Heartbeat>();
  set_heartbeat_of_thread(heartbeat);
  const DataRequirements requirements{{4, 4, 1}, kClasses};
  const auto read = [&] { return open("image_folder", {{"root", dir.path()}}, requirements); };
  const DataSets sets = read();
  set_heartbeat_of_thread(nullptr);
  // A slow listing does not count as a stall.
  CHECK(heartbeat->beats() >= 2 * kClasses);
  REQUIRE(sets.train->size() == kClasses + kMany);
  CHECK(sets.train->describe(7) == dir / "train/07/0.png");
  for (int i = 0; i < kMany; ++i) {
    REQUIRE(sets.train->describe(8 + i) == dir / fmt::format("train/07/x{:04}.png", i));
    REQUIRE(sets.train->label(8 + i) == 7);
  }
  CHECK(sets.train->label(8 + kMany) == 8);
  // If several entries are wrong, all processes name the same one.
  for (int c = kClasses - 1; c > 2; --c) dir.write(fmt::format("train/{:02}/a.heic", c), {1});
  for (int round = 0; round < 20; ++round) {
    REQUIRE(
        error_of(read, dir) ==
        "$/train/03/a.heic, $/train/04/a.heic, $/train/05/a.heic and 34 more: HEIC images, which "
        "dpt does not read: convert them with heif-convert IN.heic OUT.jpg, or leave them out "
        "with data.on_bad_sample: skip");
  }
}

TEST_CASE("image_folder: links within the root, and to nowhere") {
  const FolderDir dir;
  const TempDir outside;
  fs::create_symlink("../dog/b.png", dir / "train/cat/link.png");
  CHECK(dir.read().train->size() == 6);
  fs::remove(dir / "train/cat/link.png");
  SUBCASE("nowhere") {
    fs::create_symlink("nothing", dir / "train/cat/link.png");
    CHECK(dir.error() ==
          "$/train/cat/link.png: a link that leads nowhere: restore its target or remove it, or "
          "leave it out with data.on_bad_sample: skip");
  }
  SUBCASE("a class that leads nowhere") {
    fs::create_symlink("nothing", dir / "train/emu");
    CHECK(dir.error() == "$/train/emu: No such file or directory");
  }
  SUBCASE("the root itself may be a link") {
    fs::create_directory_symlink(dir.path(), outside / "root");
    CHECK(open("image_folder", {{"root", outside / "root"}}, kFolderRequirements).train->size() ==
          5);
  }
}

TEST_CASE("image_folder: a bad image is named when it is read") {
  const FolderDir dir;
  dir.write("train/cat/2.png", {});
  CHECK(dir.read_error(1) == "$/train/cat/2.png: the file is empty");
  const Bytes good = jpeg(32, 32, 3, noise(3072));
  dir.write("train/cat/2.png", Bytes(good.begin(), good.begin() + 700));
  CHECK(dir.read_error(1) == "$/train/cat/2.png: corrupt JPEG: Premature end of JPEG file");
  // The file is larger than any real image, and sparse on the disk.
  fs::resize_file(dir / "train/cat/2.png", (std::uintmax_t{256} << 20) + 1);
  CHECK(dir.read_error(1) ==
        "$/train/cat/2.png: the file has 268435457 bytes; an image file may have at most 256 MiB");
}

}  // namespace
}  // namespace dpt
