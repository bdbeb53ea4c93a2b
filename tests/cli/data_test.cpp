// A run's use of its data, from the user's view: the data that is measured, the effects of seed,
// epoch and transforms, and unreadable images.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/cli/workplace.h"
#include "tests/engine/data/encoded_images.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string idx_header(char dimensions, std::initializer_list<int> sizes) {
  std::string bytes{'\0', '\0', '\x08', dimensions};
  for (const int size : sizes) bytes += {'\0', '\0', '\0', static_cast<char>(size)};
  return bytes;
}

/// Writes `count` images of 8x8 noise, with the labels 0, 1, 2, 3, 0, ...
void write_idx(const std::string& folder, const std::string& part, int count) {
  std::string images = idx_header(3, {count, 8, 8}), labels = idx_header(1, {count});
  unsigned state = 12345U + static_cast<unsigned>(count);
  for (int i = 0; i < count * 64; ++i) {
    state = state * 1664525U + 1013904223U;
    images += static_cast<char>(state >> 24);
  }
  for (int i = 0; i < count; ++i) labels += static_cast<char>(i % 4);
  write_file(folder + "/" + part + "-images-idx3-ubyte", images);
  write_file(folder + "/" + part + "-labels-idx1-ubyte", labels);
}

constexpr const char* kIdxConfig = R"(version: 1
name: small
data: {dataset: idx, root: data, val_split: 10, batch_size: 10}
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: SGD, lr: 0.05}
train: {epochs: 2}
log: {every: 1}
devices: [cpu]
)";

/// A workplace with 60 training samples and 20 test samples.
struct IdxWorkplace : Workplace {
  IdxWorkplace() : Workplace(kIdxConfig) {
    fs::create_directory(dir.file("data"));
    write_idx(dir.file("data"), "train", 60);
    write_idx(dir.file("data"), "t10k", 20);
  }
  void change_one_pixel(const std::string& part = "train") const {
    const std::string file = dir.file("data/" + part + "-images-idx3-ubyte");
    std::string bytes = read_file(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file(file, bytes);
  }
  /// Returns the losses of all steps of a run. All runs start from the same weights, which never
  /// change.
  std::vector<double> losses(const std::string& name, std::vector<std::string> more) const {
    if (!fs::exists(dir.file("first"))) {
      REQUIRE(run({"train", "small.yaml", "--run-dir", "first", "--max-steps", "1"}).exit_code ==
              0);
    }
    more.insert(more.end(), {"optimizer.lr=1e-30", "--run-dir", name, "--weights",
                             "first/checkpoints/step-00000001.safetensors"});
    run_well({"train", "small.yaml"}, more);
    std::vector<double> all;
    for (const json& step : events(dir.file(name + "/metrics.jsonl"), "step")) {
      all.push_back(step["loss"]);
    }
    return all;
  }
};

/// A grey PNG image of 2 x 2 pixels.
const std::string kImage(
    "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x02"
    "\x00\x00\x00\x02\x08\x00\x00\x00\x00\x57\xdd\x52\xf8\x00\x00\x00\x0e\x49\x44\x41"
    "\x54\x78\x9c\x63\x88\x8a\x62\x88\x8a\x02\x00\x04\x3e\x01\x69\xa4\x07\xf3\xe4\x00"
    "\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82",
    71);

constexpr const char* kFolderConfig = R"(version: 1
name: pictures
data: {dataset: image_folder, root: pictures, batch_size: 4}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.05}
train: {epochs: 1}
devices: [cpu]
)";

}  // namespace

TEST_CASE("eval refuses other data than the run's, by its content, unless told otherwise") {
  const IdxWorkplace w;
  REQUIRE(w.run({"train", "small.yaml"}).exit_code == 0);
  fs::copy(w.dir.file("data"), w.dir.file("moved"), fs::copy_options::recursive);
  CHECK(w.run({"eval", "runs/small"}).exit_code == 0);
  w.change_one_pixel();
  for (const char* split : {"val", "train"}) {
    CAPTURE(split);
    const Finished other = w.run({"eval", "runs/small", "--split", split});
    CHECK(other.exit_code == 3);
    CHECK(other.out.empty());
    check_contains(other.err, "found other data (fingerprint xxh3:");
    check_contains(other.err, "--allow-other-data");
  }
  const Finished allowed =
      w.run({"eval", "runs/small", "--split", "val", "--allow-other-data", "--json"});
  CHECK(allowed.exit_code == 0);
  check_contains(allowed.err, "warning");
  CHECK(json::parse(allowed.out)["n"] == 10);
  // The test samples are the run's, and no other data is read.
  const Finished test = w.run_well({"eval", "runs/small", "--json"});
  CHECK(test.err.empty());
  CHECK(json::parse(test.out)["n"] == 20);
  // The same bytes in another place are the same data.
  CHECK(w.run({"eval", "runs/small", "data.root=moved"}).exit_code == 0);
  // Another training set size means another validation split.
  write_idx(w.dir.file("moved"), "train", 50);
  CHECK(w.run({"eval", "runs/small", "--split", "val", "data.root=moved"}).exit_code == 3);
  check_contains(w.run({"eval", "--help"}).out, "--allow-other-data");
}

