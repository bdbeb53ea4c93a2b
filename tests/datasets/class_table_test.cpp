// All splits of a data set, and the checkpoint that is evaluated on it, share one class table. In
// every format, a class maps to the output with which it was trained.
#include "datasets/class_table.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>

#include "engine/data/data_sets.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/npy.h"
#include "tests/support/tar.h"
#include "tests/support/text.h"

namespace dpt::data_test {
namespace {

using testing::check_contains;
using Names = std::vector<std::string>;
using Labels = std::vector<std::int32_t>;

std::string image_file() {
  const Bytes bytes = png(2, 2, 1, Bytes(4, 9));
  return {bytes.begin(), bytes.end()};
}

/// Samples that are identified by their classes alone, in each format that has names.
struct NamedData : TempDir {
  explicit NamedData(std::string kind) : format(std::move(kind)) {}

  /// Writes one sample of each of `classes`, in this order if the format keeps an order.
  void put(const std::string& split, const Names& classes) const {
    std::filesystem::remove_all(*this / split);
    if (format == "image_folder") {
      int number = 0;
      for (const std::string& name : classes) {
        write(fmt::format("{}/{}/{}.png", split, name, number++), png(2, 2, 1, Bytes(4, 9)));
      }
      return;
    }
    std::string text = format == "csv" ? "x,kind\n" : "";
    int number = 0;
    for (const std::string& name : classes) {
      if (format == "csv") {
        text += fmt::format("{},{}\n", number++, name);
      } else if (number++ % 2 == 0) {
        text += testing::tar_member(fmt::format("{}.cls", number), name + "\n") +
                testing::tar_member(fmt::format("{}.png", number), image_file());
      } else {
        text += testing::tar_member(fmt::format("{}.json", number),
                                    fmt::format("{{\"label\": \"{}\"}}", name)) +
                testing::tar_member(fmt::format("{}.png", number), image_file());
      }
    }
    if (format == "webdataset") text += testing::kTarEnd;
    testing::write_bytes(*this / split, text);
  }

  DataSets read(std::size_t classes, const Names& known = {}, const Names& given = {}) const {
    const SampleShape shape = format == "csv" ? SampleShape{1, 1, 1} : SampleShape{2, 2, 1};
    DataRequirements requirements{shape, static_cast<std::int64_t>(classes)};
    requirements.known_classes = known;
    Fields fields;
    if (!given.empty()) fields.emplace_back("classes", given);
    if (format == "image_folder") {
      fields.emplace_back("root", path());
      return open(format, fields, requirements);
    }
    const std::string of = format == "csv" ? ".file" : ".shards";
    if (format == "csv") fields.emplace_back("label", std::string("kind"));
    fields.emplace_back("train" + of, *this / "train");
    if (std::filesystem::exists(*this / "test")) fields.emplace_back("test" + of, *this / "test");
    return open(format, fields, requirements);
  }
  std::string error(std::size_t classes, const Names& known = {}, const Names& given = {}) const {
    return error_of([&] { read(classes, known, given); }, *this);
  }

