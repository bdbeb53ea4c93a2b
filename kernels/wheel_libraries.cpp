#include "kernels/wheel_libraries.h"

#include <algorithm>
#include <system_error>
#include <vector>

namespace dpt {

std::string wheel_library(const std::filesystem::path& program, const std::string& file) {
  const std::filesystem::path package = program.parent_path().parent_path();
  if (program.parent_path().filename() != "bin" || package.filename() != "dpt_train") return {};
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator folder(package.parent_path() / "nvidia", error);
  for (; !error && folder != std::filesystem::directory_iterator(); folder.increment(error)) {
    const std::filesystem::path library = folder->path() / "lib" / file;
    std::error_code missing;
    if (std::filesystem::is_regular_file(library, missing)) found.push_back(library.string());
  }
  // Choose one deterministically, whatever the order of the file system: that of the newest
  // toolkit, with cu14 before cu13.
  const auto last = std::max_element(found.begin(), found.end());
  return last == found.end() ? std::string() : *last;
}

std::string wheel_library(const std::string& file) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : wheel_library(program, file);
}

}  // namespace dpt