TEST_CASE("eval refuses other test data than the run's where it measures them") {
  const IdxWorkplace w;
  REQUIRE(w.run({"train", "small.yaml"}).exit_code == 0);
  w.change_one_pixel("t10k");
  const Finished other = w.run({"eval", "runs/small"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "expected the run's test data (fingerprint xxh3:");
  check_contains(other.err, "20 samples); the result is not comparable with the run's");
  CHECK(w.run({"eval", "runs/small", "--allow-other-data"}).exit_code == 0);
  CHECK(w.run({"eval", "runs/small", "--split", "val"}).exit_code == 0);
}

TEST_CASE("a resumed run refuses other test data, unless that is allowed") {
  const IdxWorkplace w;
  const std::vector<std::string> command = {"train", "small.yaml"};
  w.run_well(command, {"--max-steps", "3"});
  w.change_one_pixel("t10k");
  const Finished other = w.run(command);
  CHECK(other.exit_code == 3);
  check_contains(other.err, "expected the run's test data (fingerprint xxh3:");
  const Finished allowed = w.run_well(command, {"--allow-other-data"});
  check_contains(allowed.err, "(--allow-other-data)");
  w.run_well(command);
}

TEST_CASE("eval refuses another split of the same data, except where it does not matter") {
  const IdxWorkplace w;
  REQUIRE(w.run({"train", "small.yaml"}).exit_code == 0);
  for (const char* change : {"data.val_split=20", "seed=9"}) {
    CAPTURE(change);
    const Finished val = w.run({"eval", "runs/small", "--split", "val", change});
    CHECK(val.exit_code == 3);
    check_contains(val.err, "split of the training files");
    CHECK(w.run({"eval", "runs/small", "--split", "val", change, "--allow-other-data"}).exit_code ==
          0);
    CHECK(w.run({"eval", "runs/small", "--split", "test", change}).exit_code == 0);
  }
}

TEST_CASE("eval says which data and which split it expected, and what follows") {
  const IdxWorkplace w;
  w.run_well({"train", "small.yaml", "seed=5"});
  const auto fingerprint_of = [&](const std::string& file) -> std::string {
    return json::parse(
        w.run_well({"inspect", file, "--json"}).out)["metadata"]["dpt.dataset_fingerprint"];
  };
  const std::string best = "runs/small/best.safetensors";
  const std::string val =
      "; the val split may contain samples that the weights were trained on. Restore the data";
  check_contains(
      w.run({"eval", "runs/small", "--split", "val", "data.val_split=20", "seed=9"}).err,
      best +
          ": expected the run's split of the training files (seed=5, data.val_split=10), found "
          "seed=9, data.val_split=20" +
          val);
  w.change_one_pixel();
  w.run_well({"train", "small.yaml", "--run-dir", "other", "--max-steps", "1"});
  const std::string other = best + ": expected the run's training data (fingerprint " +
                            fingerprint_of(best) + "), found other data (fingerprint " +
                            fingerprint_of("other/checkpoints/step-00000001.safetensors") +
                            ", 60 samples)";
  check_contains(w.run({"eval", "runs/small", "--split", "val"}).err, other + val);
  // A loss that needs the training samples reads them even for the test split.
  const std::string balanced = "loss={type: cross_entropy, class_weights: balanced}";
  const std::vector<std::string> test = {"eval", "runs/small", balanced, "--allow-other-model"};
  check_contains(
      w.run(test).err,
      other +
          "; the test samples may differ too. Restore the data, say where it is, e.g. with "
          "data.root=DIR, or evaluate on this data with --allow-other-data\n");
  check_contains(
      w.run(test, {"--allow-other-data"}).err,
      "dpt: warning: " + other + "; the test samples may differ too (--allow-other-data)\n");
}

TEST_CASE("a run resumes on its own data only") {
  const IdxWorkplace w;
  REQUIRE(w.run({"train", "small.yaml"}).exit_code == 0);
  fs::copy(w.dir.file("data"), w.dir.file("moved"), fs::copy_options::recursive);
  w.change_one_pixel();
  const Finished other = w.run({"train", "small.yaml", "train.epochs=3"});
  CHECK(other.exit_code == 3);
  check_contains(other.err, "other data");
  CHECK(w.run({"train", "small.yaml", "train.epochs=3", "data.root=moved"}).exit_code == 0);
  // Data of another size is refused even if other data is allowed: the run's position in the epoch
  // means nothing in that data.
  write_idx(w.dir.file("data"), "train", 50);
  for (const std::string& option :
       {std::string("train.epochs=4"), std::string("--allow-other-data")}) {
    const Finished fewer = w.run({"train", "small.yaml", "train.epochs=4", option});
    CHECK(fewer.exit_code == 3);
    check_contains(fewer.err,
                   "50 samples); the run trains on 50 samples, this data has 40 to train on");
  }
}

TEST_CASE("a resume that is refused says what the run had and what it would have now") {
  const IdxWorkplace w;
  const std::vector<std::string> command = {"train", "small.yaml", "--run-dir", "r"};
  const std::string checkpoint = "r/checkpoints/step-00000003.safetensors";
  w.run_well(command, {"--max-steps", "3"});
  check_contains(w.run(command, {"optimizer.lr=0.1", "data.batch_size=5"}).err,
                 "dpt: error: " + checkpoint +
                     " was saved with another config:\n  data.batch_size: 10 -> 5\n  optimizer.lr: "
                     "0.05 -> 0.1\nA resumed run may change only ");
  w.change_one_pixel();
  w.run_well({"train", "small.yaml", "--run-dir", "other", "--max-steps", "1"});
  const auto fingerprint_of = [&](const std::string& file) -> std::string {
    return json::parse(
        w.run_well({"inspect", file, "--json"}).out)["metadata"]["dpt.dataset_fingerprint"];
  };
  const std::string had = fingerprint_of(checkpoint);
  const std::string has = fingerprint_of("other/checkpoints/step-00000001.safetensors");
  CHECK(w.run(command).err ==
        "dpt: error: " + checkpoint + ": expected the run's training data (fingerprint " + had +
            "), found other data (fingerprint " + has +
            ", 60 samples). Restore the data, resume on this data with --allow-other-data (after a "
            "file was repaired, for example), or start a new run with --resume never\n");
}

TEST_CASE("the seed changes the order of the samples, and nothing does without shuffle") {
  const IdxWorkplace w;
  const std::vector<double> one = w.losses("one", {"seed=1", "data.val_split=0"});
  const std::vector<double> two = w.losses("two", {"seed=2", "data.val_split=0"});
  REQUIRE(one.size() == 12);
  CHECK(one != two);
  CHECK(one[0] != one[6]);  // the second epoch has another order
  const std::vector<std::string> still = {"data.val_split=0", "data.shuffle=false"};
  const auto plain_one = w.losses("plain-one", {"seed=1", still[0], still[1]});
  CHECK(plain_one == w.losses("plain-two", {"seed=2", still[0], still[1]}));
  CHECK(plain_one[0] == plain_one[6]);
}

TEST_CASE("augmentation draws anew in each epoch") {
  const IdxWorkplace w;
  const std::vector<std::string> whole = {"data.val_split=0", "data.batch_size=60",
                                          "data.shuffle=false", "train.epochs=3"};
  std::vector<std::string> flipped = whole;
  flipped.emplace_back("data.transforms.train=[{type: RandomHorizontalFlip}]");
  const std::vector<double> plain = w.losses("plain", whole);
  REQUIRE(plain.size() == 3);
  CHECK(plain[0] == plain[1]);
  CHECK(plain[1] == plain[2]);
  const std::vector<double> drawn = w.losses("drawn", flipped);
  CHECK(drawn[0] != drawn[1]);
  CHECK(drawn[1] != drawn[2]);
  CHECK(drawn[0] != drawn[2]);
}

TEST_CASE("evaluation uses the transforms of eval, not those of training") {
  const IdxWorkplace w;
  const std::string train = "data.transforms.train=[{type: Normalize, mean: [9], std: [0.1]}]";
  const std::string eval = "data.transforms.eval=[{type: Normalize, mean: [9], std: [0.1]}]";
  const auto result = [&](const std::vector<std::string>& more) {
    json out =
        json::parse(w.run_well({"eval", "plain", "--json", "--allow-other-model"}, more).out);
    CHECK(out.contains("other_model") == !more.empty());
    out.erase("other_model");
    return out;
  };
  const auto val_losses = [&](const std::string& run) {
    std::vector<double> all;
    for (const json& event : events(w.dir.file(run + "/metrics.jsonl"), "eval")) {
      all.push_back(event["loss"]);
    }
    return all;
  };
  const std::vector<double> plain = w.losses("plain", {});
  CHECK(plain != w.losses("trained-otherwise", {train}));
  CHECK(val_losses("plain") == val_losses("trained-otherwise"));
  CHECK(plain == w.losses("evaluated-otherwise", {eval}));
  CHECK(val_losses("plain") != val_losses("evaluated-otherwise"));
  CHECK(result({}) == result({train}));
  CHECK(result({}) != result({eval}));
}

TEST_CASE("images that cannot be read are named before a run") {
  const Workplace w(kFolderConfig);
  const auto put = [&](const std::string& name, const std::string& bytes) {
    const std::string file = w.dir.file("pictures/" + name);
    fs::create_directories(fs::path(file).parent_path());
    write_file(file, bytes);
  };
  for (const char* part : {"train", "test"}) {
    for (const char* label : {"ant", "bee", "cow"}) {
      for (const char* name : {"1.png", "2.png", "3.png"}) {
        put(std::string(part) + "/" + label + "/" + name, kImage);
      }
    }
  }
  const std::vector<std::vector<std::string>> checks = {{"config", "check", "small.yaml"},
                                                        {"train", "small.yaml", "--dry-run"}};
  for (const auto& check : checks) CHECK(w.run(check).exit_code == 0);
  put("train/bee/2.png", kImage.substr(0, 40));
  put("train/cow/3.png", "");
  for (const auto& check : checks) {
    CAPTURE(check[0]);
    const Finished bad = w.run(check);
    CHECK(bad.exit_code == 3);
    check_contains(bad.err, "pictures/train/bee/2.png");
    check_contains(bad.err, "pictures/train/cow/3.png: the file is empty");
  }
  put("train/bee/2.png", kImage);
  put("train/cow/3.png", kImage);
  put("test/ant/1.png", "no picture");
  for (const auto& check : checks) {
    const Finished bad = w.run(check);
    CHECK(bad.exit_code == 3);
    check_contains(bad.err, "pictures/test/ant/1.png");
  }
  fs::remove_all(w.dir.file("pictures"));
  for (const auto& check : checks) CHECK(w.run(check).exit_code == 3);
}

TEST_CASE("an image that cannot be read ends a run, which has saved its last step") {
  const Workplace w(kFolderConfig);
  std::vector<std::string> pictures;
  for (const char* part : {"train", "test"}) {
    for (const char* label : {"ant", "bee", "cow"}) {
      for (const char* name : {"1.png", "2.png"}) {
        const std::string file =
            w.dir.file(std::string("pictures/") + part + "/" + label + "/" + name);
        fs::create_directories(fs::path(file).parent_path());
        write_file(file, kImage);
        if (part == std::string("train")) pictures.push_back(file);
      }
    }
  }
  // The torn file has its old size, so names and sizes are still those of the run's data.
  std::string torn = kImage;
  torn.replace(40, 20, 20, '\0');
  const auto train = [&](const std::string& folder, std::vector<std::string> more) {
    more.insert(more.end(), {"data.batch_size=2", "train.shards=2", "log.every=1", "train.epochs=2",
                             "--run-dir", folder});
    return w.run({"train", "small.yaml"}, more);
  };
  const auto losses = [&](const std::string& folder) {
    std::vector<double> all;
    for (const json& step : events(w.dir.file(folder + "/metrics.jsonl"), "step")) {
      all.push_back(step["loss"]);
    }
    return all;
  };
  CHECK(train("whole", {"data.shuffle=false"}).exit_code == 0);
  CHECK(losses("whole").size() == 6);
  for (const std::string devices : {"cpu", "cpu,cpu"}) {
    CAPTURE(devices);
    const std::vector<std::string> words = {"data.shuffle=false", "--devices", devices};
    write_file(pictures[3], torn);  // in the second step, on the second of two replicas
    const Finished ended = train(devices, words);
    CHECK(ended.exit_code == 3);
    check_contains(ended.err, "pictures/train/bee/2.png");
    check_contains(ended.err, "saved step 1 before exiting");
    write_file(pictures[3], kImage);
    const Finished resumed = train(devices, words);
    CHECK(resumed.exit_code == 0);
    check_contains(resumed.err, "step 1");
    CHECK((losses(devices) == losses("whole")));
  }
  // An image repaired to another size counts as other data. The run continues only on request.
  write_file(pictures[3], kImage.substr(0, 50));
  CHECK(train("repaired", {"data.shuffle=false"}).exit_code == 3);
  write_file(pictures[3], kImage);
  const Finished refused = train("repaired", {"data.shuffle=false"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err, "resume on this data with --allow-other-data (after a file was");
  const Finished allowed =
      train("repaired", {"data.shuffle=false", "--allow-other-data", "--max-steps", "3"});
  CHECK(allowed.exit_code == 0);
  check_contains(allowed.err, "6 samples) (--allow-other-data)\n");
  // Later checkpoints belong to the repaired data.
  CHECK(train("repaired", {"data.shuffle=false"}).exit_code == 0);
  CHECK((losses("repaired") == losses("whole")));
  const std::vector<json> starts = events(w.dir.file("repaired/metrics.jsonl"), "run_start");
  REQUIRE(starts.size() == 3);
  CHECK_FALSE(starts[0].contains("other_data"));
  check_contains(starts[1]["other_data"], "expected the run's training data (fingerprint ");
  CHECK_FALSE(starts[2].contains("other_data"));
  // The sample is left out of training or evaluations, depending on its split.
  int held_out = 0;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    CAPTURE(i);
    write_file(pictures[i], torn);
    const std::string folder = "without-" + std::to_string(i);
    const Finished ended = train(folder, {"data.val_split=2", "data.on_bad_sample=skip"});
    write_file(pictures[i], kImage);
    CHECK(ended.exit_code == 0);
    check_contains(ended.err, "left out: ");
    CHECK(losses(folder).size() == 4);
    const json val = events(w.dir.file(folder + "/metrics.jsonl"), "eval")[0];
    CHECK(val["split"] == "val");
    if (val["n"] == 1) ++held_out;
  }
  CHECK(held_out == 2);
}

TEST_CASE("on_bad_sample: skip names training images that cannot be read, and continues") {
  const Workplace w(kFolderConfig);
  for (const char* label : {"ant", "bee", "cow"}) {
    for (const char* part : {"train", "test"}) {
      const std::string folder = w.dir.file(std::string("pictures/") + part + "/" + label);
      fs::create_directories(folder);
      for (const char* name : {"1.png", "2.png"}) write_file(folder + "/" + name, kImage);
    }
  }
  const std::string torn = w.dir.file("pictures/train/bee/2.png");
  write_file(torn, kImage.substr(0, 50));
  const std::vector<std::string> skip = {"data.on_bad_sample=skip", "train.epochs=3"};
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--run-dir", name});
    return w.run({"train", "small.yaml"}, more);
  };
  const Finished stopped = train("stopped", {});
  CHECK(stopped.exit_code == 3);
  check_contains(stopped.err, "pictures/train/bee/2.png");
  for (const std::string devices : {"cpu", "cpu,cpu"}) {
    CAPTURE(devices);
    std::vector<std::string> words = skip;
    words.insert(words.end(), {"--devices", devices, "train.shards=2"});
    const Finished went_on = train("with-" + devices, words);
    INFO(went_on.err);
    CHECK(went_on.exit_code == 0);
    check_contains(went_on.err, "left out: ");
    const std::vector<json> named =
        events(w.dir.file("with-" + devices + "/metrics.jsonl"), "bad_sample");
    REQUIRE(named.size() == 1);
    check_contains(named[0]["problem"].get<std::string>(), "pictures/train/bee/2.png");
  }
  const auto losses = [&](const std::string& name) {
    std::vector<double> all;
    for (const json& step : events(w.dir.file(name + "/metrics.jsonl"), "step")) {
      all.push_back(step["loss"]);
    }
    return all;
  };
  CHECK((losses("with-cpu") == losses("with-cpu,cpu")));
  // --overfit behaves like training.
  const Finished overfit =
      w.run({"train", "small.yaml", "--overfit", "1", "--max-steps", "5"}, skip);
  CHECK(overfit.exit_code != 3);
  check_contains(overfit.err, "pictures/train/bee/2.png");
  CHECK(overfit.err.find("left out: ") == overfit.err.rfind("left out: "));
  CHECK(w.run({"train", "small.yaml", "--overfit", "1", "--max-steps", "5"}).exit_code == 3);
  // data show draws the training samples.
  const std::vector<std::string> show = {"data", "show", "small.yaml", "--out", "sheet.png"};
  CHECK(w.run(show).exit_code == 3);
  const Finished shown = w.run_well(show, skip);
  check_contains(shown.err, "left out: ");
  // The table lists the samples that are drawn, not those that they replace.
  CHECK(shown.out.find("bee/2.png") == std::string::npos);
  // An evaluation of the run leaves out unreadable samples, too.
  write_file(w.dir.file("pictures/test/ant/1.png"), "");
  const Finished eval = w.run_well({"eval", "with-cpu", "--allow-other-data"});
  check_contains(eval.err, "pictures/test/ant/1.png");
  check_contains(eval.out, "5 samples, 1 unreadable");
  write_file(w.dir.file("pictures/train/bee/1.png"), "");
  std::vector<std::string> one = skip;
  one.push_back("data.max_bad_samples=1");
  const Finished many = train("many", one);
  CHECK(many.exit_code == 3);
  check_contains(many.err, "The number of bad samples is now 2, and");
}