  std::string format;
};

/// Runs `body` for each format.
void for_each_format(const std::function<void(const NamedData&)>& body) {
  for (const char* format : {"image_folder", "csv", "webdataset"}) {
    CAPTURE(format);
    body(NamedData(format));
  }
}

Labels labels_of(const DataSource& source) {
  Labels all;
  for (std::int64_t i = 0; i < source.size(); ++i) all.push_back(source.label(i));
  return all;
}

/// Returns the classes of all samples, according to the table.
Names names_of_samples(const DataSource& source) {
  Names names;
  for (const std::int32_t label : labels_of(source)) {
    names.push_back(source.classes()[label]);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("classes: the same in another order") {
  for_each_format([](const NamedData& data) {
    data.put("train", {"dog", "cat", "emu", "cat"});
    data.put("test", {"emu", "dog", "cat"});
    const DataSets sets = data.read(3);
    CHECK(sets.train->classes() == Names{"cat", "dog", "emu"});
    CHECK(sets.test->classes() == sets.train->classes());
    CHECK(names_of_samples(*sets.train) == Names{"cat", "cat", "dog", "emu"});
    CHECK(names_of_samples(*sets.test) == Names{"cat", "dog", "emu"});
    CHECK(sets.notes.empty());
  });
}

TEST_CASE("classes: a class that the test data lacks shifts no others, and is reported") {
  for_each_format([](const NamedData& data) {
    data.put("train", {"ant", "bee", "cat"});
    data.put("test", {"cat", "ant"});
    const DataSets sets = data.read(3);
    CHECK(sets.test->classes() == Names{"ant", "bee", "cat"});
    CHECK(names_of_samples(*sets.test) == Names{"ant", "cat"});
    CHECK(sets.notes == Names{"the test data has no samples of 1 of the 3 classes: bee"});
  });
}

TEST_CASE("classes: one that only the test data has") {
  for_each_format([](const NamedData& data) {
    data.put("train", {"ant", "cat"});
    data.put("test", {"ant", "bee", "cat"});
    const std::string error = data.error(2);
    check_contains(error, "$/test");
    check_contains(error, ": $/train has no class 'bee'");
  });
}

TEST_CASE("classes: a renamed one, and upper and lower case") {
  for_each_format([](const NamedData& data) {
    data.put("train", {"goldfish", "cat"});
    data.put("test", {"gold-fish", "cat"});
    check_contains(data.error(2),
                   "$/train has no class 'gold-fish'; it has 'goldfish' (names "
                   "are compared byte by byte)");
    data.put("test", {"goldfish", "Cat"});
    check_contains(data.error(2), "$/train has no class 'Cat'; it has 'cat'");
    data.put("train", {"goldfish", "cat", "Cat"});
    CHECK(data.read(3).train->classes() == Names{"Cat", "cat", "goldfish"});
    CHECK(names_of_samples(*data.read(3).test) == Names{"Cat", "goldfish"});
  });
}

TEST_CASE("classes: names that are not ASCII") {
  for_each_format([](const NamedData& data) {
    const std::string composed = "caf\xc3\xa9", decomposed = "cafe\xcc\x81";
    data.put("train", {"猫", composed, "Äpfel", "zebra"});
    data.put("test", {"zebra", "Äpfel", "猫", composed});
    CHECK(data.read(4).train->classes() == Names{composed, "zebra", "Äpfel", "猫"});
    CHECK(names_of_samples(*data.read(4).test) == Names{composed, "zebra", "Äpfel", "猫"});
    data.put("test", {decomposed});
    check_contains(data.error(4), "$/train has no class '" + decomposed + "'");
  });
}

TEST_CASE("classes: folders whose names are not UTF-8 have those that a checkpoint keeps") {
  for_each_format([](const NamedData& data) {
    const std::string latin = "caf\xe9", kept = "caf\xef\xbf\xbd";
    data.put("train", {latin, "zebra", latin});
    if (data.format != "image_folder") {
      // Text must be UTF-8.
      check_contains(data.error(2), data.format == "csv" ? "expected UTF-8, found the byte 0xE9"
                                                         : "1.cls: expected UTF-8, found the byte");
      return;
    }
    data.put("test", {latin});
    const Names classes = data.read(2).train->classes();
    CHECK(classes == Names{kept, "zebra"});
    CHECK(data.read(2, classes).test->classes() == classes);
    CHECK(names_of_samples(*data.read(2, classes).test) == Names{kept});
    data.put("test", {"caf\xe8"});
    check_contains(data.error(2),
                   "found two class names that are not UTF-8 and would both be stored as '" + kept +
                       "': rename one");
  });
}

TEST_CASE("classes: hidden folders are not classes") {
  const NamedData data("image_folder");
  data.put("train", {"cat", "dog"});
  data.put("test", {"cat", "dog"});
  for (const char* split : {"train", "test"}) {
    for (const char* hidden : {".git", ".ipynb_checkpoints", "cat/.ipynb_checkpoints"}) {
      data.write(fmt::format("{}/{}/1.png", split, hidden), {1});
    }
  }
  const DataSets sets = data.read(2);
  CHECK(sets.train->classes() == Names{"cat", "dog"});
  CHECK(sets.train->size() == 2);
  CHECK(sets.test->size() == 2);
}

TEST_CASE("classes: those of a checkpoint, whatever the data's own order") {
  for_each_format([](const NamedData& data) {
    const Names known = {"emu", "cat", "dog"};
    data.put("train", {"cat", "dog", "emu"});
    data.put("test", {"dog", "emu"});
    const DataSets sets = data.read(3, known);
    CHECK(sets.train->classes() == known);
    CHECK(sets.test->classes() == known);
    CHECK(names_of_samples(*sets.train) == Names{"cat", "dog", "emu"});
    CHECK(names_of_samples(*sets.test) == Names{"dog", "emu"});
    // Missing classes are reported, and an unknown class is refused.
    data.put("train", {"dog"});
    CHECK(labels_of(*data.read(3, known).train) == Labels{2});
    CHECK(data.read(3, known).notes ==
          Names{"the training data has no samples of 2 of the 3 classes: emu, cat",
                "the test data has no samples of 1 of the 3 classes: cat"});
    data.put("train", {"dog", "eel"});
    check_contains(data.error(3, known), "the checkpoint has no class 'eel'");
    // If the run's data had no class names, its classes are numbers.
    check_contains(data.error(3, {"0", "1", "2"}), "the checkpoint has no class 'dog'");
  });
}

TEST_CASE("classes: numbers are places in data.classes, whose names a checkpoint knows") {
  const TempDir dir;
  const auto shard = [](const Names& texts) {
    std::string text;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      text += testing::tar_member(fmt::format("{}.cls", i), texts[i]) +
              testing::tar_member(fmt::format("{}.png", i), image_file());
    }
    return text + testing::kTarEnd;
  };
  testing::write_bytes(dir / "s.tar", shard({"2", "0", "1"}));
  const auto read = [&](const Names& known, const Names& given) {
    DataRequirements requirements{{2, 2, 1}, 3};
    requirements.known_classes = known;
    return open("webdataset", {{"train.shards", dir / "s.tar"}, {"classes", given}}, requirements)
        .train;
  };
  const Names known = {"cat", "dog", "emu"};
  CHECK(labels_of(*read({}, known)) == Labels{2, 0, 1});
  CHECK(labels_of(*read(known, known)) == Labels{2, 0, 1});
  CHECK(labels_of(*read(known, {"emu", "cat", "dog"})) == Labels{1, 2, 0});
  CHECK(read(known, {"emu", "cat", "dog"})->classes() == known);
  // If the run's data had no class names, data with or without names is accepted.
  CHECK(read({"0", "1", "2"}, known)->classes() == known);
  CHECK(labels_of(*read({"0", "1", "2"}, {})) == Labels{2, 0, 1});
  const auto error = [&](const Names& of_checkpoint, const Names& given) {
    return error_of([&] { read(of_checkpoint, given); }, dir);
  };
  CHECK(error(known, {}) ==
        "$/s.tar, 0.cls: expected class names, as in the checkpoint (cat, dog, emu), found class "
        "numbers: name the data's classes in data.classes, in the order of their numbers");
  CHECK(error(known, {"emu", "cow", "dog"}) ==
        "$/s.tar, 2.cls: the checkpoint has no class 'cow'; leave it out: the "
        "model has no output for it");
  CHECK(error_of(
            [&] {
              read({}, {"a", "b", "a"});
            },
            ErrorKind::usage) == "data.classes: expected different names, found 'a' twice");
  // The type of the first label applies to all.
  testing::write_bytes(dir / "s.tar", shard({"2", "dog"}));
  CHECK(error({}, {}) ==
        "$/s.tar, 1.cls: expected the number of a class, found 'dog' (without data.label_type, the "
        "first label decides whether labels are numbers or names)");
  testing::write_bytes(dir / "s.tar", shard({"dog", "2"}));
  check_contains(error({}, {}), "$/s.tar, 1.cls: expected the name of a class, found '2' (without");
  const auto as_names =
      open("webdataset", {{"train.shards", dir / "s.tar"}, {"label_type", std::string("name")}},
           {{2, 2, 1}, 2});
  CHECK(as_names.train->classes() == Names{"2", "dog"});
  CHECK(labels_of(*as_names.train) == Labels{1, 0});
}

TEST_CASE("classes: formats without names are compared with the checkpoint") {
  const auto open_digits = [](const Names& known) {
    DataRequirements requirements{{8, 8, 1}, 10};
    requirements.known_classes = known;
    return open("digits", {}, requirements);
  };
  CHECK(open_digits(open_digits({}).train->classes()).train->size() > 0);
  Names other = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
  CHECK(error_of([&] { open_digits(other); })
            .starts_with("the data's classes are not those of the checkpoint: missing zero, one, "
                         "two, three, four, ...; unknown 0, 1, 2, 3, 4, ...."));
  CHECK(difference_of_classes({"a", "b", "c"}, {"a", "c", "b"}) ==
        "in another order: number 1 is 'c', not 'b'");
  CHECK(difference_of_classes({"a", "b"}, {"a", "c"}) == "missing b; unknown c");
  CHECK(difference_of_classes({"a"}, {"a"}).empty());
}

}  // namespace
}  // namespace dpt::data_test
