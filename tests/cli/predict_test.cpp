// Predicted classes in the results of dpt eval and dpt predict, compared with each other and with
// the images.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/checkpoints/tensor_view.h"
#include "tests/cli/table_rows.h"
#include "tests/cli/terminal.h"
#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/support/npy_data.h"
#include "tests/support/pseudo_terminal.h"
#include "tests/support/rewrite.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kImageRun = R"(version: 1
name: pictures
data:
  dataset: image_folder
  root: pictures
  batch_size: 8
  transforms:
    train: [{type: RandomResizedCrop, size: 8}, {type: Normalize, mean: [0.5, 0.4, 0.5], std: [0.25, 0.25, 0.2]}]
    eval: [{type: Resize, size: 10}, {type: CenterCrop, size: 8}, {type: Normalize, mean: [0.5, 0.4, 0.5], std: [0.25, 0.25, 0.2]}]
model:
  input: [3, 8, 8]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3}
    - {type: ReLU}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 3}
optimizer: {type: SGD, lr: 0.02}
train: {epochs: 2}
devices: [cpu]
)";

/// A run on images of many sizes in three classes.
struct ImageRun : Workplace {
  explicit ImageRun(const std::vector<std::string>& more = {}) : Workplace(kImageRun) {
    std::uint32_t seed = 1;
    for (const std::string part : {"train", "test"}) {
      for (const std::string name : {"ant", "bee", "cow"}) {
        fs::create_directories(dir.file("pictures/" + part + "/" + name));
        for (int k = 0; k < 15; ++k, ++seed) {
          const std::uint32_t width = 9 + seed % 7, height = 8 + seed % 11;
          auto pixels = dpt::data_test::noise(width * height * 3, seed);
          for (std::size_t i = 0; i < pixels.size(); ++i) {
            if (i % 3 == static_cast<std::size_t>(name[0] - 'a')) pixels[i] |= 0xc0;
          }
          write(part + "/" + name + "/" + std::to_string(10 + k) + (k % 2 ? ".png" : ".jpg"),
                k % 2 ? dpt::data_test::png(width, height, 3, pixels)
                      : dpt::data_test::jpeg(static_cast<int>(width), static_cast<int>(height), 3,
                                             pixels));
        }
      }
    }
    run_well({"train", "small.yaml"}, more);
  }
  void write(const std::string& name, const dpt::data_test::Bytes& bytes) const {
    write_file(dir.file("pictures/" + name), std::string(bytes.begin(), bytes.end()));
  }
};

}  // namespace

