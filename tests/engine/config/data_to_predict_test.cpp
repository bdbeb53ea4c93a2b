// The config of a checkpoint applied to other data, which need no labels.
#include <doctest/doctest.h>

#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "tests/engine/config/small_catalog.h"
#include "tests/support/npy.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

struct SmallTable {
  std::string file, labels, kind;
};

/// Returns the small catalog with a data set whose labels must be named.
const Catalog& table_catalog() {
  static const ObjectTable table = [] {
    ObjectTable made = object_table<SmallTable>(
        "table", "A table.",
        {path_field("file", &SmallTable::file, "Its file.").required(),
         path_field("labels", &SmallTable::labels, "Where the labels are.").required_of_labels(),
         field("kind", &SmallTable::kind, "What they are.")},
        [](const SmallTable& s) {
          return s.kind == "none" ? std::string("kind: expected one") : std::string();
        });
    made.check_labels = [](const void* options) {
      const bool is_there = !static_cast<const SmallTable*>(options)->kind.empty();
      return is_there ? std::string() : std::string("kind: expected what labels are");
    };
    return made;
  }();
  static const Catalog catalog = [] {
    Catalog made = small_catalog();
    made.datasets.alternatives.push_back(&table);
    return made;
  }();
  return catalog;
}

/// Returns the stored config of a run with non-default settings.
std::string stored_run() {
  return shown(good_spec(
      kGoodConfig, {"train.early_stopping={monitor: val/loss}", "data.on_bad_sample=salvage"}));
}

TrainSpec to_predict(const DataToPredict& samples, const std::string& stored = stored_run()) {
  return load_spec_to_predict(table_catalog(), stored, "run.safetensors", {"devices=[cpu]"},
                              samples);
}

std::string refusal(const DataToPredict& samples) {
  try {
    to_predict(samples);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("to predict: overrides of the stored config, which need no labels") {
  const TrainSpec same = to_predict({});
  CHECK(same.data.dataset.type == "images");
  CHECK(same.devices == std::vector<std::string>{"cpu"});
  // No validation split is needed for prediction.
  CHECK(!same.train.early_stopping);
  CHECK(to_predict({"", {"data.val_split=0"}}).data.val_split.count == 0);
  CHECK(to_predict({"", {"data.root=/new"}}).data.dataset.as<SmallImages>().root == "/new");

  const std::string table =
      "data={dataset: table, batch_size: 3, file: /x, labels: /y, kind: name}";
  const std::string stored =
      show_spec(table_catalog(), load_spec_text(table_catalog(), kGoodConfig, "t.yaml", {table}));
  CHECK(to_predict({"", {"data.file=/new"}}, stored).data.dataset.as<SmallTable>().file == "/new");
  const std::string bare = "data={dataset: table, batch_size: 3, file: /new}";
  CHECK(to_predict({"", {bare}}, stored).data.dataset.as<SmallTable>().labels.empty());
  // Training still requires labels.
  const ReadResult trained = read_spec_text(table_catalog(), kGoodConfig, "t.yaml", {bare});
  REQUIRE(trained.issues.size() == 1);
  CHECK(trained.issues[0].text == "missing key 'labels' in data set table: Where the labels are.");
  const ReadResult unnamed =
      read_spec_text(table_catalog(), kGoodConfig, "t.yaml",
                     {"data={dataset: table, batch_size: 3, file: /new, labels: /y}"});
  REQUIRE(unnamed.issues.size() == 1);
  CHECK(unnamed.issues[0].text == "data set table: kind: expected what labels are");
  // Errors in the given values are still reported.
  check_contains(refusal({"", {"data.rot=/new"}}), "unknown key 'rot' in data set images");
  check_contains(refusal({"", {"data={dataset: table, file: /x, kind: none, batch_size: 2}"}}),
                 "kind: expected one");
}

TEST_CASE("to predict: of another config the data section and the seed, and nothing of the model") {
  const TempDir dir;
  const std::string config = dir.file("new.yaml");
  const auto with = [&](const std::string& text, const std::vector<std::string>& overrides = {}) {
    write_bytes(config, text);
    return DataToPredict{config, overrides};
  };
  const TrainSpec spec = to_predict(
      with("data: {dataset: table, file: new.csv, val_split: 5, transforms: {eval: []}}\n"));
  CHECK(spec.data.dataset.type == "table");
  CHECK(spec.data.dataset.as<SmallTable>().file == dir.file("new.csv"));
  CHECK(spec.data.val_split.count == 5);
  CHECK(spec.seed == 1);
  CHECK(spec.data.batch_size == 64);
  REQUIRE(spec.data.transforms.eval.size() == 1);
  CHECK(spec.data.transforms.eval[0].type == "Normalize");
  CHECK(spec.data.on_bad_sample == OnBadSample::salvage);
  CHECK(spec.model.layers.size() == 4);

  // The other config may be complete, for another model, and wrong in parts that prediction
  // ignores.
  const std::string whole =
      "version: 1\nextends: base.yaml\nseed: 9\nmodel: {input: [1], layrs: []}\nfrobnicate: 1\n"
      "data: {file: new.csv, batch_size: 5, cache: there, cache_shorter_side: 9, "
      "on_bad_sample: stop}\n";
  write_bytes(dir.file("base.yaml"), "data: {dataset: table, kind: name}\ntrain: {epochs: 3}\n");
  const TrainSpec other = to_predict(with(whole, {"data.file=else.csv"}));
  CHECK(other.data.dataset.as<SmallTable>().kind == "name");
  CHECK(other.data.dataset.as<SmallTable>().file.ends_with("/else.csv"));
  CHECK(other.seed == 9);
  CHECK(other.data.batch_size == 64);
  CHECK(other.data.cache.empty());
  CHECK(other.data.on_bad_sample == OnBadSample::stop);
  CHECK(other.model.input == std::vector<std::int64_t>{1, 28, 28});

  CHECK(refusal(with("data: {dataset: table, flie: x}\n")) ==
        config + ":1:24: unknown key 'flie' in data set table, did you mean 'file'? Known keys: " +
            "dataset, batch_size, val_split, shuffle, sampler, workers, prefetch, on_bad_sample, "
            "max_bad_samples, exif_orientation, cache, cache_shorter_side, normalize, transforms, "
            "file, labels, kind");
  CHECK(refusal(with("dataset: table\n")) ==
        config + ":1:1: expected a config whose section 'data' is a mapping, found none");
  CHECK(refusal(with("data: images\n")) ==
        config + ":1:7: expected a config whose section 'data' is a mapping, found 'images'");
  check_contains(refusal(with("data: [\n")), config + ":");
  check_contains(refusal({dir.file("gone.yaml"), {}}), "cannot read the config ");
  // An unreadable stored config is not a usage error.
  CHECK_THROWS_WITH_AS(to_predict(with("data: {}\n"), "version: 1\n"),
                       doctest::Contains("run.safetensors: the config stored in it cannot be read"),
                       Error);
}
