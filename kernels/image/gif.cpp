// GIF through giflib: the first frame on its canvas.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/palette.h"

namespace dpt {
namespace {

/// Limit, because a code has at most 12 bits and stands for fewer than 4096 pixels.
constexpr std::int64_t kMaxGifPixelsPerByte = 4096;

struct GifDecoder {
  std::span<const std::byte> rest;
  GifFileType* gif = nullptr;

  GifDecoder() = default;
  GifDecoder(const GifDecoder&) = delete;
  GifDecoder& operator=(const GifDecoder&) = delete;
  ~GifDecoder() {
    if (gif) DGifCloseFile(gif, nullptr);
  }
};

int take_gif_bytes(GifFileType* gif, GifByteType* to, int bytes) {
  GifDecoder& decoder = *static_cast<GifDecoder*>(gif->UserData);
  const std::size_t count = std::min(static_cast<std::size_t>(bytes), decoder.rest.size());
  std::memcpy(to, decoder.rest.data(), count);
  decoder.rest = decoder.rest.subspan(count);
  return static_cast<int>(count);
}

std::string gif_problem(int error) {
  const char* text = GifErrorString(error);
  return text ? text : "damaged data";
}

/// Reads up to the first image. Sets the index of the transparent colour if the image has one.
/// Returns false on failure.
bool find_image(GifFileType* gif, std::optional<int>& transparent) {
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR || type == TERMINATE_RECORD_TYPE) return false;
    if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
    if (type != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return false;
    GraphicsControlBlock control;
    if (code == GRAPHICS_EXT_FUNC_CODE && block &&
        DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK &&
        control.TransparentColor != NO_TRANSPARENT_COLOR) {
      transparent = control.TransparentColor;
    }
    while (block) {
      if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return false;
    }
  }
}

/// Returns the rows of a frame in the order in which the file stores them.
std::vector<std::int64_t> row_order(std::int64_t height, bool interlaced) {
  std::vector<std::int64_t> rows;
  if (!interlaced) {
    for (std::int64_t y = 0; y < height; ++y) rows.push_back(y);
    return rows;
  }
  constexpr std::array<std::pair<int, int>, 4> kPasses{{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
  for (const auto& [first, step] : kPasses) {
    for (std::int64_t y = first; y < height; y += step) rows.push_back(y);
  }
  return rows;
}

Palette palette_of(const GifFileType& gif) {
  const ColorMapObject* map = gif.Image.ColorMap ? gif.Image.ColorMap : gif.SColorMap;
  Palette palette;
  if (!map) {
    palette.make_grey();
    return palette;
  }
  for (int i = 0; i < std::min(map->ColorCount, 256); ++i) {
    const GifColorType& colour = map->Colors[i];
    palette.set(static_cast<std::size_t>(i), {colour.Red, colour.Green, colour.Blue});
  }
  palette.complete();
  return palette;
}

}  // namespace

Image decode_gif(std::span<const std::byte> file, const std::string& name, std::int64_t channels) {
  GifDecoder decoder;
  decoder.rest = file;
  int error = 0;
  const auto corrupt = [&](const std::string& why) {
    fail(ErrorKind::data, "{}: corrupt GIF: {}", name, why);
  };
  decoder.gif = DGifOpen(&decoder, take_gif_bytes, &error);
  if (!decoder.gif) corrupt(gif_problem(error));
  GifFileType* gif = decoder.gif;
  std::optional<int> transparent;
  if (!find_image(gif, transparent)) {
    corrupt(gif->Error == 0 ? "it has no image" : gif_problem(gif->Error));
  }
  const GifImageDesc& frame = gif->Image;
  if (frame.Width < 1 || frame.Height < 1) corrupt("its first frame is empty");
  // A frame may be larger than its canvas, or a small part of it.
  const std::int64_t width = std::max<std::int64_t>(gif->SWidth, frame.Left + frame.Width);
  const std::int64_t height = std::max<std::int64_t>(gif->SHeight, frame.Top + frame.Height);
  check_image_size(name, width, height, 4, file.size(), kMaxImageBytes);
  check_image_size(name, frame.Width, frame.Height, 4, file.size(), kMaxGifPixelsPerByte);
  std::vector<std::uint8_t> indices(static_cast<std::size_t>(width * height),
                                    static_cast<std::uint8_t>(transparent.value_or(0)));
  for (const std::int64_t y : row_order(frame.Height, frame.Interlace)) {
    std::uint8_t* row = indices.data() + (frame.Top + y) * width + frame.Left;
    if (DGifGetLine(gif, row, frame.Width) == GIF_ERROR) corrupt(gif_problem(gif->Error));
  }
  return palette_of(*gif).applied(indices, height, width, channels);
}

}  // namespace dpt