TEST_CASE("eval: results of classes follow from the predictions, on any devices") {
  const ImageRun w;
  const std::vector<std::string> eval = {"eval",          "runs/pictures", "--json",
                                         "--predictions", "p.csv",         "--probabilities"};
  const Finished one = w.run_well(eval);
  const std::string text = read_file(w.dir.file("p.csv"));
  const Finished three = w.run_well(eval, {"--devices", "cpu,cpu,cpu"});
  CHECK(three.out == one.out);
  CHECK(read_file(w.dir.file("p.csv")) == text);
  check_contains(text,
                 "index,path,label,prediction,label_name,prediction_name,loss,probability,"
                 "probability_ant,probability_bee,probability_cow\n");

  const json result = json::parse(one.out);
  std::vector<std::vector<int>> confusion(3, std::vector<int>(3, 0));
  std::vector<double> right(15, 0.0), expected(15, 0.0);
  const std::vector<TableRow> rows = table_rows(text);
  REQUIRE(rows.size() == 45);
  for (const TableRow& row : rows) {
    const auto label = static_cast<std::size_t>(value_in(row, "label"));
    const auto prediction = static_cast<std::size_t>(value_in(row, "prediction"));
    ++confusion[label][prediction];
    // The file exists at the printed path, in the folder of its class.
    CHECK(fs::exists(fs::path(w.dir.path()) / row.at("path")));
    check_contains(row.at("path"), "/" + row.at("label_name") + "/");
    CHECK(row.at("probability") == row.at("probability_" + row.at("prediction_name")));
    // The cross-entropy follows from the label's probability.
    CHECK(value_in(row, "loss") ==
          doctest::Approx(-std::log(value_in(row, "probability_" + row.at("label_name"))))
              .epsilon(1e-4));
    double sum = 0;
    for (const char* name : {"probability_ant", "probability_bee", "probability_cow"}) {
      sum += value_in(row, name);
      CHECK(value_in(row, name) <= value_in(row, "probability"));
    }
    CHECK(sum == doctest::Approx(1).epsilon(1e-6));
    const double probability = value_in(row, "probability");
    const auto bin = static_cast<std::size_t>(std::max(0.0, std::ceil(15 * probability) - 1));
    right.at(bin) += label == prediction ? 1 : 0;
    expected.at(bin) += probability;
  }
  CHECK(result["confusion"] == confusion);
  double error = 0, mean = 0;
  for (std::size_t b = 0; b < 15; ++b) error += std::abs(right[b] - expected[b]) / 45;
  CHECK(result.at("calibration_error").get<double>() == doctest::Approx(error).epsilon(1e-6));
  for (std::size_t c = 0; c < 3; ++c) {
    const json& of = result["classes"][c];
    CHECK(of["name"] == std::vector<std::string>{"ant", "bee", "cow"}[c]);
    CHECK(of["support"] == 15);
    CHECK(of["recall"].get<double>() == doctest::Approx(confusion[c][c] / 15.0));
    mean += of["recall"].get<double>() / 3;
  }
  CHECK(result.at("macro").at("recall").get<double>() == doctest::Approx(mean));
  CHECK_FALSE(result.contains("accuracy_top5"));

  // Output to a log or a file contains the table only on request.
  const std::string asked = w.run_well({"eval", "runs/pictures", "--table"}).out;
  const std::string plain = w.run_well({"eval", "runs/pictures"}).out;
  CHECK(asked.starts_with(plain));
  check_contains(asked, "precision  recall      f1  support");
  check_contains(asked, "confusion matrix (rows: labels, columns: predictions)");
  CHECK_FALSE(contains(plain, "precision"));
  CHECK(w.run({"eval", "runs/pictures", "--table", "--json"}).exit_code == 2);

  // Terminals get tables, other programs the usual line.
  if (!has_pseudo_terminals()) return;
  const std::string shown = on_terminal({"eval", "runs/pictures"}, w.dir.path());
  check_contains(shown, "precision  recall      f1  support");
  check_contains(shown, "macro average");
  check_contains(shown, "confusion matrix (rows: labels, columns: predictions)");
  check_contains(shown, fmt::format("expected calibration error (15 bins): {:.4f}", error));
  const std::string line = w.run_well({"eval", "runs/pictures"}).out;
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  CHECK(w.run({"eval", "runs/pictures", "--probabilities"}).exit_code == 2);
}

TEST_CASE("eval: with many classes top-5, and on a terminal the worst ones") {
  const Workplace w(R"(version: 1
name: many
data: {dataset: synthetic, size: 100, test_size: 60, classes: 30, batch_size: 20, difficulty: 0.9}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 30}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
  w.run_well({"train", "small.yaml"});
  const json result = json::parse(
      w.run_well({"eval", "runs/many", "--json", "--predictions", "p.csv", "--probabilities"}).out);
  double in_five = 0;
  for (const TableRow& row : table_rows(read_file(w.dir.file("p.csv")))) {
    const double own = value_in(row, "probability_" + row.at("label_name"));
    int above = 0;
    for (int c = 0; c < 30; ++c) {
      above += value_in(row, "probability_" + std::to_string(c)) > own ? 1 : 0;
    }
    in_five += above < 5 ? 1 : 0;
  }
  CHECK(result.at("accuracy_top5").get<double>() == doctest::Approx(in_five / 60));
  CHECK(result["classes"].size() == 30);
  w.run_well({"eval", "runs/many", "--require", "test/accuracy_top5>=0"});
  if (!has_pseudo_terminals()) return;
  const std::string shown = on_terminal({"eval", "runs/many"}, w.dir.path());
  check_contains(shown, "(the 10 worst of 30 classes, by f1; --json has all)");
  check_contains(shown, "most frequent confusions");
}

TEST_CASE("eval: outputs that are not probabilities have no calibration error") {
  const ImageRun w({"loss.type=mse"});
  const json result =
      json::parse(w.run_well({"eval", "runs/pictures", "--json", "--predictions", "p.csv"}).out);
  CHECK_FALSE(result.contains("calibration_error"));
  CHECK(result.contains("confusion"));
  check_contains(read_file(w.dir.file("p.csv")), "prediction_name,loss,output\n");
  const std::string lines = w.run_well({"predict", "runs/pictures", "pictures/test"}).out;
  check_contains(lines, "path,prediction,prediction_name,output\n");
}

