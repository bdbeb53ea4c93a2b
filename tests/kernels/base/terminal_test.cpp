// Width of text on a terminal.
#include <doctest/doctest.h>

#include "kernels/base/terminal.h"

using dpt::display_columns;

TEST_CASE("CJK and emoji take two columns, combining marks none") {
  CHECK(display_columns("") == 0);
  CHECK(display_columns("cat") == 3);
  CHECK(display_columns("caf\u00e9") == 4);
  CHECK(display_columns("cafe\u0301") == 4);
  CHECK(display_columns("\u732b") == 2);
  CHECK(display_columns("\u72ac\u306f\ud55c") == 6);
  CHECK(display_columns("\U0001f431") == 2);
  CHECK(display_columns("\u0642\u0637\u0629") == 3);
  CHECK(display_columns("\u05e9\u05b8\u05dc") == 2);
  CHECK(display_columns("a\u200db") == 2);
  // Invalid bytes and an incomplete character.
  CHECK(display_columns("s\xe9tosa") == 6);
  CHECK(display_columns("\xe7\x8c") == 2);
}

TEST_CASE("a text is cut between characters, and padded to columns") {
  CHECK(dpt::first_columns("\u732b\u72acx", 3) == "\u732b");
  CHECK(dpt::first_columns("\u732b\u72acx", 4) == "\u732b\u72ac");
  CHECK(dpt::first_columns("cafe\u0301s", 4) == "cafe\u0301");
  CHECK(dpt::padded("\u732b", 4) == "\u732b  ");
  CHECK(dpt::padded("long", 2) == "long");
}

TEST_CASE("only names with letters from right to left are isolated") {
  CHECK(dpt::isolated("cat") == "cat");
  CHECK(dpt::isolated("\u732b") == "\u732b");
  CHECK(dpt::isolated("\u0642\u0637\u0629") == "\u2068\u0642\u0637\u0629\u2069");
  CHECK(dpt::isolated("cat \u05db") == "\u2068cat \u05db\u2069");
}

TEST_CASE("text is broken at blanks") {
  using Lines = std::vector<std::string>;
  CHECK(dpt::wrapped("one two three", 7) == Lines{"one two", "three"});
  CHECK(dpt::wrapped("one two three", 6) == Lines{"one", "two", "three"});
  CHECK(dpt::wrapped("a verylongword b", 5) == Lines{"a", "verylongword", "b"});
  CHECK(dpt::wrapped("\u732b\u732b \u732b", 6) == Lines{"\u732b\u732b", "\u732b"});
  CHECK(dpt::wrapped("", 10).empty());
}

TEST_CASE("a text has colours only where they are wanted") {
  CHECK(dpt::coloured("x", dpt::TextColour::red, false) == "x");
  CHECK(dpt::coloured("x", dpt::TextColour::red, true) == "\x1b[31mx\x1b[0m");
  CHECK(dpt::coloured("", dpt::TextColour::red, true).empty());
}
