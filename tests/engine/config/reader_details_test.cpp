// Edge cases of the reader: forms of scalars, suggestions, limits of the checks.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "engine/config/flat_values.h"
#include "engine/config/issue.h"
#include "engine/config/paths.h"
#include "engine/config/read_spec.h"
#include "engine/config/scalars.h"
#include "engine/config/schema.h"
#include "engine/config/sources.h"
#include "engine/config/suggest.h"
#include "engine/config/values.h"
#include "engine/config/yaml_tree.h"
#include "tests/engine/config/resolved_schema.h"
#include "tests/engine/config/small_catalog.h"
#include "tests/support/temp_dir.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

YamlNode plain_node(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.is_plain = true;
  node.text = text;
  return node;
}

/// Returns "VALUE", or "[HINT]" if there is no value.
template <class T>
std::string told(const Scalar<T>& scalar) {
  return scalar.value ? fmt::format("{}", *scalar.value) : "[" + scalar.hint + "]";
}
std::string as_integer(const std::string& text) {
  return told(read_integer(plain_node(text)));
}
std::string as_number(const std::string& text) {
  return told(read_number(plain_node(text)));
}

/// Returns the only issue of a config, or the number of issues.
std::string only_issue(const std::string& text, const Texts& overrides = {}) {
  const Texts all = issues_of(text, overrides);
  return all.size() == 1 ? all[0] : fmt::format("{} issues", all.size());
}

}  // namespace

TEST_CASE("integers: signs, leading zeros, and texts that other readers take for numbers") {
  CHECK(as_integer("0") == "0");
  CHECK(as_integer("-0") == "0");
  CHECK(as_integer("+17") == "17");
  CHECK(as_integer("-17") == "-17");
  CHECK(as_integer("9223372036854775807") == "9223372036854775807");
  CHECK(as_integer("9223372036854775808") == "[it does not fit in 64 bits]");
  CHECK(as_integer("2.0") == "[write 2]");
  CHECK(as_integer("-3e2") == "[write -300]");
  CHECK(as_integer("9e14") == "[write 900000000000000]");
  CHECK(as_integer("1e15") == "[]");
  CHECK(as_integer("0.5") == "[]");
  for (const char* word :
       {"", "+", "-", ".", "x", "1x", "0x", "e5", "1e", "1e+", "--1", "1-", "_1"}) {
    CAPTURE(word);
    CHECK(as_integer(word) == "[]");
  }
  for (const char* other : {"1_000", "1__0", "0x1F", "0XfF", "0b101", "0o17", "0O7", "-0x1"}) {
    CAPTURE(other);
    CHECK(as_integer(other) == "[only decimal digits are accepted]");
  }
  const auto zeros = [](const std::string& text) {
    const std::string hint = as_integer(text);
    return hint.substr(hint.rfind(' ') + 1);
  };
  CHECK(zeros("00") == "0]");
  CHECK(zeros("007") == "7]");
  CHECK(zeros("-010") == "-10]");
  CHECK(zeros("+08") == "8]");
  CHECK(zeros("00.5") == "0.5]");
  YamlNode list;
  list.kind = YamlNode::Kind::list;
  CHECK(told(read_integer(list)) == "[]");
}

TEST_CASE("forms of floating-point numbers") {
  CHECK(as_number(".5") == "0.5");
  CHECK(as_number("5.") == "5");
  CHECK(as_number("+2.5E-1") == "0.25");
  CHECK(as_number("-1e+2") == "-100");
  CHECK(as_number("12") == "12");
  CHECK(as_number("1e999") == "[it does not fit in a double]");
  for (const char* infinite : {".inf", "-.INF", "+inf", "Infinity", ".NaN", "nan"}) {
    CAPTURE(infinite);
    CHECK(as_number(infinite) == "[it must be finite]");
  }
  for (const char* word : {".", "e5", ".e5", "1.2.3", "1e5x", "infinit"}) {
    CAPTURE(word);
    CHECK(as_number(word) == "[]");
  }
  YamlNode quoted = plain_node("0.5");
  quoted.is_plain = false;
  CHECK(told(read_number(quoted)) == "[remove the quotes]");
  quoted.text = "word";
  CHECK(told(read_number(quoted)) == "[]");
}

