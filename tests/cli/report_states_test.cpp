// dpt report of runs in any state, containing any text, and the rendering of its pages by a
// browser.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/report/html.h"
#include "tests/cli/report_page.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("a report of a run whose data is gone, or other data, has all but the evaluation") {
  if (lacks_charts()) return;
  const Reports w{""};
  const std::string folder = w.dir.file("data");
  fs::create_directories(folder);
  write_file(w.dir.file("small.yaml"), arrays_config(folder, "labels", false));
  w.run_well({"train", "small.yaml"});
  fs::rename(folder, w.dir.file("moved"));
  std::string messages;
  std::string page = w.page({"runs/arrays"}, &messages);
  check_contains(messages, "warning: runs/arrays: the report has no confusion");
  check_contains(section(page, "evaluation"), "Not evaluated: ");
  check_contains(section(page, "evaluation"), "test_x.npy");
  CHECK(has_section(page, "curves"));
  CHECK(has_section(page, "time"));
  // Words with a '=' change the config of the evaluation.
  const std::string moved = w.dir.file("moved");
  page = w.page(
      {"runs/arrays", "data.train.images=" + moved + "/train_x.npy",
       "data.train.targets=" + moved + "/train_y.npy", "data.test.images=" + moved + "/test_x.npy",
       "data.test.targets=" + moved + "/test_y.npy"},
      &messages);
  CHECK(messages.empty());
  check_contains(section(page, "evaluation"), "Confusion matrix");
  // An invalid command line ends the command.
  const Finished typo = w.run({"report", "runs/arrays", "data.rot=" + moved, "-o", "page.html"});
  CHECK(typo.exit_code == 2);
  check_contains(typo.err, "unknown key 'rot' in data set npy");
  CHECK(w.run({"report", "runs/arrays", "--devices", "gpx", "-o", "page.html"}).exit_code == 2);
  // Results on other samples than the run's would not be comparable.
  write_npy_part(moved, "test", "labels", 9, 1234);
  fs::rename(moved, folder);
  const Finished poorer = w.run({"report", "runs/arrays", "-o", "page.html"});
  CHECK(poorer.exit_code == 3);
  check_contains(
      poorer.err,
      "page.html: not replaced: the report there has an evaluation that a new one would "
      "lack. Restore the data or say where it is (e.g. data.root=DIR), give another name "
      "with -o, or replace the report with one that has no evaluation: --mistakes 0");
  CHECK(read_file(w.dir.file("page.html")) == page);
  CHECK_FALSE(has_section(w.page({"runs/arrays", "--mistakes", "0"}), "evaluation"));
  page = w.page({"runs/arrays"}, &messages);
  check_contains(messages, "expected the run's test data (fingerprint ");
  check_contains(section(page, "evaluation"), "expected the run&#39;s test data");
}

