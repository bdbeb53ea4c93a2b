// Marks a function for both host and device if a CUDA compiler reads it, so that CPU kernels and
// CUDA kernels compile the same formulas.
#pragma once

#ifdef __CUDACC__
#define DPT_HOST_DEVICE __host__ __device__
#else
#define DPT_HOST_DEVICE
#endif
