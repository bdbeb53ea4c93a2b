// CSV files: features and images, labels and targets, and each way in which a file can be wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "datasets/csv_reader.h"
#include "datasets/dataset.h"
#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/text.h"

namespace dpt::data_test {
namespace {

using testing::check_contains;
using Strings = std::vector<std::string>;

struct CsvDir : TempDir {
  void put(const std::string& name, const std::string& text) const {
    write(name, Bytes(text.begin(), text.end()));
  }
  DataSets read(Fields fields, const DataRequirements& requirements) const {
    fields.emplace_back("train.file", *this / "train.csv");
    return open("csv", fields, requirements);
  }
  std::string error(const Fields& fields, const DataRequirements& requirements) const {
    return error_of([&] { read(fields, requirements); }, *this);
  }
};

const DataRequirements kTwoFeatures{{1, 1, 2}, 0};
const Fields kKind = {{"label", std::string("kind")}};

Fields with(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

std::vector<float> features(const DataSource& source, std::int64_t index) {
  std::vector<float> values(static_cast<std::size_t>(source.shape().elements()));
  std::int32_t label = 0;
  source.read(index, std::as_writable_bytes(std::span(values)), label);
  return values;
}

std::vector<std::int32_t> labels(const DataSource& source) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < source.size(); ++i) all.push_back(source.label(i));
  return all;
}

std::vector<float> targets(const DataSource& source, std::int64_t index) {
  std::vector<float> row(static_cast<std::size_t>(source.targets().floats()));
  source.read_targets(index, row);
  return row;
}

}  // namespace

TEST_CASE("csv: features, and classes by name, whose table is the training file's") {
  const CsvDir dir;
  dir.put("train.csv", "a,kind,b\n1,dog,2.5\n-3e2, cat ,+4\n0.125,dog,1e-60\n");
  dir.put("test.csv", "b,a,kind\n7,6,dog\n");
  const DataSets sets = dir.read(with(kKind, {{"test.file", dir / "test.csv"}}), {{1, 1, 2}, 2});
  CHECK(sets.train->size() == 3);
  CHECK(sets.train->type() == DType::f32);
  CHECK(sets.train->shape() == SampleShape{1, 1, 2});
  CHECK(sets.train->targets() == TargetShape{});
  CHECK(sets.train->classes() == Strings{"cat", "dog"});
  CHECK(labels(*sets.train) == std::vector<std::int32_t>{1, 0, 1});
  CHECK(features(*sets.train, 0) == std::vector<float>{1, 2.5});
  CHECK(features(*sets.train, 1) == std::vector<float>{-300, 4});
  CHECK(features(*sets.train, 2) == std::vector<float>{0.125, 0});
  CHECK(sets.train->describe(1) == dir / "train.csv" + ", line 3");
  CHECK(!sets.train->resizes());
  REQUIRE(sets.train->resident());
  CHECK(sets.train->resident()->pixels.size() == 24);
  // Columns and classes are matched by name.
  CHECK(features(*sets.test, 0) == std::vector<float>{6, 7});
  CHECK(labels(*sets.test) == std::vector<std::int32_t>{1});
  CHECK(sets.test->classes() == sets.train->classes());
}

