// Suggestions in messages must be right for common mistakes.
#include <doctest/doctest.h>

#include "tests/cli/tiny.h"

using namespace dpt::testing;

namespace {

struct Row {
  std::vector<std::string> arguments;
  const char* expected;
};

}  // namespace

TEST_CASE("suggestions: a word in the wrong place leads to the right one") {
  const Tiny w;
  const auto check = [](const char* override_text) {
    return std::vector<std::string>{"config", "check", "small.yaml", override_text};
  };
  const std::vector<Row> rows = {
      {check("train.seed=4"), "did you mean 'seed' at the top level, not in a section?"},
      {check("data.name=x"), "did you mean 'name' at the top level, not in a section?"},
      {check("data.batch=4"), "did you mean 'batch_size'?"},
      {check("data.transforms.test=[]"), "did you mean 'eval'?"},
      {check("data.transforms.val=[]"), "did you mean 'eval'?"},
      {check("model.input=32"), "write [channels, height, width], such as [3, 32, 32]"},
      {check("devices=0"), "write cuda:0 for the GPU of that number"},
      {check("devices='0'"), "write cuda:0 for the GPU of that number"},
      {{"train", "small.yaml", "--devices", "2"}, "write cuda:2 for the GPU of that number"},
      {check("data.val_split=0.1"),
       "data.val_split: expected an integer of at least 0, or a mapping, found 0.1; for a fraction "
       "of the samples write {fraction: 0.1}"},
      {check("data.val_split=10%"), "write {fraction: 0.1}"},
      {check("data.normalize=imagenet"),
       "expected one of none, auto, given, found 'imagenet'; write {mean: [0.485, "
       "0.456, 0.406], std: [0.229, 0.224, 0.225]}"},
      {check("data.normalize={mean: ImageNet, std: [1]}"), "write [0.485, 0.456, 0.406]"},
      {check("data.transforms.eval=[{type: Normalize, mean: [0], std: imagenet}]"),
       "write [0.229, 0.224, 0.225]"},
      {check("lr_schedule=cosine"), "write {type: cosine}"},
      {check("loss=mse"), "write {type: mse}"},
      {check("loss=focal"), "unknown loss 'focal'"},
      {check("model.pretrained=true"),
       "did you mean 'weights' at the top level, not in a section?"},
      {check("train.ema=0.999"), "write {decay: 0.999}"},
      {check("train.swa=3"), "write {from_epoch: 3}"},
      {check("model=resnet18"), "write {zoo: resnet18}"},
      {check("data=cifar10"), "write {dataset: cifar10}"}};
  for (const Row& row : rows) {
    const Finished finished = w.run(row.arguments);
    CAPTURE(row.arguments.back());
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, row.expected);
  }
}

TEST_CASE("suggestions: a column too many in a table is named, not taken for images") {
  const Workplace w;
  write_file(w.dir.file("t.csv"), "id,a,b,kind\n1,1,2,x\n2,2,3,y\n3,3,1,x\n");
  write_file(w.dir.file("small.yaml"),
             "data: {dataset: csv, train: {file: t.csv}, label: kind, batch_size: 2}\n"
             "model: {zoo: logistic, input: [2, 1, 1]}\noptimizer: {type: SGD, lr: 0.1}\n"
             "train: {epochs: 1}\n");
  const Finished all = w.run({"config", "check", "small.yaml"});
  CHECK(all.exit_code == 3);
  check_contains(all.err,
                 "t.csv: 3 columns are taken as features (id, a, b), but model.input is [2, 1, 1]: "
                 "write model.input: [3, 1, 1], or list only the features in data.features "
                 "(a column that numbers the lines is not a feature)");
  w.run_well({"config", "check", "small.yaml", "data.features=[a,b]"});
}

TEST_CASE("suggestions: predict says how to name a file of samples") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  for (const auto& [file, expected] : {std::pair("new.csv", "write data.test.file=new.csv"),
                                       std::pair("x.npy", "write data.test.images=x.npy"),
                                       std::pair("a.tar", "write data.test.shards=a.tar")}) {
    write_file(w.dir.file(file), "x");
    const Finished predicted = w.run({"predict", "runs/tiny", file});
    CHECK(predicted.exit_code == 2);
    check_contains(predicted.err, expected);
    CHECK_FALSE(contains(predicted.err, "warning"));
  }
}

TEST_CASE("suggestions: a missing argument has its name in the help, and the next step") {
  const Tiny w;
  const std::vector<Row> rows = {
      {{"train"},
       "dpt train: CONFIG is required (Config file (YAML)); `dpt config init > config.yaml` "},
      {{"config", "check"}, "dpt config check: CONFIG is required"},
      {{"eval"}, "dpt eval: RUN|CHECKPOINT is required"},
      {{"predict"}, "dpt predict: RUN|CHECKPOINT is required"},
      {{"report"}, "dpt report: RUN is required"},
      {{"inspect"}, "dpt inspect: FILE is required"},
      {{"compare", "a"}, "dpt compare: expected at least 2 of RUN, found 1"}};
  for (const Row& row : rows) {
    const Finished finished = w.run(row.arguments);
    CAPTURE(row.arguments.front());
    CHECK(finished.exit_code == 2);
    check_contains(finished.err, row.expected);
  }
  check_contains(w.run({"eval"}).err, "`dpt runs` lists the runs");
}
