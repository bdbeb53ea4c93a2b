// Sources of values: files that extend one another, the command line, the environment.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/config/issue.h"
#include "engine/config/paths.h"
#include "engine/config/read_spec.h"
#include "engine/config/secrets.h"
#include "engine/config/show_spec.h"
#include "engine/config/stored_paths.h"
#include "tests/engine/config/small_catalog.h"
#include "tests/support/temp_dir.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

std::string write(const TempDir& folder, const std::string& name, const std::string& text) {
  const std::string path = folder.file(name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
  return path;
}

/// Returns the issues without the folder's name.
Texts file_issues(const TempDir& folder, const std::string& file, const Texts& overrides = {}) {
  Texts out;
  for (const ConfigIssue& issue : read_spec(small_catalog(), file, overrides).issues) {
    std::string text = issue.where.text() + ": " + issue.text;
    for (std::size_t at; (at = text.find(folder.path() + "/")) != std::string::npos;) {
      text.erase(at, folder.path().size() + 1);
    }
    out.push_back(text);
  }
  return out;
}

/// Sets an environment variable for the life of the object.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("extends: mappings merge, lists and values replace") {
  const TempDir folder;
  write(folder, "sub/base.yaml", kGoodConfig);
  const std::string child = write(folder, "child.yaml",
                                  "extends: sub/base.yaml\n"
                                  "data: {batch_size: 32}\n"
                                  "model:\n  layers: [{type: Flatten}]\n"
                                  "train: {grad_clip_norm: null}\n"
                                  "optimizer: {momentum: 0.9}\n");
  const TrainSpec spec = load_spec(small_catalog(), child);
  CHECK(spec.name == "small");
  CHECK(spec.data.batch_size == 32);
  CHECK(spec.data.val_split.count == 100);
  CHECK(spec.model.input.size() == 3);
  CHECK(spec.model.layers.size() == 1);
  CHECK(spec.optimizer.as<SmallSgd>().momentum == 0.9);
  CHECK(spec.optimizer.as<SmallSgd>().lr == 0.2);
  CHECK_FALSE(spec.train.grad_clip_norm.has_value());
  // Each file's paths are relative to that file, and each value knows its file.
  CHECK(spec.data.dataset.as<SmallImages>().root == folder.file("sub/images"));
  CHECK(spec.origins.at("data.batch_size").text() == folder.file("child.yaml") + ":2:20");
  CHECK(spec.origins.at("data.val_split").file == folder.file("sub/base.yaml"));
}

TEST_CASE("extends: another kind replaces the fields of the old one") {
  const TempDir folder;
  write(folder, "base.yaml", changed("lr: 0.2", "lr: 0.2, momentum: 0.5"));
  const std::string child = write(folder, "child.yaml",
                                  "extends: base.yaml\n"
                                  "data: {dataset: synthetic, samples: 5}\n"
                                  "optimizer: {type: Adam, lr: 0.001}\n");
  const TrainSpec spec = load_spec(small_catalog(), child);
  CHECK(spec.optimizer.type == "Adam");
  CHECK(spec.data.dataset.type == "synthetic");
  CHECK(spec.data.batch_size == 64);
}

TEST_CASE("extends: an error is reported in the file that contains it") {
  const TempDir folder;
  write(folder, "base.yaml", changed("seed: 7", "seed: x"));
  const std::string child =
      write(folder, "child.yaml", "extends: base.yaml\ntrain: {epoch: 3, shards: -1}\n");
  CHECK(file_issues(folder, child) ==
        Texts{"child.yaml:2:9: unknown key 'epoch' in train, did you mean 'epochs'? Known keys: "
              "epochs, on_more_epochs, shards, accumulate, grad_clip_norm, grad_clip_value, "
              "freeze, ema, swa, early_stopping, "
              "on_divergence, precision, autotune, "
              "self_check, stall_timeout",
              "child.yaml:2:27: expected auto or an integer from 1 to 65536, found -1",
              "base.yaml:3:7: expected an integer of at least 0, found 'x'"});
}

TEST_CASE("extends: an item in both files is reported at its place in the last one") {
  const TempDir folder;
  write(folder, "base.yaml", changed("epochs: 10, ", "") + "zzz: 1\n");
  const std::string child =
      write(folder, "child.yaml", "extends: base.yaml\ntrain: {shards: 2}\nzzz: 2\n");
  const Texts issues = file_issues(folder, child);
  REQUIRE(issues.size() == 2);
  CHECK(issues[0] ==
        "child.yaml:2:8: missing key 'epochs' in train: Passes over the training samples.");
  CHECK(issues[1].starts_with("child.yaml:3:1: unknown key 'zzz' in the config"));
}

