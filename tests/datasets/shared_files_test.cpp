// Two parts of a data set must not share a file, even under different names.
#include "datasets/shared_files.h"

#include <filesystem>

#include "engine/data/data_sets.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/npy.h"
#include "tests/support/tar.h"

namespace dpt::data_test {
namespace {

namespace fs = std::filesystem;

const DataRequirements kSharedRequirements{{1, 1, 2}, 2};

std::string usage_error(const std::string& dataset, const Fields& fields, const TempDir& dir,
                        const DataRequirements& requirements = kSharedRequirements) {
  return error_of([&] { open(dataset, fields, requirements); }, dir, ErrorKind::usage);
}

}  // namespace

TEST_CASE("shared files: a table is not its own test or validation set") {
  const TempDir dir;
  const std::string text = "a,kind,b\n1,cat,3\n2,dog,3\n";
  dir.write("train.csv", Bytes(text.begin(), text.end()));
  dir.write("test.csv", Bytes(text.begin(), text.end()));
  fs::create_symlink("train.csv", dir / "link.csv");
  fs::create_hard_link(dir / "test.csv", dir / "hard.csv");
  const Fields base = {{"label", std::string("kind")}, {"train.file", dir / "train.csv"}};
  const auto with = [&](const Fields& more) {
    Fields fields = base;
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  CHECK(usage_error("csv", with({{"test.file", dir / "train.csv"}}), dir) ==
        "data.test.file: expected samples other than those of data.train.file, found the same "
        "file, $/train.csv: name another file, or leave data.test out of the config (for a result "
        "on the training samples: dpt eval RUN --split train)");
  CHECK(usage_error("csv", with({{"val.file", dir / "link.csv"}}), dir)
            .starts_with("data.val.file: expected samples other than those of data.train.file"));
  CHECK(usage_error("csv", with({{"val.file", dir / "test.csv"}, {"test.file", dir / "hard.csv"}}),
                    dir)
            .starts_with("data.test.file: expected samples other than those of data.val.file"));
  // A copy of a file is a different file: data check finds copies of samples.
  CHECK(open("csv", with({{"test.file", dir / "test.csv"}}), kSharedRequirements).test->size() ==
        2);
}

TEST_CASE("shared files: arrays, also of one archive, idx files and shards") {
  const TempDir dir;
  testing::write_bytes(dir / "x.npy", testing::npy<float>({2, 2}, {1, 2, 3, 4}));
  testing::write_bytes(dir / "y.npy", testing::npy<std::int64_t>({2}, {0, 1}));
  const Fields npy = {{"train.images", dir / "x.npy"},
                      {"train.targets", dir / "y.npy"},
                      {"test.images", dir / "x.npy"},
                      {"test.targets", dir / "y.npy"}};
  CHECK(usage_error("npy", npy, dir).starts_with("data.test.images: expected samples other than"));
  dir.write("a", idx({2, 1, 2}, {1, 2, 3, 4}));
  dir.write("b", idx({2}, {0, 1}));
  const Fields idx = {{"train.images", dir / "a"},
                      {"train.labels", dir / "b"},
                      {"val.images", dir / "a"},
                      {"val.labels", dir / "b"}};
  CHECK(usage_error("idx", idx, dir, {{1, 2, 1}, 2})
            .starts_with("data.val.images: expected samples other than"));
  const Bytes picture = png(8, 8, 1, Bytes(64, 9));
  const std::string content(picture.begin(), picture.end());
  for (const char* name : {"s-0.tar", "s-1.tar"}) {
    testing::write_bytes(
        dir / name,
        testing::tar({{"a.png", content}, {"a.cls", "0"}, {"b.png", content}, {"b.cls", "1"}}));
  }
  const Fields shards = {{"train.shards", dir / "s-{0..1}.tar"}, {"test.shards", dir / "s-1.tar"}};
  CHECK(usage_error("webdataset", shards, dir, {{4, 4, 1}, 2}) ==
        "data.test.shards: expected samples other than those of data.train.shards, found the same "
        "file, $/s-1.tar: name another file, or leave data.test out of the config (for a result "
        "on the training samples: dpt eval RUN --split train)");
}

TEST_CASE("shared files: arrays of an archive are told apart by their names") {
  const TempDir dir;
  dir.write("all.npz", {1});
  const std::string archive = dir / "all.npz";
  check_no_shared_files({{"data.train.images", {archive + ":x_train"}},
                         {"data.val.images", {""}},
                         {"data.test.images", {archive + ":x_test"}}});
  CHECK_THROWS(check_no_shared_files(
      {{"data.train.images", {archive + ":x"}}, {"data.test.images", {archive + ":x"}}}));
}

}  // namespace dpt::data_test
