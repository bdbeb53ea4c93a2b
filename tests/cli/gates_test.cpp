// --require with a baseline, and the verdicts in Markdown and JUnit XML.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/evaluate/requirements.h"
#include "app/evaluate/verdict.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
using dpt::Error;
using dpt::ErrorKind;
using dpt::Json;
using dpt::Judgement;
namespace fs = std::filesystem;

namespace {

/// A run of the tiny config in runs/tiny, to be compared with.
struct Gates : Tiny {
  Gates() { run_well({"train", "small.yaml"}); }
  Json summary() const { return Json::parse(read_file(dir.file("runs/tiny/summary.json"))); }
  double loss() const { return summary()["test"]["loss"]; }
  Finished train(const std::vector<std::string>& more) const {
    return run({"train", "small.yaml", "--run-dir", "new"}, more);
  }
  Finished eval(const std::vector<std::string>& more) const {
    return run({"eval", "runs/tiny"}, more);
  }
  std::string text(const std::string& file) const { return read_file(dir.file(file)); }
};

std::string requirement_error(const std::string& requirement) {
  try {
    dpt::parse_requirement(requirement);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

/// How often `part` occurs.
int times_in(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// What is wrong with the text as XML, for the little that a verdict has of it: elements that nest,
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

TEST_CASE("a bound may be that of a baseline, plus, minus or times a number") {
  const auto bound = [](const std::string& text) {
    return dpt::parse_requirement("test/accuracy>=" + text).bound_for(0.5);
  };
  CHECK(bound("0.75") == 0.75);
  CHECK(bound("baseline") == 0.5);
  CHECK(bound("baseline+0.25") == 0.75);
  CHECK(bound("baseline - 0.125") == 0.375);
  CHECK(bound("baseline*1.5") == 0.75);
  CHECK(bound("-0.5") == -0.5);
  CHECK_FALSE(dpt::parse_requirement("test/loss<1").of_baseline);
  CHECK(dpt::parse_requirement("test/loss<baseline").of_baseline);
  for (const char* bad : {"baseline/2", "baseline-", "baseline--1", "baseline0.5", "baselines",
                          "baseline+nan", "baseline*inf", "base", "baseline+1x", "0.5*baseline"}) {
    CAPTURE(bad);
    check_contains(requirement_error(std::string("test/loss<=") + bad),
                   "baseline, baseline+N, baseline-N or baseline*F");
  }
  // Each relation at its bound; NaN on either side meets nothing.
  const auto met = [](const std::string& relation, double value, double baseline) {
    return is_met(dpt::parse_requirement("val/loss" + relation + "baseline+1"), value, baseline);
  };
  for (const char* relation : {">=", "<="}) CHECK(met(relation, 1.5, 0.5));
  for (const char* relation : {">", "<"}) CHECK_FALSE(met(relation, 1.5, 0.5));
  for (const char* relation : {">=", "<=", ">", "<"}) {
    CHECK_FALSE(met(relation, std::nan(""), 0.5));
    CHECK_FALSE(met(relation, 0.5, std::nan("")));
  }
}

TEST_CASE("a baseline is a run folder, its summary or the output of an evaluation") {
  const Gates w;
  const std::string summary = "runs/tiny/summary.json";
  write_file(w.dir.file("eval.json"), w.run_well({"eval", "runs/tiny", "--json"}).out);
  // The same config gives the same result, to the bit.
  for (const std::string& baseline :
       {std::string("runs/tiny"), summary, std::string("eval.json")}) {
    CAPTURE(baseline);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<=baseline"}).exit_code == 0);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<baseline"}).exit_code == 7);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<=baseline-1e-6"}).exit_code == 7);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<=baseline*1.01"}).exit_code == 0);
  }
  const Finished trained =
      w.train({"--baseline", "runs/tiny", "--require", "test/loss<=baseline", "--require",
               "val/accuracy>=baseline-0.001", "--require", "test/loss<baseline*0.5"});
  CHECK(trained.exit_code == 7);
  check_contains(trained.err,
                 fmt::format("dpt: error: --require test/loss<baseline*0.5: not met: the value is "
                             "{0:.6g}; expected < {1:.6g}, the value of the baseline runs/tiny is "
                             "{0:.6g}\n",
                             w.loss(), w.loss() / 2));
}

