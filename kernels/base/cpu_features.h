// Features of the processor and the operating system, detected at run time. A build must start on
// any machine of its architecture, and `-march=native` may name an older processor than the real
// one.
#pragma once

namespace dpt {

struct CpuFeatures {
  bool avx2 = false;  ///< AVX2 and FMA, with the 256-bit registers saved by the system
  bool bmi2 = false;
  bool avx512 = false;  ///< AVX-512 F, BW, DQ and VL, with the registers saved by the system
  bool vnni = false;    ///< `avx512`, VNNI (products of bytes) and VBMI (permutations of bytes)
  bool avx512_bf16 = false;  ///< `avx512` and AVX512-BF16 (products of pairs of bf16 numbers)
  bool amx = false;          ///< AMX with products of bf16 numbers
  bool intel = false;
  bool amd = false;  ///< made by AMD, where the same instructions may differ in speed

  /// Returns the features of this machine.
  static CpuFeatures detect();
};

}  // namespace dpt
