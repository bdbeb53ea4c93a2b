// dpt report: what is on its page, of runs in any state; and that it is a page of its own.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/report/assets.h"
#include "datasets/image.h"
#include "tests/cli/tiny.h"
#include "tests/support/npy_data.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kDigits = R"(version: 1
name: digits
data: {dataset: digits, val_split: 300, batch_size: 64}
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 10}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 3}
log: {every: 5}
devices: [cpu]
)";

/// A build without Chart.js has no reports, and says so.
bool lacks_charts() {
  if (!dpt::report_assets().charts.empty()) return false;
  skip_test("this build has no Chart.js (DPT_CHARTS)");
  return true;
}

/// What is between the two texts; REQUIRES both, in this order.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t at = text.find(begin);
  INFO("looked for: ", begin);
  REQUIRE(at != std::string::npos);
  const std::size_t from = at + begin.size(), to = text.find(end, from);
  REQUIRE(to != std::string::npos);
  return text.substr(from, to - from);
}

std::string section(const std::string& page, const std::string& id) {
  return between(page, "<section id=\"" + id + "\">", "</section>");
}

bool has_section(const std::string& page, const std::string& id) {
  return contains(page, "<section id=\"" + id + "\">");
}

json curve_data(const std::string& page) {
  return json::parse(
      between(page, "<script type=\"application/json\" id=\"curve-data\">", "</script>"));
}

/// The points of a curve of the page; empty where it has none.
json points_of(const std::string& page, const std::string& title, std::size_t run,
               const std::string& of) {
  const json data = curve_data(page);
  for (const auto& chart : data["charts"]) {
    if (chart["title"] != title) continue;
    for (const auto& series : chart["series"]) {
      if (series["run"] == run && series["of"] == of) return series["points"];
    }
  }
  return json::array();
}

std::vector<std::byte> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::byte> bytes;
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    REQUIRE(digits.find(c) != std::string::npos);
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> have & 0xff));
  }
  return bytes;
}

/// Cells of a table in a section, row by row, without their markup.
std::vector<std::vector<std::string>> cells_of(const std::string& html, const std::string& style) {
  std::vector<std::vector<std::string>> rows;
  std::string table = between(html, "<table class=\"" + style + "\">", "</table>");
  for (std::size_t at = table.find("<tr>"); at != std::string::npos; at = table.find("<tr>", at)) {
    const std::size_t end = table.find("</tr>", at);
    rows.emplace_back();
    std::string cell;
    bool is_markup = false;
    for (std::size_t i = at + 4; i < end; ++i) {
      if (table.compare(i, 5, "</td>") == 0 || table.compare(i, 5, "</th>") == 0) {
        rows.back().push_back(cell);
        cell.clear();
      }
      if (table[i] == '<') is_markup = true;
      if (!is_markup) cell += table[i];
      if (table[i] == '>') is_markup = false;
    }
    at = end;
  }
  return rows;
}

/// A small net on arrays with that kind of targets (npy_data.h), which are in `folder`.
std::string arrays_config(const std::string& folder, const std::string& kind, bool weighted) {
  return "version: 1\nname: arrays\ndata:\n" + npy_data(folder, kind, weighted) + R"(  val_split: 8
  batch_size: 8
  transforms:
    train: [{type: Normalize, mean: [0.5], std: [0.5]}]
    eval: [{type: Normalize, mean: [0.5], std: [0.5]}]
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: SGD, lr: 0.001}
train: {epochs: 2}
devices: [cpu]
loss: {type: )" +
         loss_of_kind(kind) + "}\n";
}

/// A folder in which reports are made.
struct Reports : Workplace {
  explicit Reports(const std::string& config = kDigits) : Workplace(config) {}

  /// The page that the command makes, and what it says on stderr.
  std::string page(const std::vector<std::string>& words, std::string* messages = nullptr) const {
    std::vector<std::string> command = {"report"};
    command.insert(command.end(), words.begin(), words.end());
    const Finished finished = run_well(command, {"-o", "page.html"});
    CHECK(finished.out == "page.html\n");
    if (messages) *messages = finished.err;
    return read_file(dir.file("page.html"));
  }
};

}  // namespace