TEST_CASE("on_bad_sample: skip names a sample that only the second of two processes reads") {
  const Workplace w(kFolderConfig);
  for (const char* label : {"ant", "bee", "cow"}) {
    const std::string folder = w.dir.file(std::string("pictures/train/") + label);
    fs::create_directories(folder);
    write_file(folder + "/1.png", kImage);
  }
  write_file(w.dir.file("pictures/train/cow/2.png"), "");
  const Finished done = w.run(
      {"train", "small.yaml", "data.on_bad_sample=skip", "data.shuffle=false", "--nproc", "2"});
  INFO(done.err);
  CHECK(done.exit_code == 0);
  check_contains(done.err, "[rank 1] warning: left out: ");
  check_contains(done.err, "pictures/train/cow/2.png");
}

TEST_CASE(
    "config check refuses transforms that leave images their own sizes, and lists the sizes") {
  const Workplace w(kFolderConfig);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes = {{8, 6}, {5, 9}, {8, 6}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string folder = w.dir.file(fmt::format("pictures/train/{}", i));
    fs::create_directories(folder);
    const auto [width, height] = sizes[i];
    const auto png =
        dpt::data_test::png(width, height, 1, dpt::data_test::Bytes(width * height, 7));
    write_file(folder + "/a.png", std::string(png.begin(), png.end()));
  }
  for (const char* list : {"train", "eval"}) {
    const std::string key = fmt::format("data.transforms.{}=", list);
    const Finished refused =
        w.run({"config", "check", "small.yaml", key + "[{type: Resize, size: 4}]"});
    CHECK(refused.exit_code == 2);
    check_contains(
        refused.err,
        "Resize: images have different sizes after it, but a batch needs a single size: add "
        "Resize or CenterCrop with size: [4, 4], those of model.input (sizes of some "
        "training images: 6x8, 9x5)");
    for (const char* good : {"[{type: Resize, size: [4, 4]}]",
                             "[{type: Resize, size: 4}, {type: CenterCrop, size: 4}]"}) {
      w.run_well({"config", "check", "small.yaml", key + good});
    }
  }
}