TEST_CASE("a report is made of logs in any state") {
  if (lacks_charts()) return;
  const Reports w{kTinyConfig};
  w.run_well({"train", "small.yaml", "train.epochs=3"});
  const std::string log = w.dir.file("runs/tiny/metrics.jsonl");
  const std::string whole = read_file(log);

  SUBCASE("the process was killed, and its last line is torn") {
    fs::remove(w.dir.file("runs/tiny/summary.json"));
    write_file(log,
               whole.substr(0, whole.find("{\"v\":1,\"event\":\"run_end\"")) + "{\"v\":1,\"ev");
    const std::string page = w.page({"runs/tiny"});
    check_contains(section(page, "runs"), "<span class=\"bad\">interrupted</span>");
    check_contains(section(page, "runs"), "1 line of metrics.jsonl is not a complete JSON object");
    check_contains(section(page, "time"), "Added up from the log: the run has no summary.");
    check_contains(section(page, "events"),
                   "the log ends here: the process or its machine was stopped");
    CHECK(points_of(page, "loss", 0, "train").size() == 3);
  }
  SUBCASE("numbers that are not finite are gaps") {
    write_file(log, whole +
                        "{\"v\":1,\"event\":\"eval\",\"epoch\":4,\"step\":20,\"split\":\"val\","
                        "\"loss\":null,\"nonfinite\":[\"loss\"]}\n");
    const std::string page = w.page({"runs/tiny"});
    const json points = points_of(page, "loss", 0, "val");
    REQUIRE(points.size() == 4);
    CHECK(points[3] == json({20, 4, nullptr}));
    check_contains(section(page, "events"), "val: not finite: [&quot;loss&quot;]");
  }
  SUBCASE("the log is a pipe, on which nobody writes") {
    fs::remove(log);
    REQUIRE(::mkfifo(log.c_str(), 0600) == 0);
    const Finished refused = w.run({"report", "runs/tiny", "--out", "pipe.html"});
    CHECK(refused.exit_code == 3);
    check_contains(refused.err, "metrics.jsonl: expected a file, found a device, pipe or socket");
  }
  SUBCASE("the run has only begun, or the log is not there") {
    fs::remove(w.dir.file("runs/tiny/summary.json"));
    fs::remove_all(w.dir.file("runs/tiny/checkpoints"));
    fs::remove(w.dir.file("runs/tiny/best.safetensors"));
    write_file(log, whole.substr(0, whole.find('\n') + 1));
    std::string messages;
    const std::string begun = w.page({"runs/tiny"}, &messages);
    check_contains(messages, "the run folder has no good checkpoint");
    check_contains(section(begun, "curves"), "The logs have no numbers yet.");
    check_contains(section(begun, "time"), "The logs have no times");
    fs::remove(log);
    check_contains(section(w.page({"runs/tiny"}), "runs"),
                   "the log does not contain the start of a run");
  }
  SUBCASE("an older log has no ledger") {
    std::string older;
    std::istringstream lines(whole);
    for (std::string line; std::getline(lines, line);) {
      if (!contains(line, "\"event\":\"ledger\"")) older += line + "\n";
    }
    write_file(log, older);
    json summary = json::parse(read_file(w.dir.file("runs/tiny/summary.json")));
    summary.erase("ledger");
    write_file(w.dir.file("runs/tiny/summary.json"), summary.dump());
    const std::string page = w.page({"runs/tiny"});
    check_contains(section(page, "time"), "The logs have no times");
    CHECK(points_of(page, "loss", 0, "train").size() == 3);
  }
  SUBCASE("lines are of wrong types") {
    write_file(log, whole + R"({"v":1,"event":"step","step":"x","loss":[1]}
{"v":1,"event":"ledger","parts":[1]}
{"v":1,"event":5}
[1]
{"v":1,"event":"run_start","devices":{"a":1},"params":"many","steps_per_epoch":1e300}
{"v":1,"event":"run_end","status":7,"best":[]}
)");
    write_file(w.dir.file("runs/tiny/summary.json"), "[1]");
    CHECK(has_section(w.page({"runs/tiny"}), "curves"));
  }
  SUBCASE("very many points and events are shortened") {
    std::string more;
    for (int i = 16; i < 3216; ++i) {
      more += fmt::format(
          "{{\"v\":1,\"event\":\"step\",\"epoch\":4,\"step\":{},\"loss\":2}}\n"
          "{{\"v\":1,\"event\":\"skipped_step\",\"epoch\":4,\"step\":{}}}\n",
          i, i);
    }
    write_file(log, whole + more);
    const std::string page = w.page({"runs/tiny"});
    const json points = points_of(page, "loss of the logged steps", 0, "step");
    CHECK(points.size() > 500);
    CHECK(points.size() <= 1000);
    CHECK(points.back() == json({3215, 643, 2}));
    check_contains(section(page, "curves"), "are drawn as means of neighbouring ones");
    CHECK(count_of(section(page, "events"), "step skipped") == 20);
    check_contains(section(page, "events"), "and 3180 more events `skipped_step`");
  }
}

