#include "app/config/lr_chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace dpt {
namespace {

/// Data of a chart: the range of rates in each column, and the highest rate of all.
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
  if (columns.highest <= 0) columns.highest = 1;  // the rate is always 0
  return columns;
}

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
    for (auto y = line_of(high); y <= line_of(low); ++y) lines[y][x] = '*';
  }
  std::string text;
  for (std::int64_t y = 0; y < kHeight; ++y) {
    // Label the top, the bottom, and two thirds and one third of the height.
    const double lr = columns.highest * static_cast<double>(kHeight - 1 - y) / (kHeight - 1);
    const std::string label = y % 5 == 0 ? fmt::format("{:.3g}", lr) : "";
    std::string line = lines[y];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>10} {}{}\n", label, y % 5 == 0 ? '+' : '|', line);
  }
  text += fmt::format("{:>10} +{}\n", "", std::string(kWidth, '-'));
  const std::string end = fmt::format("{}", curve.epochs);
  text += fmt::format("{:>10}  0{:^{}}{}\n", "", "epochs", kWidth - 1 - end.size(), end);
  return text;
}

}  // namespace dpt