TEST_CASE("extends: the same mistake at the same place of two files is two issues") {
  const TempDir folder;
  std::string base = changed("name: small", "checkpoint: {keep_last: 0}");
  base.erase(base.find("checkpoint: {every: 1, keep_last: 2}\n"), 37);
  write(folder, "base.yaml", base);
  const std::string child =
      write(folder, "child.yaml", "extends: base.yaml\ntrain: {epochs:         0}\n");
  CHECK(file_issues(folder, child) ==
        Texts{"child.yaml:2:25: expected an integer from 1 to 1000000, found 0",
              "base.yaml:2:25: expected an integer from 1 to 1000000, found 0"});
}

TEST_CASE("extends: cycles, missing files and bad values are issues") {
  const TempDir folder;
  write(folder, "a.yaml", "extends: b.yaml\n");
  write(folder, "b.yaml", "name: x\nextends: ./a.yaml\n");
  CHECK(file_issues(folder, folder.file("a.yaml")) ==
        Texts{"b.yaml:2:10: 'extends' leads back to ./a.yaml: a config cannot extend itself"});
  const auto issue = [&](const std::string& text) {
    const Texts all = file_issues(folder, write(folder, "c.yaml", text));
    return all.size() == 1 ? all[0] : fmt::format("{} issues", all.size());
  };
  CHECK(issue("extends: c.yaml\n") ==
        "c.yaml:1:10: 'extends' leads back to c.yaml: a config cannot extend itself");
  CHECK(issue("extends: none.yaml\n") ==
        "c.yaml:1:10: cannot read the config none.yaml: No such file or directory");
  CHECK(issue("extends: .\n") == "c.yaml:1:10: cannot read the config .: it is a folder");
  CHECK(issue("extends: [a.yaml]\n") ==
        "c.yaml:1:10: expected the path of a config in 'extends', found a list of 1");
  CHECK(issue("extends: ${DPT_TEST_UNSET}/a.yaml\n") ==
        "c.yaml:1:10: the environment variable DPT_TEST_UNSET is not set: set it, or give a "
        "default as in ${DPT_TEST_UNSET:-folder}");
  write(folder, "empty.yaml", "");
  CHECK(issue("extends: empty.yaml\n") == "empty.yaml:1:1: expected a config, found nothing");
  for (int i = 0; i < 20; ++i) {
    write(folder, fmt::format("deep{}.yaml", i), fmt::format("extends: deep{}.yaml\n", i + 1));
  }
  CHECK(issue("extends: deep0.yaml\n") ==
        "deep14.yaml:1:10: expected at most 16 configs that extend one another, found more");
}

TEST_CASE("a file that cannot be read at all is a usage error") {
  const TempDir folder;
  for (const std::string& path : {folder.file("none.yaml"), folder.path()}) {
    try {
      read_spec(small_catalog(), path);
      FAIL("no exception");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK(std::string(error.what()).starts_with("cannot read the config " + path));
    }
  }
}

TEST_CASE("overrides replace values by dotted path") {
  const TrainSpec spec = good_spec(
      kGoodConfig,
      {"train.epochs=3", "model.layers.conv1.stride=[2, 1]", "model.layers.3.out_features=7",
       "optimizer={type: Adam, lr: 0.001}", "train.early_stopping.patience=9", "devices=[cpu]",
       "data.transforms.train.1.mean=[0.1]", "name=a=b", "train.grad_clip_norm=",
       "loss.type="
       "'cross_entropy'"});
  CHECK(spec.train.epochs == 3);
  CHECK(spec.model.layers[0].op.as<SmallConv>().stride == Size2{2, 1});
  CHECK(spec.optimizer.type == "Adam");
  CHECK(spec.train.early_stopping.value().patience == 9);
  CHECK(spec.devices == Texts{"cpu"});
  CHECK(spec.name == "a=b");
  CHECK_FALSE(spec.train.grad_clip_norm.has_value());
  CHECK(spec.origins.at("train.epochs").text() == "command line");
}

