// NVIDIA's libraries next to the program, in synthetic Python environments.
#include "kernels/wheel_libraries.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

void make_library(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << "ELF\n";
}

}  // namespace

TEST_CASE("wheel libraries: found next to the wheel's package, and only there") {
  const TempDir environment;
  const std::filesystem::path packages = environment.path();
  const std::filesystem::path program = packages / "dpt_train/bin/dpt";
  CHECK(wheel_library(program, "libnccl.so.2") == "");  // a wheel without the extra [cuda]

  const std::filesystem::path nccl = packages / "nvidia/nccl/lib/libnccl.so.2";
  const std::filesystem::path cublas = packages / "nvidia/cu13/lib/libcublasLt.so.13";
  make_library(nccl);
  make_library(cublas);
  make_library(packages / "nvidia/README");  // a file among the folders
  std::filesystem::create_directories(packages / "nvidia/zzz/lib/libnccl.so.2");
  CHECK(wheel_library(program, "libnccl.so.2") == nccl);
  CHECK(wheel_library(program, "libcublasLt.so.13") == cublas);
  CHECK(wheel_library(program, "libcublasLt.so.12") == "");
  CHECK(wheel_library(program, "libcudnn.so.9") == "");

  // A program from a build or a Debian package ignores a neighbouring nvidia/.
  CHECK(wheel_library(packages / "usr/bin/dpt", "libnccl.so.2") == "");
  CHECK(wheel_library(packages / "build/release/dpt", "libnccl.so.2") == "");
  CHECK(wheel_library("dpt", "libnccl.so.2") == "");
}
