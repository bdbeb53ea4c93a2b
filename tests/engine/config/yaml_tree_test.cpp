// The event-built tree: the YAML that a config may contain.
#include <doctest/doctest.h>

#include <chrono>

#include "engine/config/issue.h"
#include "engine/config/yaml_tree.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

YamlNode parse(const std::string& text, std::vector<std::string>& texts) {
  std::vector<ConfigIssue> issues;
  YamlNode tree = parse_yaml(text, "t.yaml", issues);
  texts.clear();
  for (const ConfigIssue& issue : issues) {
    texts.push_back(fmt::format("{}:{}: {}", issue.where.line, issue.where.column, issue.text));
  }
  return tree;
}

std::string first_issue(const std::string& text) {
  std::vector<std::string> texts;
  parse(text, texts);
  return texts.empty() ? "" : texts[0];
}

}  // namespace

TEST_CASE("every value and key knows its place") {
  std::vector<std::string> issues;
  const YamlNode tree = parse("a: 1\nlist:\n  - {x: yes, y: \"no\"}\n  -\nempty:\n", issues);
  REQUIRE(issues.empty());
  REQUIRE(tree.is_map());
  const YamlNode& map = tree.find("list")->children.at(0);
  CHECK(map.find("x")->where.text() == "t.yaml:3:9");
  CHECK(map.find("y")->key_where.text() == "t.yaml:3:14");
  CHECK(map.find("x")->is_plain);
  CHECK_FALSE(map.find("y")->is_plain);
  CHECK(tree.find("list")->children.at(1).kind == YamlNode::Kind::null);
  // A missing value has the position of its key.
  CHECK(tree.find("empty")->where.text() == "t.yaml:5:1");
}

TEST_CASE("columns count characters, not bytes, and a byte order mark is not one") {
  std::vector<std::string> issues;
  const YamlNode tree = parse("\xEF\xBB\xBF{\"\xC3\xA4\xC3\xB6\": 1, b: 2}", issues);
  REQUIRE(issues.empty());
  CHECK(tree.find("b")->key_where.column == 11);
}

TEST_CASE("an alias is a copy, also of a list or a mapping") {
  std::vector<std::string> issues;
  const YamlNode tree = parse("a: &x [1, {k: 2}]\nb: *x\nc: &y 3\nd: *y\n", issues);
  REQUIRE(issues.empty());
  CHECK(tree.find("b")->children.at(1).find("k")->text == "2");
  CHECK(tree.find("d")->text == "3");
  CHECK(tree.find("d")->where.line == 3);
}

TEST_CASE("aliases find what they name wherever it stands") {
  std::vector<std::string> issues;
  // Aliases are expanded in open lists and mappings, in complete ones, and through other aliases.
  const YamlNode tree = parse(
      "a: &a [0, &b {k: &c [7, 8]}, *b, {m: *c}]\nd: {e: [*c, *b], f: &f {g: *a}}\nh: [*f, *a]\n",
      issues);
  REQUIRE(issues.empty());
  const auto& a = tree.find("a")->children;
  CHECK(a.at(2).find("k")->children.at(1).text == "8");
  CHECK(a.at(3).find("m")->children.at(0).text == "7");
  const YamlNode& d = *tree.find("d");
  CHECK(d.find("e")->children.at(0).children.at(1).text == "8");
  CHECK(d.find("e")->children.at(0).key.empty());  // the key of `k` is dropped
  CHECK(d.find("e")->children.at(1).find("k")->children.size() == 2);
  CHECK(d.find("f")->find("g")->children.size() == 4);
  const auto& h = tree.find("h")->children;
  CHECK(h.at(0).find("g")->children.at(3).find("m")->children.at(1).text == "8");
  CHECK(h.at(1).children.at(1).find("k")->children.at(0).where.line == 1);
}