TEST_CASE("a split without samples is exit code 3, of eval too") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "a", "data.test_size=0"});
  const Finished test = w.run({"eval", "a", "--require", "test/loss<=1"});
  CHECK(test.exit_code == 3);
  check_contains(test.err, "the test split is empty: ");
  CHECK(w.run({"eval", "a", "--split", "test", "--require", "test/loss<=1"}).exit_code == 3);
  CHECK(w.run({"eval", "a", "--require", "val/loss<=100"}).exit_code == 0);
  // That of a split which is not evaluated is a mistake.
  CHECK(w.run({"eval", "a", "--split", "val", "--require", "test/loss<=1"}).exit_code == 2);
  CHECK(w.run({"eval", "a", "--require", "train/loss<=1"}).exit_code == 2);
}

TEST_CASE("what cannot be a baseline is refused, and says what to do") {
  const Gates w;
  const auto refusal = [&](const std::string& baseline, int code) {
    const Finished finished = w.train({"--baseline", baseline, "--require", "test/loss<=baseline"});
    CHECK(finished.exit_code == code);
    // Before anything else is done.
    CHECK_FALSE(fs::exists(w.dir.file("new")));
    return finished.err;
  };
  check_contains(refusal("nowhere", 3),
                 "--baseline nowhere: no such file: expected a run folder, its summary.json");
  fs::create_directory(w.dir.file("empty"));
  check_contains(refusal("empty", 3),
                 "--baseline empty: expected the folder of a run, found no config.yaml in it");
  check_contains(refusal("small.yaml", 3), "or the output of dpt eval --json; found no JSON");
  write_file(w.dir.file("list.json"), "[1]");
  check_contains(refusal("list.json", 3), "found JSON that is not an object");
  write_file(w.dir.file("other.json"), "{\"loss\":1}");
  check_contains(refusal("other.json", 3), "found an object without 'status' or 'split'");
  // A run that was stopped has a summary, and one that was killed has none.
  CHECK(w.run({"train", "small.yaml", "--run-dir", "part", "--max-time", "0s"}).exit_code == 75);
  const std::string advice =
      "let it go on to its end (the same dpt train command again), or name another run";
  check_contains(
      refusal("part", 3),
      "--baseline part: expected a run that has ended, found one that was stopped: " + advice);
  check_contains(refusal("part/summary.json", 3), "found one that was stopped: " + advice);
  fs::remove(w.dir.file("part/summary.json"));
  check_contains(refusal("part", 3), "found one that was stopped: " + advice);
  // --max-steps is an end that was asked for.
  w.run_well({"train", "small.yaml", "--run-dir", "limited", "train.epochs=2", "--max-steps", "7"});
  CHECK(w.train({"--baseline", "limited", "--require", "val/loss<=baseline+9"}).exit_code == 0);
  fs::remove_all(w.dir.file("new"));
  // Values that are not there are known before the run.
  check_contains(refusal("limited", 7),
                 "--require test/loss<=baseline: the baseline limited has no test result");
  Json summary = w.summary();
  summary["test"]["loss"] = nullptr;
  write_file(w.dir.file("nan.json"), summary.dump());
  check_contains(refusal("nan.json", 7),
                 "not met: the value of the baseline nan.json is not finite");
  CHECK(w.train({"--baseline", "nan.json", "--require", "test/loss<=baseline", "--require",
                 "val/loss<9", "--verdict", "v.md"})
            .exit_code == 7);
  check_contains(w.text("v.md"), "# dpt train: 1 of 2 requirements not met\n");
  check_contains(w.text("v.md"),
                 "| test/loss | \\<= baseline | - | - | **no**: not met: the value of ");
  check_contains(w.text("v.md"), "| val/loss | \\< 9 | - | - | not checked |\n\nNothing was run: ");
  summary["test"].erase("loss");
  write_file(w.dir.file("none.json"), summary.dump());
  check_contains(refusal("none.json", 7), "the baseline none.json has no test/loss");
  // A bound that is a number needs nothing of it.
  CHECK(w.train({"--baseline", "none.json", "--require", "test/loss<=100"}).exit_code == 0);
  check_contains(w.train({"--require", "test/loss<=baseline"}).err, "name it with --baseline");
  CHECK(w.train({"--require", "test/loss<=baseline"}).exit_code == 2);
  CHECK(w.train({"--baseline", "runs/tiny"}).exit_code == 2);
}

