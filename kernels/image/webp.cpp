// Decodes WebP through libwebp, and the first frame of an animation through libwebpdemux.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "kernels/base/error.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/pixels.h"

namespace dpt {
namespace {

/// Limit of lossy and lossless coding. Neither has a minimum number of bits per pixel, so only
/// kMaxImageBytes limits the size.
constexpr std::int64_t kMaxWebpPixelsPerByte = kMaxImageBytes;

/// Describes the problem that a status other than VP8_STATUS_OK reports.
std::string webp_problem(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "corrupt WebP: the file ends too early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "unsupported WebP: libwebp does not support one of its features: convert it to PNG";
    case VP8_STATUS_OUT_OF_MEMORY:
      return "cannot decode the WebP: libwebp ran out of memory";
    default:
      return "corrupt WebP: damaged data";
  }
}

/// Drops every fourth value, which is alpha.
Image without_alpha(const std::uint8_t* rgba, std::int64_t height, std::int64_t width) {
  Image image{height, width, 3, {}};
  const auto pixels = static_cast<std::size_t>(height * width);
  image.pixels.resize(3 * pixels);
  for (std::size_t p = 0; p < pixels; ++p) std::memcpy(&image.pixels[3 * p], rgba + 4 * p, 3);
  return image;
}

/// Decodes the first frame of an animation on its canvas. Returns a null image on failure.
Image first_frame(const WebPData& data) {
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options)) return {};
  options.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  WebPAnimInfo info;
  std::uint8_t* rgba = nullptr;
  int time = 0;
  if (!decoder || !WebPAnimDecoderGetInfo(decoder.get(), &info) ||
      !WebPAnimDecoderGetNext(decoder.get(), &rgba, &time)) {
    return {};
  }
  return without_alpha(rgba, info.canvas_height, info.canvas_width);
}

}  // namespace

Image decode_webp(std::span<const std::byte> file, const std::string& name, std::int64_t channels) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  const auto refuse = [&](const std::string& why) { fail(ErrorKind::data, "{}: {}", name, why); };
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) {
    refuse("cannot decode the WebP: the installed libwebp has an incompatible version");
  }
  const VP8StatusCode header = WebPGetFeatures(bytes, file.size(), &config.input);
  if (header != VP8_STATUS_OK) refuse(webp_problem(header));
  check_image_size(name, config.input.width, config.input.height, 4, file.size(),
                   kMaxWebpPixelsPerByte);
  if (config.input.has_animation) {
    Image image = first_frame({bytes, file.size()});
    if (image.pixels.empty()) refuse("corrupt WebP: its first frame is damaged");
    return converted(std::move(image), channels);
  }
  Image image{config.input.height, config.input.width, 3, {}};
  image.pixels.resize(static_cast<std::size_t>(image.height * image.width * 3));
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {image.pixels.data(), static_cast<int>(image.width * 3),
                          image.pixels.size()};
  const VP8StatusCode status = WebPDecode(bytes, file.size(), &config);
  if (status != VP8_STATUS_OK) refuse(webp_problem(status));
  return converted(std::move(image), channels);
}

}  // namespace dpt
