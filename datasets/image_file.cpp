#include "datasets/image_file.h"

#include <cstdint>

#include "datasets/tar_reader.h"
#include "kernels/base/error.h"
#include "kernels/base/stage_clock.h"
#include "kernels/image/decode_options.h"

namespace dpt {

std::vector<std::byte> read_image_file(const std::string& path) {
  // A larger file is not an image of an allowed size.
  constexpr std::uint64_t kMaxFileBytes = kMaxImageBytes;
  const StageTimer timer(DataStage::read);
  const RandomAccessFile file(path);
  const std::uint64_t bytes = file.size();
  if (bytes > kMaxFileBytes) {
    fail(ErrorKind::data, "{}: the file has {} bytes; an image file may have at most {} MiB", path,
         bytes, kMaxFileBytes >> 20);
  }
  std::vector<std::byte> content(bytes);
  const std::size_t found = file.read(0, content.data(), content.size());
  if (found != bytes) {
    fail(ErrorKind::data, "{}: only {} of {} bytes could be read", path, found, bytes);
  }
  return content;
}

}  // namespace dpt
