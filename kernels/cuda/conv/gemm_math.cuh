// The arithmetic of dpt's matrix products: conversion of a memory word to a factor, and
// multiplication of factors.
#pragma once

#include "kernels/common/bf16.h"
#include "kernels/cuda/conv/mma.cuh"

namespace dpt::gemm {

/// Strict fp32: one fused multiply-add after the other.
struct F32Math {
  using Element = float;
  static constexpr bool kTensorCores = false;
  __device__ static std::uint32_t factor(std::uint32_t word) { return word; }
};
struct Tf32Math {
  using Element = float;
  static constexpr bool kTensorCores = true;
  __device__ static std::uint32_t factor(std::uint32_t word) { return round_to_tf32(word); }
  __device__ static void mma(float (&d)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2]) {
    mma_tf32(d, a, b);
  }
};
/// bf16 numbers as tf32 factors, which hold them exactly. Each number takes a 32-bit word, for
/// operands whose neighbours along k are not adjacent in memory.
struct Bf16AsTf32Math {
  using Element = Bf16;
  static constexpr bool kTensorCores = true;
  __device__ static std::uint32_t factor(std::uint32_t word) { return round_to_tf32(word); }
  __device__ static void mma(float (&d)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2]) {
    mma_tf32(d, a, b);
  }
};
struct Bf16Math {
  using Element = Bf16;
  static constexpr bool kTensorCores = true;
  __device__ static std::uint32_t factor(std::uint32_t word) { return word; }
  __device__ static void mma(float (&d)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2]) {
    mma_bf16(d, a, b);
  }
};

}  // namespace dpt::gemm
