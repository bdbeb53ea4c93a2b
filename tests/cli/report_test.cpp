// dpt report: the content of its page.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/image/decode.h"
#include "tests/cli/report_page.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("a report has the results, curves, classes and mistakes of a run") {
  if (lacks_charts()) return;
  const Reports w;
  w.run_well({"train", "small.yaml"});
  const Finished made = w.run_well({"report", "runs/digits"});
  CHECK(made.out == "runs/digits/report.html\n");
  CHECK(made.err.empty());
  const std::string page = read_file(w.dir.file("runs/digits/report.html"));
  CHECK(page.substr(0, 15) == "<!doctype html>");

  // The page makes no requests: addresses occur only in text, and the page's policy forbids
  // requests.
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

  // The table has the numbers of the summary.
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
  CHECK(cell("val/loss") == fmt::format("{:.6g}", summary["best_val"]["loss"].get<double>()));
  CHECK(cell("epochs") == "3 of 3");
  CHECK(cell("devices") == "cpu");
  CHECK(cell("train / val / test samples") == "1137 / 300 / 360");

  // The curves are those of the log.
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
  // The test split is evaluated at the end, with the weights of the best epoch.
  evals.back()["step"] = summary["best"]["step"];
  same(points_of(page, "accuracy", 0, "test"), {evals.back()}, "accuracy");
  evals.pop_back();
  same(points_of(page, "accuracy", 0, "val"), evals, "accuracy");
  same(points_of(page, "loss of the logged steps", 0, "step"), events(log, "step"), "loss");
  same(points_of(page, "learning rate", 0, "step"), events(log, "step"), "lr");
  same(points_of(page, "samples/s", 0, "step"), events(log, "step"), "images_per_s");

  // The confusion matrix and the scores of the classes equal those of dpt eval.
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
      const std::int64_t support = eval["classes"][label]["support"];
      // A cell has the count and the rate, which the page shows on separate lines.
      const std::string both = fmt::format(
          "{}{:.3g} %", count, 100 * static_cast<double>(count) / static_cast<double>(support));
      CHECK(matrix[label + 1][c + 1] == (count > 0 ? both : ""));
    }
  }
  const auto scores = cells_of(evaluation, "scores");
  REQUIRE(scores.size() == 12);
  CHECK(scores[4][0] == "3");
  CHECK(scores[4][1] == fmt::format("{:.4f}", eval["classes"][3]["precision"].get<double>()));
  CHECK(scores[4][3] == fmt::format("{:.4f}", eval["classes"][3]["f1"].get<double>()));

  // The parts of the time equal those of the summary.
  const std::string time = section(page, "time");
  check_contains(time, "Bound by <b>" + summary["ledger"]["bound_by"].get<std::string>() + "</b>");
  CHECK(count_of(time, "class=\"part ") >= 2);
  check_contains(section(page, "events"), "started on cpu");
  check_contains(section(page, "events"), "ended: ok");
  check_contains(section(page, "configs"), "optimizer:\n");
  CHECK_FALSE(has_section(page, "differences"));

  // The same run gives the same page; an existing report is replaced.
  w.run_well({"report", "runs/digits/"});
  CHECK(read_file(w.dir.file("runs/digits/report.html")) == page);
  // The report belongs to the run and does not prevent the next one.
  w.run_well({"train", "small.yaml", "--overwrite"});
  CHECK_FALSE(fs::exists(w.dir.file("runs/digits/report.html")));
}

TEST_CASE("mistakes in a report are the samples that the predictions say, with their images") {
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
  const std::string certain = between(evaluation, "Most confident mistakes", "Largest losses");
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
  check_contains(certain, "<b><bdi>" + rows[0].label + "</bdi></b> &#8594; <bdi>" +
                              rows[0].prediction + "</bdi><br>");
  check_contains(certain, fmt::format("probability {:.4f}", rows[0].probability));

  // `--mistakes 0` reads only the logs.
  const std::string without = w.page({"runs/digits", "--mistakes", "0"});
  CHECK_FALSE(has_section(without, "evaluation"));
  CHECK(has_section(without, "curves"));
}

TEST_CASE("images in a report equal the samples") {
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
    constexpr std::size_t kSamples = 23;  // the number of samples of npy_data
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
  CHECK(count_of(section(page, "evaluation"), "<h4>Most confident mistakes</h4>") == 2);
  CHECK(count_of(section(page, "time"), "class=\"bar\"") == 2);
  // Runs in folders with the same name are distinguished by their paths.
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
                 "runs/tiny/report.html: not replaced: the file was not written by dpt report");
  CHECK(read_file(w.dir.file("runs/tiny/report.html")) == "<p>mine</p>");
  w.run_well({"report", "runs/tiny", "-o", "own.html"});
  w.run_well({"report", "runs/tiny", "-o", "own.html"});
  const Finished folder = w.run({"report", "runs/tiny", "-o", "runs"});
  CHECK(folder.exit_code == 2);
  check_contains(folder.err,
                 "-o runs: expected a file, found a folder: give a path such as runs/report.html");
  CHECK(w.run({"report", "runs/tiny", "-o", "nowhere/own.html"}).exit_code == 3);
  const Finished streamed = w.run_well({"report", "runs/tiny", "-o", "/dev/stdout"});
  CHECK(streamed.out == read_file(w.dir.file("own.html")));
  const Finished twice = w.run({"report", "runs/tiny", "runs/tiny/", "-o", "own.html"});
  CHECK(twice.exit_code == 2);
  check_contains(twice.err, "runs/tiny: the run is given twice");
  const Finished none = w.run({"report", "runs", "-o", "own.html"});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "runs: expected a run folder");
  const Finished only = w.run({"report", "data.root=x"});
  CHECK(only.exit_code == 2);
  check_contains(only.err, "expected the folder of a run, found none");
  check_contains(w.run({"report", "--help"}).out, "--mistakes N");
  check_contains(w.run({"report", "--help"}).out, "-o, --out FILE");
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
