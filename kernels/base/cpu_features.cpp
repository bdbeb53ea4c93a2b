// Features of the processor, from the compiler's run-time support. That support also asks the
// operating system whether it saves the wide registers.
#include "kernels/base/cpu_features.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace dpt {

CpuFeatures CpuFeatures::detect() {
  CpuFeatures found;
#if defined(__x86_64__) || defined(__i386__)
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.bmi2 = __builtin_cpu_supports("bmi2");
  found.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  found.vnni =
      found.avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
  found.avx512_bf16 = found.avx512 && __builtin_cpu_supports("avx512bf16");
  // Clang 14 does not know AMX: leaf 7 of CPUID has AMX-BF16 in bit 22 of EDX (Intel's manual).
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  found.amx = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1) != 0;
  found.intel = __builtin_cpu_is("intel");
  found.amd = __builtin_cpu_is("amd");
#endif
  return found;
}

}  // namespace dpt
