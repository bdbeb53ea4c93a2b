// The charts of a learning-rate curve: the rate from 0 to its highest value, over the epochs.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "app/lr_curve.h"

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

/// Letters of the picture, five pixels by seven; a row's highest bit is the left one.
struct Glyph {
  char letter;
  std::array<std::uint8_t, 7> rows;
};
constexpr Glyph kGlyphs[] = {
    {'0', {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e}},
    {'1', {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'2', {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f}},
    {'3', {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e}},
    {'4', {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02}},
    {'5', {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e}},
    {'6', {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e}},
    {'7', {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}},
    {'8', {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e}},
    {'9', {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c}},
    {'.', {0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c}},
    {'-', {0x00, 0x00, 0x00, 0x1f, 0x00, 0x00, 0x00}},
    {'+', {0x00, 0x04, 0x04, 0x1f, 0x04, 0x04, 0x00}},
    {'c', {0x00, 0x00, 0x0e, 0x10, 0x10, 0x11, 0x0e}},
    {'e', {0x00, 0x00, 0x0e, 0x11, 0x1f, 0x10, 0x0e}},
    {'h', {0x10, 0x10, 0x16, 0x19, 0x11, 0x11, 0x11}},
    {'l', {0x0c, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'o', {0x00, 0x00, 0x0e, 0x11, 0x11, 0x11, 0x0e}},
    {'p', {0x00, 0x00, 0x1e, 0x11, 0x1e, 0x10, 0x10}},
    {'r', {0x00, 0x00, 0x16, 0x19, 0x10, 0x10, 0x10}},
};

struct Colour {
  std::uint8_t red, green, blue;
};
constexpr Colour kWhite{255, 255, 255}, kGrid{225, 225, 225}, kInk{40, 40, 40}, kLine{20, 90, 200};

class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height) {
    image_.width = width;
    image_.height = height;
    image_.channels = 3;
    image_.pixels.resize(static_cast<std::size_t>(width * height * 3));
    fill(0, 0, width, height, kWhite);
  }

  /// From (x, y) on, clipped to the canvas.
  void fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
            Colour colour) {
    const std::int64_t right = std::min(x + width, image_.width);
    const std::int64_t bottom = std::min(y + height, image_.height);
    for (std::int64_t row = std::max<std::int64_t>(y, 0); row < bottom; ++row) {
      for (std::int64_t column = std::max<std::int64_t>(x, 0); column < right; ++column) {
        const auto at = static_cast<std::size_t>((row * image_.width + column) * 3);
        image_.pixels[at] = colour.red;
        image_.pixels[at + 1] = colour.green;
        image_.pixels[at + 2] = colour.blue;
      }
    }
  }

  void write(std::int64_t x, std::int64_t y, std::string_view text) {
    for (const char letter : text) {
      for (const Glyph& glyph : kGlyphs) {
        if (glyph.letter == letter) draw(x, y, glyph);
      }
      x += kLetterWidth;
    }
  }
  static std::int64_t width_of(std::string_view text) {
    return static_cast<std::int64_t>(text.size()) * kLetterWidth;
  }

  Image take() { return std::move(image_); }

  static constexpr std::int64_t kScale = 2, kLetterWidth = 6 * kScale, kLetterHeight = 7 * kScale;

 private:
  void draw(std::int64_t x, std::int64_t y, const Glyph& glyph) {
    for (std::size_t row = 0; row < glyph.rows.size(); ++row) {
      for (std::int64_t column = 0; column < 5; ++column) {
        if ((glyph.rows[row] >> (4 - column) & 1) == 0) continue;
        fill(x + column * kScale, y + static_cast<std::int64_t>(row) * kScale, kScale, kScale,
             kInk);
      }
    }
  }

  Image image_;
};

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
