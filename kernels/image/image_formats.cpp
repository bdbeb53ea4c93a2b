#include "kernels/image/image_formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "kernels/image/decoders.h"
#include "kernels/image/file_content.h"
#include "kernels/image/file_orientation.h"
#include "kernels/image/metadata_orientation.h"

namespace dpt {
namespace {

using FileBytes = std::span<const std::byte>;

bool is_jpeg(FileBytes file) {
  return has_text(file, "\xff\xd8\xff");
}
bool is_png(FileBytes file) {
  return has_text(file, "\x89PNG\r\n\x1a\n");
}
bool is_webp(FileBytes file) {
  return has_text(file, "RIFF") && has_text(file, "WEBP", 8);
}
bool is_gif(FileBytes file) {
  return has_text(file, "GIF87a") || has_text(file, "GIF89a");
}

/// Returns true if a file is a BMP. Text may begin with BM, too, but then it has no header of a
/// known size.
bool is_bmp(FileBytes file) {
  if (!has_text(file, "BM") || file.size() < 18) return false;
  if (file[15] != std::byte{0} || file[16] != std::byte{0} || file[17] != std::byte{0})
    return false;
  constexpr std::array kHeaderBytes{12, 40, 52, 56, 64, 108, 124};
  return std::find(kHeaderBytes.begin(), kHeaderBytes.end(), std::to_integer<int>(file[14])) !=
         kHeaderBytes.end();
}

bool is_tiff(FileBytes file) {
  using namespace std::string_view_literals;
  return has_text(file, "II*\0"sv) || has_text(file, "MM\0*"sv) || has_text(file, "II+\0"sv) ||
         has_text(file, "MM\0+"sv);
}

bool is_pnm(FileBytes file) {
  if (!has_text(file, "P") || file.size() < 3) return false;
  const int kind = std::to_integer<int>(file[1]), next = std::to_integer<int>(file[2]);
  return '1' <= kind && kind <= '6' && std::isspace(next) != 0;
}

/// Returns true if the file type box at the start of a file names one of `brands`.
bool has_brand(FileBytes file, std::initializer_list<std::string_view> brands) {
  if (!has_text(file, "ftyp", 4)) return false;
  const std::size_t end = std::min<std::size_t>({file.size(), 64, big_endian_32(file)});
  for (std::size_t at = 8; at + 4 <= end; at += 4) {
    if (at == 12) continue;  // skip the version
    for (const std::string_view brand : brands) {
      if (has_text(file, brand, at)) return true;
    }
  }
  return false;
}

bool is_avif(FileBytes file) {
  return has_brand(file, {"avif", "avis"});
}
bool is_heic(FileBytes file) {
  return !is_avif(file) &&
         has_brand(file, {"heic", "heix", "hevc", "hevx", "heim", "heis", "mif1", "msf1"});
}
bool is_jpeg_xl(FileBytes file) {
  using namespace std::string_view_literals;
  return has_text(file, "\xff\x0a") || has_text(file, "\0\0\0\x0cJXL \r\n\x87\n"sv);
}
bool is_svg(FileBytes file) {
  return root_element(file) == "svg";
}
bool is_jpeg_2000(FileBytes file) {
  using namespace std::string_view_literals;
  return has_text(file, "\xff\x4f\xff\x51") || has_text(file, "\0\0\0\x0cjP  \r\n\x87\n"sv);
}
bool is_photoshop(FileBytes file) {
  return has_text(file, "8BPS");
}
bool is_exr(FileBytes file) {
  return has_text(file, "\x76\x2f\x31\x01");
}

/// Decodes the whole image and returns the part of it that `choose` requests.
template <Image (*decode)(FileBytes, const std::string&, std::int64_t)>
Image decode_whole(FileBytes file, const std::string& name, std::int64_t channels,
                   const ChoosePart& choose, const DecodeOptions& options) {
  return part_of_whole(decode(file, name, channels), choose, options.stored_orientation);
}

}  // namespace

std::span<const ImageFormat> image_formats() {
  // The first format that matches applies.
  static const std::vector<ImageFormat> formats = {
      {"JPEG",
       "a JPEG image",
       "JPEG images",
       {".jpg", ".jpeg", ".jpe", ".jfif"},
       is_jpeg,
       decode_jpeg,
       nullptr,
       jpeg_orientation},
      {"PNG",
       "a PNG image",
       "PNG images",
       {".png"},
       is_png,
       decode_whole<decode_png>,
       nullptr,
       png_orientation,
       false,
       png_used_bits},
      {"WebP",
       "a WebP image",
       "WebP images",
       {".webp"},
       is_webp,
       decode_whole<decode_webp>,
       nullptr,
       webp_orientation},
      {"BMP", "a BMP image", "BMP images", {".bmp"}, is_bmp, decode_whole<decode_bmp>, nullptr},
      {"GIF", "a GIF image", "GIF images", {".gif"}, is_gif, decode_whole<decode_gif>, nullptr},
      {"TIFF",
       "a TIFF image",
       "TIFF images",
       {".tif", ".tiff"},
       is_tiff,
       decode_whole<decode_tiff>,
       nullptr,
       tiff_orientation,
       true,
       tiff_used_bits},
      {"PNM",
       "a PNM image",
       "PNM images",
       {".pbm", ".pgm", ".ppm", ".pnm"},
       is_pnm,
       decode_whole<decode_pnm>,
       nullptr,
       nullptr,
       false,
       pnm_used_bits},
      {"HEIC",
       "a HEIC image",
       "HEIC images",
       {".heic", ".heif"},
       is_heic,
       nullptr,
       "heif-convert IN.heic OUT.jpg"},
      {"AVIF",
       "an AVIF image",
       "AVIF images",
       {".avif"},
       is_avif,
       nullptr,
       "avifdec IN.avif OUT.png"},
      {"JPEG XL",
       "a JPEG XL image",
       "JPEG XL images",
       {".jxl"},
       is_jpeg_xl,
       nullptr,
       "djxl IN.jxl OUT.png"},
      {"SVG",
       "an SVG drawing",
       "SVG drawings",
       {".svg"},
       is_svg,
       nullptr,
       "rsvg-convert IN.svg -o OUT.png"},
      {"JPEG 2000",
       "a JPEG 2000 image",
       "JPEG 2000 images",
       {},
       is_jpeg_2000,
       nullptr,
       "convert IN.jp2 OUT.png"},
      {"Photoshop",
       "a Photoshop image",
       "Photoshop images",
       {},
       is_photoshop,
       nullptr,
       "convert IN.psd[0] OUT.png"},
      {"OpenEXR",
       "an OpenEXR image",
       "OpenEXR images",
       {},
       is_exr,
       nullptr,
       "convert IN.exr OUT.png"},
  };
  return formats;
}

const ImageFormat* format_of_content(std::span<const std::byte> file) {
  for (const ImageFormat& format : image_formats()) {
    if (format.matches(file)) return &format;
  }
  return nullptr;
}

const ImageFormat* format_of_name(const std::string& name) {
  std::string extension = std::filesystem::path(name).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const ImageFormat& format : image_formats()) {
    for (const char* each : format.extensions) {
      if (extension == each) return &format;
    }
  }
  return nullptr;
}

bool is_image_name(const std::string& name) {
  const ImageFormat* format = format_of_name(name);
  return format && format->decode;
}

std::string readable_formats() {
  std::vector<std::string> names;
  for (const ImageFormat& format : image_formats()) {
    if (format.decode) names.emplace_back(format.name);
  }
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::vector<std::string> readable_extensions() {
  std::vector<std::string> all;
  for (const ImageFormat& format : image_formats()) {
    if (format.decode) all.insert(all.end(), format.extensions.begin(), format.extensions.end());
  }
  return all;
}

}  // namespace dpt
