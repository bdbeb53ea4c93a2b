// AVX2 loops of the optimizers. This file must not instantiate templates for plain floats: the
// linker could use a copy with AVX2 instructions on all processors.
#include "kernels/cpu/simd/floats_avx2.h"
#include "kernels/cpu/simd/optimizer_loops.h"

namespace dpt {
namespace {

struct PackOf8 {
  static constexpr int kWidth = 8, kRound = LayerSums::kLanes;
  using Floats = dpt::Floats;
  using FiniteCheck = dpt::FiniteCheck;

  static Floats load(const float* from) { return dpt::load(from); }
  static void store(float* to, Floats x) { dpt::store(to, x); }
  /// Adds the squares of eight values to eight lanes of a LayerSums.
  static void add_squares(Floats x, double* lanes) {
    // The square of a float is exact in double, so fused and separate operations give the same
    // bits.
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
    _mm256_storeu_pd(lanes, _mm256_fmadd_pd(low, low, _mm256_loadu_pd(lanes)));
    _mm256_storeu_pd(lanes + 4, _mm256_fmadd_pd(high, high, _mm256_loadu_pd(lanes + 4)));
  }
};

}  // namespace

constexpr const FormulaLoops* kOptimizerLoopsAvx2 = kOptimizerLoops<PackOf8>;

}  // namespace dpt
