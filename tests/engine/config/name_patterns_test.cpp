// Name patterns, and the message about a pattern that matches nothing.
#include "engine/config/name_patterns.h"

#include <doctest/doctest.h>

namespace dpt {
namespace {

const std::vector<std::string> kNames = {"conv1.weight", "conv1.bias", "layer1.0.bn2.weight",
                                         "layer1.0.bn2.bias", "fc.weight"};

TEST_CASE("a star is any number of characters, a question mark one") {
  CHECK(matches_pattern("*", ""));
  CHECK(matches_pattern("", ""));
  CHECK_FALSE(matches_pattern("", "a"));
  CHECK(matches_pattern("*.bias", "layer1.0.bn2.bias"));
  CHECK_FALSE(matches_pattern("*.bias", "layer1.0.bias.weight"));
  CHECK(matches_pattern("*bn*", "layer1.0.bn2.bias"));
  CHECK_FALSE(matches_pattern("*bn*", "conv1.bias"));
  CHECK(matches_pattern("layer?.0.*", "layer1.0.bn2.bias"));
  CHECK_FALSE(matches_pattern("layer?.0.*", "layer.0.bn2.bias"));
  CHECK(matches_pattern("conv1.weight", "conv1.weight"));
  CHECK_FALSE(matches_pattern("conv1", "conv1.weight"));
  CHECK_FALSE(matches_pattern("conv1.weightx", "conv1.weight"));
  // A star must also match beyond the first place where the rest of the pattern begins to fit.
  CHECK(matches_pattern("*ab*ab", "abxabab"));
  CHECK_FALSE(matches_pattern("*ab*abc", "abxabab"));
  CHECK(matches_pattern("a**b", "ab"));
  // A dot matches only a dot.
  CHECK_FALSE(matches_pattern("conv1.weight", "conv1xweight"));
  CHECK(matches_any(std::vector<std::string>{"x", "fc.*"}, "fc.weight"));
  CHECK_FALSE(matches_any({}, "fc.weight"));
}

TEST_CASE("a suggestion for a pattern that matches nothing") {
  const auto problem = [](const char* pattern) { return problem_of_pattern(pattern, kNames); };
  CHECK(problem("*.bias") == "");
  CHECK(problem("conv.*") == "'conv.*' matches no parameter; did you mean 'conv1.*'?");
  CHECK(problem("conv1.wieght") ==
        "'conv1.wieght' matches no parameter; did you mean 'conv1.weight'?");
  CHECK(problem("*.biases") == "'*.biases' matches no parameter; did you mean '*.bias'?");
  CHECK(problem("layer1.0.bn1.*") ==
        "'layer1.0.bn1.*' matches no parameter; did you mean 'layer1.0.bn2.*'?");
  CHECK(problem("conv1") ==
        "'conv1' matches no parameter; a pattern is compared with the whole name: did you mean "
        "'conv1.*'?");
  CHECK(problem("weight") ==
        "'weight' matches no parameter; a pattern is compared with the whole name: did you mean "
        "'*weight*'?");
  CHECK(problem("zzzzzz*") ==
        "'zzzzzz*' matches no parameter; the parameters are conv1.weight, conv1.bias, "
        "layer1.0.bn2.weight, layer1.0.bn2.bias, fc.weight");
  CHECK(problem("***") == "");
}

}  // namespace
}  // namespace dpt
