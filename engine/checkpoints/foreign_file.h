// Files of other programs, and failed downloads, that are given in place of a safetensors file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dpt {

/// Length of the beginning of a file that describe_foreign_file looks at, in bytes.
inline constexpr std::size_t kForeignHeadBytes = 4096;

/// What a file that is not a safetensors file is, and how to get one from it: "a PyTorch file
/// (torch.save). ..."; empty if it is of no known kind. `head` holds its first bytes, up to
/// kForeignHeadBytes; the name in `path` decides only between kinds whose beginnings agree.
std::string describe_foreign_file(const std::string& path, std::string_view head);

}  // namespace dpt
