// What DPT_EMULATED_* and emulation/control.h set. Everything here is used under the emulation's
// one lock.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace emulation {

/// Fills memory that the program has not written: a float of such bytes is not a number.
constexpr unsigned char kPoison = 0xff;

/// A failure that has been asked for.
struct Failure {
  std::string call;
  int device = -1;  ///< -1: any
  std::uint64_t remaining = 0;
  std::string error;  ///< by its name
};

struct Settings {
  int devices = 2;
  std::size_t memory = std::size_t{1} << 30;
  int multiprocessors = 8;
  int compute_major = 9, compute_minor = 0;
  Order order;
  std::uint64_t launches = 0;  ///< so far; varies the random order
  std::vector<Failure> failures;
  Cudnn cudnn = Cudnn::works;
};

/// Read from the environment at the first call.
Settings& settings();

/// Counts a call; the name of the error that it is to fail with, if it is.
std::optional<std::string> take_failure(const char* call, int device);

/// A well-mixed number that depends on `value` alone.
std::uint64_t mix(std::uint64_t value);

}  // namespace emulation
