// dpt predict on data sets without labels, in every format, compared with dpt eval.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/checkpoints/tensor_view.h"
#include "tests/cli/table_rows.h"
#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/support/npy_data.h"
#include "tests/support/rewrite.h"
#include "tests/support/tar.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Returns a config with the given data and model sections.
std::string data_config(const std::string& data, const std::string& model,
                        const std::string& more = "loss: {type: cross_entropy}\n") {
  return "version: 1\nname: small\nseed: 4\ndata:\n  batch_size: 8\n" + data + "model:\n" + model +
         "optimizer: {type: Adam, lr: 0.02}\ntrain: {epochs: 2}\ndevices: [cpu]\n" + more;
}

std::string linear_model(const std::string& input, int outputs) {
  return "  input: " + input +
         fmt::format(
             "\n  layers: [{{type: Flatten}}, {{type: Linear, name: fc, out_features: {}}}]\n",
             outputs);
}

/// Checks that predictions equal those of the evaluation, row by row, including the index.
void check_rows(const std::vector<TableRow>& rows, const std::vector<TableRow>& eval) {
  REQUIRE(rows.size() == eval.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const char* name : {"index", "prediction", "prediction_name", "probability"}) {
      CHECK(rows[i].at(name) == eval[i].at(name));
    }
  }
}

std::vector<TableRow> eval_rows(const Workplace& w, const std::vector<std::string>& more = {}) {
  w.run_well({"eval", "runs/small", "--predictions", "eval.csv"}, more);
  return table_rows(read_file(w.dir.file("eval.csv")));
}

/// Returns a grey image of 8x8 pixels.
std::string grey_image(int value) {
  const auto bytes =
      dpt::data_test::png(8, 8, 1, dpt::data_test::Bytes(64, static_cast<std::uint8_t>(value)));
  return {bytes.begin(), bytes.end()};
}

/// A run on arrays of 60 training and 23 test samples.
struct NpyRun : Workplace {
  explicit NpyRun(const std::string& kind = "labels", const std::string& more = {})
      : Workplace("") {
    write_file(dir.file("small.yaml"),
               data_config(npy_data(dir.path(), kind, false) +
                               "  classes: [sky, sea, land, sand]\n  val_split: 11\n",
                           linear_model("[1, 8, 8]", 4),
                           "loss: {type: " + loss_of_kind(kind) + "}\n" + more));
    run_well({"train", "small.yaml"});
  }
};

}  // namespace