TEST_CASE("booleans are true and false; strings that look like something else need quotes") {
  const auto boolean = [](const std::string& text) { return told(read_boolean(plain_node(text))); };
  CHECK(boolean("true") == "true");
  CHECK(boolean("false") == "false");
  for (const char* yes : {"TRUE", "Yes", "on", "Y"}) CHECK(boolean(yes) == "[write true]");
  for (const char* no : {"False", "no", "OFF", "n"}) CHECK(boolean(no) == "[write false]");
  CHECK(boolean("maybe") == "[]");
  for (const char* text : {"true", "False", "TRUE", "12", "-1.5", "007", "0x1F", ".inf", "-.NaN"}) {
    CAPTURE(text);
    CHECK(needs_quotes(text));
    CHECK(told(read_string(plain_node(text))) == "[put it into quotes to make it a string]");
    YamlNode quoted = plain_node(text);
    quoted.is_plain = false;
    CHECK(told(read_string(quoted)) == text);
  }
  for (const char* text : {"", "yes", "off", "n", "inf", "nan", "1x", "a.inf"}) {
    CAPTURE(text);
    CHECK_FALSE(needs_quotes(text));
  }
}

TEST_CASE("found values are shown in at most 40 characters, without control characters") {
  CHECK(in_quotes("") == "''");
  CHECK(in_quotes("a\nb\x01\x1f \x7f~") == "'a\\nb\\x01\\x1F \\x7F~'");
  const std::string forty(40, 'x');
  CHECK(in_quotes(forty) == "'" + forty + "'");
  CHECK(in_quotes(forty + "y") == "'" + forty + "...'");
  // Counts characters, not bytes.
  std::string umlauts;
  for (int i = 0; i < 40; ++i) umlauts += "\xC3\xA4";
  CHECK(in_quotes(umlauts) == "'" + umlauts + "'");
  CHECK(in_quotes(umlauts + "\xC3\xA4") == "'" + umlauts + "...'");
  CHECK(found_text(plain_node(std::string(40, '1'))) == std::string(40, '1'));
  CHECK(found_text(plain_node(std::string(41, '1'))) == "'" + std::string(40, '1') + "...'");
  CHECK(found_text(plain_node("")) == "an empty string");
  CHECK(found_text(plain_node("true")) == "true");
  CHECK(found_text(plain_node("yes")) == "'yes'");
  CHECK(lower_case("@AZ[`az{\xC3\x84") == "@az[`az{\xC3\x84");
  CHECK(number_text(1e20) == "1e+20");
  CHECK(number_text(-999999999999999.0) == "-999999999999999");
  CHECK(number_text(0.25) == "0.25");
}

TEST_CASE("closest(): the largest distance that still matches") {
  const auto near = [](const std::string& word, const Texts& names) {
    return closest(word, names);
  };
  // One error is tolerated in any word; in longer words, one per three letters.
  CHECK(near("ab", {"ac"}) == "ac");
  CHECK(near("ab", {"cd"}) == "");
  CHECK(near("abcde", {"abcxy"}) == "");
  CHECK(near("abcdef", {"abcdxy"}) == "abcdxy");
  CHECK(near("abcdef", {"abcxyz"}) == "");
  CHECK(near("abcd", {"bacd"}) == "bacd");  // swapped neighbours are one error
  CHECK(near("abcd", {"abc"}) == "abc");
  CHECK(near("abcd", {"abcde"}) == "abcde");
  // The nearest word wins; of equally near words, the first.
  CHECK(near("abcdef", {"abcdxy", "abcdex"}) == "abcdex");
  CHECK(near("abcdef", {"xbcdef", "abcdex"}) == "xbcdef");
  // The beginning of a word, and a longer word that begins with it, match from three letters on.
  CHECK(near("out", {"out_channels"}) == "out_channels");
  CHECK(near("ou", {"out_channels"}) == "");
  CHECK(near("strides_of_all", {"strides"}) == "strides");
  CHECK(near("lr_of_everything", {"lr"}) == "");
  // The end of a word matches from four letters on.
  CHECK(near("loss", {"val/loss"}) == "val/loss");
  CHECK(near("oss", {"val/loss"}) == "");
  // Case and separators are ignored.
  CHECK(near("Kernel-Size", {"kernel_size"}) == "kernel_size");
  CHECK(near(std::string(64, 'k'), {std::string(64, 'k')}) == std::string(64, 'k'));
  CHECK(near(std::string(65, 'k'), {std::string(65, 'k')}) == "");
}

