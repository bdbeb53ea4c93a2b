// Marks a function for both sides when a CUDA compiler reads it. The mathematics in this folder is
// written once: CPU kernels and CUDA kernels compile the same text.
#pragma once

#ifdef __CUDACC__
#define DPT_HOST_DEVICE __host__ __device__
#else
#define DPT_HOST_DEVICE
#endif