TEST_CASE("data show draws what data.cache holds, or says that it is not made yet") {
  const Workplace w(kFolderConfig);
  for (const char* name : {"ant", "bee", "cow"}) {
    const std::string folder = w.dir.file(std::string("pictures/train/") + name);
    fs::create_directories(folder);
    const auto png = dpt::data_test::png(9, 9, 1, dpt::data_test::noise(81));
    write_file(folder + "/a.png", std::string(png.begin(), png.end()));
  }
  const auto show = [&](const std::string& out, const std::vector<std::string>& more = {}) {
    return w.run_well({"data", "show", "small.yaml", "--out", out}, more);
  };
  const std::vector<std::string> cache = {"data.cache=cache", "data.cache_shorter_side=2"};
  CHECK(show("files.png").err.empty());
  check_contains(
      show("before.png", cache).err,
      "cache/train.pack (data.cache) does not exist yet: the images are read from their files, and "
      "are not resized to data.cache_shorter_side first, as they will be in training");
  CHECK(!fs::exists(w.dir.file("cache")));
  CHECK(read_file(w.dir.file("before.png")) == read_file(w.dir.file("files.png")));
  w.run_well({"train", "small.yaml"}, cache);
  CHECK(show("after.png", cache).err.empty());
  // The images are drawn from the cache, where they have 2x2 pixels.
  CHECK(read_file(w.dir.file("after.png")) != read_file(w.dir.file("files.png")));
  w.run_well({"train", "small.yaml", "--run-dir", "two", "data.cache=whole"});
  CHECK(show("whole.png", {"data.cache=whole"}).err.empty());
  CHECK(read_file(w.dir.file("whole.png")) == read_file(w.dir.file("files.png")));
}