TEST_CASE("predict: arrays without targets, as dpt eval, on any devices and processes") {
  const NpyRun w;
  const std::vector<TableRow> test = eval_rows(w), val = eval_rows(w, {"--split", "val"}),
                              train = eval_rows(w, {"--split", "train"});
  // The splits are those of the training run.
  for (const auto& [split, eval] : {std::pair("val", val), std::pair("train", train)}) {
    check_rows(table_rows(w.run_well({"predict", "runs/small", "--split", split}).out), eval);
  }
  const std::vector<TableRow> all =
      table_rows(w.run_well({"predict", "runs/small", "--split", "all"}).out);
  REQUIRE(all.size() == 83);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i].at("index") == std::to_string(i));
  for (const TableRow& row : val) {
    CHECK(all[std::stoul(row.at("index"))].at("probability") == row.at("probability"));
  }
  CHECK(all[60].at("probability") == test[0].at("probability"));
  CHECK(all[82].at("probability") == test[22].at("probability"));

  // Only the files of the predicted samples are needed.
  fs::rename(w.dir.file("test_x.npy"), w.dir.file("new.npy"));
  for (const char* name : {"train_x.npy", "train_y.npy", "test_y.npy"}) {
    fs::remove(w.dir.file(name));
  }
  const std::vector<std::string> predict = {"predict", "runs/small", "data.test.images=new.npy"};
  const Finished one = w.run_well(predict);
  CHECK(one.err ==
        "dpt: note: predicting 23 samples: the test samples of the data set (--split test)\n");
  CHECK(one.out.starts_with("index,prediction,prediction_name,probability\n0,"));
  check_rows(table_rows(one.out), test);
  CHECK(w.run_well(predict, {"--split", "test"}).err.empty());
  CHECK(w.run_well(predict, {"--devices", "cpu,cpu,cpu"}).out == one.out);
  const Finished two = w.run_well(predict, {"--nproc", "2"});
  CHECK(two.out == one.out);
  CHECK(two.err == one.err);
  const std::vector<std::string> file = {"--nproc", "3",         "--out",
                                         "out.csv", "--devices", "cpu,cpu"};
  CHECK(w.run_well(predict, file).out.empty());
  CHECK(read_file(w.dir.file("out.csv")) == one.out);

  const Finished top = w.run_well(predict, {"--top", "2"});
  CHECK(
      top.out.starts_with("index,prediction,prediction_name,probability,prediction_2,prediction_"
                          "name_2,probability_2\n"));
  const std::vector<TableRow> rows = table_rows(top.out);
  std::istringstream lines(w.run_well(predict, {"--top", "2", "--format", "jsonl"}).out);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json object = json::parse(line);
    CHECK(object.at("index") == count);
    CHECK_FALSE(object.contains("path"));
    CHECK(object.at("prediction_name") == rows[count].at("prediction_name"));
    CHECK(object.at("top")[1].at("prediction_name") == rows[count].at("prediction_name_2"));
  }
  CHECK(count == 23);

  // The data can also come from a config with only a data section. Its paths are relative to that
  // config.
  fs::create_directory(w.dir.file("data"));
  write_file(w.dir.file("data/new.yaml"), "data: {dataset: npy, train: {images: ../new.npy}}\n");
  const Finished other = w.run_well({"predict", "runs/small", "data/new.yaml"});
  CHECK(other.out == one.out);
  CHECK(other.err ==
        "dpt: note: predicting 23 samples: all samples of the data set (--split all), because it "
        "has no test samples\n");
  CHECK(w.run_well({"predict", "runs/small", "data/new.yaml", "--split", "train"}).out == one.out);
  CHECK(w.run_well({"predict", "runs/small", "data/new.yaml", "data.val_split=3", "--split", "val"})
            .out != one.out);
  // Existing labels, even wrong ones, change nothing.
  write_bytes(w.dir.file("y.npy"), npy<std::int64_t>({2}, {77, 78}));
  CHECK(w.run_well({"predict", "runs/small", "data/new.yaml", "data.train.targets=y.npy"}).out ==
        one.out);
}

TEST_CASE("predict: data that does not fit is refused, with what was expected") {
  const NpyRun w;
  const auto refused = [&](const std::vector<std::string>& more, int code,
                           const std::string& message) {
    const Finished finished = w.run({"predict", "runs/small"}, more);
    CHECK(finished.exit_code == code);
    CHECK(finished.out.empty());
    check_contains(finished.err, message);
  };
  write_bytes(w.dir.file("wide.npy"), npy<std::uint8_t>({2, 3, 9}, std::vector<std::uint8_t>(54)));
  refused({"data.test.images=wide.npy"}, 3,
          "wide.npy: the samples are 3x9 with 1 channel, but the checkpoint's model takes 8x8 with "
          "1 channel: use samples of that shape");
  write_bytes(w.dir.file("floats.npy"), npy<float>({1, 8, 8}, std::vector<float>(64)));
  refused({"data.test.images=floats.npy"}, 3, "expected samples of the run's type (u8)");
  refused({"data.test.images=gone.npy"}, 3, "gone.npy");
  refused({"data.train.images=gone.npy"}, 2,
          "data.train was given, but the data set also has test samples");
  refused({"data.test.imges=new.npy"}, 2, "unknown key 'imges'");
  refused({"model.input=[1, 8, 8]"}, 2, "expected a key of the data section, such as data.test");
  refused({"data.transforms.eval=[]"}, 2,
          "data.transforms.eval=[]: dpt predict uses the checkpoint's value");
  refused({"small.yaml", "data.cache=x"}, 2, "dpt predict reads samples from their files");
  refused({"small.yaml", "small.yaml"}, 2, "expected one config, found small.yaml and small.yaml");
  refused({"small.yaml", "a.png"}, 2, "a.png: expected images or a data set, found both");
  refused({"gone.yaml"}, 2, "cannot read the config gone.yaml");
  refused({"--split", "none"}, 2, "--split");
  write_file(w.dir.file("new.yaml"), "data: {dataset: npy, train: {images: test_x.npy}}\n");
  refused({"new.yaml", "--split", "test"}, 3, "--split test: the data set has no test samples");
  refused({"new.yaml", "--split", "val"}, 3, "the val split is empty (data.val_split is 0");
  refused({"small.yaml", "data.val_split={count: 5, stratify: true}", "--split", "val"}, 2,
          "use dpt eval RUN --split val --predictions FILE");
  refused({"new.yaml", "--top", "5"}, 2, "--top: expected 1 to 4 (the model's classes)");
  write_file(w.dir.file("csv.yaml"), "data: {dataset: csv, train: {file: x.csv}}\n");
  write_file(w.dir.file("x.csv"), "a,b\n1,2\n");
  refused({"csv.yaml"}, 3, "cannot tell which columns are the model's inputs");
  // Training, evaluation and config check still require labels.
  for (const std::string command : {"train", "config check"}) {
    std::vector<std::string> words = {"new.yaml"};
    words.insert(words.begin(), command == "train" ? "train" : "check");
    if (command != "train") words.insert(words.begin(), "config");
    const Finished finished = w.run(words);
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, "missing key 'targets' in data.train: ");
  }
  check_contains(w.run({"eval", "runs/small", "data.test={images: test_x.npy}"}).err,
                 "missing key 'targets' in data.test: ");
  check_contains(w.run({"train", "csv.yaml"}).err,
                 "expected label (the column of the classes) or targets (columns of numbers), "
                 "found neither");
}

