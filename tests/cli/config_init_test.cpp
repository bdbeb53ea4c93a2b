// dpt config init --data: the printed config for each kind of data is valid and trains.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/image_folders.h"
#include "tests/support/npy_data.h"
#include "tests/support/tar.h"

using namespace dpt::testing;

namespace {

/// Prints a config for the data, checks it, and trains it for an epoch.
std::string check_starter(const Workplace& w, const std::string& data,
                          const std::vector<std::string>& more = {}) {
  CAPTURE(data);
  const Finished printed = w.run_well({"config", "init", "--data", data}, more);
  write_file(w.dir.file("own.yaml"), printed.out);
  INFO(printed.out);
  w.run_well({"config", "check", "own.yaml"});
  std::filesystem::remove_all(w.dir.file("runs/own"));
  w.run_well({"train", "own.yaml", "train.epochs=1", "devices=[cpu]"});
  return printed.out;
}

void write_shard(const Workplace& w, const std::string& file, int begin, int end) {
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = begin; i < end; ++i) {
    const std::string name = i % 2 == 0 ? "dark" : "light";
    members.emplace_back(fmt::format("{}.png", i), image_of(name, i % 20));
    members.emplace_back(fmt::format("{}.cls", i), name);
  }
  write_file(w.dir.file(file), tar(members));
}

}  // namespace

TEST_CASE("config init: a folder of images, with and without a validation set") {
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "grey", "light"});
  const std::string alone = check_starter(w, "photos");
  check_contains(alone, "  dataset: image_folder\n  root: photos   #");
  check_contains(alone, "  val_split: {fraction: 0.1, stratify: true}");
  check_contains(alone,
                 "model:   # classes: dark, grey, light\n  zoo: mlp\n  input: [1, 2, 2]\n"
                 "  classes: 3\n");
  check_contains(alone, "  normalize: auto   # mean");
  w.put("photos/val", {"dark", "grey", "light"});
  w.put("photos/test", {"dark", "grey", "light"});
  const std::string all = check_starter(w, "photos", {"--zoo", "logistic"});
  CHECK_FALSE(contains(all, "val_split"));
  check_contains(all, "18 training samples, 18 for validation, 18 for testing");
  check_contains(all, "  zoo: logistic\n");
}

TEST_CASE("config init: a class of one image stays among the training samples") {
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "light"});
  std::filesystem::create_directory(w.dir.file("photos/train/lone"));
  write_file(w.dir.file("photos/train/lone/0.png"), image_of("grey", 0));
  check_contains(check_starter(w, "photos"), "  val_split: {fraction: 0.1, stratify: true}");
}

TEST_CASE("config init: the first line names the schema of an installed program") {
  namespace fs = std::filesystem;
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "light"});
  fs::create_directories(w.dir.file("bin"));
  fs::create_directories(w.dir.file("share/dpt"));
  fs::copy_file(dpt_program(), w.dir.file("bin/dpt"));
  const auto printed = [&](const std::string& more) {
    const std::string command =
        fmt::format("cd '{}' && bin/dpt config init {} > own.yaml 2>errors", w.dir.path(), more);
    REQUIRE(std::system(command.c_str()) == 0);
    return read_file(w.dir.file("own.yaml"));
  };
  // Without a schema there is no schema line for editors.
  CHECK(
      printed("").starts_with("# For completion in editors: dpt config schema > dpt.schema.json"));
  CHECK_FALSE(contains(printed(""), "\n# yaml-language-server"));
  write_file(w.dir.file("share/dpt/config.schema.json"), "{}");
  const std::string line = "# yaml-language-server: $schema=" +
                           fs::canonical(w.dir.file("share/dpt/config.schema.json")).string() +
                           "\n";
  for (const char* data : {"", "--data photos"}) {
    CHECK(printed(data).starts_with(line));
    w.run_well({"config", "check", "own.yaml"});
  }
}

