// Processor features through the compiler's run-time support, which also asks the operating system
// whether it saves the wide registers.
#include "kernels/base/cpu_features.h"

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
  found.amx = __builtin_cpu_supports("amx-bf16");
  found.intel = __builtin_cpu_is("intel");
  found.amd = __builtin_cpu_is("amd");
#endif
  return found;
}

}  // namespace dpt
