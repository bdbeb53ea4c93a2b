// Features of the processor and the operating system, detected at run time: a build must start on
// any machine of its architecture, and `-march=native` may name an older processor than the real
// one.
#pragma once

namespace dpt {

struct CpuFeatures {
  bool avx2 = false;  ///< AVX2 and FMA, with the 256-bit registers saved by the system
  bool bmi2 = false;
  bool avx512 = false;  ///< AVX-512 F, BW, DQ and VL, likewise
  bool vnni = false;    ///< avx512, its products of bytes (VNNI) and permutations of bytes (VBMI)
  bool intel = false;
  bool amd = false;  ///< made by AMD: where kernels of equal instructions differ in what they cost

  /// This machine's features.
  static CpuFeatures detect();
};

}  // namespace dpt