TEST_CASE("predict: arrays for models whose outputs are not classes, and older checkpoints") {
  const NpyRun w("values");
  w.run_well({"eval", "runs/small", "--predictions", "eval.csv"});
  const std::vector<TableRow> eval = table_rows(read_file(w.dir.file("eval.csv")));
  const std::vector<std::string> predict = {"predict", "runs/small",
                                            "data.test={images: test_x.npy}"};
  const Finished finished = w.run_well(predict);
  CHECK(finished.out.starts_with(
      "index,prediction_sky,prediction_sea,prediction_land,prediction_sand\n"));
  const std::vector<TableRow> rows = table_rows(finished.out);
  REQUIRE(rows.size() == eval.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].at("prediction_land") == eval[i].at("prediction_land"));
  }
  CHECK(w.run(predict, {"--top", "2"}).exit_code == 2);

  // Properties of the samples that an older checkpoint does not record are not required.
  rewrite_checkpoint(w.dir.file("runs/small/best.safetensors"), w.dir.file("old.safetensors"),
                     [](dpt::Metadata& metadata, std::vector<dpt::TensorView>&) {
                       metadata["dpt.version"] = "1.6";
                       CHECK(metadata.at("dpt.sample_type") == "u8");
                       metadata.erase("dpt.sample_type");
                     });
  CHECK(w.run_well({"predict", "old.safetensors", "data.test={images: test_x.npy}"}).out ==
        finished.out);
}