TEST_CASE("config init: images of several sizes are cropped to one") {
  const FolderWorkplace w;
  w.put("photos/train", {"dark", "light"});
  for (int i = 0; i < 6; ++i) {
    const auto side = static_cast<std::uint32_t>(40 + i);
    dpt::data_test::Bytes pixels(static_cast<std::size_t>(side * 50 * 3));
    for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<std::uint8_t>(k * 7);
    const auto bytes = dpt::data_test::png(static_cast<int>(side), 50, 3, pixels);
    for (const char* name : {"dark", "light"}) {
      write_file(w.dir.file(fmt::format("photos/train/{}/{}.png", name, i)),
                 {bytes.begin(), bytes.end()});
    }
  }
  const Finished printed = w.run_well({"config", "init", "--data", "photos"});
  check_contains(printed.out, "{type: RandomResizedCrop, size: 32}");
  check_contains(printed.out, "{type: CenterCrop, size: 32}");
  check_contains(printed.out, "  zoo: resnet20\n  input: [3, 32, 32]\n  classes: 2\n");
  check_starter(w, "photos", {"--zoo", "logistic"});
}

TEST_CASE("config init: names with blanks, quotes, colons and letters of other alphabets") {
  const FolderWorkplace w;
  for (const std::string name :
       {"my photos", "a: b#c", "it's \"so\"", "фото 写真", "./~x", "a$b"}) {
    w.put(name + "/train", {"dark", "light"});
    check_starter(w, name);
    check_starter(w, w.dir.file(name));
  }
}

TEST_CASE("config init: tables for classes, for numbers, and of images") {
  const Workplace w;
  std::string iris = "id;width;height;note;species\n", prices = "area,rooms,price\n",
              files = "file,kind\n";
  std::filesystem::create_directory(w.dir.file("img"));
  for (int i = 0; i < 24; ++i) {
    iris += fmt::format("{};{};{};text {};{}\n", i, i % 5 + 0.5, i % 3, i, i % 2 ? "a" : "b");
    prices += fmt::format("{},{},{}\n", 10 + i, i % 4, 1000.5 + 3 * i);
    write_file(w.dir.file(fmt::format("img/{}.png", i)), image_of(i % 2 ? "dark" : "light", i % 9));
    files += fmt::format("img/{}.png,{}\n", i, i % 2 ? "dark" : "light");
  }
  write_file(w.dir.file("iris-train.csv"), iris);
  write_file(w.dir.file("iris-test.csv"), iris);
  write_file(w.dir.file("prices.csv"), prices);
  write_file(w.dir.file("files.csv"), files);
  const std::string classes = check_starter(w, "iris-train.csv");
  check_contains(classes, "  test: {file: iris-test.csv}\n  delimiter: \";\"\n");
  check_contains(classes,
                 "  features: [width, height]\n"
                 "  # left out: id numbers the lines; note is text\n"
                 "  label: species");
  check_contains(classes, "  zoo: mlp\n  input: [2, 1, 1]\n  classes: 2\n");
  check_contains(classes, "loss: {type: cross_entropy}");
  // A column named "target" is the target even if it looks like line numbers.
  std::string counts = "x,z,target\n";
  for (int i = 0; i < 24; ++i) counts += fmt::format("{},{},{}\n", i % 7, i % 5, 10 + i);
  write_file(w.dir.file("counts.csv"), counts);
  check_contains(check_starter(w, "counts.csv"), "  features: [x, z]\n  targets: [target]");
  const std::string values = check_starter(w, "prices.csv");
  check_contains(values, "  targets: [price]");
  check_contains(values, "  classes: 1\n");
  check_contains(values, "loss: {type: mse}");
  const std::string images = check_starter(w, "files.csv");
  check_contains(images, "  path: file");
  check_contains(images, "  input: [1, 2, 2]\n  classes: 2\n");
}

TEST_CASE("config init: arrays and shards") {
  const Workplace w;
  for (const std::string& kind : npy_kinds()) {
    CAPTURE(kind);
    write_npy_part(w.dir.path(), "train", kind, 60, 1);
    write_npy_part(w.dir.path(), "test", kind, 23, 2);
    const std::string text = check_starter(w, "train_x.npy");
    check_contains(text,
                   "  train: {images: train_x.npy, targets: train_y.npy}\n"
                   "  test: {images: test_x.npy, targets: test_y.npy}\n");
    check_contains(text, "  input: [1, 8, 8]\n  classes: 4\n");
    check_contains(text, loss_of_kind(kind));
  }
  write_shard(w, "train-0.tar", 0, 12);
  write_shard(w, "train-1.tar", 12, 24);
  write_shard(w, "test-0.tar", 24, 30);
  check_contains(check_starter(w, "train-0.tar"), "12 training samples");
  check_contains(check_starter(w, "train-*.tar"), "24 training samples, 6 for testing");
  std::filesystem::create_directory(w.dir.file("shards"));
  write_shard(w, "shards/a.tar", 0, 12);
  check_contains(check_starter(w, "shards"), "shards/*.tar");
}