TEST_CASE("predict gives what eval gives, without the training data, on any devices") {
  const ImageRun w({"loss.class_weights=balanced", "lr_schedule.type=plateau", "data.val_split=5",
                    "train.ema={decay: 0.9}"});
  w.run_well({"eval", "runs/pictures", "--predictions", "p.csv", "--probabilities"});
  const std::vector<TableRow> eval = table_rows(read_file(w.dir.file("p.csv")));
  fs::rename(w.dir.file("pictures/test"), w.dir.file("new"));
  fs::remove_all(w.dir.file("pictures"));
  write_file(w.dir.file("new/notes.txt"), "no picture");
  write_file(w.dir.file("new/.hidden.png"), "no picture");
  const Finished one = w.run_well({"predict", "runs/pictures", "new"});
  CHECK(one.err == "dpt: note: new: 1 file that is not an image is left out: 1 .txt\n");
  const std::vector<TableRow> rows = table_rows(one.out);
  REQUIRE(rows.size() == eval.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check_contains(rows[i].at("path"), "new/" + eval[i].at("label_name") + "/");
    for (const char* name : {"prediction", "prediction_name", "probability"}) {
      CHECK(rows[i].at(name) == eval[i].at(name));
    }
  }
  CHECK(w.run_well({"predict", "runs/pictures", "new", "--devices", "cpu,cpu,cpu"}).out == one.out);
  CHECK(w.run_well({"predict", "runs/pictures", "new", "--use", "raw"}).out != one.out);
  CHECK(w.run_well({"predict", "runs/pictures", "new", "--out", "out.csv"}).out.empty());
  CHECK(read_file(w.dir.file("out.csv")) == one.out);

  // Files keep the given order; with --top, classes are sorted by probability.
  const std::vector<std::string> two = {"predict",        "runs/pictures/best.safetensors",
                                        "new/cow/11.png", "new/ant/10.jpg",
                                        "--top",          "3"};
  const std::vector<TableRow> top = table_rows(w.run_well(two).out);
  REQUIRE(top.size() == 2);
  CHECK(top[0].at("path") == "new/cow/11.png");
  CHECK(top[1].at("path") == "new/ant/10.jpg");
  for (const TableRow& row : top) {
    CHECK(value_in(row, "probability") >= value_in(row, "probability_2"));
    CHECK(value_in(row, "probability_2") >= value_in(row, "probability_3"));
    CHECK(value_in(row, "probability") + value_in(row, "probability_2") +
              value_in(row, "probability_3") ==
          doctest::Approx(1).epsilon(1e-6));
  }
  std::istringstream lines(w.run_well(two, {"--format", "jsonl"}).out);
  std::vector<json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(json::parse(line));
  REQUIRE(objects.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(objects[i]["path"] == top[i].at("path"));
    CHECK(objects[i]["prediction_name"] == top[i].at("prediction_name"));
    REQUIRE(objects[i].at("top").size() == 3);
    CHECK(objects[i]["top"][1]["prediction_name"] == top[i].at("prediction_name_2"));
    CHECK(objects[i]["top"][2]["probability"].get<double>() ==
          doctest::Approx(value_in(top[i], "probability_3")).epsilon(1e-6));
  }
}

TEST_CASE("predict names images that cannot be read and predicts the others") {
  const ImageRun w;
  const std::string good = w.run_well({"predict", "runs/pictures", "pictures/test/bee"}).out;
  const std::string whole = read_file(w.dir.file("pictures/test/bee/10.jpg"));
  write_file(w.dir.file("torn.jpg"), whole.substr(0, whole.size() / 2));
  write_file(w.dir.file("text.png"), "no picture");
  const std::vector<std::string> bad = {"predict",           "runs/pictures", "torn.jpg",
                                        "pictures/test/bee", "absent.png",    "text.png"};
  for (const char* devices : {"cpu", "cpu,cpu,cpu"}) {
    const Finished some = w.run(bad, {"--devices", devices});
    CHECK(some.exit_code == 3);
    const std::size_t first = good.find('\n') + 1;
    CHECK(some.out == good.substr(0, first) + "torn.jpg,,,\n" + good.substr(first) +
                          "absent.png,,,\ntext.png,,,\n");
    check_contains(some.err, "dpt: torn.jpg: ");
    check_contains(some.err, "dpt: absent.png: cannot be opened: No such file or directory");
    check_contains(some.err, "dpt: text.png: ");
    check_contains(some.err, "3 of 18 images could not be read and have no prediction");
  }
  const Finished lines = w.run(bad, {"--format", "jsonl", "--out", "out.jsonl"});
  CHECK(lines.exit_code == 3);
  std::istringstream text(read_file(w.dir.file("out.jsonl")));
  std::string line;
  REQUIRE(std::getline(text, line));
  const json torn = json::parse(line);
  CHECK(torn["path"] == "torn.jpg");
  check_contains(torn.at("error").get<std::string>(), "torn.jpg: ");
  CHECK_FALSE(torn.contains("prediction"));
  REQUIRE(std::getline(text, line));
  CHECK(json::parse(line).contains("prediction"));
}

