// The settings that DPT_EMULATED_* and emulation/control.h change. The emulation's one lock guards
// them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace emulation {

/// Byte that fills memory before the program writes it: floats of these bytes are NaN.
constexpr unsigned char kPoison = 0xff;

/// Name of the requested error with which a kernel never ends.
constexpr const char* kHang = "hang";
/// Name of the requested error with which a kernel does not run, and no error is reported.
constexpr const char* kSkip = "skip";

/// A requested failure.
struct Failure {
  std::string call;
  int device = -1;  ///< -1: any device
  std::uint64_t remaining = 0;
  std::string error;  ///< name of the error
};

struct Settings {
  int devices = 2;
  std::size_t memory = std::size_t{1} << 30;
  std::vector<int> multiprocessors = {8};  ///< by device; the last one holds for further devices
  bool peers = true;                       ///< devices can use each other's memory
  int compute_major = 9, compute_minor = 0;
  Order order;
  std::uint64_t launches = 0;  ///< number so far; varies the random order
  std::vector<Failure> failures;
  Cudnn cudnn = Cudnn::works;
  int wrong_matmul = 0;          ///< cuBLASLt algorithm that computes wrong values; 0: none
  int wrong_matmul_device = -1;  ///< device on which it does; -1: all
};

/// Returns the settings, which the first call reads from the environment.
Settings& settings();

/// Counts a call. Returns the name of the error if this call is to fail.
std::optional<std::string> take_failure(const char* call, int device);

/// Returns a well-mixed hash of `value`.
std::uint64_t mix(std::uint64_t value);

}  // namespace emulation