TEST_CASE("a baseline that is under way is refused") {
  const Workplace w;
  const TempDir logs;
  Program program({"train", "small.yaml", "--run-dir", "r", "train.epochs=100000"}, w.dir.path(),
                  logs);
  REQUIRE(wait_for_checkpoint(w.dir.file("r")));
  const Finished finished =
      w.run({"train", "small.yaml", "--baseline", "r", "--require", "test/loss<=baseline"});
  CHECK(finished.exit_code == 3);
  check_contains(finished.err, "found one that is under way: wait for its end");
}

TEST_CASE("all requirements that are not met are told") {
  const Gates w;
  const std::vector<std::string> asked = {"--require",     "test/accuracy>=2", "--require",
                                          "test/loss<100", "--require",        "test/loss<0"};
  for (const Finished& finished : {w.train(asked), w.eval(asked)}) {
    CHECK(finished.exit_code == 7);
    check_contains(finished.err, "--require test/accuracy>=2: not met: the value is ");
    check_contains(finished.err, "\n--require test/loss<0: not met: the value is ");
    CHECK(finished.err.find("test/loss<100") == std::string::npos);
    check_contains(finished.err, fmt::format("dpt: met: test/loss {:.6g} < 100\n", w.loss()));
  }
}

TEST_CASE("requirements that are met are told, with the baseline's value") {
  const Gates w;
  const Finished finished = w.eval({"--require", "test/accuracy >= 0", "--require",
                                    "test/loss<=baseline+1", "--baseline", "runs/tiny"});
  CHECK(finished.exit_code == 0);
  CHECK(finished.err == fmt::format("dpt: met: test/accuracy {:.6g} >= 0\ndpt: met: test/loss "
                                    "{:.6g} <= {:.6g} (the baseline runs/tiny: {:.6g})\n",
                                    w.summary()["test"]["accuracy"].get<double>(), w.loss(),
                                    w.loss() + 1, w.loss()));
  // The value with all of its digits where six do not tell it from the bound.
  const std::string bound = fmt::format("{}", w.loss() * (1 + 1e-9));
  check_contains(w.eval({"--require", "test/loss<=" + bound}).err,
                 fmt::format("met: test/loss {} <= {}\n", w.loss(), bound));
}

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

  // One that is not met: both files replace those of before.
  asked.insert(asked.end(), {"--require", "test/loss<0"});
  CHECK(w.eval(asked).exit_code == 7);
  check_contains(w.text("verdict.md"), "# dpt eval: 1 of 3 requirements not met\n\nruns/tiny, ");
  check_contains(w.text("verdict.md"),
                 fmt::format("| test/loss | \\< 0 | {0} | {0} | **no** |\n", loss));
  xml = w.text("verdict.xml");
  CHECK(xml_problem(xml) == "");
  check_contains(xml, " tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\">");
  CHECK(times_in(xml, "<failure message=\"not met: the value is " + loss +
                          "\">not met: the value is " + loss + "</failure>") == 1);

  // The run fails before anything is judged.
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

  // A run that will go on is judged at its end.
  CHECK(w.run({"train", "small.yaml", "--run-dir", "part", "--max-time", "0s", "--require",
               "test/loss<1"},
              files)
            .exit_code == 75);
  check_contains(w.text("verdict.md"), "# dpt train: requirements not checked\n");
  check_contains(w.text("verdict.md"), " (--max-time): requirements are checked at its end.");
  check_contains(w.text("verdict.xml"), "<skipped message=\"The run was stopped at step ");
}