TEST_CASE("a report of a run that still trains, and of one that was resumed") {
  if (lacks_charts()) return;
  const Workplace w;
  const TempDir logs;
  Program program({"train", "small.yaml", "--run-dir", "runs/r", "train.epochs=100000"},
                  w.dir.path(), logs);
  REQUIRE(wait_for_log(w.dir.file("runs/r"), "\"event\":\"ledger\""));
  w.run_well({"report", "runs/r"});
  const std::string page = read_file(w.dir.file("runs/r/report.html"));
  check_contains(section(page, "runs"), ">running</span>");
  check_contains(section(page, "time"), "the run has no summary");
  program.send(SIGTERM);
  program.wait();
  w.run({"train", "small.yaml", "--run-dir", "runs/r", "train.epochs=100000", "--max-time", "1s"});
  w.run_well({"report", "runs/r"});
  const std::string resumed = read_file(w.dir.file("runs/r/report.html"));
  check_contains(section(resumed, "events"), "resumed from ");
  check_contains(section(resumed, "time"), "Added up over the processes of the run.");
}

TEST_CASE("text of users does not become part of a report's markup") {
  if (lacks_charts()) return;
  const std::string hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&";
  const Reports w{kTinyConfig};
  w.run_well({"train", "small.yaml", "--run-dir", "runs/a"});
  const std::string name = "runs/<b>&\"'\xff";
  w.run_well({"train", "small.yaml", "--run-dir", name, "optimizer.lr=0.2"});
  const std::string log = w.dir.file(name + "/metrics.jsonl");
  const json lines[] = {
      {{"v", 1}, {"event", "bad_sample"}, {"problem", hostile}},
      {{"v", 1}, {"event", "run_start"}, {"run", hostile}, {"devices", {hostile}}},
      {{"v", 1}, {"event", "eval"}, {"split", hostile}, {"step", 5}, {hostile, 1.5}},
      {{"v", 1}, {"event", "ledger"}, {"seconds", 9}, {"parts", {{hostile, 9}}}},
      {{"v", 1}, {"event", "run_end"}, {"status", hostile}, {"reason", hostile}}};
  std::string text = read_file(log);
  for (const json& line : lines) text += line.dump() + "\n";
  write_file(log, text);
  fs::remove(w.dir.file(name + "/summary.json"));
  write_file(w.dir.file(name + "/config.yaml"),
             read_file(w.dir.file(name + "/config.yaml")) + "# " + hostile + "\x01\n");
  const std::string page = w.page({"runs/a", name});
  // The page has only its own three scripts, and the text adds no element.
  CHECK(count_of(page, "</script>") == 3);
  CHECK(count_of(page, "<img src=x") == 0);
  CHECK(count_of(page, "<b>&\"'") == 0);
  check_contains(section(page, "configs"),
                 "&lt;img src=x onerror=alert(2)&gt;&quot;&#39;&amp;\\x01");
  check_contains(section(page, "time"), "&lt;/script&gt;");
  check_contains(section(page, "runs"), "&lt;b&gt;&amp;&quot;&#39;\xef\xbf\xbd");
  CHECK(curve_data(page)["runs"][1] == "<b>&\"'\xef\xbf\xbd");
  CHECK(points_of(page, hostile, 1, hostile).size() == 1);
}

TEST_CASE("a browser shows reports without an error, a request or a page that is too wide") {
  if (lacks_charts()) return;
  const TempDir dir;
  const std::string command = "'" + source_dir() + "/scripts/check/report' --dpt '" +
                              dpt_program() + "' > '" + dir.file("out") + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string out = read_file(dir.file("out"));
  INFO(out);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2 && contains(out, "no Chromium")) {
    return skip_test("Chromium is not installed");
  }
  CHECK(WEXITSTATUS(status) == 0);
  check_contains(out, "6 pages in 4 views and on paper: 0 problems");
}

TEST_CASE("a report shows the beginning and the end of long class names") {
  CHECK(dpt::html_name("cat <1>") == "<bdi>cat &lt;1&gt;</bdi>");
  const std::string often(44, 'x');
  CHECK(dpt::html_name(often) == "<bdi>" + often + "</bdi>");
  std::string name = "<";
  for (int i = 0; i < 60; ++i) name += "\xC3\xA9";
  name += "end";
  const std::string html = dpt::html_name(name);
  check_contains(html, "<bdi title=\"&lt;\xC3\xA9");
  check_contains(html, "end\">&lt;\xC3\xA9");
  check_contains(html, "\xC3\xA9&#8230;\xC3\xA9");
  check_contains(html, "\xC3\xA9\x65nd</bdi>");
}
