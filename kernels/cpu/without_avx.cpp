// In place of features.cpp and of every *_avx2.cpp, *_avx512.cpp and *_vnni.cpp where the build is
// not for x86: the processor offers none of it, so none of it is ever called.
#include <cstdlib>

#include "kernels/cpu/batch_norm_rows.h"
#include "kernels/cpu/direct_conv.h"
#include "kernels/cpu/direct_linear.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/flat_avx2.h"
#include "kernels/cpu/jpeg_loops.h"
#include "kernels/cpu/optimizer_avx2.h"
#include "kernels/cpu/resize_rows.h"

namespace dpt {

CpuFeatures CpuFeatures::detect() {
  return {};
}

namespace flat_avx2 {

// No elements done in vectors: flat.cpp does all of them.
std::int64_t add(float*, const float*, const float*, std::int64_t) {
  return 0;
}
std::int64_t add_squares(const float*, std::int64_t, double[16]) {
  return 0;
}

}  // namespace flat_avx2

namespace batch_norm {

const RowKernels& row_kernels_avx2() {
  std::abort();
}
const RowKernels& row_kernels_avx512() {
  std::abort();
}

}  // namespace batch_norm

FormulaLoops optimizer_avx2::loops_of(int) {
  std::abort();
}

namespace resize_rows {

void along_row_rgb_avx2(const std::uint8_t*, const PackedTaps&, std::uint8_t*) {
  std::abort();
}
void along_row_grey_avx2(const std::uint8_t*, const PackedTaps&, std::uint8_t*) {
  std::abort();
}
void along_columns_avx2(const std::uint8_t*, std::int64_t, const std::int32_t*, std::int64_t,
                        std::int64_t, std::uint8_t*) {
  std::abort();
}
void along_row_rgb_vnni(const std::uint8_t*, const PackedTaps&, std::uint8_t*) {
  std::abort();
}
void along_row_grey_vnni(const std::uint8_t*, const PackedTaps&, std::uint8_t*) {
  std::abort();
}
void along_columns_vnni(const std::uint8_t*, std::int64_t, const std::int32_t*, std::int64_t,
                        std::int64_t, std::uint8_t*) {
  std::abort();
}

}  // namespace resize_rows

namespace jpeg_loops {

// are_available() is false.
void skip_mcus(Scan&, std::int64_t) {
  std::abort();
}
void read_mcu(Scan&, Block*, bool*) {
  std::abort();
}
void fill_block(std::int16_t, int, BlockPlace) {
  std::abort();
}
bool inverse_dct(const Block&, BlockPlace, const Block&, BlockPlace, int) {
  std::abort();
}
void weighted_rows(const std::uint8_t*, const std::uint8_t*, std::int64_t, std::int16_t*) {
  std::abort();
}
void widened_row(const std::uint8_t*, std::int64_t, std::int16_t*) {
  std::abort();
}
void doubled_row(const std::int16_t*, std::int64_t, int, int, int, std::uint8_t*) {
  std::abort();
}
void rgb_row(const std::uint8_t*, const std::uint8_t*, const std::uint8_t*, std::int64_t,
             std::uint8_t*) {
  std::abort();
}

}  // namespace jpeg_loops

namespace direct {

// The factories of direct kernels return null without AVX2.
const ConvKernels& conv_kernels_avx2() {
  std::abort();
}
const ConvKernels& conv_kernels_avx512() {
  std::abort();
}
const ConvKernels& winograd_kernels_avx2() {
  std::abort();
}
const ConvKernels& winograd_kernels_avx512() {
  std::abort();
}
const LinearKernels& linear_kernels_avx2() {
  std::abort();
}
const LinearKernels& linear_kernels_avx512() {
  std::abort();
}

}  // namespace direct
}  // namespace dpt
