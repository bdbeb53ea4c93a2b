// NumPy arrays: the readable ones, and every way in which a file can be invalid.
#include "tests/support/npy.h"

#include <doctest/doctest.h>
#include <filesystem>

#include <cmath>
#include <limits>

#include "datasets/npy_array.h"
#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "engine/data/splits.h"
#include "tests/engine/data/support.h"
#include "tests/support/text.h"

namespace dpt::data_test {
namespace {

using testing::check_contains;
using testing::npy;
using testing::npy_file;
using testing::npy_header;
using testing::write_bytes;

/// A folder with the files of a data set; x has 3 samples of 2 features.
struct Files : TempDir {
  Files() { put("x", npy<float>({3, 2}, {1, 2, 3, 4, 5, 6})); }
  void put(const std::string& name, const std::string& bytes) const {
    write_bytes(*this / (name + ".npy"), bytes);
  }
};

DataSets open_npy(const Files& dir, const Fields& more, std::int64_t outputs = 0,
                  SampleShape input = {1, 1, 2}, const std::string& images = "x") {
  Fields fields = {{"train.images", dir / (images + ".npy")}, {"train.targets", dir / "y.npy"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return open("npy", fields, {input, outputs});
}

std::string error(const Files& dir, const Fields& more = {}, std::int64_t outputs = 0,
                  SampleShape input = {1, 1, 2}, const std::string& images = "x") {
  return error_of([&] { open_npy(dir, more, outputs, input, images); }, dir);
}

std::vector<float> row(const DataSource& source, std::int64_t index) {
  std::vector<float> values(static_cast<std::size_t>(source.targets().floats()));
  source.read_targets(index, values);
  return values;
}

}  // namespace

TEST_CASE("npy: images of bytes and of floats, features, and class labels of any integer type") {
  const Files dir;
  dir.put("bytes", npy<std::uint8_t>({2, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}));
  dir.put("y", npy<std::int64_t>({2}, {1, 0}));
  const DataSets grey = open_npy(dir, {}, 3, {2, 3, 1}, "bytes");
  CHECK(grey.train->size() == 2);
  CHECK(grey.train->type() == DType::u8);
  CHECK(grey.train->shape() == SampleShape{2, 3, 1});
  CHECK(grey.train->classes() == std::vector<std::string>{"0", "1", "2"});
  CHECK(grey.train->targets() == TargetShape{});
  CHECK(!grey.test);
  CHECK(sample(*grey.train, 1) == std::pair(Bytes{6, 7, 8, 9, 10, 255}, 0));
  CHECK(grey.train->label(0) == 1);
  CHECK(grey.train->describe(1) == (dir / "bytes.npy") + ", sample 1");
  REQUIRE(grey.train->resident());
  CHECK(grey.train->resident()->pixels.size() == 12);
  CHECK(grey.train->resident()->targets.empty());

  for (const std::string& labels :
       {npy<std::uint8_t>({3}, {2, 0, 1}), npy<std::int8_t>({3}, {2, 0, 1}),
        npy<std::int16_t>({3}, {2, 0, 1}), npy<std::uint32_t>({3}, {2, 0, 1}),
        npy<std::uint64_t>({3}, {2, 0, 1})}) {
    dir.put("y", labels);
    const DataSets features = open_npy(dir, {{"classes", std::vector<std::string>{"a", "b", "c"}}});
    CHECK(features.train->type() == DType::f32);
    CHECK(features.train->shape() == SampleShape{1, 1, 2});
    CHECK(features.train->classes()[2] == "c");
    CHECK(class_counts({features.train, {0, 1, 2}}, 3) == std::vector<std::int64_t>{1, 1, 1});
    CHECK(features.train->label(0) == 2);
  }
  // Without a model, the number of classes comes from the data.
  CHECK(open_npy(dir, {}).train->classes().size() == 3);
}

TEST_CASE("npy: versions 1 to 3, elements that are not aligned, and headers in any order") {
  const Files dir;
  const std::string elements = npy<double>({3}, {0.5, -1, 2}).substr(128);
  for (const int version : {1, 2, 3}) {
    dir.put("y", npy_file(npy_header("<f8", {3}), elements, version));
    CHECK(row(*open_npy(dir, {}).train, 2) == std::vector<float>{2});
  }
  std::string odd = "\x93NUMPY";
  const std::string header = "{\"shape\":(3,),'descr':'<f8','fortran_order':True}";
  odd += std::string("\x01\x00", 2) + static_cast<char>(header.size()) + '\0' + header;
  dir.put("y", odd + elements);
  CHECK(row(*open_npy(dir, {}).train, 0) == std::vector<float>{0.5F});
  const std::string images = npy<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  dir.put("x", "\x93NUMPY" + std::string("\x01\x00\x3d\x00", 4) +
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}" +
                   std::string(4, ' ') + images.substr(128));
  const DataSets moved = open_npy(dir, {});
  const auto pixels = moved.train->resident()->pixels;
  CHECK(reinterpret_cast<std::uintptr_t>(pixels.data()) % alignof(float) == 0);
  CHECK(reinterpret_cast<const float*>(pixels.data())[5] == 6.0F);
}

TEST_CASE("npy: soft labels, multi-hot targets and values, with and without weights") {
  const Files dir;
  dir.put("y", npy<float>({3, 2}, {0.25, 0.75, 0.5, 0.5, 1, 0}));
  dir.put("w", npy<double>({3}, {0.5, 0, 2}));
  const auto source = [&](const std::string& target, bool weighted) {
    return weighted ? open_npy(dir, {{"target", target}, {"train.weights", dir / "w.npy"}}, 2).train
                    : open_npy(dir, {{"target", target}}, 2).train;
  };
  const auto soft = source("soft_labels", false);
  CHECK(soft->targets() == TargetShape{TargetKind::soft_labels, 2, false});
  CHECK(row(*soft, 0) == std::vector<float>{0.25, 0.75});
  // The label is the first of the largest values.
  for (const auto& [index, label] : {std::pair(0, 1), {1, 0}, {2, 0}}) {
    CHECK(soft->label(index) == label);
  }
  const auto hot = source("multi_hot", true);
  CHECK(hot->targets() == TargetShape{TargetKind::multi_hot, 2, true});
  CHECK(row(*hot, 2) == std::vector<float>{1, 0, 2});
  CHECK(hot->resident()->targets.size() == 9);
  const auto values = source("values", true);
  CHECK(values->targets().kind == TargetKind::values);
  CHECK(values->classes() == std::vector<std::string>{"0", "1"});
  CHECK(values->label(0) == 0);

  dir.put("y", npy<std::int32_t>({3}, {1, 0, 1}));
  std::filesystem::copy_file(dir / "x.npy", dir / "copy.npy");
  const auto labels = open_npy(dir, {{"test.images", dir / "copy.npy"},
                                     {"test.targets", dir / "y.npy"},
                                     {"train.weights", dir / "w.npy"}});
  CHECK(labels.train->targets() == TargetShape{TargetKind::class_index, 0, true});
  CHECK(row(*labels.train, 0) == std::vector<float>{0.5});
  CHECK(labels.train->label(2) == 1);
  // In a part without weights, each weight is 1.
  CHECK(row(*labels.test, 1) == std::vector<float>{1});
  // A binary target may have a single column.
  CHECK(open_npy(dir, {{"target", "multi_hot"}}, 1).train->targets() ==
        TargetShape{TargetKind::multi_hot, 1, false});
}

TEST_CASE("npy: the fingerprint covers images, targets, weights and their kinds") {
  const Files dir;
  dir.put("y", npy<float>({3, 2}, {0, 1, 1, 0, 1, 0}));
  dir.put("w", npy<float>({3}, {1, 1, 1}));
  const auto hash = [&](const std::string& target) {
    return open_npy(dir, {{"target", target}}).train->fingerprint();
  };
  const std::string soft = hash("soft_labels");
  CHECK(hash("soft_labels") == soft);
  CHECK(hash("values") != soft);
  const auto weighted =
      open_npy(dir, {{"target", "soft_labels"}, {"train.weights", dir / "w.npy"}}).train;
  CHECK(weighted->fingerprint() != soft);
  CHECK(weighted->fingerprint() == weighted->fingerprint());
  dir.put("w", npy<float>({3}, {1, 1, 2}));
  CHECK(open_npy(dir, {{"target", "soft_labels"}, {"train.weights", dir / "w.npy"}})
            .train->fingerprint() != weighted->fingerprint());
  dir.put("y", npy<float>({3, 2}, {0, 1, 1, 0, 0, 1}));
  CHECK(hash("soft_labels") != soft);
  dir.put("y", npy<float>({3, 2}, {0, 1, 1, 0, 1, 0}));
  dir.put("x", npy<float>({3, 2}, {1, 2, 3, 4, 5, 7}));
  CHECK(hash("soft_labels") != soft);
}

TEST_CASE("npy: missing files, and files that are not suitable arrays") {
  const Files dir;
  CHECK(error(dir) == "$/y.npy: cannot be opened: No such file or directory");
  dir.put("y", "");
  CHECK(error(dir) == "$/y.npy: not a .npy file: it does not begin with \\x93NUMPY");
  dir.put("y", "PK\x03\x04 and so on");
  check_contains(error(dir),
                 "(it is a zip archive: rename it to *.npz, and name its array as FILE.npz:NAME)");
  const std::string good = npy<float>({3}, {1, 2, 3});
  for (const std::size_t bytes : {6UL, 9UL, 20UL, 127UL}) {
    dir.put("y", good.substr(0, bytes));
    check_contains(error(dir), "$/y.npy: the file ends within its header: expected at least ");
  }
  dir.put("y", good.substr(0, 139));
  CHECK(error(dir) ==
        "$/y.npy: the header says an array (3,) of float32, but 11 bytes of elements follow: the "
        "file is truncated");
  dir.put("y", good + "x");
  check_contains(error(dir), "but 13 bytes of elements follow, not 12");
  std::string version = good;
  version[6] = 4;
  dir.put("y", version);
  CHECK(error(dir) == "$/y.npy: expected version 1, 2 or 3 of the .npy format, found 4.0");
  dir.put("y", npy_file(npy_header("<f4", {1LL << 40, 1LL << 40}), "1234"));
  check_contains(error(dir), "the file is truncated");
  for (const char* header :
       {"", "{", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x", "{'descr: 3"}) {
    CAPTURE(header);
    dir.put("y", npy_file(header, "123412341234"));
    check_contains(error(dir), "$/y.npy: the header is not that of a .npy file");
  }
}

TEST_CASE("npy: element types and orders that are not read say how to convert them") {
  const Files dir;
  const auto of_type = [&](const std::string& type) {
    dir.put("y", npy_file(npy_header(type, {3}), std::string(12, '\0')));
    return error(dir);
  };
  CHECK(of_type(">f4") ==
        "$/y.npy: expected little-endian elements, found big-endian ones ('>f4'): numpy.save(file, "
        "array.astype(numpy.float32)) makes them little-endian");
  check_contains(of_type("|O"), "found elements of the type '|O' (Python objects)");
  check_contains(of_type("<U1"), "found elements of the type '<U1'");
  check_contains(of_type("<c8"), "array.astype(numpy.float32)) converts them to numbers");
  check_contains(of_type(""), "found elements of the type with fields (a structured array)");
  dir.put("y", npy_file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
                        std::string(12, '\0')));
  check_contains(error(dir), "with fields (a structured array)");
  dir.put("y", npy_file(npy_header("<f4", {3, 1}, true), std::string(12, '\0')));
  CHECK(error(dir) ==
        "$/y.npy: expected elements in C order, found Fortran order: numpy.save(file, "
        "numpy.ascontiguousarray(array)) converts it");
}

TEST_CASE("npy: arrays that do not fit the model or one another") {
  const Files dir;
  dir.put("y", npy<std::int64_t>({3}, {0, 1, 0}));
  CHECK(error(dir, {}, 0, {1, 1, 5}) ==
        "$/x.npy: the images are 1x1 with 2 channels, but model.input is [5, 1, 1] (channels, "
        "height, width): write model.input: [2, 1, 1]");
  dir.put("first", npy<float>({1, 3, 2, 2}, std::vector<float>(12)));
  check_contains(error(dir, {}, 0, {2, 2, 3}, "first"),
                 "array.transpose(0, 2, 3, 1))) converts them");
  dir.put("wide", npy<double>({3, 2}, std::vector<double>(6)));
  check_contains(error(dir, {}, 0, {1, 1, 2}, "wide"),
                 "or features (N, F), of uint8 (scaled to 0 to 1) or float32; found an array (3, "
                 "2) of float64");
  dir.put("none", npy<float>({0, 2}, std::vector<float>{}));
  check_contains(error(dir, {}, 0, {1, 1, 2}, "none"), "$/none.npy: expected 1 to 2147483647 ");
  dir.put("empty", npy<float>({3, 2, 0}, std::vector<float>{}));
  check_contains(
      error(dir, {}, 0, {2, 0, 1}, "empty"),
      "$/empty.npy: expected samples with at least one value each, found an array (3, 2, "
      "0) of float32");
  dir.put("y", npy<std::int64_t>({2}, {0, 1}));
  CHECK(error(dir) ==
        "$/y.npy: expected the targets of the 3 samples of $/x.npy, found an array (2,) of int64");
  dir.put("y", npy<std::int64_t>({3}, {0, 1, 7}));
  CHECK(error(dir, {}, 2) ==
        "$/y.npy, sample 2: label 7 is out of range: with 2 classes, labels go from 0 to 1");
  dir.put("y", npy<std::int64_t>({3}, {0, -1, 7}));
  check_contains(error(dir), "$/y.npy, sample 1: label -1 is out of range");
  dir.put("y", npy<std::uint64_t>({3}, {0, std::numeric_limits<std::uint64_t>::max(), 7}));
  check_contains(error(dir),
                 "sample 1: label 9223372036854775807 is out of range: with 1000000 classes");
  dir.put("y", npy<std::int64_t>({3}, {0, 1, 1}));
  check_contains(error(dir, {{"classes", std::vector<std::string>{"a", "b", "c"}}}, 2),
                 "data.classes: the data set has 3 classes, but the model's last layer has 2");
  dir.put("bytes", npy<std::uint8_t>({3, 2}, std::vector<std::uint8_t>(6)));
  CHECK(error(dir, {{"val.images", dir / "bytes.npy"}, {"val.targets", dir / "y.npy"}})
            .find("expected elements of the same type as") != std::string::npos);
  std::filesystem::copy_file(dir / "x.npy", dir / "copy.npy");
  const DataSets validated =
      open_npy(dir, {{"val.images", dir / "copy.npy"}, {"val.targets", dir / "y.npy"}});
  CHECK(validated.val->size() == validated.train->size());
  CHECK(!validated.test);
  CHECK(error(dir, {{"test.images", dir / "bytes.npy"}, {"test.targets", dir / "y.npy"}}) ==
        "$/bytes.npy: expected elements of the same type as $/x.npy (fp32), found u8");
}

TEST_CASE("npy: targets that are ambiguous, or not of the kind that is asked for") {
  const Files dir;
  dir.put("y", npy<float>({3, 2}, {0.5, 0.5, 1, 0, 0.5, 0.75}));
  CHECK(error(dir) ==
        "$/y.npy: an array (3, 2) of float32 can be soft_labels, multi_hot or values: say which in "
        "data.target");
  CHECK(error(dir, {{"target", "soft_labels"}}) ==
        "$/y.npy, sample 2: expected probabilities that add up to 1 (within 0.001), found a sum of "
        "1.25");
  CHECK(error(dir, {{"target", "values"}}, 3) ==
        "$/y.npy: the samples have 2 target values, but the model's last layer has 3 outputs: give "
        "it 2");
  check_contains(error(dir, {{"target", "values"}, {"classes", std::vector<std::string>{"a"}}}),
                 "the samples have 2 target values, but data.classes has 1 name");
  CHECK(error(dir, {{"target", "labels"}}) ==
        "$/y.npy: expected labels (N,) of an integer type, found an array (3, 2) of float32");
  dir.put("y", npy<float>({3, 2}, {0.5, 0.5, 1.25, -0.25, NAN, 0.75}));
  CHECK(error(dir, {{"target", "soft_labels"}}) ==
        "$/y.npy, sample 1, value 1: expected a probability, found -0.25");
  CHECK(error(dir, {{"target", "multi_hot"}}) ==
        "$/y.npy, sample 1, value 0: expected a target from 0 to 1, found 1.25");
  CHECK(error(dir, {{"target", "values"}}) ==
        "$/y.npy, sample 2, value 0: expected a finite number, found nan");
  dir.put("y", npy<double>({3}, {0, 1e300, 0}));
  CHECK(error(dir) == "$/y.npy, sample 1, value 0: expected a finite number, found 1e+300");
  check_contains(error(dir, {{"target", "soft_labels"}}), "expected targets (N, K), found");
  dir.put("y", npy<float>({3, 1, 1}, {0, 1, 0}));
  check_contains(error(dir, {{"target", "values"}}), "expected targets (N, K) or (N,), found");
}

TEST_CASE("npy: invalid weights") {
  const Files dir;
  dir.put("y", npy<float>({3}, {0, 1, 2}));
  const auto of_weights = [&](const std::string& bytes) {
    dir.put("w", bytes);
    return error(dir, {{"train.weights", dir / "w.npy"}});
  };
  CHECK(of_weights(npy<float>({3}, {1, -1, 1})) ==
        "$/w.npy, sample 1: expected a weight of 0, or from 1e-12 to 1e+12, found -1 (multiplying "
        "all weights by one number does not change the loss)");
  check_contains(of_weights(npy<float>({3}, {1, 1, NAN})), "sample 2: expected a weight of 0, or ");
  check_contains(of_weights(npy<double>({3}, {1e300, 1, 1})),
                 "sample 0: expected a weight of 0, or ");
  check_contains(of_weights(npy<float>({3}, {1, 1e-20F, 1})),
                 "found 1e-20 (multiplying all weights");
  CHECK(of_weights(npy<float>({3}, {0, 0, 0})) ==
        "$/w.npy: expected at least one weight above 0, found none");
  CHECK(
      of_weights(npy<float>({2}, {1, 1})) ==
      "$/w.npy: expected the weights of the 3 samples of $/x.npy, found an array (2,) of float32");
  check_contains(of_weights(npy<std::int32_t>({3}, {1, 1, 1})),
                 "expected weights (N,) of float32 or float64, found an array (3,) of int32");
}

}  // namespace dpt::data_test