TEST_CASE("predict over processes gives the lines of one, bad images where they were") {
  const ImageRun w;
  const std::string whole = read_file(w.dir.file("pictures/test/bee/10.jpg"));
  write_file(w.dir.file("pictures/test/ant/torn.jpg"), whole.substr(0, whole.size() / 2));
  write_file(w.dir.file("pictures/test/cow/99.png"), "no picture");
  const std::vector<std::string> predict = {"predict", "runs/pictures", "pictures/test",
                                            "absent.png"};
  const Finished one = w.run(predict);
  CHECK(one.exit_code == 3);
  const Finished three = w.run(predict, {"--nproc", "3"});
  CHECK(three.exit_code == 3);
  CHECK(three.out == one.out);
  CHECK(three.err.find(one.err) == 0);  // then the launcher names the process that ended with 3
  const Finished file =
      w.run(predict, {"--nproc", "2", "--out", "out.csv", "--devices", "cpu,cpu"});
  CHECK(file.exit_code == 3);
  CHECK(file.out.empty());
  CHECK(read_file(w.dir.file("out.csv")) == one.out);
  const std::vector<std::string> good = {"predict", "runs/pictures", "pictures/test/bee",
                                         "--format", "jsonl"};
  CHECK(w.run_well(good, {"--nproc", "2"}).out == w.run_well(good).out);

  // Rank 0 reads the checkpoint, and its error decides the exit code.
  const Finished refused = w.run({"predict", "runs/missing", "pictures"}, {"--nproc", "2"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err, "runs/missing");
}

TEST_CASE("predict writes many images in parts, bad ones where they were") {
  const ImageRun w;
  const std::string one = w.run_well({"predict", "runs/pictures", "pictures/test/bee/11.png"}).out;
  const std::size_t first = one.find('\n') + 1;
  // dpt predict processes 8192 images at a time.
  std::vector<std::string> words = {"predict", "runs/pictures", "--devices", "cpu,cpu,cpu"};
  std::string want = one.substr(0, first);
  for (int i = 0; i < 8200; ++i) {
    const bool is_bad = i == 8191 || i == 8192;
    words.push_back(is_bad ? "absent.png" : "pictures/test/bee/11.png");
    want += is_bad ? "absent.png,,,\n" : one.substr(first);
  }
  const Finished many = w.run(words);
  CHECK(many.exit_code == 3);
  check_contains(many.err, "2 of 8200 images could not be read");
  CHECK((many.out == want));
}

TEST_CASE("predict says what it cannot do") {
  const ImageRun w;
  const auto refused = [&](const std::vector<std::string>& more, int code,
                           const std::string& message) {
    const Finished finished = w.run({"predict", "runs/pictures"}, more);
    CHECK(finished.exit_code == code);
    CHECK(finished.out.empty());
    check_contains(finished.err, message);
  };
  fs::create_directory(w.dir.file("empty"));
  refused({"empty"}, 3, "empty: expected images (.jpg, .jpeg, .jpe, .jfif, .png, ");
  refused({"pictures/test", "--top", "4"}, 2, "--top: expected 1 to 3 (the model's classes)");
  refused({"pictures/test", "--top", "0"}, 2, "--top");
  refused({"pictures/test", "--format", "xml"}, 2, "--format");
  refused({"pictures/test", "--use", "ema"}, 2, "the run did not use train.ema");
  refused({}, 2, "expected images, a folder of images, a config (.yaml) whose data section names");
  refused({"pictures/test", "--split", "test"}, 2, "expected images or a data set, found both");
  refused({"pictures/test", "data.root=pictures"}, 2, "expected images or a data set");
  const std::string help = w.run_well({"predict", "--help"}).out;
  for (const char* option : {"--top", "--format", "--out", "--devices", "--use"}) {
    check_contains(help, option);
  }
  check_contains(w.run_well({"--help"}).out, "predict");
}

TEST_CASE("predict: the checkpoint says what the targets were") {
  const Workplace w("");
  write_file(w.dir.file("small.yaml"), "version: 1\nname: arrays\ndata:\n" +
                                           npy_data(w.dir.path(), "labels", false) +
                                           R"(  batch_size: 8
  classes: [sky, sea, land, sand]
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: Adam, lr: 0.02}
train: {epochs: 1}
devices: [cpu]
loss: {type: bce_with_logits}
)");
  w.run_well({"train", "small.yaml"});
  const auto png = dpt::data_test::png(8, 8, 1, dpt::data_test::noise(64));
  write_file(w.dir.file("a.png"), std::string(png.begin(), png.end()));
  check_contains(w.run_well({"predict", "runs/arrays", "a.png", "--top", "2"}).out,
                 "path,prediction,prediction_name,probability,prediction_2,");
  check_contains(w.run_well({"predict", "runs/arrays", "a.png", "--nproc", "2"}).out,
                 "path,prediction,prediction_name,probability\n");
  // Soft labels have classes too.
  write_file(w.dir.file("soft.yaml"), "version: 1\nname: soft\ndata:\n" +
                                          npy_data(w.dir.path(), "soft_labels", false) +
                                          R"(  batch_size: 8
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: Adam, lr: 0.02}
train: {epochs: 1}
devices: [cpu]
loss: {type: mse}
)");
  w.run_well({"train", "soft.yaml"});
  check_contains(w.run_well({"predict", "runs/soft", "a.png"}).out,
                 "path,prediction,prediction_name,output\n");
  // Older checkpoints do not record the kind of targets. An elementwise loss is then assumed to
  // have one target per output.
  const std::string checkpoint = w.dir.file("runs/arrays/checkpoints/step-00000008.safetensors");
  rewrite_checkpoint(checkpoint, w.dir.file("old.safetensors"),
                     [](dpt::Metadata& metadata, std::vector<dpt::TensorView>&) {
                       metadata["dpt.version"] = "1.5";
                       CHECK(metadata.at("dpt.targets") == "labels");
                       metadata.erase("dpt.targets");
                     });
  check_contains(w.run_well({"predict", "old.safetensors", "a.png"}).out,
                 "path,prediction_sky,prediction_sea,");
}