TEST_CASE("predict: a table without a label, whose columns are those of the run by name") {
  const auto table = [](int begin, int end) {
    std::string text = "width,kind,height\n";
    for (int i = begin; i < end; ++i) {
      text += i % 2 == 0 ? fmt::format("{},wide,{}\n", 1.0 + i / 100.0, i / 100.0)
                         : fmt::format("{},high,1.5\n", i / 100.0);
    }
    return text;
  };
  const Workplace w(
      data_config("  dataset: csv\n  train: {file: train.csv}\n"
                  "  test: {file: test.csv}\n  label: kind\n",
                  linear_model("[2, 1, 1]", 2)));
  write_file(w.dir.file("train.csv"), table(0, 60));
  write_file(w.dir.file("test.csv"), table(60, 80));
  w.run_well({"train", "small.yaml"});
  const std::vector<TableRow> eval = eval_rows(w);
  fs::remove(w.dir.file("train.csv"));
  check_rows(table_rows(w.run_well({"predict", "runs/small", "--split", "test"}).out), eval);

  // Other columns may be in between, in any order, and there is no label.
  std::string text = "height,id,width\n";
  std::istringstream lines(table(60, 80));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const std::vector<std::string> fields = table_fields(line);
    text += fields[2] + ",x," + fields[0] + "\n";
  }
  write_file(w.dir.file("new.csv"), text);
  write_file(w.dir.file("new.yaml"), "data: {dataset: csv, train: {file: new.csv}}\n");
  const std::vector<std::string> predict = {"predict", "runs/small", "new.yaml"};
  const Finished one = w.run_well(predict);
  check_rows(table_rows(one.out), eval);
  CHECK(w.run_well({"predict", "runs/small", "data.test.file=new.csv"}).out == one.out);

  const Finished missing =
      w.run({"predict", "runs/small", "data.test.file=new.csv", "data.delimiter=;"});
  CHECK(missing.exit_code == 3);
  check_contains(missing.err, "new.csv: expected a column 'width', which the checkpoint names");

  // An unreadable line keeps its position, in every split.
  write_file(w.dir.file("new.csv"), text + "1,x,NA\n");
  const Finished bad = w.run(predict);
  CHECK(bad.exit_code == 3);
  CHECK(bad.out == one.out + "20,,,\n");
  check_contains(bad.err, "new.csv, line 22, column 3 (width): expected a number, found 'NA'");
  check_contains(bad.err, "error: 1 of 21 samples could not be read and has no prediction");
  CHECK(w.run(predict, {"--nproc", "2"}).out == bad.out);
  const Finished json_lines = w.run(predict, {"--format", "jsonl", "--devices", "cpu,cpu"});
  CHECK(json_lines.exit_code == 3);
  const json last =
      json::parse(json_lines.out.substr(json_lines.out.rfind('\n', json_lines.out.size() - 2) + 1));
  CHECK(last.at("index") == 20);
  check_contains(last.at("error").get<std::string>(), "expected a number");
  // Samples that are not requested are not reported.
  write_file(w.dir.file("new.csv"), text.insert(text.find('\n') + 1, "NA,x,1\n"));
  const Finished val =
      w.run_well({"predict", "runs/small", "new.yaml", "data.val_split=3", "--split", "val"});
  CHECK(val.err.empty());
  const std::vector<TableRow> held_out = table_rows(val.out);
  CHECK(held_out.size() == 3);
  for (const TableRow& row : held_out) CHECK(row.at("index") != "0");

  // Older checkpoints do not name the columns.
  rewrite_checkpoint(w.dir.file("runs/small/checkpoints/step-00000016.safetensors"),
                     w.dir.file("old.safetensors"),
                     [](dpt::Metadata& metadata, std::vector<dpt::TensorView>&) {
                       metadata["dpt.version"] = "1.6";
                       CHECK(metadata.at("dpt.features") == R"(["width","height"])");
                       metadata.erase("dpt.features");
                     });
  CHECK(w.run({"predict", "old.safetensors", "data.test.file=test.csv"}).exit_code == 3);
  check_rows(table_rows(w.run_well({"predict", "old.safetensors", "data.test.file=test.csv",
                                    "data.features=[width,height]"})
                            .out),
             eval);
}