TEST_CASE("config init: numbers to predict that a new network would not reach") {
  const Workplace w;
  for (const auto& [name, scale] : {std::pair("near.csv", 0.1), std::pair("far.csv", 1e4)}) {
    std::string table = "area,price\n";
    for (int i = 0; i < 40; ++i) table += fmt::format("{},{}\n", i % 9, (20.5 + i) * scale + 0.25);
    write_file(w.dir.file(name), table);
  }
  const auto warning_of = [&](const char* file) {
    return w.run_well({"config", "init", "--data", file}).err;
  };
  CHECK(warning_of("near.csv").empty());
  check_contains(warning_of("far.csv"), "warning: the numbers to predict are far from 0 (mean ");
  check_contains(warning_of("far.csv"), "convert predictions back");
}

TEST_CASE("config init: classes that are stored as float or negative numbers") {
  const Workplace w;
  write_bytes(w.dir.file("x.npy"), dpt::testing::npy<float>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}));
  write_bytes(w.dir.file("y.npy"), dpt::testing::npy<float>({4}, {0, 1, 2, 1}));
  check_contains(w.run_well({"config", "init", "--data", "x.npy"}).out,
                 "if they are classes, store them as integers");
  write_bytes(w.dir.file("y.npy"), dpt::testing::npy<float>({4}, {0, 1, 2, 1.5F}));
  CHECK_FALSE(
      contains(w.run_well({"config", "init", "--data", "x.npy"}).out, "if they are classes"));
  write_bytes(w.dir.file("y.npy"), dpt::testing::npy<std::int64_t>({4}, {0, 1, -1, 1}));
  const Finished negative = w.run({"config", "init", "--data", "x.npy"});
  CHECK(negative.exit_code == 3);
  CHECK_FALSE(contains(negative.err, "model.classes"));
  check_contains(negative.err, "/y.npy, sample 2: label -1 is out of range");
}

TEST_CASE("config init: files that it cannot read, and what to do") {
  const FolderWorkplace w;
  w.put("classes", {"dark", "light"});
  w.put("broken/train", {"dark"});
  std::filesystem::create_directory(w.dir.file("empty"));
  std::filesystem::create_directory(w.dir.file("tables"));
  write_file(w.dir.file("tables/t.csv"), "a,b\n");
  write_file(w.dir.file("x.npy"), "x");
  write_file(w.dir.file("data.parquet"), "x");
  write_file(w.dir.file("words.csv"), "a,b\nx,y\nz,w\n");
  write_file(w.dir.file("commas.csv"), "a;b\n0,5;x\n1,5;y\n2;x\n");
  struct Case {
    const char* data;
    int exit_code;
    const char* expected;
  };
  for (const Case& each :
       {Case{"nowhere", 3, "--data nowhere: no such file or folder; expected a folder with"},
        Case{"classes", 3, "ln -s \"$(realpath 'classes')\" DATA/train"},
        Case{"broken/train", 2, "expected the folder that contains train: give the parent folder"},
        Case{"empty", 3, "found an empty folder"}, Case{"tables", 2, "--data tables/t.csv"},
        Case{"tables/t.csv", 3, "expected a line for each sample after the header"},
        Case{"words.csv", 3, "expected columns of numbers as features besides the target 'b'"},
        Case{"commas.csv", 3, "found none (a has decimal commas instead of points)"},
        Case{"x.npy", 3, "expected an array of samples and an array of targets next to it"},
        Case{"data.parquet", 2, "a table in another format can be saved as CSV"},
        Case{"photos.jpg", 3, "no such file"}}) {
    CAPTURE(each.data);
    const Finished finished = w.run({"config", "init", "--data", each.data});
    CHECK(finished.exit_code == each.exit_code);
    CHECK(finished.out.empty());
    check_contains(finished.err, each.expected);
  }
  w.put("photos/train", {"dark", "light"});
  const Finished word = w.run({"config", "init", "my photos"});
  CHECK(word.exit_code == 2);
  check_contains(word.err, "for a config that fits data, write --data 'my photos'");
  const Finished zoo = w.run({"config", "init", "--data", "photos", "--zoo", "resnet19"});
  CHECK(zoo.exit_code == 2);
  check_contains(zoo.err, "--zoo resnet19: unknown network, did you mean 'resnet18'?");
  const Finished large = w.run({"config", "init", "--data", "photos", "--zoo", "alexnet"});
  CHECK(large.exit_code == 2);
  check_contains(large.err, "--zoo alexnet: ");
  CHECK(w.run({"config", "init", "--zoo", "lenet"}).exit_code == 2);
}