TEST_CASE("bounds themselves are accepted, and a word stands for 0") {
  CHECK(good_spec(changed("epochs: 10", "epochs: 1000000")).train.epochs == 1000000);
  CHECK(good_spec(changed("epochs: 10", "epochs: 1")).train.epochs == 1);
  for (const double momentum : {0.0, 1.0}) {
    CHECK(good_spec(changed("lr: 0.2", fmt::format("lr: 0.2, momentum: {}", momentum)))
              .optimizer.as<SmallSgd>()
              .momentum == momentum);
  }
  CHECK(good_spec(changed("shards: auto", "shards: 0")).train.shards == 0);
  CHECK(good_spec(changed("shards: auto", "shards: 65536")).train.shards == 65536);
  CHECK(only_issue(changed("shards: auto", "shards: 65537")) ==
        "22:29: expected auto or an integer from 1 to 65536, found 65537");
  CHECK(good_spec(kGoodConfig, {"device_weights=auto"}).device_weights.empty());
  CHECK(only_issue(kGoodConfig, {"device_weights=[]"}) ==
        "command line: device_weights: expected auto or a list of at least 1 number, each above 0, "
        "found an empty list");
  CHECK(only_issue(kGoodConfig, {"device_weights=[1, 0]"}) ==
        "command line: device_weights: expected a number above 0, found 0");
  CHECK(good_spec(changed("kernel_size: 3", "kernel_size: 1024"))
            .model.layers[0]
            .op.as<SmallConv>()
            .kernel_size == Size2{1024, 1024});
  CHECK(only_issue(changed("kernel_size: 3", "kernel_size: 1025")) ==
        "15:66: expected an integer from 1 to 1024 or [height, width], found 1025");
  CHECK(only_issue(changed("kernel_size: 3", "kernel_size: [3]")) ==
        "15:66: expected an integer from 1 to 1024 or [height, width], found a list of 1");
  CHECK(good_spec(changed("seed: 7", "seed: 0")).seed == 0);
}

TEST_CASE("null unsets an optional field and is refused elsewhere") {
  const TrainSpec spec =
      good_spec(kGoodConfig, {"train.early_stopping={patience: 3}", "train.early_stopping=null"});
  CHECK_FALSE(spec.train.early_stopping.has_value());
  CHECK(
      only_issue(kGoodConfig, {"train.on_divergence=null"})
          .starts_with("command line: expected a mapping for train.on_divergence, found nothing"));
}

TEST_CASE("kinds: values that are not mappings, and types that are not names") {
  CHECK(only_issue(changed("{type: SGD, lr: 0.2}", "[SGD]")) ==
        "20:12: expected a mapping with 'type' for optimizer, found a list of 1");
  CHECK(only_issue(changed("{type: SGD, lr: 0.2}", "")) ==
        "20:1: expected a mapping with 'type' for optimizer, found nothing");
  CHECK(only_issue(changed("type: SGD", "type: 7")) ==
        "20:19: expected the name of a optimizer, found 7. Known optimizers: SGD, Adam");
  CHECK(only_issue(changed("type: ReLU", "type: [ReLU]")) ==
        "16:14: expected the name of a layer, found a list of 1. Known layers: Conv2d, ReLU, "
        "Flatten, Linear, Add, Sequential, Residual");
  CHECK(
      only_issue(changed("eval: [{type: Normalize, mean: [0.5], std: [0.25]}]", "eval: [Flip]")) ==
      "11:12: expected a mapping with 'type' for data.transforms.eval.0, found 'Flip'; write "
      "{type: Flip}");
  CHECK(only_issue(changed("eval: [{type: Normalize, mean: [0.5], std: [0.25]}]", "eval: Flip"))
            .starts_with("11:11: expected a list of transforms, found 'Flip'"));
}

TEST_CASE("a check across fields waits until each of them is good") {
  CHECK(only_issue(changed("lr: 0.2", "lr: 0.2, nesterov: true, momentum: x")) ==
        "20:59: expected a number from 0 to 1, found 'x'");
  CHECK(only_issue(
            changed("warmup: {epochs: 1}", "warmup: {epochs: 1, steps: 5, start_factor: 2}")) ==
        "21:85: expected a number from 0 to 1, found 2");
}

