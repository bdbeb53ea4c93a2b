#include "app/config/lr_chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "app/base/canvas.h"

namespace dpt {
namespace {

/// What every chart draws: per column the range of its steps, and the highest of all.
struct Columns {
  std::vector<std::pair<double, double>> ranges;
  double highest = 0;
};

Columns columns_of(const LrCurve& curve, std::int64_t count) {
  Columns columns;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = std::min(i * curve.steps() / count, curve.steps() - 1);
    const std::int64_t end = std::max((i + 1) * curve.steps() / count, begin + 1);
    columns.ranges.push_back(curve.range(begin, end));
    columns.highest = std::max(columns.highest, columns.ranges.back().second);
  }
  if (columns.highest <= 0) columns.highest = 1;  // a rate of 0 throughout
  return columns;
}

/// The distance of about `count` marks from 0 to `high`: 1, 2 or 5 times a power of ten.
double mark_distance(double high, int count) {
  const double least = high / count;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

constexpr Colour kGrid{225, 225, 225}, kLine{20, 90, 200};

}  // namespace

std::string text_chart(const LrCurve& curve) {
  constexpr std::int64_t kWidth = 64, kHeight = 16;
  const Columns columns = columns_of(curve, kWidth);
  const auto line_of = [&](double lr) {
    return std::llround((1.0 - lr / columns.highest) * static_cast<double>(kHeight - 1));
  };
  std::vector<std::string> lines(kHeight, std::string(kWidth, ' '));
  for (std::size_t x = 0; x < columns.ranges.size(); ++x) {
    const auto& [low, high] = columns.ranges[x];
    for (auto y = line_of(high); y <= line_of(low); ++y)
      lines[static_cast<std::size_t>(y)][x] = '*';
  }
  std::string text;
  for (std::int64_t y = 0; y < kHeight; ++y) {
    // A label at the top, at the bottom, and at two thirds and one third of the height.
    const double lr = columns.highest * static_cast<double>(kHeight - 1 - y) / (kHeight - 1);
    const std::string label = y % 5 == 0 ? fmt::format("{:.3g}", lr) : "";
    std::string line = lines[static_cast<std::size_t>(y)];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>10} {}{}\n", label, y % 5 == 0 ? '+' : '|', line);
  }
  text += fmt::format("{:>10} +{}\n", "", std::string(kWidth, '-'));
  const std::string end = fmt::format("{}", curve.epochs);
  text += fmt::format("{:>10}  0{:^{}}{}\n", "", "epochs", kWidth - 1 - end.size(), end);
  return text;
}

Image picture_chart(const LrCurve& curve) {
  constexpr std::int64_t kWidth = 900, kHeight = 480;
  constexpr std::int64_t kLeft = 120, kRight = 30, kTop = 40, kBottom = 60;
  constexpr std::int64_t kPlotWidth = kWidth - kLeft - kRight;
  constexpr std::int64_t kPlotHeight = kHeight - kTop - kBottom;
  const Columns columns = columns_of(curve, kPlotWidth);
  const auto y_of = [&](double lr) {
    return kTop + std::llround((1.0 - lr / columns.highest) * static_cast<double>(kPlotHeight));
  };
  Canvas canvas(kWidth, kHeight);
  constexpr std::int64_t kHalfLetter = Canvas::kLetterHeight / 2;

  const double distance = mark_distance(columns.highest, 5);
  for (int i = 0; i * distance <= columns.highest * (1 + 1e-9); ++i) {
    const std::int64_t y = y_of(i * distance);
    const std::string label = fmt::format("{:.3g}", i * distance);
    canvas.fill(kLeft, y, kPlotWidth, 1, kGrid);
    canvas.write(kLeft - 8 - Canvas::width_of(label), y - kHalfLetter, label);
  }
  const double epochs = static_cast<double>(curve.epochs);
  const double apart = std::max(1.0, mark_distance(epochs, 10));
  for (int i = 0; i * apart <= epochs; ++i) {
    const std::int64_t x =
        kLeft + std::llround(i * apart / epochs * static_cast<double>(kPlotWidth));
    const std::string label = fmt::format("{:.6g}", i * apart);
    canvas.fill(x, kTop, 1, kPlotHeight, kGrid);
    canvas.write(x - Canvas::width_of(label) / 2, kTop + kPlotHeight + 10, label);
  }
  canvas.fill(kLeft, kTop, 1, kPlotHeight, kInk);
  canvas.fill(kLeft, kTop + kPlotHeight, kPlotWidth + 1, 1, kInk);
  canvas.write(kLeft - 8 - Canvas::width_of("lr"), 12, "lr");
  canvas.write(kLeft + (kPlotWidth - Canvas::width_of("epoch")) / 2, kHeight - 24, "epoch");

  auto before = columns.ranges.front();
  for (std::size_t i = 0; i < columns.ranges.size(); ++i) {
    // Joined to the column before it, so that a fall between two columns is a line too.
    const auto range = columns.ranges[i];
    const std::int64_t top = y_of(std::max(range.second, before.first));
    const std::int64_t bottom = y_of(std::min(range.first, before.second));
    canvas.fill(kLeft + static_cast<std::int64_t>(i), top - 1, 2, bottom - top + 3, kLine);
    before = range;
  }
  return canvas.take();
}

}  // namespace dpt
