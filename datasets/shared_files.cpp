#include "datasets/shared_files.h"

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Identity of a file: device and inode, and the array in it.
using Identity = std::tuple<std::uint64_t, std::uint64_t, std::string>;

/// Finds the identity of a file. Returns false if the file does not exist.
bool identify(const std::string& path, Identity& identity) {
  constexpr std::string_view kArchive = ".npz:";
  std::string file = path, array;
  if (const std::size_t at = path.rfind(kArchive); at != std::string::npos) {
    file = path.substr(0, at + kArchive.size() - 1);
    array = path.substr(at + kArchive.size());
  }
  struct stat status = {};
  if (stat(file.c_str(), &status) != 0) return false;
  identity = {status.st_dev, status.st_ino, array};
  return true;
}

}  // namespace

void check_no_shared_files(const std::vector<NamedFiles>& parts) {
  std::map<Identity, const NamedFiles*> seen;
  for (const NamedFiles& part : parts) {
    for (const std::string& path : part.paths) {
      Identity identity;
      if (!identify(path, identity)) continue;
      const NamedFiles& first = *seen.emplace(identity, &part).first->second;
      if (&first == &part) continue;
      fail(ErrorKind::usage,
           "{}: expected samples other than those of {}, found the same file, {}: name another "
           "file, or leave {} out of the config (for a result on the training samples: dpt eval "
           "RUN --split train)",
           part.field, first.field, path, part.field.substr(0, part.field.rfind('.')));
    }
  }
}

}  // namespace dpt