TEST_CASE("a decimal comma is distinguished from other keys of digits") {
  const auto issue = [](const std::string& options) {
    const Texts all = issues_of(changed("{type: SGD, lr: 0.2}", options));
    return all.empty() ? std::string() : all[0];
  };
  const std::string known = "Known keys: type, lr, momentum, nesterov";
  CHECK(issue("{type: SGD, lr: 3,25}") ==
        "20:30: unknown key '25' in optimizer SGD, did you mean 'lr: 3.25'? " + known);
  for (const char* other : {"{25, type: SGD, lr: 0.2}", "{type: SGD, lr: 0.2, 25}",
                            "{type: SGD, lr: 2, 25: 3}", "{type: SGD, lr: 2, 2x}"}) {
    CAPTURE(other);
    CHECK_FALSE(issue(other).empty());
    CHECK(issue(other).find("did you mean 'lr: ") == std::string::npos);
    CHECK(issue(other).find("in optimizer SGD. " + known) != std::string::npos);
  }
}

TEST_CASE("the message about a key in the wrong place names the right ones") {
  const auto hint = [](const std::string& key) {
    const std::string issue = only_issue(kGoodConfig + key + ": 3\n");
    const std::size_t begin = issue.find(" in the config") + 14;
    return issue.substr(begin, issue.find(" Known keys") - begin);
  };
  CHECK(hint("epochs") == ", did you mean 'lr_schedule.warmup.epochs' or 'train.epochs'?");
  CHECK(hint("max_epochs") == ", did you mean 'lr_schedule.warmup.epochs' or 'train.epochs'?");
  CHECK(hint("lr") == ", did you mean 'optimizer.lr'?");  // two kinds have it, but it is named once
  CHECK(hint("dataset") == ", did you mean 'data.dataset'?");
  CHECK(hint("learning_rate") == ", did you mean 'optimizer.lr'?");
  CHECK(hint("random_seed") == ", did you mean 'seed'?");
  CHECK(hint("gpus") == ", did you mean 'devices'?");
  CHECK(hint("zzzz") == ".");
}

TEST_CASE("devices at the borders of their numbers") {
  const auto with = [](const std::string& device) {
    return issues_of(kGoodConfig, {"devices=" + device});
  };
  for (const char* good : {"[cpu:1]", "[cpu:1024]", "[cuda:0]", "[cuda:1023]", "[cuda]"}) {
    CAPTURE(good);
    CHECK(with(good).empty());
  }
  for (const char* bad : {"cpu:0", "cpu:1025", "cpu:02", "cuda:1024", "cuda:01", "cuda:00000",
                          "cpu:10000", "'cuda:'", "'cpu:'", "cpu:-1", "gpux", "autos"}) {
    CAPTURE(bad);
    const Texts all = with("[" + std::string(bad) + "]");
    REQUIRE(all.size() == 1);
    CHECK(all[0].starts_with("command line: expected a device: auto, cpu, "));
    CHECK(all[0].find("; write") == std::string::npos);
  }
  CHECK(with("[GPU:3]").at(0).ends_with("found 'GPU:3'; write cuda:3"));
  CHECK(with("[CUDA]").at(0).ends_with("found 'CUDA'; write cuda"));
}

TEST_CASE("the name of a run is one for a folder") {
  for (const char* bad : {"''", ".", ".hidden", "a/b", "\"a\\nb\"", "\"\\x1f\""}) {
    CAPTURE(bad);
    CHECK(only_issue(changed("name: small", std::string("name: ") + bad))
              .starts_with("2:7: expected a name for a folder"));
  }
  for (const char* good : {"a.b", "a b", "'-'", "\xC3\xA4"}) {
    CAPTURE(good);
    CHECK(issues_of(changed("name: small", std::string("name: ") + good)).empty());
  }
}

TEST_CASE("a layer that takes the number of one without a name") {
  CHECK(only_issue(changed("name: conv1", "name: '1'").replace(0, 0, "")) != "");
  std::string text = changed("name: conv1", "name: '1'");
  text.replace(text.find("from: conv1"), 11, "from: '1'");
  CHECK(only_issue(text) ==
        "15:28: expected a unique layer name, found '1', which is also the name of layer 1 in line "
        "16");
  for (const char* bad : {"''", "a/b", "'a b'"}) {
    CHECK(only_issue(changed("name: fc1", std::string("name: ") + bad))
              .starts_with("18:28: expected a layer name of letters"));
  }
  CHECK(issues_of(changed("name: fc1", "name: A-z_0.9")).empty());
}

