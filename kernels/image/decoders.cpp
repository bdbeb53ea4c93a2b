#include "kernels/image/decoders.h"

#include <utility>

#include "kernels/base/error.h"
#include "kernels/image/turned_image.h"

namespace dpt {

void check_image_size(const std::string& name, std::int64_t width, std::int64_t height,
                      std::int64_t channels, std::size_t file_bytes, std::int64_t ratio) {
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide ||
      width * height * channels > kMaxImageBytes) {
    fail(ErrorKind::data,
         "{}: {}x{} pixels (width x height): dimensions out of range; expected at most {} per side "
         "and {} MiB decoded",
         name, width, height, kMaxSide, kMaxImageBytes >> 20);
  }
  if (width * height / ratio > static_cast<std::int64_t>(file_bytes)) {
    fail(ErrorKind::data,
         "{}: claims {}x{} pixels (width x height), more than a file of {} bytes can hold", name,
         width, height, file_bytes);
  }
}

Image part_of_whole(Image image, const ChoosePart& choose, int orientation) {
  const ImagePart part = choose(image.height, image.width);
  const PixelBox all{0, 0, image.height, image.width};
  const bool is_whole = part.box == all && part.window == all && part.height == image.height &&
                        part.width == image.width;
  return is_whole ? std::move(image) : part_of_stored(image, part, stored_turn(orientation));
}

}  // namespace dpt