TEST_CASE("predict: shards and tables of images without labels, bad ones where they were") {
  const Workplace w(
      data_config("  dataset: webdataset\n  train: {shards: train.tar}\n"
                  "  test: {shards: test.tar}\n",
                  linear_model("[1, 8, 8]", 2)));
  std::vector<std::pair<std::string, std::string>> labelled, bare;
  std::string table = "file\n";
  fs::create_directory(w.dir.file("pictures"));
  for (int i = 0; i < 20; ++i) {
    const std::string bytes = grey_image(i % 2 == 0 ? 10 + i : 200 - i);
    const std::string name = fmt::format("{:02}", i);
    labelled.emplace_back(name + ".cls", i % 2 == 0 ? "0" : "1");
    labelled.emplace_back(name + ".png", bytes);
    bare.emplace_back(name + ".png", i == 7 ? "no picture" : bytes);
    if (i != 7) write_file(w.dir.file("pictures/" + name + ".png"), bytes);
    table += name + ".png\n";
  }
  for (const char* name : {"train.tar", "test.tar"}) write_file(w.dir.file(name), tar(labelled));
  w.run_well({"train", "small.yaml"});
  std::vector<TableRow> eval = eval_rows(w);
  check_rows(table_rows(w.run_well({"predict", "runs/small", "small.yaml"}).out), eval);
  fs::remove(w.dir.file("train.tar"));
  write_file(w.dir.file("bare.tar"), tar(bare));
  write_file(w.dir.file("new.csv"), table);
  write_file(w.dir.file("new.yaml"),
             "data: {dataset: csv, train: {file: new.csv}, path: file, root: pictures}\n");
  TableRow& empty = eval[7];
  for (const char* name : {"prediction", "prediction_name", "probability"}) empty[name].clear();

  const std::string folder = w.dir.path();
  for (const std::string words : {"data.test.shards=bare.tar", "new.yaml"}) {
    const bool is_table = words == "new.yaml";
    const Finished one = w.run({"predict", "runs/small", words});
    CHECK(one.exit_code == 3);
    CHECK(one.out.starts_with("index,path,prediction,prediction_name,probability\n"));
    const std::vector<TableRow> rows = table_rows(one.out);
    check_rows(rows, eval);
    CHECK(rows[3].at("path").ends_with(is_table ? "pictures/03.png" : "bare.tar, 03.png"));
    check_contains(one.err, is_table ? "pictures/07.png: cannot be opened: No such file"
                                     : "bare.tar, 07.png: ");
    check_contains(one.err, "error: 1 of 20 samples could not be read");
    CHECK(w.run({"predict", "runs/small", words, "--devices", "cpu,cpu"}).out == one.out);
    CHECK(w.run({"predict", "runs/small", words, "--nproc", "2"}).out == one.out);
    std::istringstream lines(w.run({"predict", "runs/small", words, "--format", "jsonl"}).out);
    std::string line;
    for (int i = 0; i <= 7; ++i) REQUIRE(std::getline(lines, line));
    const json bad = json::parse(line);
    CHECK(bad.at("index") == 7);
    CHECK(bad.at("path") == rows[7].at("path"));
    CHECK(bad.contains("error"));
  }
  CHECK(w.run({"predict", "runs/small"}).exit_code == 2);
}

TEST_CASE("predict: IDX images without labels, and folders of classes that the run does not have") {
  const Workplace w(data_config("  dataset: digits\n", linear_model("[1, 8, 8]", 10)));
  w.run_well({"train", "small.yaml", "train.epochs=1"});
  const std::vector<TableRow> eval = eval_rows(w);
  const std::string digits = source_dir() + "/datasets/digits/";
  fs::create_directory(w.dir.file("idx"));
  fs::copy(digits + "t10k-images-idx3-ubyte.gz", w.dir.file("idx/t10k-images-idx3-ubyte.gz"));
  write_file(w.dir.file("new.yaml"), "data: {dataset: idx, root: idx}\n");
  check_rows(table_rows(w.run_well({"predict", "runs/small", "new.yaml"}).out), eval);
  check_rows(table_rows(w.run_well({"predict", "runs/small", "--split", "test"}).out), eval);

  for (const char* name : {"pictures/test/unknown", "pictures/test/3"}) {
    fs::create_directories(w.dir.file(name));
    write_file(w.dir.file(std::string(name) + "/a.png"), grey_image(90));
  }
  write_file(w.dir.file("folders.yaml"), "data: {dataset: image_folder, root: pictures}\n");
  const std::vector<TableRow> rows =
      table_rows(w.run_well({"predict", "runs/small", "folders.yaml"}).out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].at("path").ends_with("pictures/test/3/a.png"));
  CHECK(rows[1].at("path").ends_with("pictures/test/unknown/a.png"));
}

TEST_CASE("predict writes many samples of a data set in parts") {
  const NpyRun w;
  write_bytes(w.dir.file("many.npy"),
              npy<std::uint8_t>({8200, 8, 8}, std::vector<std::uint8_t>(8200 * 64, 9)));
  const std::vector<std::string> predict = {"predict", "runs/small", "data.test.images=many.npy"};
  const Finished one = w.run_well(predict);
  const std::vector<TableRow> rows = table_rows(one.out);
  REQUIRE(rows.size() == 8200);
  CHECK(rows[8192].at("index") == "8192");
  CHECK(rows[8199].at("probability") == rows[0].at("probability"));
  CHECK((w.run_well(predict, {"--devices", "cpu,cpu,cpu"}).out == one.out));
}