TEST_CASE("a report has the results, curves, classes and mistakes of a run") {
  if (lacks_charts()) return;
  const Reports w;
  w.run_well({"train", "small.yaml"});
  const Finished made = w.run_well({"report", "runs/digits"});
  CHECK(made.out == "runs/digits/report.html\n");
  CHECK(made.err.empty());
  const std::string page = read_file(w.dir.file("runs/digits/report.html"));
  CHECK(page.substr(0, 15) == "<!doctype html>");

  // Nothing is requested: no address outside text, and a policy that allows none.
  check_contains(page,
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ");
  std::string markup = page;
  for (std::size_t at = markup.find("<script"); at != std::string::npos;
       at = markup.find("<script", at)) {
    markup.erase(at, markup.find("</script>", at) + 9 - at);
  }
  CHECK(count_of(markup, " src=") == count_of(markup, " src=\"data:image/png;base64,"));
  CHECK(count_of(markup, " href=") == count_of(markup, " href=\"#") + 1);  // the empty icon
  CHECK(count_of(markup, "url(") == 0);
  check_contains(page, "Chart.js v");
  check_contains(page, "Permission is hereby granted");

  // The numbers of the table are those of the summary.
  const json summary = json::parse(read_file(w.dir.file("runs/digits/summary.json")));
  const auto results = cells_of(section(page, "runs"), "runs");
  const auto cell = [&](const std::string& name) {
    for (const auto& row : results) {
      if (row[0] == name) return row[1];
    }
    return std::string("no such row");
  };
  CHECK(cell("status") == "ok");
  CHECK(cell("test/accuracy") == fmt::format("{:.6g}", summary["test"]["accuracy"].get<double>()));
  CHECK(cell("val/loss") == fmt::format("{:.6g}", summary["val"]["loss"].get<double>()));
  CHECK(cell("epochs") == "3 of 3");
  CHECK(cell("devices") == "cpu");
  CHECK(cell("train / val / test samples") == "1137 / 300 / 360");

  // The curves are the log's.
  const std::string log = w.dir.file("runs/digits/metrics.jsonl");
  const auto same = [&](const json& points, const std::vector<json>& lines, const char* field) {
    CAPTURE(field);
    REQUIRE(points.size() == lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK(points[i][0] == lines[i]["step"]);
      CHECK(points[i][2].get<double>() ==
            doctest::Approx(lines[i][field].get<double>()).epsilon(1e-5));
    }
  };
  same(points_of(page, "loss", 0, "train"), events(log, "epoch"), "loss");
  std::vector<json> evals = events(log, "eval");
  same(points_of(page, "accuracy", 0, "test"), {evals.back()}, "accuracy");
  evals.pop_back();
  same(points_of(page, "accuracy", 0, "val"), evals, "accuracy");
  same(points_of(page, "loss of single steps", 0, "step"), events(log, "step"), "loss");
  same(points_of(page, "learning rate", 0, "step"), events(log, "step"), "lr");
  same(points_of(page, "images/s", 0, "step"), events(log, "step"), "images_per_s");

  // The classes are dpt eval's.
  const json eval = json::parse(w.run_well({"eval", "runs/digits", "--json"}).out);
  const std::string evaluation = section(page, "evaluation");
  check_contains(evaluation,
                 fmt::format("360 samples: loss {:.4f}, accuracy {:.4f}",
                             eval["loss"].get<double>(), eval["accuracy"].get<double>()));
  const auto matrix = cells_of(evaluation, "confusion");
  REQUIRE(matrix.size() == 11);
  for (std::size_t label = 0; label < 10; ++label) {
    for (std::size_t c = 0; c < 10; ++c) {
      const std::int64_t count = eval["confusion"][label][c];
      CHECK(matrix[label + 1][c + 1] == (count > 0 ? std::to_string(count) : ""));
    }
  }
  const auto scores = cells_of(evaluation, "scores");
  REQUIRE(scores.size() == 12);
  CHECK(scores[4][0] == "3");
  CHECK(scores[4][1] == fmt::format("{:.4f}", eval["classes"][3]["precision"].get<double>()));
  CHECK(scores[4][3] == fmt::format("{:.4f}", eval["classes"][3]["f1"].get<double>()));

  // The parts of the time are the summary's.
  const std::string time = section(page, "time");
  check_contains(time, "Bound by <b>" + summary["ledger"]["bound_by"].get<std::string>() + "</b>");
  CHECK(count_of(time, "class=\"part ") >= 2);
  check_contains(section(page, "events"), "started on cpu");
  check_contains(section(page, "events"), "ended: ok");
  check_contains(section(page, "configs"), "optimizer:\n");
  CHECK_FALSE(has_section(page, "differences"));

  // The same of the same; a report is replaced.
  w.run_well({"report", "runs/digits/"});
  CHECK(read_file(w.dir.file("runs/digits/report.html")) == page);
  // It is a part of the run, and no hindrance to the next one.
  w.run_well({"train", "small.yaml", "--overwrite"});
  CHECK_FALSE(fs::exists(w.dir.file("runs/digits/report.html")));
}

TEST_CASE("mistakes in a report are the samples that the predictions say, with their pictures") {
  if (lacks_charts()) return;
  const Reports w;
  w.run_well({"train", "small.yaml", "train.epochs=1"});
  w.run_well({"eval", "runs/digits", "--predictions", "p.csv"});
  struct Row {
    std::string index, label, prediction;
    double loss, probability;
  };
  std::vector<Row> rows;
  std::istringstream lines(read_file(w.dir.file("p.csv")));
  std::string line;
  std::getline(lines, line);
  REQUIRE(line == "index,label,prediction,label_name,prediction_name,loss,probability");
  while (std::getline(lines, line)) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    rows.push_back({fields[0], fields[1], fields[2], std::stod(fields[5]), std::stod(fields[6])});
  }
  const std::string page = w.page({"runs/digits", "--mistakes", "5"});
  const std::string evaluation = section(page, "evaluation");
  const std::string certain = between(evaluation, "Most certain mistakes", "Largest losses");
  const std::string largest = between(evaluation, "Largest losses", "Confusion matrix");
  const auto check_samples = [&](std::vector<Row> expected, const std::string& html) {
    CHECK(count_of(html, "<img ") == 5);
    std::size_t at = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const Row& row = expected[i];
      const std::size_t last =
          html.find(fmt::format("loss {:.4f}<br>#{}<", row.loss, row.index), at);
      CAPTURE(row.index);
      CHECK(last != std::string::npos);
      if (last != std::string::npos) at = last;
    }
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.loss > b.loss; });
  check_samples(rows, largest);
  std::erase_if(rows, [](const Row& row) { return row.label == row.prediction; });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.probability > b.probability; });
  check_samples(rows, certain);
  check_contains(certain, "<b>" + rows[0].label + "</b> &#8594; " + rows[0].prediction + "<br>");
  check_contains(certain, fmt::format("probability {:.4f}", rows[0].probability));

  // Without any, only the logs are read.
  const std::string without = w.page({"runs/digits", "--mistakes", "0"});
  CHECK_FALSE(has_section(without, "evaluation"));
  CHECK(has_section(without, "curves"));
}