TEST_CASE("the first 200 of very many issues are reported, and the number of the others") {
  const auto with = [](int count) {
    std::string text = kGoodConfig;
    for (int i = 0; i < count; ++i) text += fmt::format("zzz{}: 1\n", i);
    return issues_of(text);
  };
  const Texts most = with(200);
  REQUIRE(most.size() == 200);
  CHECK(most.back().find("more)") == std::string::npos);
  const Texts more = with(203);
  REQUIRE(more.size() == 200);
  CHECK(more.front().starts_with("26:1: unknown key 'zzz0'"));
  CHECK(more.back().starts_with("225:1: unknown key 'zzz199'"));
  CHECK(more.back().ends_with(" (and 3 more)"));
}

TEST_CASE("a model may have ten thousand layers") {
  const auto with = [](int count) {
    std::string text = kGoodConfig;
    const std::size_t begin = text.find("    - {type: Conv2d"), end = text.find("loss:");
    std::string layers;
    for (int i = 0; i < count; ++i) layers += "    - {type: ReLU}\n";
    return issues_of(text.replace(begin, end - begin, layers));
  };
  CHECK(with(10'000).empty());
  CHECK(with(10'001) == Texts{"15:5: expected a list of at least 1 layer, found 10001; at most "
                              "10000 are accepted"});
}

TEST_CASE("only a number says that a config is newer") {
  CHECK(issues_of(changed("version: 1", "version: '2'")) ==
        Texts{"1:10: expected 1, found '2'; remove the quotes"});
  CHECK(issues_of(changed("version: 1", "version: x")) == Texts{"1:10: expected 1, found 'x'"});
  CHECK(issues_of(kGoodConfig, {"version=1"}).empty());
}

TEST_CASE("environment variables in a path: names, defaults, texts that are left alone") {
  setenv("DPT_Test_9", "v", 1);
  setenv("DPT_TEST_EMPTY", "", 1);
  unsetenv("DPT_TEST_UNSET");
  const auto path = [](const std::string& text) { return expand_variables(text).path; };
  const auto problem = [](const std::string& text) { return expand_variables(text).problem; };
  // Shell syntax for variables is refused.
  CHECK(problem("$HOME/pets") ==
        "expected a path, found one that begins with '$HOME': a variable is written ${HOME}; write "
        "./$HOME for a name that begins with '$'");
  CHECK(path("$no_such_variable/pets") == "$no_such_variable/pets");
  CHECK(path("./$HOME") == "./$HOME");
  CHECK(path("a${DPT_Test_9}b") == "avb");
  CHECK(path("${DPT_TEST_EMPTY:-x}") == "x");  // as in a shell, empty counts as unset
  CHECK(problem("${DPT_TEST_EMPTY}").starts_with("the environment variable DPT_TEST_EMPTY is not"));
  CHECK(path("${DPT_TEST_UNSET:-a:-b}") == "a:-b");
  CHECK(path("${DPT_TEST_UNSET:-}x") == "x");
  CHECK(path("$$${DPT_Test_9}") == "$${DPT_Test_9}");
  CHECK(path("$$x$") == "$$x$");
  for (const char* bad :
       {"${9A}", "${0A}", "${A-b}", "${A b}", "${:-x}", "${A:b}", "${[}", "${@}", "${`}"}) {
    CAPTURE(bad);
    CHECK(problem(bad).starts_with("expected ${NAME} or ${NAME:-default}, found '"));
  }
  CHECK(resolve_path("", "/a/b.yaml") == "");
  CHECK(resolve_path("c/../d", "/a/b.yaml") == "/a/d");
  CHECK(resolve_path("/x", "/a/b.yaml") == "/x");
  unsetenv("DPT_Test_9");
  unsetenv("DPT_TEST_EMPTY");
}

TEST_CASE("a word may stand for a pair of sizes, where the table says so") {
  const std::vector<std::string> word = {"model.layers.conv1.stride=whole"};
  const TrainSpec spec = good_spec(kGoodConfig, word);
  CHECK(spec.model.layers[0].op.as<SmallConv>().stride == kWordSize);
  CHECK(shown(spec).find("stride: whole") != std::string::npos);
  CHECK(shown(good_spec(shown(spec))) == shown(spec));
  CHECK(only_issue(kGoodConfig, {"model.layers.conv1.stride=wohle"}) ==
        "command line: model.layers.0.stride: expected 'whole', an integer from 1 to 1024 or "
        "[height, width], found 'wohle'");
  CHECK(only_issue(kGoodConfig, {"model.layers.conv1.stride=-1"}) ==
        "command line: model.layers.0.stride: expected 'whole', an integer from 1 to 1024 or "
        "[height, width], found -1");
  CHECK(config_schema(small_catalog()).find(R"("const":"whole")") != std::string::npos);
}

TEST_CASE("overrides reach items by name, the longest that fits, or by index") {
  std::string text = changed("name: fc1", "name: conv1.b");
  CHECK(
      good_spec(text, {"model.layers.conv1.stride=2"}).model.layers[0].op.as<SmallConv>().stride ==
      Size2{2, 2});
  CHECK(issues_of(text, {"model.layers.conv1.b.out_features=3"}).empty());
  text = changed("name: conv1", "name: fc1.b");
  text.replace(text.find("from: conv1"), 11, "from: fc1.b");
  CHECK(
      good_spec(text, {"model.layers.fc1.b.stride=2"}).model.layers[0].op.as<SmallConv>().stride ==
      Size2{2, 2});
  CHECK(
      issues_of(kGoodConfig, {"model.layers.0.stride=2", "model.layers.3.out_features=3"}).empty());
  for (const char* missing : {"4", "-1", "+1", "1x", "conv"}) {
    CAPTURE(missing);
    CHECK(only_issue(kGoodConfig, {fmt::format("model.layers.{}.name=x", missing)})
              .starts_with(fmt::format("command line: model.layers has no item '{}'", missing)));
  }
  CHECK(only_issue(changed("eval: [{type: Normalize, mean: [0.5], std: [0.25]}]", "eval: []"),
                   {"data.transforms.eval.0.p=1"}) ==
        "command line: data.transforms.eval has no item '0'. It is empty");
  CHECK(only_issue(kGoodConfig, {"data.transforms.eval.1.p=1"}) ==
        "command line: data.transforms.eval has no item '1'. It has the indices 0 to 0");
  CHECK(only_issue(kGoodConfig, {"seed.a.b=1"}) ==
        "command line: seed is 7, not a mapping, so it has no 'a.b'");
  CHECK(good_spec(kGoodConfig, {"seed=1", "seed=2"}).seed == 2);
}

TEST_CASE("configs extend one another up to sixteen, and are read up to their limit of bytes") {
  const TempDir folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
    return folder.file(name);
  };
  write("15.yaml", kGoodConfig);
  for (int i = 14; i >= 0; --i) {
    write(fmt::format("{}.yaml", i), fmt::format("extends: {}.yaml\n", i + 1));
  }
  CHECK(load_spec(small_catalog(), folder.file("0.yaml")).seed == 7);
  write("one-more.yaml", "extends: 0.yaml\n");
  CHECK(read_spec(small_catalog(), folder.file("one-more.yaml")).issues.size() == 1);

  // A base may be given by an absolute path, and its own `extends` is relative to it.
  write("absolute.yaml", "extends: " + folder.file("15.yaml") + "\nseed: 8\n");
  const TrainSpec spec = load_spec(small_catalog(), folder.file("absolute.yaml"));
  CHECK(spec.seed == 8);
  CHECK(spec.origins.at("seed").text() == folder.file("absolute.yaml") + ":2:7");

  const std::string most = kGoodConfig + std::string(kMaxConfigBytes - kGoodConfig.size(), '\n');
  CHECK(load_spec(small_catalog(), write("most.yaml", most)).seed == 7);
  CHECK_THROWS_WITH_AS(load_spec(small_catalog(), write("more.yaml", most + "\n")),
                       doctest::Contains("expected at most"), Error);
}

TEST_CASE("a base that is the config itself, by an alias, is reported once") {
  CHECK(only_issue("&r {extends: *r}\n") ==
        "1:14: an alias refers to a value that contains it: a config cannot be cyclic");
}

TEST_CASE("a config that extends another keeps what all kinds share, and lists replace") {
  const TempDir folder;
  std::ofstream(folder.file("base.yaml")) << changed("lr: 0.2", "lr: 0.2, momentum: 0.5");
  const auto child = [&](const std::string& text) {
    std::ofstream(folder.file("child.yaml")) << "extends: base.yaml\n" + text;
    return load_spec(small_catalog(), folder.file("child.yaml"));
  };
  const TrainSpec other = child("data: {dataset: synthetic}\n");
  CHECK(other.data.batch_size == 64);
  CHECK(other.data.val_split.count == 100);
  CHECK(other.data.transforms.train.size() == 2);
  CHECK(child("optimizer: {type: SGD, lr: 1}\n").optimizer.as<SmallSgd>().momentum == 0.5);
  CHECK(child("optimizer: {type: Adam, lr: 1}\n").optimizer.as<SmallSgd>().momentum == 0);
  CHECK(child("data: {transforms: {train: []}}\n").data.transforms.train.empty());
  CHECK(child("devices: cpu\n").devices == Texts{"cpu"});
  CHECK(child("lr_schedule: {warmup: {steps: 3, epochs: 0}}\n").lr_schedule.type == "step");
}

TEST_CASE("the whole text of a shown config") {
  CHECK(shown(good_spec(R"(name: t
data: {dataset: synthetic, batch_size: 8, val_split: 4, transforms: {eval: [{type: Normalize, mean: [0.5], std: [1]}]}}
model:
  input: [3, 8, 8]
  layers: [{type: Conv2d, name: c, out_channels: 2, kernel_size: [1, 3]}, {type: ReLU, from: c}]
optimizer: {type: SGD, lr: 1e-3}
train: {epochs: 1, early_stopping: {patience: 3}}
)")) == R"(version: 1
name: t
seed: 1
data:
  dataset: synthetic
  samples: 100
  classes: 10
  batch_size: 8
  val_split: 4
  shuffle: true
  sampler: uniform
  workers: auto
  prefetch: 4
  on_bad_sample: stop
  max_bad_samples: 100
  exif_orientation: apply
  cache: ""
  cache_shorter_side: full
  normalize: none
  transforms:
    train: []
    eval:
      - type: Normalize
        mean: [0.5]
        std: [1]
    batch: []
model:
  input: [3, 8, 8]
  layers:
    - type: Conv2d
      name: c
      out_channels: 2
      kernel_size: [1, 3]
      stride: 1
      bias: true
      dilations: []
    - type: ReLU
      name: "1"
      from: [c]
loss:
  type: cross_entropy
  label_smoothing: 0
metrics: []
optimizer:
  type: SGD
  lr: 0.001
  momentum: 0
  nesterov: false
lr_schedule:
  type: constant
  warmup:
    epochs: 0
    steps: 0
    start_factor: 0.3333333333333333
train:
  epochs: 1
  on_more_epochs: null
  shards: auto
  accumulate: 1
  grad_clip_norm: null
  grad_clip_value: null
  ema: null
  swa: null
  early_stopping:
    monitor: val/accuracy
    patience: 3
    mode: max
    min_delta: 0
    smoothing: 0
  on_divergence:
    policy: halt
    max_skips: 10
    max_rollbacks: 5
    lr_factor: 0.5
  precision: fp32
  autotune: true
  self_check: auto
  stall_timeout: 600
weights: null
checkpoint:
  every: 1
  every_steps: 0
  keep_last: 2
  keep_best:
    monitor: val/accuracy
    mode: max
    smoothing: 0
  on_failure: stop
log:
  every: 50
  layers: false
  noise_scale: false
  tensorboard: false
  prometheus: ""
devices: [auto]
device_weights: auto
)");
}

TEST_CASE("a field that may change covers what is below it, not what begins like it") {
  const std::string before = "log: {every: 1}\nlogger: 2\ndata: {val: 1, val_split: 2}\n";
  const std::string after = "log: {every: 3}\nlogger: 4\ndata: {val: 3, val_split: 4}\n";
  CHECK(diff_specs(before, after, {"log", "data.val"}) ==
        Texts{"logger: 2 -> 4", "data.val_split: 2 -> 4"});
  CHECK(diff_specs("a: 1\n", "a: 1\nlog: 2\nlogs: 3\n", {"log"}) == Texts{"logs: (absent) -> 3"});
  // Items without a name are identified by index; lists of plain values count as one value.
  CHECK(diff_specs("l: [{a: 1}, {name: x, a: 2}]\nm: []\nn: {}\no: null\np: [1, 2]\n",
                   "l: [{a: 3}, {name: x, a: 4}]\nm: 1\nn: 2\no: 3\np: [1]\n",
                   {}) == Texts{"l.0.a: 1 -> 3", "l.x.a: 2 -> 4", "m: [] -> 1", "n: {} -> 2",
                                "o: null -> 3", "p: [1, 2] -> [1]"});
}

TEST_CASE("diff_specs tells lists and words apart that read alike") {
  CHECK(diff_specs("f: [\"a, b\"]\n", "f: [a, b]\n", {}) == Texts{"f: [\"a, b\"] -> [a, b]"});
  CHECK(diff_specs("f: null\n", "f: \"null\"\n", {}) == Texts{"f: null -> \"null\""});
  CHECK(diff_specs("f: []\n", "f: \"[]\"\n", {}) == Texts{"f: [] -> \"[]\""});
  CHECK(diff_specs("f: [a b]\n", "f: [\"a b\"]\n", {}).empty());
  // An item without a name differs from one that is named like its index.
  CHECK(diff_specs("l: [{name: 1, a: 1}, {a: 2}]\n", "l: [{name: 1, a: 1}, {a: 3}]\n", {}) ==
        Texts{"l.#1.a: 2 -> 3"});
}

TEST_CASE("the order of a list with names differs where common items are elsewhere") {
  using Lists = std::vector<Texts>;
  CHECK(differing_orders(Lists{}).empty());
  CHECK(differing_orders({{"a", "b"}, {"a", "b"}}).empty());
  CHECK(differing_orders({{"a", "x", "b"}, {"a", "b", "y"}}).empty());
  CHECK(differing_orders({{"a", "b"}, {"b", "x", "a"}}) == Texts{"a, b", "b, a"});
  // A long common beginning or end of the lists is omitted.
  CHECK(differing_orders({{"1", "2", "3", "a", "b", "4", "5", "6"},
                          {"1", "2", "3", "b", "a", "4", "5", "6"},
                          {"1", "2", "3", "a", "b", "4", "5", "6"}}) ==
        Texts{"..., 3, a, b, 4, ...", "..., 3, b, a, 4, ...", "..., 3, a, b, 4, ..."});
  CHECK(diff_specs("l: [{name: a}, {name: b}]\n", "l: [{name: b}, {name: a}]\n", {}) ==
        Texts{"l: the order differs: a, b -> b, a"});
  CHECK(diff_specs("l: [{name: a}, {name: b}]\n", "l: [{name: b}, {name: a}]\n", {"l"}).empty());
}

TEST_CASE("a list that may be a single number") {
  struct Moves {
    std::vector<double> shear;
    std::vector<std::int64_t> padding;
  };
  const Field shear = field("shear", &Moves::shear, "").range(-5, 5).items(1, 2).or_one();
  const Field padding = field("padding", &Moves::padding, "").range(0, 9).items(1, 4).or_one();
  const auto refusal = [](const Field& field, const std::string& text) {
    PlainValue value;
    std::vector<ConfigIssue> issues;
    CHECK(!convert_value(field, plain_node(text), value, issues));
    return issues.empty() ? std::string() : issues[0].text;
  };
  PlainValue value;
  std::vector<ConfigIssue> issues;
  REQUIRE(convert_value(shear, plain_node("-2.5"), value, issues));
  CHECK(std::get<std::vector<double>>(value) == std::vector<double>{-2.5});
  REQUIRE(convert_value(padding, plain_node("4"), value, issues));
  CHECK(std::get<std::vector<std::int64_t>>(value) == std::vector<std::int64_t>{4});
  CHECK(refusal(shear, "6") ==
        "expected a number or a list of at least 1 number, each from -5 to 5, found 6");
  CHECK(refusal(shear, "much") ==
        "expected a number or a list of at least 1 number, each from -5 to 5, found 'much'");
  CHECK(refusal(padding, "1.5") ==
        "expected an integer or a list of at least 1 integer, each from 0 to 9, found 1.5");
}

TEST_CASE("the schema of a list that may be a single number has both") {
  const auto schema = resolved_schema(small_catalog());
  const auto& levels = schema["$defs"]["lr_schedule.step"]["properties"]["levels"];
  REQUIRE(levels.contains("anyOf"));
  REQUIRE(levels["anyOf"].size() == 2);
  CHECK(levels["anyOf"][0]["type"] == "number");
  CHECK(levels["anyOf"][0]["maximum"] == 1);
  CHECK(levels["anyOf"][1]["type"] == "array");
  CHECK(levels["anyOf"][1]["maxItems"] == 2);
}
