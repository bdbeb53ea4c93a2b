// The manual pages that the build generates.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "app/cli/cli.h"
#include "app/help/manual.h"
#include "app/help/roff_markdown.h"
#include "tests/cli/tiny.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

/// Returns `text` as in a manual page: with minus signs that a reader can search for and copy.
std::string with_minus_signs(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '-') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

Finished write_pages(const Workplace& w, const std::string& prose) {
  return w.run({"man", "pages", "--prose", prose});
}

}  // namespace

TEST_CASE("manual: every command has a page with all of its options") {
  const Tiny w;
  const Finished finished = write_pages(w, source_dir() + "/docs/man");
  INFO(finished.err);
  REQUIRE(finished.exit_code == 0);
  const dpt::Command root = dpt::all_commands();
  std::set<std::string> expected, found;
  for (const dpt::Command* command : dpt::shown_commands(root)) {
    const std::string file = dpt::page_name(*command) + ".1";
    expected.insert(file);
    const std::string page = read_file(w.dir.file("pages/" + file));
    INFO(file);
    for (const char* section : {".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n",
                                ".SH OPTIONS\n", ".SH EXIT STATUS\n", ".SH SEE ALSO\n"}) {
      CHECK(count_of(page, section) == 1);
    }
    // Each sentence starts on a new line, where a leading space would force a line break.
    CHECK(page.find("\n ") == std::string::npos);
    for (const dpt::CommandOption& option : command->options) {
      check_contains(page, "\\fB" + with_minus_signs(option.name) + "\\fR");
    }
  }
  for (const auto& entry : fs::directory_iterator(w.dir.file("pages"))) {
    found.insert(entry.path().filename().string());
  }
  CHECK(found == expected);
  CHECK(found.count("dpt-man.1") == 0);
}

TEST_CASE("manual: mandoc has no complaints about the pages") {
  if (std::system("command -v mandoc >/dev/null 2>&1") != 0) {
    return skip_test("mandoc is not installed");
  }
  const Tiny w;
  REQUIRE(write_pages(w, source_dir() + "/docs/man").exit_code == 0);
  const std::string out = w.dir.file("lint");
  const int status = std::system(
      ("cd " + w.dir.file("pages") + " && mandoc -Tlint -Wwarning *.1 >" + out).c_str());
  INFO(read_file(out));
  CHECK(status == 0);
}

TEST_CASE("manual: prose is part of the description, and its sections follow the options") {
  const Tiny w;
  fs::create_directories(w.dir.file("prose"));
  write_file(w.dir.file("prose/dpt-runs.roff"), ".PP\nIt is quick.\n.SH EXAMPLES\ndpt runs\n");
  write_file(w.dir.file("prose/dpt-eval.roff"), ".SH FILES\nresults\n");
  REQUIRE(write_pages(w, "prose").exit_code == 0);
  const std::string page = read_file(w.dir.file("pages/dpt-runs.1"));
  check_contains(
      page,
      "best value, test result, learning rate, time, steps.\n.PP\nIt is quick.\n.SH ARGUMENTS\n");
  check_contains(
      page,
      "all results in full precision.\nNot with \\-\\-json.\n.SH EXAMPLES\ndpt runs\n.SH "
      "EXIT STATUS\n");
  check_contains(page, "\\fBdpt runs\\fR [\\fIFOLDER\\fR] [\\fIOPTION\\fR ...]\n");
  const std::string only_sections = read_file(w.dir.file("pages/dpt-eval.1"));
  CHECK(count_of(only_sections, ".SH FILES\nresults\n") == 1);
  CHECK(only_sections.find(".SH FILES") > only_sections.find(".SH OPTIONS"));
}

TEST_CASE("manual: prose without a command, and paths that are not folders, are refused") {
  const Tiny w;
  const Finished no_prose = write_pages(w, "nowhere");
  CHECK(no_prose.exit_code == 3);
  check_contains(no_prose.err, "--prose nowhere: expected a folder, found none");
  fs::create_directories(w.dir.file("prose"));
  write_file(w.dir.file("prose/dpt-fly.roff"), "It flies.\n");
  const Finished unknown = write_pages(w, "prose");
  CHECK(unknown.exit_code == 3);
  check_contains(unknown.err, "prose/dpt-fly.roff: no command of dpt has a page of this name");
  const Finished file = w.run({"man", "small.yaml", "--prose", "prose"});
  CHECK(file.exit_code == 3);
  check_contains(file.err, "small.yaml: expected a folder");
}

TEST_CASE("manual: the date of a page is SOURCE_DATE_EPOCH's") {
  const Tiny w;
  fs::create_directories(w.dir.file("prose"));
  const auto at = [&](const char* epoch) {
    return run_dpt({"man", "pages", "--prose", "prose"}, w.dir.path(),
                   [epoch] { setenv("SOURCE_DATE_EPOCH", epoch, 1); });
  };
  REQUIRE(at("86400").exit_code == 0);
  check_contains(read_file(w.dir.file("pages/dpt.1")), ".TH DPT 1 1970-01-02 \"dpt ");
  const Finished wrong = at("yesterday");
  CHECK(wrong.exit_code == 2);
  check_contains(wrong.err, "SOURCE_DATE_EPOCH: expected seconds since 1970, found 'yesterday'");
}

TEST_CASE("docs/reference/commands.md and exit-codes.md are what the program writes") {
  const Tiny w;
  REQUIRE(w.run({"man", "pages", "--prose", source_dir() + "/docs/man", "--markdown"}).exit_code ==
          0);
  for (const char* page : {"commands.md", "exit-codes.md"}) {
    CHECK_MESSAGE(read_file(w.dir.file(std::string("pages/") + page)) ==
                      read_file(source_dir() + "/docs/reference/" + page),
                  "run: dpt man docs/reference --prose docs/man --markdown");
  }
}

TEST_CASE("manual: prose as Markdown") {
  CHECK(dpt::markdown_of_roff(".\\\" page: guide/a.md\n.\\\" page: guide/b.md#one-two\n"
                              ".PP\nA *star*, a \\- b\n.B \\-\\-out \\fIFILE\\fR\n"
                              "and\n.BR x \", \" y .\n",
                              3) ==
        "A \\*star\\*, a - b `--out FILE` and `x`, `y`.\n\n"
        "\nMore: [a.md](../guide/a.md), [one two](../guide/b.md#one-two)\n");
  CHECK(dpt::markdown_of_roff(".SH SEE THIS\n.TP\n.I a*\nText.\n.TP\n.BR b =\\fIN\\fR\nMore.\n.PP\n"
                              "After.\n.nf\na \\- *\n.fi\n",
                              2) ==
        "\n## See this\n\n- `a*`: Text.\n- `b`=`N`: More.\n\nAfter.\n\n```\na - *\n```\n\n");
  CHECK_THROWS_WITH_AS(dpt::markdown_of_roff(".in 4\n", 2),
                       "cannot convert the roff line '.in 4' to Markdown", dpt::Error);
}
