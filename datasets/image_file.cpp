// Files of pictures: their names and their bytes.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "datasets/image.h"
#include "engine/data/stage_clock.h"
#include "kernels/error.h"

namespace dpt {
namespace fs = std::filesystem;

bool is_image_name(const std::string& name) {
  std::string extension = fs::path(name).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

std::vector<std::byte> read_image_file(const std::string& path) {
  // A file of more bytes is no picture of an allowed size.
  constexpr std::uintmax_t kMostFileBytes = kMostImageBytes;
  const StageTimer timer(DataStage::read);
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) fail(ErrorKind::data, "{}: {}", path, error.message());
  if (bytes > kMostFileBytes) {
    fail(ErrorKind::data, "{}: a file of {} bytes; an image file may have at most {} MiB", path,
         bytes, kMostFileBytes >> 20);
  }
  std::vector<std::byte> content(bytes);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(bytes));
  if (static_cast<std::uintmax_t>(file.gcount()) != bytes) {
    fail(ErrorKind::data, "{}: only {} of {} bytes could be read", path, file.gcount(), bytes);
  }
  return content;
}

}  // namespace dpt