TEST_CASE("an alias of an anchor in a bad key is not a second problem") {
  CHECK(first_issue("? [&x {a: 1}]\n: &y [2]\nb: *x\nc: *y\n") ==
        "1:3: expected a key, found a list");
  std::vector<std::string> issues;
  const YamlNode tree =
      parse("a: 1\na: &x [1, &y {b: 2}]\nc: *x\nd: *y\ne: &z [3]\nf: *z\n", issues);
  REQUIRE(issues.size() == 1);
  CHECK(tree.find("c")->kind == YamlNode::Kind::broken);
  CHECK(tree.find("d")->kind == YamlNode::Kind::broken);
  CHECK(tree.find("f")->children.at(0).text == "3");
  CHECK(parse("? &k {a: 1}\n: 2\nb: *k\n", issues).find("b")->kind == YamlNode::Kind::broken);
}

TEST_CASE("an alias may be a key, which stands where the alias does") {
  std::vector<std::string> issues;
  const YamlNode tree = parse("a: &k name\n*k : 1\n", issues);
  REQUIRE(issues.empty());
  REQUIRE(tree.find("name"));
  CHECK(tree.find("name")->key_where.text() == "t.yaml:2:1");
  CHECK(first_issue("a: &k name\n*k : 1\n*k : 2\n") ==
        "3:1: duplicate key 'name': first defined in line 2");
}

TEST_CASE("YAML that a config may not contain is refused with its place") {
  CHECK(first_issue("a: 1\nb: 2\na: 3\n") == "3:1: duplicate key 'a': first defined in line 1");
  CHECK(first_issue("x: {a: 1, 'a': 2}") == "1:11: duplicate key 'a': first defined in line 1");
  CHECK(first_issue("a: &a [1, *a]") ==
        "1:11: an alias refers to a value that contains it: a config cannot be cyclic");
  CHECK(first_issue("a: &a {b: {c: *a}}") ==
        "1:15: an alias refers to a value that contains it: a config cannot be cyclic");
  CHECK(first_issue("a: !thing 1") ==
        "1:4: the tag '!thing' is not accepted: a config has plain values only");
  CHECK(first_issue("a: !!int '1'") ==
        "1:4: the tag 'tag:yaml.org,2002:int' is not accepted: a "
        "config has plain values only");
  CHECK(first_issue("a: !!python/object/apply:os.system [ls]") ==
        "1:4: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not accepted: a config "
        "has plain values only");
  CHECK(first_issue("a: 1\n---\nb: 2\n") ==
        "3:1: expected one YAML document, found a second one after '---'");
  CHECK(first_issue("? [1, 2]\n: 3\n") == "1:3: expected a key, found a list");
  CHECK(first_issue("? {a: 1}\n: 3\n") == "1:3: expected a key, found a mapping");
  CHECK(
      first_issue("base: &b {x: 1}\nc: {<<: *b}\n") ==
      "2:5: merge keys (<<) are not supported: write the fields out, or put the common part into a "
      "file and name it with 'extends'");
  CHECK(first_issue(std::string("a: \xFF\n")) == "1:4: expected UTF-8 text, found the byte 0xFF");
  CHECK(first_issue(std::string("a: \xC0\xAF\n")) ==
        "1:4: expected UTF-8 text, found the byte 0xC0");
  CHECK(first_issue(std::string("a: b\nc: \xED\xA0\x80\n")) ==
        "2:4: expected UTF-8 text, found the byte 0xED");
  CHECK(first_issue(std::string("a\0: 1", 5)) ==
        "1:2: expected text, found the control character 0x00");
  CHECK(first_issue("a: \x04") == "1:4: expected text, found the control character 0x04");
  CHECK(first_issue("\xFF\xFE"
                    "a") == "1:1: expected UTF-8 text, found the byte 0xFF");
}

