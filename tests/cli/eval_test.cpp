// dpt eval and dpt inspect: the file that they use, and their output.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/checkpoints/safetensors.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Returns the tiny config with a ReLU between its two layers, and with a Normalize.
std::string with_activation() {
  std::string text = kTinyConfig;
  const std::string flatten = "{type: Flatten}, ";
  text.replace(text.find(flatten), flatten.size(), flatten + "{type: ReLU, name: r}, ");
  const std::string data = "batch_size: 8}";
  return text.replace(text.find(data), data.size(),
                      "batch_size: 8, transforms: {train: [{type: Normalize, mean: [0.3], std: "
                      "[0.4]}], eval: [{type: Normalize, mean: [0.3], std: [0.4]}]}}");
}

}  // namespace

TEST_CASE("eval: the newest checkpoint where there is no best, val where there is no test") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "data.test_size=0", "train.epochs=2"});
  const Finished best = w.run_well({"eval", "runs/tiny"});
  check_contains(best.out, "runs/tiny/best.safetensors: val split, 8 samples: loss ");
  // These runs stop in the first epoch, before any validation.
  fs::remove_all(w.dir.file("runs"));
  for (const char* steps : {"3", "4"}) {
    w.run_well({"train", "small.yaml", "data.test_size=0", "train.epochs=2", "--max-steps", steps});
  }
  const Finished newest = w.run_well({"eval", "runs/tiny"});
  check_contains(newest.out, "runs/tiny/checkpoints/step-00000004.safetensors: val split, 8 ");
  CHECK(newest.err.empty());
  // A damaged checkpoint is skipped, with a message.
  write_file(w.dir.file("runs/tiny/checkpoints/step-00000004.safetensors"), "x");
  const Finished older = w.run_well({"eval", "runs/tiny"});
  check_contains(older.out, "step-00000003.safetensors: val split");
  check_contains(older.err, "dpt: warning: ");
  write_file(w.dir.file("runs/tiny/checkpoints/step-00000003.safetensors"), "x");
  const Finished none = w.run({"eval", "runs/tiny"});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "runs/tiny: the run folder has no good checkpoint");
}

TEST_CASE("eval takes the moving average of the weights where the run kept one") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  CHECK(w.run({"eval", "runs/tiny", "--use", "ema"}).exit_code == 2);
  w.run_well({"eval", "runs/tiny", "--use", "raw"});
  w.run_well({"train", "small.yaml", "--run-dir", "e", "train.ema={decay: 0.9}"});
  const auto result = [&](const std::vector<std::string>& more) {
    return nlohmann::json::parse(w.run_well({"eval", "e", "--json", "--split", "val"}, more).out);
  };
  const auto usual = result({}), average = result({"--use", "ema"}), raw = result({"--use", "raw"});
  CHECK(usual == average);
  CHECK(usual["weights"] == "ema");
  CHECK(raw["weights"] == "raw");
  CHECK(raw["loss"] != usual["loss"]);
  CHECK(usual["loss"] == events(w.dir.file("e/metrics.jsonl"), "eval")[0]["loss"]);
}

TEST_CASE(
    "eval takes the average of epochs of a run with train.swa, and says what others it lacks") {
  const Tiny w;
  w.run_well(
      {"train", "small.yaml", "train.epochs=4", "train.swa={from_epoch: 2}", "--run-dir", "s"});
  const auto result = [&](const std::vector<std::string>& more) {
    return nlohmann::json::parse(
        w.run_well({"eval", "s/checkpoints/step-00000020.safetensors", "--json", "--split", "val"},
                   more)
            .out);
  };
  const auto usual = result({}), average = result({"--use", "swa"}), raw = result({"--use", "raw"});
  CHECK(usual == average);
  CHECK(usual["weights"] == "swa");
  CHECK(raw["weights"] == "raw");
  CHECK(raw["loss"] != usual["loss"]);
  CHECK(usual["loss"] == events(w.dir.file("s/metrics.jsonl"), "eval")[3]["loss"]);
  const std::string last = "s/checkpoints/step-00000020.safetensors";
  check_contains(w.run_well({"eval", last}).out, ".safetensors (average of epochs): test split");
  // The best checkpoint is from the first epoch, before the average began.
  check_contains(w.run_well({"eval", "s"}).out, "best.safetensors: test split");
  check_contains(
      w.run({"eval", "s", "--use", "swa"}).err,
      "best.safetensors does not have this average of the weights: it was saved before the first "
      "epoch of train.swa");
  const Finished other = w.run({"eval", last, "--use", "ema"});
  CHECK(other.exit_code == 2);
  check_contains(other.err,
                 "does not have this average of the weights: the run did not use train.ema; it has "
                 "the average of train.swa (--use swa)");
  for (const auto& [setting, text] :
       {std::pair("train.swa={from_epoch: 2}",
                  "swa.from_epoch: expected one of the 1 epochs, found 2"),
        std::pair("train={epochs: 2, ema: {}, swa: {from_epoch: 1}}",
                  "expected ema or swa, found both"),
        std::pair("train.swa={swa_start: 1}",
                  "unknown key 'swa_start' in train.swa, did you mean "
                  "'from_epoch'?")}) {
    const Finished bad = w.run({"config", "check", "small.yaml", setting});
    CHECK(bad.exit_code == 2);
    check_contains(bad.err, text);
  }
}

