// Whatever a config contains, the reader quickly returns a spec or a list of issues.
#include <doctest/doctest.h>

#include <chrono>
#include <random>

#include "engine/config/issue.h"
#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t n) {
  return n == 0 ? 0 : random() % n;
}

/// Fragments of YAML that have confused parsers, and words of this format.
const std::vector<std::string> kPieces = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ":",
                                          ": ",
                                          "- ",
                                          "\n",
                                          "\n  ",
                                          "\t",
                                          "#",
                                          "&a ",
                                          "*a",
                                          "!x ",
                                          "!!int ",
                                          "|",
                                          ">",
                                          ">-\n",
                                          "|+2\n",
                                          "'",
                                          "\"",
                                          "\\",
                                          "%TAG ! x\n",
                                          "%YAML 9.9\n",
                                          "---\n",
                                          "...\n",
                                          "? ",
                                          "~",
                                          "null",
                                          "<<: *a",
                                          "${",
                                          "${A:-b}",
                                          "$${",
                                          "0x1",
                                          "010",
                                          ".inf",
                                          "1e999",
                                          "-0",
                                          "yes",
                                          "\xC3\xA4",
                                          "\xFF",
                                          std::string(1, '\0'),
                                          "\x04",
                                          "\xEF\xBB\xBF",
                                          "type: ",
                                          "extends: .",
                                          "extends: test.yaml",
                                          "name: conv1",
                                          "from: [conv1]",
                                          "layers:",
                                          "version: 3",
                                          "@",
                                          "`",
                                          ",",
                                          "\r",
                                          "\r\n",
                                          "=",
                                          "a: &a [*a]",
                                          "\"\\x00\"",
                                          "\"\\uD800\"",
                                          "9999999999999999999999"};

std::string mutated(std::string text, Random& random) {
  const std::size_t edits = 1 + below(random, 2);
  for (std::size_t i = 0; i < edits; ++i) {
    const std::size_t at = below(random, text.size() + 1);
    const std::size_t length = below(random, std::min<std::size_t>(12, text.size() - at + 1));
    switch (random() % 6) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[below(random, kPieces.size())]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random() % 256);
        break;
      case 3:
        text.insert(below(random, text.size() + 1), text.substr(at, length));
        break;
      case 4:
        text.replace(at, length, kPieces[below(random, kPieces.size())]);
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutations of a good config never crash, hang or pass what is broken in silence") {
  Random random(20240229);
  int good = 0;
  int bad = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 4000; ++round) {
    const std::string text = mutated(kGoodConfig, random);
    const ReadResult result = read_spec_text(small_catalog(), text, "test.yaml");
    for (const ConfigIssue& issue : result.issues) {
      CHECK_FALSE(issue.text.empty());
      CHECK(issue.where.line > 0);
    }
    if (!result.issues.empty()) {
      ++bad;
      continue;
    }
    ++good;
    // The result can be shown, and the shown text reads back as the same config.
    const std::string shown = show_spec(small_catalog(), result.spec);
    CHECK_MESSAGE(
        show_spec(small_catalog(), load_spec_text(small_catalog(), shown, "x.yaml")) == shown,
        text);
  }
  CHECK(good > 50);
  CHECK(bad > 1000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(120));
}

TEST_CASE("mutations of overrides never crash") {
  Random random(7);
  const std::vector<std::string> arguments = {"model.layers.conv1.stride=[2, 1]",
                                              "optimizer={type: Adam, lr: 0.001}",
                                              "data.transforms.train.1.mean=[0.1]", "devices=cpu"};
  for (int round = 0; round < 3000; ++round) {
    const std::string argument = mutated(arguments[below(random, arguments.size())], random);
    const ReadResult result = read_spec_text(small_catalog(), kGoodConfig, "test.yaml", {argument});
    if (result.issues.empty()) show_spec(small_catalog(), result.spec, true);
  }
}