TEST_CASE("UTF-8 at the borders of its forms") {
  for (const char* good :
       {"\x7e", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBD", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBD"}) {
    CAPTURE(good);
    CHECK(first_issue("a: x" + std::string(good) + "x\n").find("UTF-8") == std::string::npos);
    CHECK(first_issue("a: x" + std::string(good)).find("UTF-8") == std::string::npos);
  }
  for (const char* bad : {"\x80", "\xC1\xBF", "\xC2\x41", "\xC3", "\xE0\x9F\xBF", "\xE2\x82",
                          "\xE2\x82\x41", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF0\x9F\x98", "\xF5\x80\x80\x80"}) {
    CAPTURE(bad);
    const std::string text = fmt::format("1:5: expected UTF-8 text, found the byte 0x{:02X}",
                                         static_cast<unsigned>(static_cast<unsigned char>(bad[0])));
    CHECK(first_issue("a: x" + std::string(bad)) == text);
    CHECK(first_issue("a: x" + std::string(bad) + "y\n") == text);
  }
  // Columns count characters, not bytes.
  CHECK(first_issue("b: 1\n\xC3\xA4: \xFF") == "2:4: expected UTF-8 text, found the byte 0xFF");
  CHECK(first_issue("a: \x7F") == "1:4: expected text, found the control character 0x7F");
  CHECK(first_issue("a: \x1F") == "1:4: expected text, found the control character 0x1F");
  CHECK(first_issue("a:\t1\r\nb: 2\r\n").find("control") == std::string::npos);
}

TEST_CASE("limits of depth and number are reached before they are passed") {
  const auto deep = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  CHECK(first_issue(deep(kMaxConfigDepth)).empty());
  CHECK(first_issue(deep(kMaxConfigDepth + 1)).find("at most 64 levels") != std::string::npos);
  CHECK(first_issue("a: &x " + deep(kMaxConfigDepth - 2) + "\nb: [*x]\n").empty());
  CHECK(first_issue("a: &x " + deep(kMaxConfigDepth - 2) + "\nb: [[*x]]\n")
            .find("at most 64 levels") != std::string::npos);
  const auto many = [](std::size_t values) {
    std::string text;
    for (std::size_t i = 1; i < values; ++i) text += "- 1\n";
    return text;
  };
  CHECK(first_issue(many(kMaxConfigNodes)).empty());
  CHECK(first_issue(many(kMaxConfigNodes + 1)).find("at most 400000 values") != std::string::npos);
}

TEST_CASE("broken YAML is an issue with its line, not a crash") {
  CHECK(first_issue("a: [1, 2\n").find("not valid YAML") != std::string::npos);
  CHECK(first_issue("a: *nowhere\n").find("1:4: not valid YAML") == 0);
  CHECK(
      first_issue("a:\n\tb: 1\n").find("line 2 is indented with a tab, but YAML requires spaces") !=
      std::string::npos);
  CHECK(first_issue("a: {root: ${HOME}/x}\n")
            .find("inside {...}, put a value with ${...} into quotes") != std::string::npos);
  // A last line without a line break is checked too.
  CHECK(first_issue("a: {root: ${HOME}/x}")
            .find("inside {...}, put a value with ${...} into quotes") != std::string::npos);
}

TEST_CASE("size, depth and the growth of aliases are bounded") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(first_issue(std::string(kMaxConfigBytes + 1, ' ')) ==
        fmt::format("1:1: expected a config of at most {} bytes, found {}", kMaxConfigBytes,
                    kMaxConfigBytes + 1));
  CHECK(first_issue("a: " + std::string(200, '[') + std::string(200, ']'))
            .find("expected at most 64 levels of nesting, found more") != std::string::npos);
  // 10^10 values in ten lines.
  std::string laughs = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 10; ++i) {
    std::string line = fmt::format("a{}: &a{} [", i, i);
    for (int k = 0; k < 10; ++k) line += fmt::format("{}*a{}", k ? ", " : "", i - 1);
    laughs += line + "]\n";
  }
  CHECK(first_issue(laughs).find("expected at most 400000 values in a config, found more (aliases "
                                 "count as often as they are used)") != std::string::npos);
  // Depth through aliases: no single line is deep.
  std::string ladder = "a0: &a0 [1]\n";
  for (int i = 1; i < 200; ++i) ladder += fmt::format("a{}: &a{} [*a{}]\n", i, i, i - 1);
  CHECK(first_issue(ladder).find("levels of nesting") != std::string::npos);
  // The largest number of keys that fits: finding duplicates must not take quadratic time.
  std::string wide;
  for (int i = 0; i < 210'000; ++i) wide += fmt::format("k{}: 1\n", i);
  CHECK(first_issue(wide).find("expected at most 400000 values") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}
