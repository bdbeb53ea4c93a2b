// NVIDIA's libraries as installed by pip. In a Python environment with dpt's wheel, the program is
// in dpt_train/bin, and the libraries are in nvidia/*/lib next to dpt_train (nvidia/cu13/lib,
// nvidia/cudnn/lib, nvidia/nccl/lib).
#pragma once

#include <filesystem>
#include <string>

namespace dpt {

/// Returns the path of the library `file` ("libnccl.so.2") in the environment of the program
/// `program`, an absolute path without symbolic links. Empty if the program is not in a wheel's
/// folder, or if the environment lacks the library. Does not throw for folders that cannot be read.
std::string wheel_library(const std::filesystem::path& program, const std::string& file);

/// Does the same for the running program.
std::string wheel_library(const std::string& file);

}  // namespace dpt
