// CIFAR's binary files. They are large, so most tests only check sizes, with sparse files.
#include <filesystem>
#include <fstream>

#include "engine/data/data_sets.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;
namespace fs = std::filesystem;

const DataRequirements kRequirements10{{32, 32, 3}, 10};
const DataRequirements kRequirements100{{32, 32, 3}, 100};

/// Writes `bytes` at `offset` into a file of `size` bytes that is zero elsewhere.
void sparse(const TempDir& dir, const std::string& name, std::uintmax_t size,
            std::uintmax_t offset = 0, const Bytes& bytes = {}) {
  dir.write(name, {});
  fs::resize_file(dir / name, size);
  std::fstream file(dir / name, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.flush().good());
}

struct Cifar10Dir : TempDir {
  explicit Cifar10Dir(const std::string& folder = "") {
    for (int i = 1; i <= 5; ++i) {
      sparse(*this, fmt::format("{}data_batch_{}.bin", folder, i), 30'730'000);
    }
    sparse(*this, folder + "test_batch.bin", 30'730'000);
  }
  std::string error(const DataRequirements& requirements = kRequirements10) const {
    return error_of([&] { open("cifar10", {{"root", path()}}, requirements); }, *this);
  }
};

TEST_CASE("CIFAR-10: five files become one source, channels last") {
  const Cifar10Dir dir("cifar-10-batches-bin/");
  Bytes record = {7};
  record.resize(3073, 0);
  record[1] = 11;                    // Red value of the first pixel.
  record[1 + 1024 + 1] = 22;         // Green value of the second.
  record[1 + 2 * 1024 + 1023] = 33;  // Blue value of the last.
  sparse(dir, "cifar-10-batches-bin/data_batch_2.bin", 30'730'000, 3073 * 4, record);
  const DataSets sets = open("cifar10", {{"root", dir.path()}}, kRequirements10);
  REQUIRE(sets.train->size() == 50000);
  CHECK(sets.test->size() == 10000);
  CHECK(sets.train->classes()[7] == "horse");
  const auto [pixels, label] = sample(*sets.train, 10004);
  CHECK(label == 7);
  CHECK(pixels[0] == 11);
  CHECK(pixels[3 + 1] == 22);
  CHECK(pixels[3071] == 33);
  CHECK(pixels[1] + pixels[2] + pixels[3] == 0);
  CHECK(sets.train->describe(10004) == dir / "cifar-10-batches-bin/data_batch_2.bin, sample 4");
}

TEST_CASE("CIFAR-100: fine labels") {
  const TempDir dir;
  sparse(dir, "train.bin", 153'700'000, 3074 * 2, {19, 99, 5});
  sparse(dir, "test.bin", 30'740'000);
  const DataSets sets = open("cifar100", {{"root", dir.path()}}, kRequirements100);
  REQUIRE(sets.train->size() == 50000);
  REQUIRE(sets.train->classes().size() == 100);
  CHECK(sets.train->classes()[99] == "worm");
  CHECK(sample(*sets.train, 2).second == 99);
  CHECK(sample(*sets.train, 2).first[0] == 5);
}

TEST_CASE("bad CIFAR files are refused") {
  const Cifar10Dir dir;
  SUBCASE("truncated at a record") {
    sparse(dir, "data_batch_3.bin", 30'730'000 - 3073);
    CHECK(dir.error() ==
          "$/data_batch_3.bin: expected 30730000 bytes for 10000 records of 3073 bytes from offset "
          "0, but "
          "30726927 bytes remain");
  }
  SUBCASE("one byte more") {
    sparse(dir, "test_batch.bin", 30'730'001);
    CHECK(dir.error() ==
          "$/test_batch.bin: expected 30730000 bytes for 10000 records of 3073 bytes from offset "
          "0, but "
          "30730001 bytes remain");
  }
  SUBCASE("label") {
    sparse(dir, "data_batch_1.bin", 30'730'000, 3073 * 5, {10});
    CHECK(dir.error() ==
          "$/data_batch_1.bin, record 5 at offset 15365: label 10 is out of range: with 10 "
          "classes, labels go from 0 to 9");
  }
  SUBCASE("missing") {
    fs::remove(dir / "data_batch_5.bin");
    CHECK(dir.error() ==
          "cifar10: $ has no file data_batch_5.bin; expected data_batch_1.bin, data_batch_2.bin, "
          "data_batch_3.bin, data_batch_4.bin, data_batch_5.bin and test_batch.bin "
          "(`scripts/fetch-data cifar10` fetches them)");
  }
  SUBCASE("links that lead to themselves") {
    for (const char* file : {"test_batch.bin", "data_batch_1.bin"}) {
      fs::remove(dir / file);
      fs::create_symlink(file, dir / file);
      CHECK(dir.error() == fmt::format("$/{}: Too many levels of symbolic links", file));
    }
    const TempDir other;
    fs::create_symlink("cifar-10-batches-bin", other / "cifar-10-batches-bin");
    CHECK(error_of(
              [&] {
                open("cifar10", {{"root", other.path()}}, kRequirements10);
              },
              other)
              .starts_with("cifar10: $ has no file data_batch_1.bin; expected"));
  }
  SUBCASE("an empty folder") {
    const TempDir empty;
    CHECK(error_of(
              [&] {
                open("cifar100", {{"root", empty.path()}}, kRequirements100);
              },
              empty) ==
          "cifar100: $ has no file train.bin; expected train.bin and test.bin "
          "(`scripts/fetch-data cifar100` fetches them)");
  }
  SUBCASE("no folder") {
    CHECK(error_of(
              [&] {
                open("cifar100", {{"root", dir / "none"}}, kRequirements100);
              },
              dir) ==
          "cifar100: $/none: no such folder; expected a folder with train.bin, test.bin (or with "
          "the folder cifar-100-binary) (`scripts/fetch-data cifar100` fetches them). If it is "
          "elsewhere, give data.root=FOLDER");
  }
  SUBCASE("a model for something else") {
    CHECK(dir.error({{32, 32, 1}, 10}) ==
          "cifar10 ($): the images are 32x32 with 3 channels, but model.input is [1, 32, 32] "
          "(channels, height, width): write model.input: [3, 32, 32]");
    CHECK(dir.error({{32, 32, 3}, 100}) ==
          "cifar10 ($): the data set has 10 classes, but the model's last layer has 100 outputs: "
          "give it 10");
  }
}

}  // namespace
}  // namespace dpt
