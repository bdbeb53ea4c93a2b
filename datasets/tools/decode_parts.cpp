// decode_parts: reads lines "CHANNELS EXACT SALVAGE TURN BOX SIZE WINDOW PATH" from standard input.
// BOX and WINDOW are "TOP LEFT HEIGHT WIDTH", and SIZE is "HEIGHT WIDTH". Writes for each line
// either "ok BYTES" and this number of bytes, or "error BYTES" and a message. A box of height 0 is
// the whole image at its own size. TURN applies the orientation in the file.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

std::istream& operator>>(std::istream& in, PixelBox& box) {
  return in >> box.top >> box.left >> box.height >> box.width;
}

void answer(const char* verdict, const void* bytes, std::size_t count) {
  fmt::print("{} {}\n", verdict, count);
  std::fwrite(bytes, 1, count, stdout);
  std::fflush(stdout);
}

void decode_line(const std::string& line) {
  std::istringstream words(line);
  std::int64_t channels = 0;
  ImagePart part;
  DecodeOptions options;
  std::string path;
  words >> channels >> part.exact >> options.salvage >> options.applies_orientation >> part.box >>
      part.height >> part.width >> part.window >> std::ws;
  if (!std::getline(words, path))
    fail(ErrorKind::usage, "decode_parts: cannot parse the line: {}", line);
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(stream), {}};
  try {
    const Image image = decode_part(
        std::as_bytes(std::span(file)), path, channels,
        [&](std::int64_t height, std::int64_t width) {
          return part.box.height == 0 ? whole_image(height, width, height, width) : part;
        },
        options);
    answer("ok", image.pixels.data(), image.pixels.size());
  } catch (const Error& error) {
    const std::string text = error.what();
    answer("error", text.data(), text.size());
  }
}

}  // namespace
}  // namespace dpt

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) dpt::decode_line(line);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