TEST_CASE("eval makes a cache of the images that it reads, and of no others") {
  const Workplace w(kFolderConfig);
  for (const char* part : {"train", "test"}) {
    for (const char* label : {"ant", "bee", "cow"}) {
      const std::string folder = w.dir.file(std::string("pictures/") + part + "/" + label);
      fs::create_directories(folder);
      const auto png = dpt::data_test::png(4, 4, 1, dpt::data_test::noise(16));
      write_file(folder + "/" + part + ".png", std::string(png.begin(), png.end()));
    }
  }
  w.run_well({"train", "small.yaml"});
  for (const std::string split : {"train", "test"}) {
    w.run_well({"eval", "runs/pictures", "--split", split, "data.cache=" + split});
    CHECK(fs::exists(w.dir.file(split + "/train.pack")) == (split == "train"));
    CHECK(fs::exists(w.dir.file(split + "/test.pack")) == (split == "test"));
  }
}

TEST_CASE("config check says how many images it found, and how many it read") {
  const Workplace w(kFolderConfig);
  const auto put = [&](const std::string& part, int each) {
    for (const char* label : {"ant", "bee", "cow"}) {
      const std::string folder = w.dir.file("pictures/" + part + "/" + label);
      fs::create_directories(folder);
      for (int i = 0; i < each; ++i) {
        write_file(folder + "/" + std::to_string(i) + ".png", kImage);
      }
    }
  };
  const auto said = [&] { return w.run_well({"config", "check", "small.yaml"}).out; };
  put("train", 3);
  CHECK(said() ==
        "small.yaml: ok: 2 layers, 51 parameters; 9 training samples (9 files read, from every "
        "class)\n");
  // Holding out all samples leaves none for training.
  w.run_well({"config", "check", "small.yaml", "data.val_split=8"});
  for (const char* too_many : {"9", "1000"}) {
    const Finished bad =
        w.run({"config", "check", "small.yaml", "data.val_split=" + std::string(too_many)});
    CHECK(bad.exit_code == 2);
    check_contains(bad.err, "of the 9 training samples would be held out");
  }
  const Finished colours = w.run(
      {"config", "check", "small.yaml"},
      {"model.input=[3,4,4]", "data.transforms.eval=[{type: Normalize, mean: [0], std: [1]}]"});
  CHECK(colours.exit_code == 2);
  check_contains(colours.err, "mean has 1 value, but the images have 3 channels");
  put("test", 2);
  CHECK(said() ==
        "small.yaml: ok: 2 layers, 51 parameters; 9 training samples, 6 test samples (15 files "
        "read, from every class)\n");
}

// Sanitizers abort a program that requests too much memory.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("samples take the memory of the actual batches, not of data.batch_size") {
  const Workplace w(kFolderConfig);
  for (const char* label : {"ant", "bee", "cow"}) {
    const std::string folder = w.dir.file(std::string("pictures/train/") + label);
    fs::create_directories(folder);
    for (const char* name : {"1.png", "2.png"}) write_file(folder + "/" + name, kImage);
  }
  const auto with_2_gib = [] {
    const rlimit limit{rlim_t{2} << 30, rlim_t{2} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(124);
  };
  const Finished run = run_dpt({"train", "small.yaml", "data.batch_size=1000000000",
                                "data.prefetch=1000", "train.shards=auto", "--devices", "cpu"},
                               w.dir.path(), with_2_gib);
  INFO(run.err);
  CHECK(run.exit_code == 0);
}
#endif
