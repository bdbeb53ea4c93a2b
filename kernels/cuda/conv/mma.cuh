// Tensor core instructions: the only place with PTX. A host compiler, which builds the kernels for
// tests, gets the same functions as operations of an emulated warp.
//
// Both instructions multiply A (16 rows, k) by B (k, 8 columns) and add to D (16, 8), in fp32.
// Counted in 32-bit words of one tf32 or two bf16 numbers, k is 8 for both, and a lane holds the
// same words. With g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k8",
// .tf32, and "mma.m16n8k16", .bf16):
//   a[0] = A(g, word t)    a[1] = A(g + 8, word t)    a[2] = A(g, t + 4)    a[3] = A(g + 8, t + 4)
//   b[0] = B(word t, g)    b[1] = B(word t + 4, g)
//   d[0] = D(g, 2t)        d[1] = D(g, 2t + 1)        d[2] = D(g + 8, 2t)   d[3] = D(g + 8, 2t + 1)
// PTX numbers the bf16 elements e of A; register i holds elements 2i and 2i + 1. The column of e is
// 2t + (e & 1) if e < 4, otherwise 8 more; these are words t and t + 4. Its row is g if e is 0, 1,
// 4 or 5 (registers 0 and 2), otherwise g + 8. The element with the lower k is the lower half of
// its word.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifndef __CUDACC__
#include <span>

#include "kernels/common/bf16.h"
#endif

namespace dpt {

#ifdef __CUDACC__

/// Rounds the bits of an fp32 number to tf32: 10 bits of mantissa, ties away from zero.
__device__ inline std::uint32_t round_to_tf32(std::uint32_t bits) {
  std::uint32_t result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(__uint_as_float(bits)));
  return result;
}

/// Adds a b to d, with factors in tf32.
__device__ inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Adds a b to d, with factors in bf16.
__device__ inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#else

inline std::uint32_t round_to_tf32(std::uint32_t bits) {
  const bool special = (bits & 0x7F800000U) == 0x7F800000U;
  if (special && (bits & 0x7FFFFFU) != 0) return 0x7FFFFFFFU;  // canonical NaN of PTX
  return special ? bits : (bits + 0x1000U) & ~0x1FFFU;
}

namespace detail {

struct MmaInput {
  float d[4];
  std::uint32_t a[4], b[2];
};
struct MmaOutput {
  float d[4];
};

/// Computes D + A B from the operands of 32 lanes. `product(a, b)` multiplies two words. Products
/// are exact in double; hardware adds them in an undocumented order.
template <class Product>
void emulate_mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                 Product product) {
  const MmaInput input = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  MmaOutput output = {};
  emulation::warp_collective(
      input, output, [product](std::span<const MmaInput, 32> in, std::span<MmaOutput, 32> out) {
        for (unsigned row = 0; row < 16; ++row) {
          for (unsigned column = 0; column < 8; ++column) {
            const unsigned home = row % 8 * 4 + column / 2, at = row / 8 * 2 + column % 2;
            double sum = static_cast<double>(in[home].d[at]);
            for (unsigned word = 0; word < 8; ++word) {
              const unsigned half = word / 4, t = word % 4;
              sum += product(in[row % 8 * 4 + t].a[half * 2 + row / 8], in[column * 4 + t].b[half]);
            }
            out[home].d[at] = static_cast<float>(sum);
          }
        }
      });
  for (int i = 0; i < 4; ++i) d[i] = output.d[i];
}

}  // namespace detail

inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  detail::emulate_mma(d, a, b, [](std::uint32_t left, std::uint32_t right) {
    // Tensor cores ignore the low 13 bits.
    return static_cast<double>(__builtin_bit_cast(float, left & ~0x1FFFU)) *
           static_cast<double>(__builtin_bit_cast(float, right & ~0x1FFFU));
  });
}

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  detail::emulate_mma(d, a, b, [](std::uint32_t left, std::uint32_t right) {
    const auto half = [](std::uint32_t word, int at) {
      return static_cast<double>(to_float(Bf16{static_cast<std::uint16_t>(word >> (16 * at))}));
    };
    return half(left, 0) * half(right, 0) + half(left, 1) * half(right, 1);
  });
}

#endif

}  // namespace dpt
