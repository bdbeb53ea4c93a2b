#include "app/report/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/text.h"

namespace dpt {
namespace {

// Coordinates in the plot: the square in which values are drawn, and the whole image.
constexpr double kLeft = 46, kTop = 8, kSide = 230, kWidth = 292, kHeight = 286;

/// Range of both axes. They share it, so that correct predictions lie on the diagonal.
struct PlotRange {
  double low = 0, high = 1;
  double part(double value) const { return (value - low) / (high - low); }
  double x(double value) const { return kLeft + kSide * part(value); }
  double y(double value) const { return kTop + kSide * (1 - part(value)); }
};

/// Returns about five round numbers in the range.
std::vector<double> ticks_of(const PlotRange& range) {
  const double rough = (range.high - range.low) / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(range.low / step - 1e-9); i * step <= range.high + 1e-9 * step; ++i) {
    ticks.push_back(i == 0 ? 0.0 : i * step);
  }
  return ticks;
}

std::string line_html(const char* style, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                     style, x1, y1, x2, y2);
}

/// Returns a plot of `content` with axes and a diagonal.
std::string framed(const std::string& caption, const std::string& x_title,
                   const std::string& y_title, const PlotRange& range, const std::string& content) {
  std::string svg = fmt::format(
      "<figure class=\"square\"><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" "
      "role=\"img\" aria-label=\"{}: {} over {}\">",
      caption, kWidth, kHeight, caption, y_title, x_title);
  for (const double tick : ticks_of(range)) {
    const double x = range.x(tick), y = range.y(tick);
    svg +=
        line_html("grid", x, kTop, x, kTop + kSide) + line_html("grid", kLeft, y, kLeft + kSide, y);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>",
        x, kTop + kSide + 15, tick, kLeft - 5, y + 4, tick);
  }
  svg += content + line_html("diagonal", range.x(range.low), range.y(range.low),
                             range.x(range.high), range.y(range.high));
  const double middle = kTop + kSide / 2;
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>"
      "<text transform=\"translate(10 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
      kLeft + kSide / 2, kHeight - 4, x_title, middle, y_title);
  return svg + "</svg></figure>\n";
}

}  // namespace

std::string reliability_plot(std::span<const CalibrationBin> bins) {
  const PlotRange range;
  std::int64_t most = 1;
  for (const CalibrationBin& bin : bins) most = std::max(most, bin.samples);
  std::string content;
  for (std::size_t i = 0; i < bins.size(); ++i) {
    const CalibrationBin& bin = bins[i];
    if (bin.samples == 0) continue;
    const auto count = static_cast<double>(bin.samples), size = static_cast<double>(bins.size());
    const double right = static_cast<double>(bin.right) / count, mean = bin.probability / count;
    const double left = range.x(static_cast<double>(i) / size);
    const double width = kSide / size - 1;
    // Draw bins with few samples paler, but still visible.
    const double ink = 0.25 + 0.75 * std::sqrt(count / static_cast<double>(most));
    content += fmt::format(
        "<g style=\"--ink:{:.2f}\"><title>{}: mean probability {:.4f}, right {:.4f}</title>"
        "<rect class=\"share\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>"
        "<circle class=\"mean\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/></g>",
        ink, counted(bin.samples, "sample"), mean, right, left + 0.5, range.y(right), width,
        kSide * right, range.x(mean), range.y(right));
  }
  return framed("Reliability", "probability of the prediction", "fraction correct", range, content);
}

std::string scatter_plot(const ReportedScatter& scatter, bool of_several) {
  PlotRange range{0, 0};
  bool is_first = true;
  for (const auto& [target, prediction] : scatter.points) {
    for (const float value : {target, prediction}) {
      const auto at = static_cast<double>(value);
      range.low = is_first ? at : std::min(range.low, at);
      range.high = is_first ? at : std::max(range.high, at);
      is_first = false;
    }
  }
  const double margin = 0.04 * (range.high - range.low);
  const double least = std::max(1e-6, 1e-6 * std::abs(range.high));
  range.low -= std::max(margin, least);
  range.high += std::max(margin, least);
  std::string content;
  for (const auto& [target, prediction] : scatter.points) {
    content +=
        fmt::format("<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>",
                    range.x(static_cast<double>(target)), range.y(static_cast<double>(prediction)));
  }
  const std::string caption =
      of_several ? fmt::format("Output {}", scatter.output) : "Predictions over targets";
  return framed(caption, "target", "prediction", range, content);
}

}  // namespace dpt
