// Replaces every *_avx2.cpp and *_vnni.cpp of this folder and of jpeg/ in builds for processors
// other than x86. On these, CpuFeatures reports none of the instruction sets, so these functions
// are never called.
#include <cstdlib>

#include "kernels/image/jpeg/jpeg_loops.h"
#include "kernels/image/resize_rows.h"

namespace dpt {

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

// Never called, because are_available() is false.
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

}  // namespace dpt
