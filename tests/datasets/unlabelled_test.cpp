// Samples to be predicted: every kind of data set without labels, and with labels that are ignored.
#include <filesystem>

#include "datasets/dataset.h"
#include "engine/data/data_sets.h"
#include "engine/data/unreadable_samples.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/npy.h"
#include "tests/support/tar.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using namespace data_test;
using testing::check_contains;
using testing::npy;
using testing::write_bytes;
using Strings = std::vector<std::string>;
using Source = std::shared_ptr<const DataSource>;

/// A part of a data set, and the errors of its samples.
struct Opened {
  Source source;
  std::shared_ptr<UnreadableSamples> unreadable = std::make_shared<UnreadableSamples>();
};

Opened open_part(const std::string& name, const Fields& fields, DataPart part,
                 const DataRequirements& requirements,
                 const ModelOutputs& outputs = {{"no", "yes"}, {}}) {
  Opened opened;
  opened.source = open_unlabelled(variant(dataset_kinds().table(), name, fields), part,
                                  requirements, outputs, opened.unreadable);
  return opened;
}

/// Returns the requirements of a model with the given input, from a checkpoint with two classes.
DataRequirements of_checkpoint(SampleShape input, const Strings& features = {},
                               std::optional<DType> type = {}) {
  DataRequirements requirements{input, 2};
  requirements.known_classes = {"no", "yes"};
  requirements.features = features;
  requirements.type = type;
  return requirements;
}

std::vector<float> floats(const DataSource& source, std::int64_t index) {
  std::vector<float> values(static_cast<std::size_t>(source.shape().elements()));
  std::int32_t label = -1;
  source.read(index, std::as_writable_bytes(std::span(values)), label);
  CHECK(label == 0);
  return values;
}

Bytes grey(std::uint8_t value) {
  return png(4, 4, 1, Bytes(16, value));
}
std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

/// Returns the grey values of samples with one pixel each.
Bytes pixels_of(const DataSource& source) {
  Bytes values;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto [pixels, label] = sample(source, i);
    CHECK(label == 0);
    values.push_back(pixels[0]);
  }
  return values;
}

}  // namespace

