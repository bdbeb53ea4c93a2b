#include "app/inspect/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "app/inspect/canvas.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/image/decode_options.h"

namespace dpt {
namespace {

/// Runs the device part of the transforms for samples of one epoch.
std::vector<float> run_input(Backend& backend, InputDesc input, const InputDraws& draws,
                             std::int64_t epoch, std::span<const std::byte> raw,
                             std::span<const std::int64_t> ids) {
  input.batch = static_cast<std::int64_t>(ids.size());
  std::vector<std::int32_t> slots;
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(ids.size()); ++k) slots.push_back(k);
  std::vector<InputBox> boxes;
  for (const std::int64_t id : ids) {
    boxes.push_back(draws.erases() ? draws.erased(epoch, id) : InputBox{});
  }
  const auto copy_of = [&](const void* from, std::size_t bytes) {
    DeviceMemory memory = backend.allocate(bytes, "the contact sheet");
    backend.upload(memory.ptr(), from, bytes);
    return memory;
  };
  const DeviceMemory samples = copy_of(raw.data(), raw.size());
  const DeviceMemory own_slots = copy_of(slots.data(), slots.size() * sizeof(std::int32_t));
  const DeviceMemory own_ids = copy_of(ids.data(), ids.size_bytes());
  const DeviceMemory own_epoch = copy_of(&epoch, sizeof epoch);
  const DeviceMemory own_boxes = copy_of(boxes.data(), boxes.size() * sizeof(InputBox));
  std::vector<float> result(ids.size() * static_cast<std::size_t>(input.out.elements()));
  const std::size_t bytes = result.size() * sizeof(float);
  const DeviceMemory y = backend.allocate(bytes, "the contact sheet");
  const auto op = backend.make_input(input);
  op->run(
      {samples.ptr(), own_slots.ptr(), own_ids.ptr(), own_epoch.ptr(), y.ptr(), own_boxes.ptr()});
  backend.download(result.data(), y.ptr(), bytes);
  backend.synchronize();
  return result;
}

}  // namespace

void draw_samples(const DataSource& source, InputDesc input, const InputDraws& draws,
                  std::vector<SheetImage>& images, double& low, double& high) {
  // Fill erased areas with the pixel that Normalize would turn into erase_value, because the sheet
  // shows images that are not normalised.
  for (std::size_t c = 0; c < input.erase_value.size(); ++c) {
    if (!input.stddev.empty()) input.erase_value[c] *= input.stddev[c];
    if (!input.mean.empty()) input.erase_value[c] += input.mean[c];
  }
  input.mean.clear();
  input.stddev.clear();
  input.type = DType::f32;
  const auto backend = make_cpu_backend(1);
  std::vector<std::byte> raw(static_cast<std::size_t>(source.shape().elements()) *
                             size_of(source.type()));
  std::vector<std::vector<float>> values;
  for (SheetImage& image : images) {
    source.read_in_epoch({image.epoch, image.index, image.key}, raw, image.label);
    values.push_back(run_input(*backend, input, draws, image.epoch, raw, std::span(&image.key, 1)));
  }
  low = 0;
  high = 1;
  if (source.type() == DType::f32) {
    low = INFINITY;
    high = -INFINITY;
    for (const std::vector<float>& of_image : values) {
      for (const float value : of_image) {
        if (!std::isfinite(value)) continue;
        low = std::min(low, static_cast<double>(value));
        high = std::max(high, static_cast<double>(value));
      }
    }
    if (!(low < high)) high = low + 1;
  }
  for (std::size_t i = 0; i < images.size(); ++i) {
    Image& image = images[i].image;
    image = {input.out.h, input.out.w, input.out.c, {}};
    for (const float value : values[i]) {
      const double grey = (static_cast<double>(value) - low) / (high - low) * 255;
      image.pixels.push_back(
          std::isfinite(grey) ? static_cast<std::uint8_t>(std::lround(std::clamp(grey, 0.0, 255.0)))
                              : 0);
    }
  }
}

Image contact_sheet(const std::vector<SheetImage>& images,
                    const std::vector<std::vector<std::string>>& captions, std::int64_t columns) {
  constexpr std::int64_t kWidth = 112, kGap = 8, kWideEnough = 160;
  const std::int64_t h = images[0].image.height, w = images[0].image.width;
  const std::int64_t scale = std::max<std::int64_t>(1, kWidth / std::max(h, w));
  const std::int64_t width = std::max(w * scale, kWidth / 2), height = h * scale;
  const std::int64_t letters = width >= kWideEnough ? 2 : 1, line = 9 * letters;
  std::size_t lines = 0;
  for (const auto& caption : captions) lines = std::max(lines, caption.size());
  const std::int64_t cell_height = height + 3 + static_cast<std::int64_t>(lines) * line;
  const auto count = static_cast<std::int64_t>(images.size());
  const std::int64_t rows = (count + columns - 1) / columns;
  const std::int64_t sheet_width = kGap + columns * (width + kGap);
  const std::int64_t sheet_height = kGap + rows * (cell_height + kGap);
  if (sheet_width > kMaxSide || sheet_height > kMaxSide ||
      sheet_width * sheet_height * 3 > kMaxImageBytes) {
    fail(
        ErrorKind::usage,
        "--samples: a sheet of {}x{} pixels (width x height) is too large: expected at most {} per "
        "side and {} MiB; show fewer samples, or change --columns",
        sheet_width, sheet_height, kMaxSide, kMaxImageBytes >> 20);
  }
  Canvas canvas(sheet_width, sheet_height);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t x = kGap + i % columns * (width + kGap);
    std::int64_t y = kGap + i / columns * (cell_height + kGap);
    canvas.place(x, y, images[i].image, scale);
    y += height + 3;
    for (const std::string& text : captions[i]) {
      const auto fits = static_cast<std::size_t>(width / (6 * letters));
      canvas.write(x, y, std::string_view(text).substr(0, fits), letters);
      y += line;
    }
  }
  return canvas.take();
}

}  // namespace dpt
