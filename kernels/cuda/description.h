// Checks of descriptions, common to all CUDA operations.
#pragma once

#include <cstdint>

#include "kernels/base/error.h"
#include "kernels/base/types.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Throws ErrorKind::device unless this backend supports the description.
inline void check_cuda_desc(const CudaContext& context, const char* what, DType type,
                            std::int64_t batch) {
  if (type != DType::f32 && type != DType::bf16) {
    fail(ErrorKind::device, "{}: {} in {} is not available: this backend computes in fp32 and bf16",
         context.name, what, name_of(type));
  }
  if (batch < 1) {
    fail(ErrorKind::device, "{}: {} needs a batch of at least 1, not {}", context.name, what,
         batch);
  }
}

/// Throws ErrorKind::device if a tensor has too many elements for the 31-bit indices of Divider.
inline void check_indices(const CudaContext& context, const char* what, std::int64_t elements) {
  if (elements >> 31 == 0) return;
  fail(ErrorKind::device,
       "{}: {} of {} elements, but at most {} are supported: use smaller "
       "micro-batches (train.accumulate) or smaller images",
       context.name, what, elements, (std::int64_t{1} << 31) - 1);
}

}  // namespace dpt
