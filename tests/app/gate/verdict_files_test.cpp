// The files of --verdict and --junit.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "app/gate/verdict_files.h"
#include "tests/app/gate/gates.h"

using namespace dpt::testing;
using dpt::Json;
namespace fs = std::filesystem;

namespace {

/// Returns the first XML error in the text. Checks only what a verdict uses: nested elements,
/// attributes in double quotes, known entities.
std::string xml_problem(const std::string& text) {
  std::vector<std::string> open;
  std::size_t at = text.find("?>");
  if (text.rfind("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", 0) != 0) return "declaration";
  for (at += 2; at < text.size();) {
    if (text[at] == '&') {
      const std::string entity = text.substr(at, text.find(';', at) - at + 1);
      static const std::vector<std::string> kKnown = {"&amp;",  "&lt;",  "&gt;",
                                                      "&quot;", "&#10;", "&#9;"};
      if (std::find(kKnown.begin(), kKnown.end(), entity) == kKnown.end()) return entity;
      at += entity.size();
      continue;
    }
    if (text[at] != '<') {
      if (text[at] == '>') return "> in text";
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (quoted && text[end] == '<') return "< in an attribute";
    }
    const std::string tag = text.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "end of " + tag;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() ? "" : "no end of " + open.back();
}

}  // namespace

TEST_CASE("the verdict: a table in Markdown and test cases in JUnit XML") {
  const Gates w;
  const std::vector<std::string> files = {"--verdict", "verdict.md", "--junit", "verdict.xml"};
  std::vector<std::string> asked = {"--baseline", "runs/tiny",
                                    "--require",  "test/loss<=baseline+1",
                                    "--require",  "test/accuracy >= 0"};
  asked.insert(asked.end(), files.begin(), files.end());
  w.run_well({"train", "small.yaml", "--run-dir", "new"}, asked);
  const Json test = w.summary()["test"];
  const std::string loss = fmt::format("{:.6g}", w.loss());
  const std::string accuracy = fmt::format("{:.6g}", test["accuracy"].get<double>());
  CHECK(w.text("verdict.md") ==
        fmt::format("# dpt train: all requirements met\n\nsmall.yaml, baseline runs/tiny\n\n"
                    "| metric | asked | found | baseline | met |\n|---|---|---|---|---|\n"
                    "| test/loss | \\<= baseline+1 ({:.6g}) | {} | {} | yes |\n"
                    "| test/accuracy | \\>= 0 | {} | {} | yes |\n",
                    w.loss() + 1, loss, loss, accuracy, accuracy));
  std::string xml = w.text("verdict.xml");
  CHECK(xml_problem(xml) == "");
  check_contains(xml, "<testsuite name=\"dpt train\" tests=\"2\" failures=\"0\" errors=\"0\" ");
  check_contains(xml, "<testcase classname=\"dpt.train\" name=\"test/loss&lt;=baseline+1\">");

  // If a condition is not met, both files still replace the previous ones.
  asked.insert(asked.end(), {"--require", "test/loss<0"});
  CHECK(w.eval(asked).exit_code == 7);
  check_contains(w.text("verdict.md"), "# dpt eval: 1 of 3 requirements not met\n\nruns/tiny, ");
  check_contains(w.text("verdict.md"),
                 fmt::format("| test/loss | \\< 0 | {0} | {0} | **no** |\n", loss));
  xml = w.text("verdict.xml");
  CHECK(xml_problem(xml) == "");
  check_contains(xml, " tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\">");
  CHECK(count_of(xml, "<failure message=\"not met: the value is " + loss +
                          "\">not met: the value is " + loss + "</failure>") == 1);

  // The run fails before any condition is judged.
  fs::remove_all(w.dir.file("new"));
  std::vector<std::string> failing = {
      "train", "small.yaml", "--run-dir", "new", "optimizer.lr=1e38", "--require", "test/loss<1"};
  const Finished failed = w.run(failing, files);
  CHECK(failed.exit_code == 5);
  check_contains(w.text("verdict.md"),
                 "# dpt train: failed, requirements not checked\n\nsmall.yaml\n\nError: ");
  check_contains(w.text("verdict.md"), "| test/loss | \\< 1 | - | - | not checked |\n");
  xml = w.text("verdict.xml");
  CHECK(xml_problem(xml) == "");
  check_contains(xml, " tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\">");
  check_contains(xml, "<error message=\"");

  // A run that will be resumed is judged at its end.
  CHECK(w.run({"train", "small.yaml", "--run-dir", "part", "--max-time", "0s", "--require",
               "test/loss<1"},
              files)
            .exit_code == 75);
  check_contains(w.text("verdict.md"), "# dpt train: requirements not checked\n");
  check_contains(w.text("verdict.md"), " (--max-time): requirements are checked at its end.");
  check_contains(w.text("verdict.xml"), "<skipped message=\"The run was stopped at step ");
}

TEST_CASE("texts in verdicts: markup and bytes that are not text") {
  dpt::GateResult result{"train", "a|b`<c>`.yaml", "", "line 1\nline 2 & \"<\xff\">", {}, {}};
  dpt::Condition& condition = result.conditions.emplace_back(dpt::parse_condition("test/loss<1"));
  CHECK(xml_problem(verdict_junit(result)) == "");
  const std::string table = verdict_markdown(result);
  check_contains(table, "\na\\|b\\`\\<c\\>\\`.yaml\n");
  check_contains(table, "Error: line 1 line 2 \\& \"\\<\xef\xbf\xbd\"\\>\n");
  result.error.clear();
  condition.outcome = dpt::Condition::Outcome::not_met;
  condition.message = "this run has no test result";
  check_contains(verdict_markdown(result),
                 "| test/loss | \\< 1 | - | - | **no**: this run has no test result |\n");
}

TEST_CASE("the first of several processes judges and writes") {
  const Gates w;
  const Finished finished =
      w.train({"--nproc", "2", "--devices", "cpu", "--baseline", "runs/tiny", "--require",
               "test/loss<baseline-9", "--verdict", "v.md", "--junit", "v.xml"});
  CHECK(finished.exit_code == 7);
  check_contains(w.text("v.md"), "# dpt train: 1 of 1 requirements not met\n");
  CHECK(xml_problem(w.text("v.xml")) == "");
}