TEST_CASE("overrides: a layer's name may have dots, and comes before an index") {
  std::string text = changed("name: conv1", "name: block.0.conv");
  text.replace(text.find("from: conv1"), 11, "from: block.0.conv");
  CHECK(good_spec(text, {"model.layers.block.0.conv.stride=5"})
            .model.layers[0]
            .op.as<SmallConv>()
            .stride == Size2{5, 5});
  const std::string numbered = changed("name: fc1", "name: '0'");
  CHECK(issues_of(numbered, {"model.layers.0.out_features=11"}).empty());
}

TEST_CASE("overrides: errors are issues of the command line, after those of the file") {
  const auto issue = [](const std::string& argument) {
    const Texts all = issues_of(kGoodConfig, {argument});
    return all.size() == 1 ? all[0] : fmt::format("{} issues", all.size());
  };
  CHECK(issue("train.epoch=3") ==
        "command line: unknown key 'epoch' in train, did you mean 'epochs'? Known keys: epochs, "
        "on_more_epochs, shards, accumulate, grad_clip_norm, grad_clip_value, freeze, ema, swa, "
        "early_stopping, on_divergence, precision, autotune, self_check, "
        "stall_timeout");
  CHECK(issue("trian.epochs=3") ==
        "command line: unknown key 'trian' in the config, did you mean 'train'? Known keys: "
        "version, name, seed, data, model, loss, metrics, optimizer, lr_schedule, train, weights, "
        "checkpoint, log, devices, device_weights, extends");
  CHECK(issue("train.epochs=x") ==
        "command line: train.epochs: expected an integer from 1 to 1000000, found 'x'");
  CHECK(issue("model.layers.cnv1.stride=2") ==
        "command line: model.layers has no item 'cnv1', did you mean 'conv1'? It has the indices 0 "
        "to 3 and the names conv1, fc1");
  CHECK(issue("model.layers.9.stride=2") ==
        "command line: model.layers has no item '9'. It has the indices 0 to 3 and the names "
        "conv1, fc1");
  CHECK(issue("name.x=2") == "command line: name is 'small', not a mapping, so it has no 'x'");
  for (const char* bad : {"epochs", "=3", ".a=3", "a.=3", "a..b=3"}) {
    CHECK(issue(bad) == fmt::format("command line: expected path.to.field=value, found '{}'", bad));
  }
  CHECK(issue("seed=[1").starts_with("command line: the value of seed: not valid YAML: "));
  CHECK(issue("seed=1\n---\n2")
            .starts_with("command line: the value of seed: expected one YAML document"));
  CHECK(issue("extends=other.yaml") ==
        "command line: 'extends' belongs in config files, not on the command line");
  const Texts both = issues_of(changed("seed: 7", "seed: x"), {"log.every=0", "train.epochs=0"});
  CHECK(both ==
        Texts{"3:7: expected an integer of at least 0, found 'x'",
              "command line: log.every: expected an integer of at least 1, found 0",
              "command line: train.epochs: expected an integer from 1 to 1000000, found 0"});
}

TEST_CASE("overrides: a key that the file has too stands in the file") {
  const Texts issues = issues_of(kGoodConfig + "zzz: 1\n", {"zzz=2"});
  REQUIRE(issues.size() == 1);
  CHECK(issues[0].starts_with("26:1: unknown key 'zzz' in the config"));
}

TEST_CASE("overrides: another type keeps the old fields, and the message says what to do") {
  CHECK(issues_of(changed("lr: 0.2", "lr: 0.2, momentum: 0.5"), {"optimizer.type=Adam"}) ==
        Texts{"20:33: unknown key 'momentum' in optimizer Adam; it belongs to SGD. Known keys: "
              "type, lr. The type comes from the command line; to replace the other fields too, "
              "give the whole mapping: optimizer={type: Adam, ...}"});
}

