// Text that must not become part of the surrounding HTML or XML.
#include <doctest/doctest.h>

#include "app/base/markup_text.h"

TEST_CASE("text in XML: markup, line ends, bytes that are not text") {
  CHECK(dpt::xml_text("a<b & \"c\">d") == "a&lt;b &amp; &quot;c&quot;&gt;d");
  CHECK(dpt::xml_text("one\ntwo\x01\xff\xc3\xa9\xef\xbf\xbe") ==
        "one&#10;two\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
  CHECK(dpt::xml_text("it's\t\r\x7f\xef\xbf\xbf") == "it's&#9;&#13;\x7f\xef\xbf\xbd");
}

TEST_CASE("text in HTML: markup, control characters, bytes that are not text") {
  CHECK(dpt::html_text("a<b & \"c\">d") == "a&lt;b &amp; &quot;c&quot;&gt;d");
  CHECK(dpt::html_text("it's\n\t\r\x01\x7f\xff") == "it&#39;s\n\t\\x0d\\x01\\x7f\xef\xbf\xbd");
}
