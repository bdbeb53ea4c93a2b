// Tables of classes: names in any script, and colours.
#include "app/evaluate/class_tables.h"

#include <doctest/doctest.h>

#include <sstream>

#include "kernels/base/terminal.h"
#include "tests/support/places.h"

namespace {

dpt::EvaluatedClasses evaluated(const std::vector<std::string>& names) {
  const auto classes = static_cast<std::int64_t>(names.size());
  std::vector<std::int32_t> labels, predictions;
  for (std::int32_t c = 0; c < classes; ++c) {
    labels.insert(labels.end(), {c, c});
    predictions.insert(predictions.end(), {c, static_cast<std::int32_t>((c + 1) % classes)});
  }
  dpt::EvaluatedClasses of;
  of.report = dpt::make_class_report(labels, predictions, classes);
  of.names = names;
  return of;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE(
    "class tables: names of two columns a letter, and of combined letters, keep the columns") {
  const auto lines =
      lines_of(dpt::text_of_classes(evaluated({"\u732b", "cafe\u0301", "dog",
                                               "\u72ac\u306e\u4ed4\u72ac\u306e\u4ed4\u72ac\u306e"
                                               "\u4ed4\u72ac\u306e\u4ed4\u72ac\u306e\u4ed4"})));
  REQUIRE(lines.size() == 12);
  for (std::size_t i = 1; i < 6; ++i) {
    INFO(lines[i]);
    CHECK(dpt::display_columns(lines[i]) == dpt::display_columns(lines[0]));
  }
  for (std::size_t i = 8; i < 12; ++i) {
    INFO(lines[i]);
    CHECK(dpt::display_columns(lines[i]) == dpt::display_columns(lines[7]));
  }
  // A long name is truncated between characters.
  CHECK(lines[4].starts_with("  \u72ac\u306e\u4ed4\u72ac\u306e\u4ed4\u72ac\u306e\u4ed4\u72ac... "));
}

TEST_CASE("class tables: names from right to left do not turn an arrow around") {
  std::vector<std::string> names(13, "x");
  for (std::size_t i = 0; i < names.size(); ++i) names[i] += std::to_string(i);
  names[1] = "\u0642\u0637\u0629";
  const std::string text = dpt::text_of_classes(evaluated(names));
  dpt::testing::check_contains(text, "  \u2068\u0642\u0637\u0629\u2069 -> x2: 1\n");
  dpt::testing::check_contains(text, "  x0 -> \u2068\u0642\u0637\u0629\u2069: 1\n");
}

TEST_CASE("class tables: with colours, right predictions are green and wrong ones red") {
  const dpt::EvaluatedClasses of = evaluated({"a", "b", "c"});
  const std::string plain = dpt::text_of_classes(of), text = dpt::text_of_classes(of, true);
  CHECK(plain.find('\x1b') == plain.npos);
  dpt::testing::check_contains(text, "  0 a    \x1b[32m1\x1b[0m  \x1b[31m1\x1b[0m  0\n");
}