TEST_CASE("pictures in a report are what the samples are") {
  if (lacks_charts()) return;
  const Reports w{""};
  write_file(w.dir.file("small.yaml"), arrays_config(w.dir.path(), "labels", false));
  w.run_well({"train", "small.yaml"});
  const std::string images = read_file(w.dir.file("test_x.npy"));
  const std::string evaluation = section(w.page({"runs/arrays", "--mistakes", "4"}), "evaluation");
  CHECK(count_of(evaluation, "<img ") == 8);
  std::size_t at = 0;
  for (int i = 0; i < 8; ++i) {
    at = evaluation.find("<img ", at) + 1;
    const std::string html = evaluation.substr(at, evaluation.find("</figure>", at) - at);
    const auto png = from_base64(between(html, "base64,", "\""));
    const dpt::Image image = dpt::decode_image(png, "a picture of the report", 1);
    REQUIRE(image.pixels.size() == 64);
    const std::size_t index = std::stoul(between(html, ">#", "<"));
    constexpr std::size_t kSamples = 23;  // of npy_data
    REQUIRE(index < kSamples);
    const std::string expected = images.substr(images.size() - (kSamples - index) * 64, 64);
    CHECK(std::string(image.pixels.begin(), image.pixels.end()) == expected);
  }
}

TEST_CASE("a report of several runs has them over one another, and where their configs differ") {
  if (lacks_charts()) return;
  const Reports w;
  w.run_well({"train", "small.yaml", "--run-dir", "sweep/a"});
  w.run_well(
      {"train", "small.yaml", "--run-dir", "sweep/b", "optimizer.lr=0.01", "train.epochs=5"});
  const Finished made = w.run_well({"report", "sweep/a", "sweep/b"});
  CHECK(made.out == "report.html\n");
  const std::string page = read_file(w.dir.file("report.html"));
  CHECK(curve_data(page)["runs"] == json({"a", "b"}));
  CHECK(points_of(page, "loss", 0, "val").size() == 3);
  CHECK(points_of(page, "loss", 1, "val").size() == 5);
  check_contains(section(page, "curves"), "data-shows=\"1\"");
  const auto differences = cells_of(section(page, "differences"), "differences");
  CHECK(differences == std::vector<std::vector<std::string>>{{"", "a", "b"},
                                                             {"optimizer.lr", "0.1", "0.01"},
                                                             {"train.epochs", "3", "5"}});
  CHECK(count_of(section(page, "evaluation"), "<h4>Most certain mistakes</h4>") == 2);
  CHECK(count_of(section(page, "time"), "class=\"bar\"") == 2);
  // Runs in folders of the same name are told apart by their paths.
  fs::create_directories(w.dir.file("other"));
  fs::copy(w.dir.file("sweep/a"), w.dir.file("other/a"), fs::copy_options::recursive);
  CHECK(curve_data(w.page({"sweep/a", "other/a"}))["runs"] == json({"sweep/a", "other/a"}));
  check_contains(section(w.page({"sweep/a", "other/a"}), "differences"),
                 "The configs are the same.");
}

