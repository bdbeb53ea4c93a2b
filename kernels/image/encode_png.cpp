// PNG, written with libpng's simplified interface. It needs no jump targets.
#include "kernels/image/encode_png.h"

#include <png.h>

#include "kernels/base/error.h"

namespace dpt {

std::vector<std::byte> encode_png(const Image& image) {
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::vector<std::byte> file(PNG_IMAGE_PNG_SIZE_MAX(header));
  png_alloc_size_t bytes = file.size();
  if (!png_image_write_to_memory(&header, file.data(), &bytes, 0, image.pixels.data(), 0,
                                 nullptr)) {
    fail(ErrorKind::unexpected, "libpng cannot encode an image of {}x{}: {}", image.width,
         image.height, header.message);
  }
  file.resize(bytes);
  return file;
}

}  // namespace dpt