TEST_CASE("files of verdicts are checked before the run, and take nothing away") {
  const Gates w;
  const auto refusal = [&](const std::vector<std::string>& files, int code) {
    std::vector<std::string> words = {"--require", "test/loss<100"};
    words.insert(words.end(), files.begin(), files.end());
    const Finished finished = w.train(words);
    CHECK(finished.exit_code == code);
    CHECK_FALSE(fs::exists(w.dir.file("new")));
    return finished.err;
  };
  const std::string config = w.text("small.yaml");
  check_contains(refusal({"--verdict", "small.yaml"}, 2),
                 "--verdict small.yaml: the file exists and is not an earlier verdict");
  CHECK(w.text("small.yaml") == config);
  check_contains(refusal({"--junit", "small.yaml/out/verdict.xml"}, 2),
                 "small.yaml: expected a folder, found a file");
  check_contains(refusal({"--junit", "runs"}, 2), "expected a file to write, found a folder");
  check_contains(refusal({"--junit", "a", "--verdict", "a"}, 2),
                 "expected two files, found a twice");
  CHECK(w.train({"--verdict", "a.md"}).exit_code == 2);
  // A dry run writes none.
  write_file(w.dir.file("old.md"), "# dpt train: old");
  CHECK(w.train({"--require", "test/loss<100", "--verdict", "old.md", "--dry-run"}).exit_code == 0);
  CHECK(w.text("old.md") == "# dpt train: old");
  // What cannot be written in the end is a failure, but for one that comes first.
  CHECK(w.eval({"--require", "test/loss<100", "--verdict", "/dev/full"}).exit_code == 3);
  const Finished both = w.eval({"--require", "test/loss<0", "--verdict", "/dev/full"});
  CHECK(both.exit_code == 7);
  check_contains(both.err, "dpt: warning: /dev/full: cannot write: ");
}

TEST_CASE("the verdict of a process that is killed is not that of an earlier one") {
  const Workplace w;
  const TempDir logs;
  write_file(w.dir.file("v.md"), "# dpt train: all requirements met\n");
  Program program({"train", "small.yaml", "--run-dir", "r", "train.epochs=100000", "--require",
                   "test/loss<9", "--verdict", "v.md"},
                  w.dir.path(), logs);
  REQUIRE(wait_for_checkpoint(w.dir.file("r")));
  program.send(SIGKILL);
  program.wait();
  CHECK(read_file(w.dir.file("v.md")).empty());
}

TEST_CASE("texts in verdicts: markup and bytes that are no text") {
  CHECK(dpt::xml_text("a<b & \"c\">d") == "a&lt;b &amp; &quot;c&quot;&gt;d");
  CHECK(dpt::xml_text("one\ntwo\x01\xff\xc3\xa9\xef\xbf\xbe") ==
        "one&#10;two\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
  dpt::VerdictFacts facts{"train", "a|b`<c>`.yaml", "", "line 1\nline 2 & \"<\xff\">"};
  std::vector<Judgement> judgements(1);
  judgements[0].requirement = dpt::parse_requirement("test/loss<1");
  CHECK(xml_problem(verdict_junit(facts, judgements)) == "");
  const std::string table = verdict_markdown(facts, judgements);
  check_contains(table, "\na\\|b\\`\\<c\\>\\`.yaml\n");
  check_contains(table, "Error: line 1 line 2 \\& \"\\<\xef\xbf\xbd\"\\>\n");
  facts.error.clear();
  judgements[0].verdict = Judgement::Verdict::not_met;
  judgements[0].reason = "this run has no test result";
  check_contains(verdict_markdown(facts, judgements),
                 "| test/loss | \\< 1 | - | - | **no**: this run has no test result |\n");
}

TEST_CASE("a baseline of another number of samples is told") {
  const Gates w;
  const Finished finished =
      w.run({"train", "small.yaml", "--run-dir", "new", "data.test_size=9", "--baseline",
             "runs/tiny", "--require", "test/loss<=baseline+9"});
  CHECK(finished.exit_code == 0);
  check_contains(finished.err,
                 "dpt: warning: --baseline runs/tiny: its test results are of 6 samples, those of "
                 "this run of 9\n");
}

TEST_CASE("of several processes the first judges and writes") {
  const Gates w;
  const Finished finished =
      w.train({"--nproc", "2", "--devices", "cpu", "--baseline", "runs/tiny", "--require",
               "test/loss<baseline-9", "--verdict", "v.md", "--junit", "v.xml"});
  CHECK(finished.exit_code == 7);
  check_contains(w.text("v.md"), "# dpt train: 1 of 1 requirements not met\n");
  CHECK(xml_problem(w.text("v.xml")) == "");
}