TEST_CASE("a report replaces no file but a report") {
  if (lacks_charts()) return;
  const Reports w{kTinyConfig};
  w.run_well({"train", "small.yaml"});
  write_file(w.dir.file("runs/tiny/report.html"), "<p>mine</p>");
  const Finished refused = w.run({"report", "runs/tiny"});
  CHECK(refused.exit_code == 2);
  check_contains(refused.err,
                 "runs/tiny/report.html: the file exists and was not made by dpt report");
  CHECK(read_file(w.dir.file("runs/tiny/report.html")) == "<p>mine</p>");
  w.run_well({"report", "runs/tiny", "-o", "own.html"});
  w.run_well({"report", "runs/tiny", "-o", "own.html"});
  const Finished folder = w.run({"report", "runs/tiny", "-o", "runs"});
  CHECK(folder.exit_code == 2);
  check_contains(folder.err, "-o runs: expected the name of a file, found a folder");
  CHECK(w.run({"report", "runs/tiny", "-o", "nowhere/own.html"}).exit_code == 3);
  const Finished twice = w.run({"report", "runs/tiny", "runs/tiny/", "-o", "own.html"});
  CHECK(twice.exit_code == 2);
  check_contains(twice.err, "runs/tiny: the run is given twice");
  const Finished none = w.run({"report", "runs", "-o", "own.html"});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "runs: expected the folder of a run");
  const Finished only = w.run({"report", "data.root=x"});
  CHECK(only.exit_code == 2);
  check_contains(only.err, "expected the folder of a run, found none");
  check_contains(w.run({"report", "--help"}).out, "--mistakes N");
  check_contains(w.run({"report", "--help"}).out, "-o,--out FILE");
}

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
  check_contains(messages, "warning: runs/arrays: not evaluated, so the report has no confusion");
  check_contains(section(page, "evaluation"), "Not evaluated: ");
  check_contains(section(page, "evaluation"), "train_x.npy");
  CHECK(has_section(page, "curves"));
  CHECK(has_section(page, "time"));
  // Words with a '=' change the config for the evaluation.
  const std::string moved = w.dir.file("moved");
  page = w.page(
      {"runs/arrays", "data.train.images=" + moved + "/train_x.npy",
       "data.train.targets=" + moved + "/train_y.npy", "data.test.images=" + moved + "/test_x.npy",
       "data.test.targets=" + moved + "/test_y.npy"},
      &messages);
  CHECK(messages.empty());
  check_contains(section(page, "evaluation"), "Confusion matrix");
  // Results on other samples than the run's would not compare.
  write_npy_part(moved, "test", "labels", 9, 1234);
  fs::rename(moved, folder);
  page = w.page({"runs/arrays"}, &messages);
  check_contains(messages, "expected the run's test data (fingerprint ");
  check_contains(section(page, "evaluation"), "expected the run&#39;s test data");
}