TEST_CASE("predict: models whose outputs are not classes print each output") {
  const Workplace w("");
  write_file(w.dir.file("small.yaml"), "version: 1\nname: arrays\ndata:\n" +
                                           npy_data(w.dir.path(), "multi_hot", false) +
                                           R"(  batch_size: 8
  classes: [sky, sea, land, sand]
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: Adam, lr: 0.02}
train: {epochs: 1}
devices: [cpu]
loss: {type: bce_with_logits}
)");
  w.run_well({"train", "small.yaml"});
  const auto png = dpt::data_test::png(8, 8, 1, dpt::data_test::noise(64));
  write_file(w.dir.file("a.png"), std::string(png.begin(), png.end()));
  const Finished finished = w.run_well({"predict", "runs/arrays", "a.png"});
  check_contains(finished.err, "warning: the run was trained on a data set of the kind npy");
  check_contains(finished.out,
                 "path,prediction_sky,prediction_sea,prediction_land,prediction_sand\na.png,0.");
  const json line =
      json::parse(w.run_well({"predict", "runs/arrays", "a.png", "--format", "jsonl"}).out);
  CHECK(line.at("prediction_sky").get<double>() ==
        doctest::Approx(value_in(table_rows(finished.out)[0], "prediction_sky")).epsilon(1e-6));
  CHECK(w.run({"predict", "runs/arrays", "a.png", "--top", "2"}).exit_code == 2);
}

TEST_CASE("predict: paths are read from stdin") {
  const Workplace w("");
  write_file(w.dir.file("names"), "");
  const auto predict = [&](const std::string& names, const std::string& more) {
    write_file(w.dir.file("names"), names);
    const std::string command =
        fmt::format("cd '{}' && '{}' predict nothing - {} <names >out 2>err", w.dir.path(),
                    dpt_program(), more);
    return std::system(command.c_str());
  };
  CHECK(WEXITSTATUS(predict("\n", "")) == 2);
  check_contains(read_file(w.dir.file("err")),
                 "-: expected paths of images on stdin, one per line, found none");
  // The names are accepted: the missing checkpoint is the next error.
  CHECK(WEXITSTATUS(predict("a.png\nb.png\n", "")) == 3);
  check_contains(read_file(w.dir.file("err")), "nothing");
  CHECK(WEXITSTATUS(predict("a.png\n", "--nproc 2")) == 2);
  check_contains(read_file(w.dir.file("err")), "only one process can read paths from stdin");
}
