// Checks of descriptions, common to all CPU operations.
#pragma once

#include <cstdint>

#include "kernels/base/error.h"
#include "kernels/base/types.h"

namespace dpt {

/// Throws ErrorKind::device unless this backend supports the description.
inline void check_cpu_desc(const char* what, DType type, std::int64_t batch, bool tf32 = false) {
  if (tf32) {
    fail(ErrorKind::device,
         "cpu: {} in tf32 is not available: tf32 is a mode of NVIDIA GPUs; use fp32", what);
  }
  if (type != DType::f32 && type != DType::bf16) {
    fail(ErrorKind::device,
         "cpu: {} in {} is not available: this backend computes in fp32 and bf16", what,
         name_of(type));
  }
  if (batch < 1)
    fail(ErrorKind::device, "cpu: {} needs a batch of at least 1, not {}", what, batch);
}

}  // namespace dpt
