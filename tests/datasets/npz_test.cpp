// NumPy archives: stored and deflated members, and every way in which one can be invalid.
#include <doctest/doctest.h>

#include "datasets/npy_array.h"
#include "engine/data/data_sets.h"
#include "tests/engine/data/support.h"
#include "tests/support/npy.h"
#include "tests/support/text.h"
#include "tests/support/zip.h"

namespace dpt::data_test {
namespace {

using testing::check_contains;
using testing::npy;
using testing::write_bytes;
using testing::zip;
using testing::ZipStyle;

const std::string kX = npy<float>({3, 2}, {1, 2, 3, 4, 5, 6});
const std::string kY = npy<std::int64_t>({3}, {1, 0, 1});

std::vector<std::pair<std::string, std::string>> both() {
  return {{"x.npy", kX}, {"y.npy", kY}};
}

DataSets open_npz(const TempDir& dir) {
  return open("npy", {{"train.images", dir / "data.npz:x"}, {"train.targets", dir / "data.npz:y"}},
              {{1, 1, 2}, 2});
}

std::string error(const TempDir& dir, const std::string& file) {
  write_bytes(dir / "data.npz", file);
  return error_of([&] { open_npz(dir); }, dir);
}

}  // namespace

TEST_CASE("npz: stored and deflated members, sizes of zip64, a comment") {
  const TempDir dir;
  write_bytes(dir / "x.npy", kX);
  write_bytes(dir / "y.npy", kY);
  const std::string plain =
      open("npy", {{"train.images", dir / "x.npy"}, {"train.targets", dir / "y.npy"}},
           {{1, 1, 2}, 2})
          .train->fingerprint();
  for (const bool deflated : {false, true}) {
    for (const bool zip64 : {false, true}) {
      for (const std::string& comment : {std::string(), "PK\x05\x06" + std::string(40, '\0')}) {
        write_bytes(dir / "data.npz", zip(both(), {deflated, zip64}, comment));
        const DataSets sets = open_npz(dir);
        CHECK(sets.train->fingerprint() == plain);
        const auto pixels = sets.train->resident()->pixels;
        CHECK(reinterpret_cast<std::uintptr_t>(pixels.data()) % alignof(float) == 0);
        CHECK(reinterpret_cast<const float*>(pixels.data())[5] == 6.0F);
        CHECK(sets.train->label(1) == 0);
        CHECK(sets.train->describe(2) == dir / "data.npz:x" + ", sample 2");
      }
    }
  }
  // Elements of one byte need no alignment, so they stay in the mapped file.
  write_bytes(dir / "data.npz", zip({{"odd.npy", npy<std::uint8_t>({2, 3}, Bytes(6, 7))}}));
  CHECK(NpyArray(dir / "data.npz").elements().size() == 6);
  CHECK(NpyArray(dir / "data.npz:odd").number(5) == 7);
  CHECK(NpyArray(dir / "data.npz:odd.npy").shape() == std::vector<std::int64_t>{2, 3});
}

TEST_CASE("npz: a member that inflates to many times its size") {
  const TempDir dir;
  const std::vector<std::uint8_t> zeros(std::size_t{4} << 20);
  write_bytes(dir / "data.npz", zip({{"x.npy", npy({4, 1 << 20}, zeros)}}, {.deflated = true}));
  CHECK(NpyArray(dir / "data.npz").elements().size() == zeros.size());
}

TEST_CASE("npz: arrays that are not there") {
  const TempDir dir;
  CHECK(error_of([&] { open_npz(dir); }, dir) ==
        "$/data.npz: cannot be opened: No such file or directory");
  CHECK(error(dir, zip({{"x.npy", kX}, {"z", kY}})) ==
        "$/data.npz: expected an array 'y', found x, z");
  CHECK(error(dir, zip({})) == "$/data.npz: the archive has no arrays");
  write_bytes(dir / "data.npz", zip(both()));
  CHECK(error_of([&] { NpyArray(dir / "data.npz"); }, dir) ==
        "$/data.npz: the archive has several arrays (x, y): choose one with $/data.npz:NAME");
  CHECK(error(dir, zip({{"x.npy", kX}, {"x.npy", kX}})) ==
        "$/data.npz: two members are called x.npy");
  CHECK(error(dir, zip({{"x.npy", "not an array"}, {"y.npy", kY}})) ==
        "$/data.npz:x: not a .npy file: it does not begin with \\x93NUMPY");
}

TEST_CASE("npz: archives that are damaged, truncated or of another kind") {
  const TempDir dir;
  check_contains(error(dir, ""), "$/data.npz: not a zip archive, or a truncated one: expected the");
  const std::string good = zip(both());
  check_contains(error(dir, good.substr(0, good.size() - 1)), "not a zip archive, or a truncated");
  // The members are gone, but their directory is intact.
  check_contains(error(dir, good.substr(100)),
                 "expected entry 1 of 2 in the list of members at offset");
  std::string bad = good;
  bad[good.find("NUMPY") + 130] ^= 1;
  check_contains(error(dir, bad),
                 "$/data.npz, member x.npy: damaged: expected the checksum (CRC-32) ");
  std::string packed = zip(both(), {.deflated = true});
  for (std::size_t i = 40; i < 60; ++i) packed[i] = '\xff';
  check_contains(error(dir, packed), "$/data.npz, member x.npy: damaged: ");
  bad = good;
  bad[0] = 'Q';
  CHECK(error(dir, bad) ==
        "$/data.npz, member x.npy: expected a local header at offset 0, found other bytes: it "
        "is damaged");
  // Change a size in the directory of members.
  bad = good;
  bad[good.find("PK\x01\x02") + 24] ^= 1;
  check_contains(error(dir, bad), "which does not match its size of");
  bad = zip(both(), {.deflated = true});
  bad[bad.find("PK\x01\x02") + 27] = '\x7f';
  check_contains(error(dir, bad), "which does not match its size of");
  bad = good;
  bad[good.find("PK\x01\x02") + 45] = '\x7f';
  check_contains(error(dir, bad),
                 "member x.npy: expected a local header at offset 2130706432, "
                 "found the end of the file");
  CHECK(error(dir, zip(both(), {.method = 12})) ==
        "$/data.npz, member x.npy: expected a member that is stored or deflated, found the "
        "compression method 12: write it with numpy.savez or numpy.savez_compressed");
  CHECK(error(dir, zip(both(), {.flags = 1})) ==
        "$/data.npz, member x.npy: encrypted, which is not supported");
}

}  // namespace dpt::data_test