TEST_CASE("a report of targets that are values has the largest losses, and no classes") {
  if (lacks_charts()) return;
  for (const std::string kind : {"values", "multi_hot", "soft_labels"}) {
    CAPTURE(kind);
    const Reports w{""};
    write_file(w.dir.file("small.yaml"), arrays_config(w.dir.path(), kind, true));
    w.run_well({"train", "small.yaml"});
    const std::string evaluation =
        section(w.page({"runs/arrays", "--mistakes", "3"}), "evaluation");
    CHECK(count_of(between(evaluation + "<end>", "<h4>Largest losses</h4>", "<end>"), "<img ") ==
          3);
    CHECK(contains(evaluation, "Confusion matrix") == (kind == "soft_labels"));
  }
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
    check_contains(section(page, "runs"), "1 line of metrics.jsonl is no whole JSON object");
    check_contains(section(page, "time"), "Added up from the log: the run has no summary.");
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
  SUBCASE("the run has only begun, or the log is not there") {
    fs::remove(w.dir.file("runs/tiny/summary.json"));
    fs::remove_all(w.dir.file("runs/tiny/checkpoints"));
    fs::remove(w.dir.file("runs/tiny/best.safetensors"));
    write_file(log, whole.substr(0, whole.find('\n') + 1));
    std::string messages;
    const std::string begun = w.page({"runs/tiny"}, &messages);
    check_contains(messages, "the run folder has no good checkpoint");
    check_contains(section(begun, "curves"), "The logs have no numbers yet.");
    check_contains(section(begun, "time"), "The logs do not say");
    fs::remove(log);
    check_contains(section(w.page({"runs/tiny"}), "runs"), "the log has no beginning of a run");
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
    check_contains(section(page, "time"), "The logs do not say");
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
    const json points = points_of(page, "loss of single steps", 0, "step");
    CHECK(points.size() > 500);
    CHECK(points.size() <= 1000);
    CHECK(points.back() == json({3215, 643, 2}));
    check_contains(section(page, "curves"), "are drawn as means of neighbouring ones");
    CHECK(count_of(section(page, "events"), "step skipped") == 20);
    check_contains(section(page, "events"), "and 3180 more events `skipped_step`");
  }
}

TEST_CASE("a report of a run that is under way, and of one that was resumed") {
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

TEST_CASE("text of users is no part of a report's markup") {
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
  // The page's own three scripts, and no other; and no element of the text.
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
  const std::string command = "'" + source_dir() + "/scripts/check-report' --dpt '" +
                              dpt_program() + "' > '" + dir.file("out") + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string out = read_file(dir.file("out"));
  INFO(out);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2 && contains(out, "no Chromium")) {
    return skip_test("Chromium is not installed");
  }
  CHECK(WEXITSTATUS(status) == 0);
  check_contains(out, "4 pages in 4 views and on paper: 0 problems");
}