TEST_CASE("unlabelled: arrays need no targets, and those that are there are not opened") {
  const TempDir dir;
  write_bytes(dir / "x.npy", npy<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const DataRequirements two = of_checkpoint({1, 1, 2});
  const Fields train = {{"train.images", dir / "x.npy"}};
  const Source source = open_part("npy", train, DataPart::train, two).source;
  REQUIRE(source);
  CHECK(source->size() == 3);
  CHECK(source->classes() == Strings{"no", "yes"});
  CHECK(floats(*source, 1) == std::vector<float>{3, 4});
  CHECK(source->label(2) == 0);
  CHECK_FALSE(source->resizes());
  REQUIRE(source->resident());
  CHECK(source->resident()->labels.size() == 3);
  CHECK(source->resident()->targets.empty());
  CHECK(!open_part("npy", train, DataPart::test, two).source);

  // The training files may be missing, and so may the targets of the other samples.
  const Fields both = {{"train.images", dir / "gone.npy"},
                       {"train.targets", dir / "gone.npy"},
                       {"test.images", dir / "x.npy"},
                       {"test.targets", dir / "gone.npy"},
                       {"test.weights", dir / "gone.npy"}};
  const Source test = open_part("npy", both, DataPart::test, two).source;
  CHECK(floats(*test, 2) == std::vector<float>{5, 6});
  CHECK_FALSE(test->targets().weighted);

  // The outputs of the model define the kind of the targets.
  const ModelOutputs values{{"a", "b", "c"}, {TargetKind::values, 3, false}};
  const Source numbers = open_part("npy", train, DataPart::train, two, values).source;
  CHECK(numbers->targets() == TargetShape{TargetKind::values, 3, false});
  REQUIRE(numbers->resident()->targets.size() == 9);
  std::vector<float> row(3, 1.0F);
  numbers->read_targets(1, row);
  CHECK(row == std::vector<float>{0, 0, 0});

  const auto error = [&](const DataRequirements& requirements) {
    return error_of([&] { open_part("npy", train, DataPart::train, requirements); }, dir);
  };
  CHECK(error(of_checkpoint({1, 1, 5})) ==
        "$/x.npy: the samples are 1x1 with 2 channels, but the checkpoint's model takes 1x1 with 5 "
        "channels: use samples of that shape");
  CHECK(error(of_checkpoint({1, 1, 2}, {}, DType::u8)) ==
        "$/x.npy, sample 0: expected samples of the run's type (u8), found fp32: u8 is scaled to 0 "
        "to 1, fp32 is used unchanged");
  CHECK_NOTHROW(open_part("npy", train, DataPart::train, of_checkpoint({1, 1, 2}, {}, DType::f32)));
}

TEST_CASE("unlabelled: features of a table are those of the run, by name and in its order") {
  const TempDir dir;
  const auto put = [&](const std::string& text) {
    dir.write("x.csv", Bytes(text.begin(), text.end()));
  };
  const Fields fields = {{"train.file", dir / "x.csv"}};
  const auto open = [&](const Strings& features, const Fields& more = {}) {
    Fields all = fields;
    all.insert(all.end(), more.begin(), more.end());
    return open_part("csv", all, DataPart::train, of_checkpoint({1, 1, 2}, features));
  };
  put("height,id,width,kind\n2,a,1,round\n4,b,3,none of the run's\n");
  const Source source = open({"width", "height"}).source;
  REQUIRE(source->size() == 2);
  CHECK(floats(*source, 0) == std::vector<float>{1, 2});
  CHECK(floats(*source, 1) == std::vector<float>{3, 4});
  CHECK(source->features() == Strings{"width", "height"});
  CHECK(source->label(1) == 0);
  CHECK(source->describe(1) == dir / "x.csv, line 3");
  // The same columns are read if the data set names the columns in another order, or names a label
  // column that does not exist.
  const Fields named = {{"features", Strings{"height", "width"}}, {"label", std::string("gone")}};
  CHECK(floats(*open({"width", "height"}, named).source, 0) == std::vector<float>{1, 2});
  // If the checkpoint has no column names, those of this data set are used.
  CHECK(floats(*open({}, named).source, 0) == std::vector<float>{2, 1});

  CHECK(error_of([&] { open({}); }, dir)
            .starts_with("$/x.csv: cannot tell which columns are the model's inputs, because the "
                         "checkpoint does not record their names"));
  CHECK(error_of(
            [&] {
              open({"width", "weight"});
            },
            dir) ==
        "$/x.csv: expected a column 'weight', which the checkpoint names, found height, id, width, "
        "kind; did you mean 'height'?");
  CHECK(error_of([&] { open({"width"}); }, dir)
            .starts_with("$/x.csv: the samples are 1x1 with 1 channel, but the checkpoint's model "
                         "takes 1x1 with 2"));

  // An unreadable line keeps its position.
  put("width,height\n1,2\n3,NA\n5,6\n");
  const Opened some = open({"width", "height"});
  REQUIRE(some.source->size() == 3);
  CHECK(floats(*some.source, 1) == std::vector<float>{3, 0});
  CHECK(floats(*some.source, 2) == std::vector<float>{5, 6});
  const auto problems = some.unreadable->take_below(3);
  REQUIRE(problems.size() == 1);
  check_contains(problems.at(1),
                 "x.csv, line 3, column 2 (height): expected a number, found 'NA' (missing");
  put("width,height\n");
  check_contains(error_of([&] { open({"width", "height"}); }, dir), "expected a line for each");
}

TEST_CASE("unlabelled: images of a table, of which some are missing") {
  const TempDir dir;
  dir.write("pictures/a.png", grey(7));
  dir.write("pictures/bad.png", {1, 2, 3});
  const std::string text = "file\na.png\ngone.png\nbad.png\n\"\"\na.png\n";
  dir.write("x.csv", Bytes(text.begin(), text.end()));
  const Opened opened = open_part("csv",
                                  {{"train.file", dir / "gone.csv"},
                                   {"test.file", dir / "x.csv"},
                                   {"path", std::string("file")},
                                   {"root", dir / "pictures"}},
                                  DataPart::test, of_checkpoint({4, 4, 1}));
  REQUIRE(opened.source->size() == 5);
  CHECK(opened.source->resizes());
  CHECK(opened.source->describe(2) == dir / "pictures/bad.png");
  CHECK(pixels_of(*opened.source) == Bytes{7, 0, 0, 0, 7});
  const auto problems = opened.unreadable->take_below(5);
  REQUIRE(problems.size() == 3);
  check_contains(problems.at(1), "pictures/gone.png: cannot be opened: No such file or directory");
  check_contains(problems.at(2), "pictures/bad.png: ");
  check_contains(problems.at(3), "x.csv, line 5, column 1 (file): expected the path of an image");
}

TEST_CASE("unlabelled: shards of images alone, or with labels of any kind") {
  const TempDir dir;
  const auto put = [&](const std::string& name,
                       const std::vector<std::pair<std::string, std::string>>& members) {
    write_bytes(dir / name, testing::tar(members));
  };
  put("a.tar", {{"0.png", text_of(grey(1))},
                {"1.json", "not JSON"},
                {"1.png", text_of(grey(2))},
                {"2.cls", "no class of the run"},
                {"2.png", "no picture"},
                {"2.json", "{}"},
                {"3.txt", "a caption"},
                {"3.png", text_of(grey(4))}});
  const Fields fields = {{"train.shards", dir / "a.tar"}};
  const Opened opened = open_part("webdataset", fields, DataPart::train, of_checkpoint({4, 4, 1}));
  REQUIRE(opened.source->size() == 4);
  CHECK(opened.source->describe(3) == dir / "a.tar, 3.png");
  CHECK(pixels_of(*opened.source) == Bytes{1, 2, 0, 4});
  CHECK(opened.unreadable->take_below(4).count(2) == 1);
  CHECK(!open_part("webdataset", fields, DataPart::test, of_checkpoint({4, 4, 1})).source);
  // Training still requires labels.
  check_contains(error_of(
                     [&] {
                       data_test::open("webdataset", fields, {{4, 4, 1}, 0});
                     },
                     dir),
                 "$/a.tar, sample 0: expected a label (.cls or .json), found .png");

  put("a.tar", {{"0.cls", "0"}});
  check_contains(error_of(
                     [&] {
                       open_part("webdataset", fields, DataPart::train, of_checkpoint({4, 4, 1}));
                     },
                     dir),
                 "$/a.tar, sample 0: expected one image (.jpg, ");
  put("a.tar", {{"0.png", text_of(grey(1))}, {"0.jpg", text_of(grey(1))}});
  check_contains(error_of(
                     [&] {
                       open_part("webdataset", fields, DataPart::train, of_checkpoint({4, 4, 1}));
                     },
                     dir),
                 "$/a.tar, 0.jpg: expected one image");
}

TEST_CASE("unlabelled: IDX images without labels, of the part that is asked for") {
  const TempDir dir;
  const Fields root = {{"root", dir.path()}};
  const DataRequirements small = of_checkpoint({2, 3, 1});
  dir.write("t10k-images-idx3-ubyte.gz", gzip(idx({2, 2, 3}, noise(12))));
  const Source test = open_part("idx", root, DataPart::test, small).source;
  REQUIRE(test);
  CHECK(test->size() == 2);
  const Bytes all = noise(12);
  CHECK(sample(*test, 1) == std::pair(Bytes(all.begin() + 6, all.end()), 0));
  CHECK(error_of([&] { open_part("idx", root, DataPart::train, small); }, dir) ==
        "idx: $ has no file train-images-idx3-ubyte, plain or with .gz");

  dir.write("train-images-idx3-ubyte", idx({3, 2, 3}, noise(18)));
  dir.write("train-labels-idx1-ubyte", idx({2}, {200, 201}));
  CHECK(open_part("idx", root, DataPart::train, small).source->size() == 3);
  check_contains(error_of(
                     [&] {
                       data_test::open("idx", root, {{2, 3, 1}, 2});
                     },
                     dir),
                 "they do not belong together");
  std::filesystem::remove(dir / "t10k-images-idx3-ubyte.gz");
  CHECK(!open_part("idx", root, DataPart::test, small).source);
  check_contains(
      error_of(
          [&] {
            open_part("idx", root, DataPart::train, of_checkpoint({8, 8, 1}));
          },
          dir),
      "train-images-idx3-ubyte: the samples are 2x3 with 1 channel, but the checkpoint's model "
      "takes 8x8 with 1 channel");
  // Published data sets must have their published number of images.
  check_contains(error_of([&] { open_part("mnist", root, DataPart::train, small); }, dir),
                 "expected the 60000 images of the published data set, found 3");
  check_contains(error_of([&] { open_part("fashion_mnist", root, DataPart::test, small); }, dir),
                 "fashion_mnist: $ has no file t10k-images-idx3-ubyte");
}

TEST_CASE("unlabelled: a folder for each class, of any classes") {
  const TempDir dir;
  dir.write("test/bee/1.png", grey(1));
  dir.write("test/yes/1.png", grey(2));
  dir.write("test/no/2.png", grey(3));
  dir.write("test/no/10.png", grey(4));
  dir.write("test/ant/1.png", {1});
  const Fields root = {{"root", dir.path()}};
  const Opened opened = open_part("image_folder", root, DataPart::test, of_checkpoint({4, 4, 1}));
  // Samples of the run's classes come first, so that their numbers equal those of an evaluation.
  CHECK(pixels_of(*opened.source) == Bytes{4, 3, 2, 0, 1});
  CHECK(opened.source->describe(0) == dir / "test/no/10.png");
  CHECK(opened.unreadable->take_below(5).count(3) == 1);
  CHECK(error_of(
            [&] {
              open_part("image_folder", root, DataPart::train, of_checkpoint({4, 4, 1}));
            },
            dir) == "image_folder: $ has no folder train; expected $/train/CLASS/IMAGE");
  std::filesystem::rename(dir / "test", dir / "train");
  CHECK(!open_part("image_folder", root, DataPart::test, of_checkpoint({4, 4, 1})).source);
  CHECK(open_part("image_folder", root, DataPart::train, of_checkpoint({4, 4, 1})).source->size() ==
        5);
}

TEST_CASE("unlabelled: data sets whose labels are always there") {
  const TempDir dir;
  const ModelOutputs outputs{{"no", "yes"}, {}};
  const auto compare = [&](const std::string& name, const Fields& fields, SampleShape shape,
                           std::int64_t classes) {
    const DataSets sets = data_test::open(name, fields, {shape, classes});
    for (const auto& [part, labelled] :
         {std::pair(DataPart::train, sets.train), std::pair(DataPart::test, sets.test)}) {
      DataRequirements requirements = of_checkpoint(shape);
      requirements.classes = classes;
      const Source source = open_part(name, fields, part, requirements).source;
      REQUIRE(source);
      REQUIRE(source->size() == labelled->size());
      CHECK(source->classes() == Strings{"no", "yes"});
      for (const std::int64_t index : {std::int64_t{0}, std::int64_t{3}, source->size() - 1}) {
        CHECK(sample(*source, index) == std::pair(sample(*labelled, index).first, 0));
      }
    }
  };
  compare("digits", {}, {8, 8, 1}, 10);
  compare("synthetic", {{"size", std::int64_t{20}}, {"test_size", std::int64_t{10}}}, {5, 5, 1}, 3);
  // A model with other outputs can still predict.
  CHECK(open_part("digits", {}, DataPart::test, of_checkpoint({8, 8, 1})).source->size() == 360);
  CHECK(!open_part("synthetic", {{"test_size", std::int64_t{0}}}, DataPart::test,
                   of_checkpoint({5, 5, 1}))
             .source);
  // Each part of CIFAR works separately.
  for (const std::string name : {"cifar10", "cifar100"}) {
    const std::string file = name == "cifar10" ? "test_batch.bin" : "test.bin";
    const std::size_t record = name == "cifar10" ? 3073 : 3074;
    dir.write(name + "/" + file, Bytes(10000 * record, 5));
    const Source test =
        open_part(name, {{"root", dir / name}}, DataPart::test, of_checkpoint({32, 32, 3})).source;
    CHECK(test->size() == 10000);
    check_contains(
        error_of(
            [&] {
              open_part(name, {{"root", dir / name}}, DataPart::train, of_checkpoint({32, 32, 3}));
            },
            dir),
        "has no file");
  }
}

}  // namespace dpt