TEST_CASE("variables are replaced in paths and nowhere else") {
  const Variable variable("DPT_TEST_VARIABLE", "/somewhere");
  const auto root_of = [](const std::string& root) {
    return good_spec(changed("root: images", "root: " + root)).data.dataset.as<SmallImages>().root;
  };
  const std::string here = std::filesystem::current_path().string();
  CHECK(root_of("${DPT_TEST_VARIABLE}/x") == "/somewhere/x");
  CHECK(root_of("${DPT_TEST_VARIABLE:-y}/x") == "/somewhere/x");
  CHECK(root_of("${DPT_TEST_UNSET:-y}/x") == here + "/y/x");
  CHECK(root_of("'${DPT_TEST_UNSET:-/a}${DPT_TEST_VARIABLE}/../x'") == "/a/x");
  CHECK(root_of("a$b$") == here + "/a$b$");
  CHECK(root_of("$${A}") == here + "/${A}");
  CHECK(root_of("''") == "");
  // The default is expanded too, and only if it is used.
  CHECK(root_of("'${DPT_TEST_UNSET:-${DPT_TEST_VARIABLE}/b}/x'") == "/somewhere/b/x");
  CHECK(root_of("'${DPT_TEST_UNSET:-${DPT_TEST_UNSET2:-/c}}'") == "/c");
  CHECK(root_of("'${DPT_TEST_VARIABLE:-${DPT_TEST_UNSET}}'") == "/somewhere");
  CHECK(root_of("'${DPT_TEST_UNSET:-/$${A}}'") == "/${A}");
  const auto issue = [](const std::string& root) {
    return issues_of(changed("root: images", "root: " + root));
  };
  CHECK(issue("${DPT_TEST_UNSET}/x") ==
        Texts{"6:9: the environment variable DPT_TEST_UNSET is not set: set it, or give a default "
              "as in ${DPT_TEST_UNSET:-folder}"});
  CHECK(issue("${DPT_TEST_UNSET/x") == Texts{"6:9: expected '}' after '${'"});
  CHECK(issue("${1X}") == Texts{"6:9: expected ${NAME} or ${NAME:-default}, found '${1X}'"});
  CHECK(issue("${}") == Texts{"6:9: expected ${NAME} or ${NAME:-default}, found '${}'"});
  CHECK(issue("'${A:-${HOME}'") == Texts{"6:9: expected '}' after '${'"});
  CHECK(issue("'${HOME:-${B }}'") ==
        Texts{"6:9: expected ${NAME} or ${NAME:-default}, found '${B }'"});
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "${A:-";
  CHECK(issue(deep + std::string(100'000, '}')) ==
        Texts{"6:9: expected at most 16 nested defaults, found more"});
  CHECK(issue("s3://user:pw@host/x") ==
        Texts{"6:9: expected a path on this machine, found a URL: dpt reads and writes files"});
}

TEST_CASE("a variable in a value that is not a path is an error, `$` alone is not") {
  const auto issue = [](const std::string& from, const std::string& to) {
    return issues_of(changed(from, to));
  };
  CHECK(issue("name: small", "name: run-${USER}") ==
        Texts{"2:7: expected text without a variable, found 'run-${USER}': ${...} is expanded only "
              "in paths; write $${ for a literal ${"});
  CHECK(issues_of(kGoodConfig, {"name=${USER"}) ==
        Texts{"command line: name: expected text without a variable, found '${USER': ${...} is "
              "expanded only in paths; write $${ for a literal ${"});
  CHECK(issue("seed: 7", "seed: ${SEED}") ==
        Texts{"3:7: expected an integer of at least 0, found '${SEED}'; variables (${...}) are "
              "expanded only in paths"});
  CHECK(issues_of(kGoodConfig, {"devices=['${DEVICE}']"}).size() == 1);
  CHECK(issues_of(kGoodConfig, {"weights={file: x, map: {'${a}': '${b}'}}"}).size() == 1);
  for (const char* name : {"a$b", "$", "$$", "$HOME", "a$", "{$}"}) {
    CHECK(good_spec(changed("name: small", std::string("name: '") + name + "'")).name == name);
  }
  const TrainSpec spec = good_spec(changed("name: small", "name: a$${B}"));
  CHECK(spec.name == "a${B}");
  CHECK(good_spec(show_spec(small_catalog(), spec)).name == "a${B}");
}

TEST_CASE("a leading ~/ is the home folder") {
  const Variable home("HOME", "/home/someone");
  const Variable variable("DPT_TEST_VARIABLE", "~/x");
  const auto root_of = [](const std::string& root) {
    return good_spec(changed("root: images", "root: " + root)).data.dataset.as<SmallImages>().root;
  };
  const std::string here = std::filesystem::current_path().string();
  CHECK(root_of("~/data") == "/home/someone/data");
  CHECK(root_of("'~'") == "/home/someone");
  CHECK(root_of("${DPT_TEST_UNSET:-~/a}") == "/home/someone/a");
  CHECK(root_of("${DPT_TEST_VARIABLE}/a") == "/home/someone/x/a");
  CHECK(root_of("./~/a") == here + "/~/a");
  CHECK(root_of("a~/b") == here + "/a~/b");
  CHECK(issues_of(kGoodConfig, {"data.root=~me/x"}) ==
        Texts{"command line: data.root: expected a path, found one that begins with '~me': only ~/ "
              "is expanded, to the home folder of this user; write the folder out, or ./~me for a "
              "name that begins with '~'"});
  unsetenv("HOME");
  CHECK(issues_of(changed("root: images", "root: ~/data")) ==
        Texts{"6:9: the environment variable HOME, which '~/' stands for, is not set: write the "
              "folder out"});
}

TEST_CASE("a secret variable stays in the stored config, which runs where it is set") {
  const TempDir folder;
  std::string written;
  const std::string root = "root: '${DPT_TEST_SECRET}/a/../x'";
  {
    const Variable variable("DPT_TEST_SECRET", "/mnt/canary//");
    const TrainSpec spec = good_spec(changed("root: images", root));
    CHECK(spec.data.dataset.as<SmallImages>().root == "/mnt/canary/x");
    written = show_spec(small_catalog(), spec);
    CHECK(written.find("canary") == std::string::npos);
    CHECK(written.find("root: \"${DPT_TEST_SECRET}/a/../x\"\n") != std::string::npos);
    CHECK(hide_secrets("/mnt/canary/x/y: no such file") == "${DPT_TEST_SECRET}/x/y: no such file");
    const TrainSpec again = load_stored_spec(small_catalog(), written, "c");
    CHECK(again.data.dataset.as<SmallImages>().root == "/mnt/canary/x");
    CHECK(show_spec(small_catalog(), again) == written);
    // The folder is masked even if the config names it without the variable.
    CHECK(show_spec(small_catalog(), good_spec(changed("root: images", "root: /mnt/canary/x")))
              .find("canary") == std::string::npos);
  }
  {
    const Variable variable("DPT_TEST_SECRET", "relative");
    const TrainSpec spec =
        load_spec_text(small_catalog(), changed("root: images", root), folder.file("c.yaml"));
    CHECK(spec.data.dataset.as<SmallImages>().root == folder.file("relative/x"));
    CHECK(show_spec(small_catalog(), spec).find(folder.path() + "/${DPT_TEST_SECRET}/a/../x") !=
          std::string::npos);
  }
  // Commands that need no data can read the config even if the variable is unset.
  const TrainSpec spec = load_stored_spec(small_catalog(), written, "c");
  const std::string path = spec.data.dataset.as<SmallImages>().root;
  CHECK(path == "${DPT_TEST_SECRET}/a/../x");
  CHECK(problem_of_stored_path(path).starts_with(
      "the environment variable DPT_TEST_SECRET is not set"));
  CHECK(show_spec(small_catalog(), spec) == written);
  CHECK(load_stored_spec(small_catalog(), written, "c", {"data.root=/y"})
            .data.dataset.as<SmallImages>()
            .root == "/y");
  CHECK(issues_of(written).size() == 1);
}

TEST_CASE("a config of an earlier version keeps the variables in its texts") {
  const TrainSpec spec =
      load_stored_spec(small_catalog(), changed("name: small", "name: run-${USER}"), "c");
  CHECK(spec.name == "run-${USER}");
  CHECK(load_stored_spec(small_catalog(), show_spec(small_catalog(), spec), "c").name == spec.name);
}

TEST_CASE("a path on the command line is relative to the working directory") {
  const TempDir folder;
  const std::string file = write(folder, "c.yaml", kGoodConfig);
  CHECK(load_spec(small_catalog(), file, {"data.root=x"}).data.dataset.as<SmallImages>().root ==
        (std::filesystem::current_path() / "x").string());
  // A relative default is relative to the config.
  std::string text = kGoodConfig;
  text.erase(text.find("  root: images\n"), 15);
  CHECK(load_spec(small_catalog(), write(folder, "d.yaml", text))
            .data.dataset.as<SmallImages>()
            .root == folder.file("images"));
}

TEST_CASE("escape_variables undoes expand_variables") {
  for (const char* path : {"/a/b", "/a/${HOME}/b", "$${x}", "/$$/${", "$", ""}) {
    CHECK(expand_variables(escape_variables(path)).path == path);
  }
}