TEST_CASE("eval: bounds of metrics, and predictions of a part of the samples") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "metrics=[{type: top_k, k: 2}, {type: per_class_accuracy}]"});
  const json val = json::parse(w.run_well({"eval", "runs/tiny", "--json", "--split", "val"}).out);
  const std::string loss = val["loss"].dump();
  w.run_well({"eval", "runs/tiny", "--split", "val", "--require", "val/loss<=" + loss});
  const Finished missed =
      w.run({"eval", "runs/tiny", "--split", "val", "--require", "val/loss<" + loss});
  CHECK(missed.exit_code == 7);
  check_contains(missed.err, fmt::format("--require val/loss<{}: not met: the value is {:.6g}\n",
                                         loss, val["loss"].get<double>()));
  w.run_well({"eval", "runs/tiny", "--split", "val", "--require",
              "val/accuracy_top2>=" + val["accuracy_top2"].dump()});
  CHECK(val["per_class_accuracy_of"].size() <= 3);
  check_contains(w.run_well({"eval", "runs/tiny"}).out, "  per_class_accuracy of 0: ");
  const Finished unknown = w.run({"eval", "runs/tiny", "--require", "test/accuracy_top5>0"});
  CHECK(unknown.exit_code == 2);
  check_contains(unknown.err,
                 "expected a metric of test: loss, accuracy, accuracy_top2, per_class_accuracy");
  const Finished elsewhere = w.run({"eval", "runs/tiny", "--require", "val/loss<1"});
  CHECK(elsewhere.exit_code == 2);
  check_contains(elsewhere.err,
                 "--require val/loss<1: expected a metric of the evaluated split (test): ");
  CHECK(elsewhere.out.empty());

  w.run_well({"eval", "runs/tiny", "--split", "val", "--predictions", "val.csv"});
  w.run_well({"eval", "runs/tiny", "--split", "train", "--predictions", "train.csv"});
  // --predictions may replace only an earlier table of predictions.
  w.run_well({"eval", "runs/tiny", "--split", "train", "--predictions", "train.csv"});
  const std::string best = read_file(w.dir.file("runs/tiny/best.safetensors"));
  const Finished refused =
      w.run({"eval", "runs/tiny", "--predictions", "runs/tiny/best.safetensors"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err, "the file exists but is not an earlier table of predictions");
  CHECK((read_file(w.dir.file("runs/tiny/best.safetensors")) == best));
  std::vector<int> all;
  const auto add = [&](const std::string& file) {
    std::istringstream csv(read_file(w.dir.file(file)));
    std::string line;
    std::getline(csv, line);
    double sum = 0;
    int n = 0, right = 0;
    for (; std::getline(csv, line); ++n) {
      int index = 0, label = 0, prediction = 0, label_name = 0, prediction_name = 0;
      char comma = 0;
      double loss_of_sample = 0;
      std::istringstream(line) >> index >> comma >> label >> comma >> prediction >> comma >>
          label_name >> comma >> prediction_name >> comma >> loss_of_sample;
      // Classes of synthetic data are named by their numbers and repeat in order.
      CHECK(label == index % 3);
      CHECK(label_name == label);
      CHECK(prediction_name == prediction);
      right += prediction == label ? 1 : 0;
      sum += loss_of_sample;
      all.push_back(index);
    }
    return std::tuple(n, sum / n, static_cast<double>(right) / n);
  };
  const auto [n, mean, accuracy] = add("val.csv");
  CHECK(n == 8);
  CHECK(mean == doctest::Approx(val["loss"].get<double>()).epsilon(1e-6));
  CHECK(accuracy == val["accuracy"].get<double>());
  CHECK(std::get<0>(add("train.csv")) == 40);
  // Each sample of the training files is in one of the two tables.
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 48; ++i) CHECK(all.at(static_cast<std::size_t>(i)) == i);
}

TEST_CASE("eval: other devices than the run's, whatever their weights and shards were") {
  const Tiny w;
  w.run_well(
      {"train", "small.yaml", "devices=[cpu, cpu]", "device_weights=[1, 2]", "train.shards=2"});
  const json one = json::parse(w.run_well({"eval", "runs/tiny", "--json", "--devices", "cpu"}).out);
  const json three =
      json::parse(w.run_well({"eval", "runs/tiny", "--json", "--devices", "cpu,cpu,cpu"}).out);
  CHECK(one["accuracy"] == three["accuracy"]);
  // Command-line settings take precedence, and --devices applies last.
  const Finished bad = w.run(
      {"eval", "runs/tiny", "device_weights=[1, 2]", "devices=[cpu, cpu]", "--devices", "cpu"});
  CHECK(bad.exit_code == 2);
  check_contains(bad.err, "device_weights");
}