TEST_CASE("csv: names that are numbers are sorted by value, and classes may be given") {
  const CsvDir dir;
  dir.put("train.csv", "a,kind,b\n1,10,1\n1,9,1\n1,x,1\n1,-1,1\n1,010,1\n");
  CHECK(dir.read(kKind, kTwoFeatures).train->classes() == Strings{"9", "010", "10", "-1", "x"});
  CHECK(labels(*dir.read(kKind, kTwoFeatures).train) == std::vector<std::int32_t>{2, 0, 4, 3, 1});
  const Fields given = with(kKind, {{"classes", Strings{"x", "10", "9", "-1"}}});
  CHECK(dir.error(given, kTwoFeatures) ==
        "$/train.csv, line 6, column 2 (kind): data.classes has no class '010'; "
        "it has '10' (names are compared byte by byte)");
  dir.put("train.csv", "a,kind,b\n1,10,1\n1,9,1\n");
  CHECK(labels(*dir.read(given, kTwoFeatures).train) == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("csv: several labels in a field are multi-hot targets, named as classes are") {
  const CsvDir dir;
  const Fields several = with(kKind, {{"label_separator", std::string("|")}});
  dir.put("train.csv", "a,kind,b\n1,dog|cat,1\n2,,2\n3, cat | 10 ,3\n4,9|9,4\n");
  dir.put("test.csv", "a,kind,b\n1,10|dog,1\n");
  const DataSets sets = dir.read(with(several, {{"test.file", dir / "test.csv"}}), kTwoFeatures);
  const DataSource& train = *sets.train;
  CHECK(train.classes() == Strings{"9", "10", "cat", "dog"});
  CHECK(train.targets() == TargetShape{TargetKind::multi_hot, 4, false});
  CHECK(targets(train, 0) == std::vector<float>{0, 0, 1, 1});
  CHECK(targets(train, 1) == std::vector<float>{0, 0, 0, 0});
  CHECK(targets(train, 2) == std::vector<float>{0, 1, 1, 0});
  CHECK(targets(train, 3) == std::vector<float>{1, 0, 0, 0});
  CHECK(labels(train) == std::vector<std::int32_t>{0, 0, 0, 0});
  CHECK(features(train, 2) == std::vector<float>{3, 3});
  CHECK(targets(*sets.test, 0) == std::vector<float>{0, 1, 0, 1});
  CHECK(sets.test->classes() == train.classes());

  // The classes of a checkpoint or config keep their order.
  DataRequirements known = kTwoFeatures;
  known.known_classes = {"dog", "cat", "9", "10", "owl"};
  CHECK(targets(*dir.read(several, known).train, 0) == std::vector<float>{1, 1, 0, 0, 0});
  const Fields given = with(several, {{"classes", Strings{"10", "9", "dog", "cat"}}});
  CHECK(targets(*dir.read(given, kTwoFeatures).train, 2) == std::vector<float>{1, 0, 0, 1});
  // Labels may be numbers, and may be separated by spaces or, inside quotes, by the file's
  // delimiter.
  const Fields numbers = with(several, {{"label_type", std::string("number")}});
  dir.put("train.csv", "a,kind,b\n1,2|0,1\n");
  CHECK(targets(*dir.read(numbers, kTwoFeatures).train, 0) == std::vector<float>{1, 0, 1});
  CHECK(targets(*dir.read(numbers, {{1, 1, 2}, 4}).train, 0) == std::vector<float>{1, 0, 1, 0});
  dir.put("train.csv", "a,kind,b\n1,haze  primary ,1\n1,\"haze,road\",1\n");
  const auto separated_by = [&](const std::string& separator) {
    return dir.read(with(kKind, {{"label_separator", separator}}), kTwoFeatures).train->classes();
  };
  CHECK(separated_by(" ") == Strings{"haze", "haze,road", "primary"});
  CHECK(separated_by(",") == Strings{"haze", "haze  primary", "road"});
}

TEST_CASE("csv: several labels in a field that are wrong") {
  const CsvDir dir;
  const Fields several =
      with(kKind, {{"label_separator", std::string("|")}, {"test.file", dir / "test.csv"}});
  dir.put("train.csv", "a,kind,b\n1,dog|cat,1\n");
  dir.put("test.csv", "a,kind,b\n1,,1\n1,dog|cats,1\n");
  CHECK(dir.error(several, kTwoFeatures) ==
        "$/test.csv, line 3, column 2 (kind): $/train.csv has no class 'cats'; "
        "it has 'cat' (names are compared byte by byte)");
  for (const char* field : {"dog||cat", "dog|", "|cat", "|"}) {
    CAPTURE(field);
    dir.put("test.csv", std::string("a,kind,b\n1,") + field + ",1\n");
    CHECK(dir.error(several, kTwoFeatures) ==
          std::string("$/test.csv, line 2, column 2 (kind): expected a label before and after each "
                      "'|' (data.label_separator), found '") +
              field + "'");
  }
  dir.put("train.csv", "a,kind,b\n1,,1\n");
  CHECK(dir.error(several, kTwoFeatures) ==
        "$/train.csv, column kind: expected labels, found only empty fields");
  dir.put("train.csv", "a,kind,b\n1,dog|cat,1\n");
  dir.put("test.csv", "a,kind,b\n1,dog,1\n");
  CHECK(dir.error(several, {{1, 1, 2}, 3}).find("3") != std::string::npos);
}

TEST_CASE("csv: one part of the files is opened alone, with the classes of a checkpoint") {
  const CsvDir dir;
  dir.put("test.csv", "b,a,kind\n7,6,dog\n");
  DataRequirements alone = kTwoFeatures;
  alone.known_classes = {"cat", "dog"};
  alone.features = {"a", "b"};
  alone.only = DataPart::test;
  const Fields test = with(kKind, {{"test.file", dir / "test.csv"}});
  const DataSets sets = dir.read(test, alone);
  CHECK(sets.train == nullptr);
  CHECK(features(*sets.test, 0) == std::vector<float>{6, 7});
  CHECK(labels(*sets.test) == std::vector<std::int32_t>{1});
  alone.only = DataPart::val;
  CHECK(dir.read(test, alone).val == nullptr);
}

TEST_CASE("csv: classes by number") {
  const CsvDir dir;
  const Fields number = with(kKind, {{"label_type", std::string("number")}});
  dir.put("train.csv", "a,kind,b\n1,2,1\n1,0,1\n");
  CHECK(labels(*dir.read(number, kTwoFeatures).train) == std::vector<std::int32_t>{2, 0});
  CHECK(dir.read(number, kTwoFeatures).train->classes() == Strings{"0", "1", "2"});
  CHECK(dir.read(number, {{1, 1, 2}, 5}).train->classes().size() == 5);
  CHECK(dir.error(number, {{1, 1, 2}, 2}) ==
        "$/train.csv, line 2, column 2 (kind): label 2 is out of range: with 2 classes, labels go "
        "from 0 to 1");
  dir.put("test.csv", "a,kind,b\n1,3,1\n");
  CHECK(dir.error(with(number, {{"test.file", dir / "test.csv"}}), kTwoFeatures) ==
        "$/test.csv, line 2, column 2 (kind): label 3 is out of range: with 3 classes, labels go "
        "from 0 to 2");
  for (const char* wrong : {"cat", "1.0", "99999999999999999999"}) {
    dir.put("train.csv", fmt::format("a,kind,b\n1,{},1\n", wrong));
    CHECK(dir.error(number, kTwoFeatures) ==
          fmt::format("$/train.csv, line 2, column 2 (kind): expected the number of a class "
                      "(label_type: number), found '{}'",
                      wrong));
  }
  dir.put("train.csv", "a,kind,b\n1,-1,1\n");
  check_contains(dir.error(number, kTwoFeatures), "column 2 (kind): label -1 is out of range");
  dir.put("train.csv", "a,kind,b\n1,2000000,1\n");
  check_contains(dir.error(number, kTwoFeatures), "label 2000000 is out of range: with 1000000");
}

TEST_CASE("csv: chosen features, and targets of each kind") {
  const CsvDir dir;
  dir.put("train.csv", "id,a,y1,b,y2\nx,1,0.25,2,0.75\ny,3,1,4,0\nz,5,0.5,6,0.5\n");
  const auto read = [&](const std::string& target) {
    return dir
        .read(
            {{"features", Strings{"b", "a"}}, {"targets", Strings{"y1", "y2"}}, {"target", target}},
            {{1, 1, 2}, 2})
        .train;
  };
  const auto values = read("values");
  CHECK(features(*values, 1) == std::vector<float>{4, 3});
  CHECK(values->targets() == TargetShape{TargetKind::values, 2, false});
  CHECK(targets(*values, 0) == std::vector<float>{0.25, 0.75});
  CHECK(values->classes() == Strings{"y1", "y2"});
  CHECK(labels(*values) == std::vector<std::int32_t>{0, 0, 0});
  CHECK(labels(*read("soft_labels")) == std::vector<std::int32_t>{1, 0, 0});
  CHECK(read("multi_hot")->targets().kind == TargetKind::multi_hot);
  CHECK(values->fingerprint() != read("multi_hot")->fingerprint());

  const auto error = [&](const std::string& row, const std::string& target) {
    dir.put("train.csv", "id,a,y1,b,y2\nx,1,0.5,2,0.5\ny,3," + row + "\n");
    return error_of([&] { read(target); }, dir);
  };
  CHECK(error("1,4,0.5", "soft_labels") ==
        "$/train.csv, line 3: expected probabilities that add up to 1 (within 0.001), found a sum "
        "of 1.5");
  CHECK(error("-1,4,2", "soft_labels") ==
        "$/train.csv, line 3, column 3 (y1): expected a probability, found '-1'");
  CHECK(error("1,4,2", "multi_hot") ==
        "$/train.csv, line 3, column 5 (y2): expected a target from 0 to 1, found '2'");
  CHECK(error("1,4,", "values") ==
        "$/train.csv, line 3, column 5 (y2): expected a number, found an empty field (missing "
        "values are not filled in: write a value, or remove the line)");
  check_contains(
      dir.error({{"features", Strings{"b", "a"}},
                 {"targets", Strings{"y1"}},
                 {"target", std::string("values")}},
                {{1, 1, 2}, 2}),
      "data.targets names 1 column, but the model's last layer has 2 outputs: give it 1");
}

TEST_CASE("csv: quotes, line ends, byte order mark, other delimiters, lines in fields") {
  const CsvDir dir;
  dir.put("train.csv",
          "\xef\xbb\xbf\"a\",\"kind\",\"say \"\"b\"\"\"\r\n1,\"cat, or\r\ndog\",2\r\n"
          "\"3\",\"\"\"x\"\"\",4\r\n\r\n\n");
  const DataSets sets = dir.read(kKind, kTwoFeatures);
  CHECK(sets.train->classes() == Strings{"\"x\"", "cat, or\r\ndog"});
  CHECK(features(*sets.train, 1) == std::vector<float>{3, 4});
  CHECK(sets.train->describe(0) == dir / "train.csv" + ", line 2");
  CHECK(sets.train->describe(1) == dir / "train.csv" + ", line 4");
  CHECK(CsvReader(dir / "train.csv", ',').header()[2] == "say \"b\"");
  dir.put("train.csv", "a;kind;b\n1;\"x;y\";2");
  CHECK(dir.read(with(kKind, {{"delimiter", std::string(";")}}), kTwoFeatures).train->classes() ==
        Strings{"x;y"});
  // Fields that cross the boundaries between read buffers.
  std::string text = "a,kind,b\n";
  for (int i = 0; i < 40000; ++i) text += fmt::format("{},k{},\"{}\"\r\n", i, i % 7, i + 0.5);
  dir.put("train.csv", text);
  const DataSets large = dir.read(kKind, kTwoFeatures);
  REQUIRE(large.train->size() == 40000);
  bool is_right = true;
  for (int i = 0; i < 40000; ++i) {
    const auto x = static_cast<float>(i);
    is_right = is_right && features(*large.train, i) == std::vector<float>{x, x + 0.5F} &&
               large.train->label(i) == i % 7;
  }
  CHECK(is_right);
}

TEST_CASE("csv: room is made for the features of a long table, and not for more") {
  const CsvDir dir;
  std::string text = "a,b,kind\n";
  constexpr int kLines = 300'000;
  for (int i = 0; i < kLines; ++i) text += std::to_string(i) + ",0.125,ant\n";
  dir.put("train.csv", text);
  const DataSets sets = dir.read(kKind, kTwoFeatures);
  CHECK(sets.train->size() == kLines);
  CHECK(features(*sets.train, kLines - 1) == std::vector<float>{kLines - 1, 0.125F});
}

TEST_CASE("csv: files that are not tables") {
  const CsvDir dir;
  const auto error = [&](const std::string& text) {
    dir.put("train.csv", text);
    return dir.error(kKind, kTwoFeatures);
  };
  CHECK(dir.error(kKind, kTwoFeatures) ==
        "$/train.csv: cannot be opened: No such file or directory");
  for (const char* empty : {"", "\xef\xbb\xbf", "\r\n\n"}) {
    CHECK(error(empty) ==
          "$/train.csv: expected a line with the names of the columns, found an empty file");
  }
  CHECK(error("a,kind,b\n") ==
        "$/train.csv: expected a line for each sample after the header, found none");
  CHECK(error("a,kind,a\n") ==
        "$/train.csv, line 1: expected columns with different names, found 'a' as column 1 and as "
        "column 3");
  CHECK(error("a,knd,b\n1,2,3\n") ==
        "$/train.csv: expected a column 'kind', which data.label names, found a, knd, b; did you "
        "mean 'knd'?");
  CHECK(error("a,kind,b\n1,2,3\n1,2\n") ==
        "$/train.csv, line 3: expected 3 fields, like the header, found 2");
  CHECK(error("a,kind,b\n1,2,3,4\n") ==
        "$/train.csv, line 2: expected 3 fields, like the header, found 4");
  CHECK(error("a,kind,b\n1,2,3\n\n1,2,3\n") ==
        "$/train.csv, line 3: expected fields, found an empty line");
  CHECK(error("a,kind,b\n1,2,\"3\n1,2,3\n") ==
        "$/train.csv, line 2: a field begins with a quote that is not closed");
  check_contains(error("a,kind,b\n1,\"2\"x,3\n"),
                 "line 2: expected a delimiter (',') or the end of the line after a closing quote, "
                 "found 'x'");
  check_contains(error("a,kind,b\n1,2\"x\",3\n"), "line 2: found a quote in the middle of a field");
  check_contains(error("a,kind,b\r1,2,3\r"), "line 1: expected LF after CR");
  check_contains(error(std::string("a,kind,b\n1,\0,3\n", 15)),
                 "line 2: expected text, found a zero");
  check_contains(error("\xff\xfe"
                       "a"),
                 "$/train.csv: expected UTF-8, found UTF-16");
  CHECK(error("a,kind,b\n1,cat,3\n2,s\xe9tosa,3\n") ==
        "$/train.csv, line 3: expected UTF-8, found the byte 0xE9 in column 2: save the file as "
        "UTF-8 (iconv -f LATIN1 -t UTF-8 IN.csv > OUT.csv, if it is Latin-1)");
  check_contains(error("a,k\xc3\x28,b\n1,cat,3\n"), "line 1: expected UTF-8, found the byte 0xC3");
  check_contains(error("\x1f\x8b\x08"), "expected text, found gzip: gunzip it first");
  CHECK(error(",kind,b\n0,2,3\n") ==
        "$/train.csv: expected a name for every column, found none for column 1: add one, or name "
        "the features in data.features (pandas writes its index this way; to_csv(index=False) "
        "omits it)");
  check_contains(error("kind\nx\n"), "expected feature columns in addition to the target columns");
  std::filesystem::create_directory(dir / "folder.csv");
  CHECK(error_of([&] { CsvReader(dir / "folder.csv", ','); }, dir) == "$/folder.csv: not a file");
}

TEST_CASE("csv: fields that are not numbers or not classes") {
  const CsvDir dir;
  const auto error = [&](const std::string& line) {
    dir.put("train.csv", "a,kind,b\n1,x,2\n" + line + "\n");
    return dir.error(kKind, kTwoFeatures);
  };
  CHECK(error("1,x,2;5") == "$/train.csv, line 3, column 3 (b): expected a number, found '2;5'");
  CHECK(error("1,x,\"2,5\"") ==
        "$/train.csv, line 3, column 3 (b): expected a number, found '2,5' (numbers cannot contain "
        "commas: save the table with decimal points, such as 3.5 for 3,5)");
  for (const char* missing : {"NA", "null", "None"}) {
    CHECK(error(fmt::format("{},x,2", missing)) ==
          fmt::format("$/train.csv, line 3, column 1 (a): expected a number, found '{}' (missing "
                      "values are not filled in: write a value, or remove the line)",
                      missing));
  }
  check_contains(error(" ,x,2"), "column 1 (a): expected a number, found an empty field");
  check_contains(error("nan,x,2"), "expected a finite number in the range of fp32, found 'nan'");
  for (const char* wrong : {"inf", "1e39", "-1e400"}) {
    CHECK(error(fmt::format("{},x,2", wrong)) ==
          fmt::format("$/train.csv, line 3, column 1 (a): expected a finite number in the range "
                      "of fp32, found '{}'",
                      wrong));
  }
  dir.put("train.csv", "a,kind,b\n1e-400,x,-1e-400\n1e-50,x,1e-320\n");
  const DataSets tiny = dir.read(kKind, kTwoFeatures);
  CHECK(features(*tiny.train, 0) == std::vector<float>{0, 0});
  CHECK(features(*tiny.train, 1) == std::vector<float>{0, 0});
  for (const char* wrong : {"0x10", "++1", "+-1", "1 2", "e5", "1_000"}) {
    CHECK(error(fmt::format("{},x,2", wrong)) ==
          fmt::format("$/train.csv, line 3, column 1 (a): expected a number, found '{}'", wrong));
  }
  check_contains(error(std::string(100, 'z') + ",x,2"), "found '" + std::string(40, 'z') + "...'");
  check_contains(error("1,,2"), "column 2 (kind): expected the name of a class, found an empty");
}

TEST_CASE("csv: a table that does not fit the model, or the training file") {
  const CsvDir dir;
  dir.put("train.csv", "a,kind,b\n1,x,2\n1,y,2\n");
  check_contains(dir.error(kKind, {{1, 1, 3}, 0}), "write model.input: [2, 1, 1]");
  CHECK(dir.error(kKind, {{1, 1, 2}, 3}) ==
        "$/train.csv, column kind (x, y): the data set has 2 classes, but the model's last layer "
        "has 3 outputs: give it 2");
  const auto error = [&](const std::string& test) {
    dir.put("test.csv", test);
    return dir.error(with(kKind, {{"test.file", dir / "test.csv"}}), {{1, 1, 2}, 2});
  };
  CHECK(error("a,kind,b\n1,x,2\n1,emu,2\n") ==
        "$/test.csv, line 3, column 2 (kind): $/train.csv has no class 'emu'; add samples to train "
        "on, or remove these");
  CHECK(error("a,kind,c\n1,x,2\n") ==
        "$/test.csv: expected a column 'b', which $/train.csv names, found a, kind, c; did you "
        "mean 'a'?");
  CHECK(
      error("a,kind,b,c\n1,x,2,3\n") ==
      "$/test.csv: unexpected column 'c', which $/train.csv does not have: remove it, or name the "
      "features in data.features");
}

TEST_CASE(
    "csv: the fingerprint covers features, labels and their names, not how they are written") {
  const CsvDir dir;
  const auto hash = [&](const std::string& text) {
    dir.put("train.csv", text);
    return dir.read(kKind, kTwoFeatures).train->fingerprint();
  };
  const std::string before = hash("a,kind,b\n1,x,2\n1,y,2\n");
  CHECK(hash("a,kind,b\r\n\"1.0\",x,2\r\n1,y,2e0") == before);
  CHECK(hash("a,kind,b\n1,x,2\n1,y,3\n") != before);
  CHECK(hash("a,kind,b\n1,x,2\n1,z,2\n") != before);
  CHECK(hash("a,kind,b\n1,y,2\n1,x,2\n") != before);
}

TEST_CASE("csv: images by path, with classes or targets") {
  const CsvDir dir;
  dir.write("img/one.png", png(8, 8, 1, Bytes(64, 1)));
  dir.write("img/two.jpg", jpeg(4, 4, 3, Bytes(48, 2)));
  dir.put("lists/train.csv", "file,kind,round,red\n../img/two.jpg,b,1,0\n../img/one.png,a,0,1\n");
  dir.put("lists/test.csv", "kind,file,round,red\nb,../img/one.png,1,0\n");
  Fields fields = {{"train.file", dir / "lists/train.csv"},
                   {"test.file", dir / "lists/test.csv"},
                   {"path", std::string("file")},
                   {"label", std::string("kind")}};
  const DataRequirements small{{4, 4, 3}, 2};
  for (const std::int64_t cache : {0, 1}) {
    const DataSets sets = open("csv", with(fields, {{"cache_mib", cache}}), small);
    CHECK(sets.train->resizes());
    CHECK(sets.train->type() == DType::u8);
    CHECK(!sets.train->resident());
    CHECK(sets.train->classes() == Strings{"a", "b"});
    for (int round = 0; round < 2; ++round) {
      CHECK(sample(*sets.train, 0) == std::pair(Bytes(48, 2), 1));
      CHECK(sample(*sets.train, 1) == std::pair(Bytes(48, 1), 0));
      CHECK(sample(*sets.test, 0) == std::pair(Bytes(48, 1), 1));
    }
    CHECK(sets.train->describe(0) == dir / "lists/../img/two.jpg");
    CHECK(sets.train->samples_to_try() == std::vector<std::int64_t>{0, 1});
  }
  const std::string before = open("csv", fields, small).train->fingerprint();
  CHECK(open("csv", fields, {{4, 5, 3}, 2}).train->fingerprint() != before);
  dir.write("img/one.png", png(9, 9, 1, noise(81)));
  CHECK(open("csv", fields, small).train->fingerprint() != before);

  // `root` makes paths relative to a folder other than that of the CSV file.
  dir.put("lists/train.csv", "file,kind,round,red\nimg/two.jpg,b,1,0\nimg/one.png,a,0,1\n");
  const Fields hot = {{"train.file", dir / "lists/train.csv"},
                      {"root", dir.path()},
                      {"path", std::string("file")},
                      {"targets", Strings{"round", "red"}},
                      {"target", std::string("multi_hot")}};
  const DataSets many = open("csv", hot, small);
  CHECK(many.train->targets() == TargetShape{TargetKind::multi_hot, 2, false});
  CHECK(targets(*many.train, 1) == std::vector<float>{0, 1});
  CHECK(sample(*many.train, 0).first == Bytes(48, 2));

  CHECK(error_of([&] { open("csv", fields, small); }, dir) ==
        "$/lists/train.csv: 2 images are missing (paths are relative to the folder of the CSV "
        "file, or to data.root): restore them, or leave them out with data.on_bad_sample: skip\n"
        "  line 2: $/lists/img/two.jpg: No such file or directory\n"
        "  line 3: $/lists/img/one.png: No such file or directory");
  // A run that leaves out unreadable samples detects a missing file only when it reads the sample.
  DataRequirements skips = small;
  skips.leaves_out_files = true;
  const DataSets without = open("csv", fields, skips);
  CHECK(without.train->size() == 2);
  CHECK(error_of([&] { sample(*without.train, 1); }, dir).ends_with("No such file or directory"));
  // Samples with targets other than class labels cannot be left out.
  dir.put("lists/train.csv", "file,kind,round,red\nimg/three.jpg,b,1,0\n");
  CHECK(error_of([&] { open("csv", hot, small); }, dir) ==
        "$/lists/train.csv: line 2: $/img/three.jpg: No such file or directory (paths are relative "
        "to the folder of the CSV file, or to data.root): restore it, or remove its line");
  dir.put("lists/train.csv", "file,kind\n,b\n");
  check_contains(
      error_of([&] { open("csv", fields, small); }, dir),
      "$/lists/train.csv, line 2, column 1 (file): expected the path of an image, found");
  dir.put("lists/train.csv", "file,kind\n../img,b\n../img,a\n");
  check_contains(error_of([&] { open("csv", fields, small); }, dir),
                 "  line 2: $/lists/../img: not a file\n  line 3: ");
  dir.put("lists/train.csv", "file,kind\n../img,b\n../img/one.png,a\n");
  CHECK(error_of([&] { open("csv", fields, small); }, dir) ==
        "$/lists/train.csv: line 2: $/lists/../img: not a file (paths are relative to the folder "
        "of the CSV file, or to data.root): restore it, or leave it out with data.on_bad_sample: "
        "skip");
  check_contains(error_of(
                     [&] {
                       open("csv", fields, {{4, 4, 2}, 2});
                     },
                     dir),
                 "csv: $/lists/train.csv: images are read as 1 channel (grey) or 3 (RGB)");
}

TEST_CASE("csv: a few images of each class are tried, in whatever order they are listed") {
  const CsvDir dir;
  dir.write("x.png", png(8, 8, 1, Bytes(64, 1)));
  std::string text = "file,kind\n";
  for (int i = 0; i < 600; ++i) text += i % 3 == 1 ? "x.png,b\n" : "x.png,a\n";
  dir.put("train.csv", text);
  const auto tried =
      dir.read({{"path", std::string("file")}, {"label", std::string("kind")}}, {{4, 4, 1}, 2})
          .train->samples_to_try();
  // All 200 samples of one class, and 256 of the 400 of the other, including its first and last.
  CHECK(tried.size() == 456);
  CHECK(std::count_if(tried.begin(), tried.end(), [](auto i) { return i % 3 == 1; }) == 200);
  CHECK(tried.front() == 0);
  CHECK(tried.back() == 599);
  CHECK(std::is_sorted(tried.begin(), tried.end()));
}

TEST_CASE("csv: fields of the config that contradict each other") {
  const auto problem = [](const Fields& fields) {
    const Variant made = variant(dataset_kinds().table(), "csv", fields);
    const std::string of_labels = made.table->check_labels(made.options.get());
    return of_labels.empty() ? made.table->check(made.options.get()) : of_labels;
  };
  const auto text = [](const char* value) { return std::string(value); };
  CHECK(problem({{"label", text("y")}}).empty());
  CHECK(problem({{"targets", Strings{"y"}}, {"target", text("values")}}).empty());
  check_contains(problem({}), "expected label (the column of the classes) or targets");
  // Samples to be predicted need neither a label nor targets.
  const Variant bare = variant(dataset_kinds().table(), "csv", {});
  CHECK(bare.table->check(bare.options.get()).empty());
  check_contains(problem({{"label", text("y")}, {"targets", Strings{"z"}}}), "found both");
  check_contains(problem({{"targets", Strings{"y"}}}), "expected soft_labels, multi_hot or values");
  check_contains(problem({{"label", text("y")}, {"target", text("values")}}),
                 "target: expected labels with label, found values");
  check_contains(problem({{"label", text("y")}, {"path", text("p")}, {"features", Strings{"a"}}}),
                 "path and features: expected one of them, found both");
  check_contains(problem({{"label", text("y")}, {"root", text("/x")}}), "root: expected path");
  for (const char* delimiter : {"", ",,", "\"", "\n", "\xc3"}) {
    check_contains(problem({{"label", text("y")}, {"delimiter", text(delimiter)}}),
                   "delimiter: expected one character");
  }
  check_contains(problem({{"label", text("y")}, {"features", Strings{"a", "y"}}}),
                 "expected different columns, found 'y' twice");
  check_contains(problem({{"label", text("y")}, {"classes", Strings{"a", "a"}}}),
                 "classes: expected different names, found 'a' twice");
  check_contains(
      problem(
          {{"targets", Strings{"a", "b"}}, {"target", text("values")}, {"classes", Strings{"a"}}}),
      "classes: expected 2 names, one for each target, found 1");
}

}  // namespace dpt::data_test