TEST_CASE("config init: several labels of an image, columns of 0 and 1, and parts in a column") {
  const Workplace w;
  std::filesystem::create_directory(w.dir.file("img"));
  std::string tags = "file,tags\n", hot = "file,dark,light,big\n", parts = "file,kind,split\n";
  for (int i = 0; i < 24; ++i) {
    const std::string file = fmt::format("img/{}.png", i);
    write_file(w.dir.file(file), image_of(i % 2 ? "dark" : "light", i % 9));
    const char* const names[] = {"dark|big", "light", "", "big|light", "dark"};
    tags += fmt::format("{},{}\n", file, names[i % 5]);
    hot += fmt::format("{},{},{},{}\n", file, i % 2, 1 - i % 2, i % 3 == 0 ? 1 : 0);
    parts += fmt::format("{},{},{}\n", file, i % 2 ? "dark" : "light", i < 20 ? "train" : "test");
  }
  write_file(w.dir.file("tags.csv"), tags);
  write_file(w.dir.file("hot.csv"), hot);
  write_file(w.dir.file("parts.csv"), parts);
  const std::string lists = check_starter(w, "tags.csv");
  check_contains(lists, "  label: tags   # ");
  check_contains(lists, "  label_separator: \"|\"\n");
  check_contains(lists, "  classes: 3\n");
  check_contains(lists, "loss: {type: bce_with_logits}");
  const std::string columns = check_starter(w, "hot.csv");
  check_contains(columns, "  targets: [dark, light, big]   # 1 where the label applies, else 0\n");
  check_contains(columns, "  target: multi_hot\n");
  const std::string split = check_starter(w, "parts.csv");
  check_contains(split, "  label: kind");
  check_contains(split, "  # left out: split names the splits, each of which has its own file");
}

TEST_CASE("config init: words such as None are classes, and gaps in a target are refused") {
  const Workplace w;
  std::string words = "width,height,label\n", gaps = "x,y,price\n";
  for (int i = 0; i < 30; ++i) {
    words += fmt::format("{}.5,{},{}\n", i % 9, i % 4, i % 2 ? "None" : "crack");
    gaps += fmt::format("{},{},{}\n", i % 9, i % 4, i == 7 ? "nan" : std::to_string(i) + ".5");
  }
  write_file(w.dir.file("words.csv"), words);
  write_file(w.dir.file("gaps.csv"), gaps);
  const std::string text = check_starter(w, "words.csv");
  check_contains(text, "  features: [width, height]\n  label: label");
  check_contains(text, "model:   # classes: None, crack\n");
  const Finished refused = w.run({"config", "init", "--data", "gaps.csv"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err,
                 "gaps.csv: column price, which seems to be the target, has no value in 1 of 30");
}

TEST_CASE("config init: folders that are nearly right") {
  const FolderWorkplace w;
  w.put("one/train", {"dark"});
  w.put("upper/Train", {"dark", "light"});
  w.put("outer/inner/train", {"dark", "light"});
  w.put("odd/train", {"dark", "light"});
  write_file(w.dir.file("odd/train/dark/x.heic"), "x");
  for (const auto& [data, expected] :
       {std::pair("one",
                  "dpt: error: --data one: expected samples of at least two classes, found "
                  "one class: dark"),
        std::pair("upper",
                  "the folder has no subfolder 'train', but has Train: rename it (mv 'upper/Train' "
                  "'upper/train')"),
        std::pair(
            "outer",
            "the folder has no subfolder 'train', but inner has one: give --data 'outer/inner'")}) {
    const Finished refused = w.run({"config", "init", "--data", data});
    CHECK(refused.exit_code == 3);
    check_contains(refused.err, expected);
  }
  const std::string text = check_starter(w, "odd");
  check_contains(text, "  on_bad_sample: skip   # leaves out what cannot be read\n");
}
