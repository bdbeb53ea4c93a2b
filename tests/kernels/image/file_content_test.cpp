// Files that are not images, or images in unsupported formats: the message names the format.
#include <string>

#include "kernels/image/decode.h"
#include "tests/engine/data/support.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using namespace data_test;

/// Returns the error for a file with that content.
std::string content_error(const std::string& content) {
  return error_of([&] { decode_image(std::as_bytes(std::span(content)), "x.jpg", 3); });
}

/// Returns a file that begins with an ISO media header of these brands.
std::string media(const std::string& brands) {
  const auto bytes = static_cast<char>(8 + brands.size());
  return std::string(3, '\0') + bytes + "ftyp" + brands + std::string(40, '\1');
}

TEST_CASE("images of formats that are not read are named, with a program that converts them") {
  const auto named = [](const std::string& content, const std::string& what,
                        const std::string& converter) {
    CHECK(content_error(content) ==
          "x.jpg: " + what + ", which dpt does not read: convert it with " + converter);
  };
  const std::string version(4, '\0');
  named(media("avif" + version + "mif1miaf"), "an AVIF image", "avifdec IN.avif OUT.png");
  named(media("mif1" + version + "mif1avif"), "an AVIF image", "avifdec IN.avif OUT.png");
  named(media("heic" + version + "mif1heic"), "a HEIC image", "heif-convert IN.heic OUT.jpg");
  named(media("mif1" + version + "heic"), "a HEIC image", "heif-convert IN.heic OUT.jpg");
  named("\xff\x0a" + std::string(9, 'x'), "a JPEG XL image", "djxl IN.jxl OUT.png");
  named(std::string(3, '\0') + "\x0cJXL \r\n\x87\n...", "a JPEG XL image", "djxl IN.jxl OUT.png");
  named("<svg width='4'/>", "an SVG drawing", "rsvg-convert IN.svg -o OUT.png");
  named("\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a > b -->\n<!DOCTYPE svg>\n<svg/>",
        "an SVG drawing", "rsvg-convert IN.svg -o OUT.png");
  named("8BPS\0\1", "a Photoshop image", "convert IN.psd[0] OUT.png");
}

TEST_CASE("files that are not images are named, with what to do about them") {
  const auto named = [](const std::string& content, const std::string& what) {
    CAPTURE(what);
    const std::string text = content_error(content);
    CHECK(text.starts_with("x.jpg: expected an image (JPEG, "));
    CHECK(testing::contains(text, "), found " + what));
  };
  named("<!DOCTYPE html>\n<html lang=en>", "an HTML page: download the image itself");
  named("\n <HTML><head>", "an HTML page: ");
  named("<!-- x --><body>", "an HTML page: ");
  named("<?xml version='1.0'?><Error><Code>AccessDenied", "an XML document: ");
  named("%PDF-1.7\n", "a PDF document: convert its pages with pdftoppm");
  named("PK\x03\x04...", "a zip archive: unpack it");
  named("\x1f\x8b\x08...", "a gzip file: unpack it");
  named(std::string(257, 'a') + "ustar", "a tar archive: unpack it");
  named("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "a Git LFS pointer in place of the image: fetch the images with git lfs pull");
  named(media("isom" + std::string(4, '\0')), "a video (MP4 or QuickTime): ");
  named(std::string(100, '\0'), "only zero bytes: ");
  named("BM is how this sentence begins", "text: ");
  named("{\"error\": \"not found\"}", "text: ");
  named(
      "Gr\xc3\xbc\xc3\x9f"
      "e",
      "text: ");
  named("\x01", "a file of an unknown format: ");
  named("<", "text: ");
  named("ftyp\1", "a file of an unknown format: ");
  CHECK(content_error("") == "x.jpg: the file is empty");
}

TEST_CASE("a file that begins as an image of a known format is not called anything else") {
  for (const std::string& start :
       {std::string("\xff\xd8\xff"), std::string("\x89PNG\r\n\x1a\n"), std::string("GIF89a")}) {
    const std::string text = content_error(start + "no more");
    CHECK(!testing::contains(text, "expected an image"));
  }
}

}  // namespace
}  // namespace dpt