TEST_CASE("inspect: the integrity of a file without a checksum is unknown") {
  const Tiny w;
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_file(w.dir.file("foreign.safetensors"), bytes + header + std::string(4, '\0'));
  check_contains(w.run_well({"inspect", "foreign.safetensors"}).out,
                 "\nintegrity: unknown: the file has no dpt.integrity checksum");
  CHECK(json::parse(w.run_well({"inspect", "foreign.safetensors", "--json"}).out)["integrity"] ==
        "absent");
}

TEST_CASE("inspect: what a damaged file and a good one are called") {
  const Tiny w;
  const float one = 1;
  const std::string file = w.dir.file("a.safetensors");
  dpt::write_safetensors(file, {}, {{"x", "F32", {1}, &one}});
  check_contains(w.run_well({"inspect", "a.safetensors"}).out,
                 "\nintegrity: good: every byte is as it was written\n");
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  const Finished damaged = w.run({"inspect", "a.safetensors"});
  CHECK(damaged.exit_code == 3);
  check_contains(damaged.out,
                 "\nintegrity: MISMATCH: bytes have changed since the file was written\n");
}

TEST_CASE("eval measures the checkpoint's model, or says that it is another") {
  const Workplace w(with_activation());
  w.run_well({"train", "small.yaml"});
  const json usual = json::parse(w.run_well({"eval", "runs/tiny", "--json"}).out);
  CHECK_FALSE(usual.contains("other_model"));
  const Finished tanh = w.run({"eval", "runs/tiny", "model.layers.r.type=Tanh"});
  CHECK(tanh.exit_code == 2);
  check_contains(tanh.err,
                 "runs/tiny/best.safetensors: expected the values of the checkpoint, found other "
                 "values:\n  model.layers.r.type: ReLU -> Tanh\ndpt eval may change only the "
                 "location of the data (data.root and the other fields of the data set)");
  check_contains(tanh.err, "--allow-other-model");
  // A gate or a report never passes for a different network.
  CHECK(w.run({"eval", "runs/tiny", "model.layers.r.type=Tanh", "--require", "test/loss<=100"})
            .exit_code == 2);
  for (const char* change : {"loss.label_smoothing=0.1", "data.transforms.eval=[]",
                             "train.precision=bf16", "optimizer.lr=0.5",
                             "model.layers=[{type: Flatten}, {type: Linear, name: fc, "
                             "out_features: 3}]",
                             "name=other", "train.freeze=[fc.*]"}) {
    CAPTURE(change);
    CHECK(w.run({"eval", "runs/tiny", change}).exit_code == 2);
    CHECK(w.run({"report", "runs/tiny", change, "-o", "page.html"}).exit_code == 2);
  }
  // The first override sets the value that the run already has; the others do not affect the loss.
  for (const char* change :
       {"model.layers.r.type=ReLU", "data.batch_size=3", "data.workers=2", "devices=[cpu, cpu]",
        "device_weights=[1]", "data.on_bad_sample=salvage", "log.every=9",
        "metrics=[{type: per_class_accuracy}]"}) {
    CAPTURE(change);
    json same = json::parse(w.run_well({"eval", "runs/tiny", "--json", change}).out);
    CHECK(same["loss"].get<double>() == doctest::Approx(usual["loss"].get<double>()));
    CHECK_FALSE(same.contains("other_model"));
  }
}

TEST_CASE("eval --allow-other-model: the results and the verdict say what differs") {
  const Workplace w(with_activation());
  w.run_well({"train", "small.yaml"});
  const Finished done =
      w.run_well({"eval", "runs/tiny", "model.layers.r.type=Tanh", "--allow-other-model", "--json",
                  "--require", "test/loss<=100", "--verdict", "v.md", "--junit", "v.xml"});
  CHECK(json::parse(done.out)["other_model"] == json::array({"model.layers.r.type: ReLU -> Tanh"}));
  const std::string text =
      "not the model of the checkpoint (--allow-other-model): model.layers.r.type: ReLU -> Tanh";
  check_contains(done.err, "dpt: warning: runs/tiny/best.safetensors: " + text + "\n");
  check_contains(read_file(w.dir.file("v.md")), "\n**Warning**: not the model of the checkpoint");
  check_contains(read_file(w.dir.file("v.xml")),
                 "<property name=\"warning\" value=\"not the model of the checkpoint");
  // A baseline with the result of another model causes a warning, too.
  write_file(w.dir.file("other.json"), done.out);
  const Finished compared = w.run({"eval", "runs/tiny", "--require", "test/loss<=baseline+9",
                                   "--baseline", "other.json", "--verdict", "v.md"});
  check_contains(
      compared.err,
      "dpt: warning: --baseline other.json: its test results come from a different model "
      "than the run's\n");
  check_contains(read_file(w.dir.file("v.md")), "**Warning**: --baseline other.json");
}
