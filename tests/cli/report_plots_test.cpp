// The SVG plots of a report, and the <bdi> elements that isolate names of classes.
#include <doctest/doctest.h>

#include "app/report/plots.h"
#include "tests/cli/report_page.h"

using namespace dpt::testing;

TEST_CASE("report: a reliability diagram has a bar for each bin with samples, and the diagonal") {
  std::vector<dpt::CalibrationBin> bins(dpt::kCalibrationBins);
  bins[14] = {8, 6, 7.6};
  bins[7] = {2, 1, 1.0};
  const std::string svg = dpt::reliability_plot(bins);
  CHECK(count_of(svg, "<rect ") == 2);
  CHECK(count_of(svg, "<circle ") == 2);
  check_contains(svg, "8 samples: mean probability 0.9500, right 0.7500");
  check_contains(svg, "2 samples: mean probability 0.5000, right 0.5000");
  // The position is 46 + 230 * 0.95 and 8 + 230 * 0.25.
  check_contains(svg, "cx=\"264.5\" cy=\"65.5\"");
  CHECK(count_of(svg, "class=\"diagonal\"") == 1);
}

TEST_CASE("report: a scatter of a regression has its points between round ticks") {
  dpt::ReportedScatter scatter;
  scatter.points = {{0.0F, 1.0F}, {10.0F, 10.0F}, {5.0F, 4.0F}};
  const std::string svg = dpt::scatter_plot(scatter, false);
  CHECK(count_of(svg, "<circle ") == 3);
  for (const char* tick : {">0</text>", ">5</text>", ">10</text>"}) {
    CHECK(count_of(svg, tick) == 2);
  }
  // A plot works if all values are equal.
  scatter.points = {{3.0F, 3.0F}};
  const std::string one = dpt::scatter_plot(scatter, true);
  CHECK(count_of(one, "<circle ") == 1);
  CHECK_FALSE(contains(one, "nan"));
  check_contains(one, "Output 0");
}

TEST_CASE("report: plots are on the page of the kind of targets that they are for") {
  if (lacks_charts()) return;
  const Reports digits;
  digits.run_well({"train", "small.yaml"});
  const std::string classes = section(digits.page({"runs/digits"}), "evaluation");
  CHECK(count_of(classes, "<svg ") == 1);
  check_contains(classes, "Reliability");
  const Reports values{""};
  write_file(values.dir.file("small.yaml"), arrays_config(values.dir.path(), "values", false));
  values.run_well({"train", "small.yaml"});
  const std::string regression = section(values.page({"runs/arrays"}), "evaluation");
  CHECK(count_of(regression, "<svg ") == 4);
  check_contains(regression, "Output 3");
}

TEST_CASE("report: the path of a mistake is text, and names of classes stand by themselves") {
  if (lacks_charts()) return;
  const Reports w;
  w.run_well({"train", "small.yaml"});
  const std::string evaluation = section(w.page({"runs/digits"}), "evaluation");
  check_contains(evaluation, "<span class=\"path\">");
  check_contains(evaluation, "</bdi></b> &#8594; <bdi>");
}
