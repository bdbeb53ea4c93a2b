// Convolution kernels for small images. A block holds all weights and one whole image in shared
// memory, so it loads each number of the image once. The implicit product (implicit_gemm.h) loads
// it again for every tap, and computes an address each time.
//
// Forward and backward data without stride are the same sum over a window that slides over the
// *source* (x or dy), with its border of zeros:
//
//   out(i, j, n) = sum over r, s, c  source(i + r, j + s, c) w(r, s, c, n)
//
// with w turned by 180 degrees in backward data. For one r, the window's s and c form one *run* of
// neighbouring numbers in the image, s * pitch + c, which is the k side of the product. The pitch
// of pixels is chosen so that the eight rows that a warp reads at a time are in different banks.
#pragma once

#include "kernels/base/divide.h"
#include "kernels/cuda/conv/implicit_gemm.h"

namespace dpt {

inline constexpr int kImageThreads = 512;
/// Maximum number of 32-bit words that a thread holds while it copies the source from global to
/// shared memory.
inline constexpr int kImageCarried = 8;
inline constexpr int kImageMostTiles = 4;  ///< maximum of tiles_each, limited by the registers

/// Returns ceil_div as an int, for the small numbers of a shape.
inline int ceil_div_int(std::int64_t count, std::int64_t by) {
  return static_cast<int>(ceil_div(count, by));
}

struct ImageShape {
  int images = 0;
  int source_pixels = 0;  ///< pixels of one image in memory; a pooled gradient has a quarter
  int source_width = 0;
  int border_h = 0, border_w = 0;  ///< zeros around the image in shared memory
  int data_rows = 0;               ///< rows between the borders
  int width = 0;                   ///< width of the image with its borders and possibly padding
  int pixel_words = 0;             ///< words of one pixel's channels in memory
  int pitch = 0;                   ///< words of one pixel in shared memory
  int image_words = 0;             ///< words of an image with its borders
  int taps_h = 0, taps_w = 0;
  int run_words = 0, run_steps = 0;   ///< words and steps of one r; a step has 8 words
  int column_tiles = 0;               ///< tiles of 8 columns
  int tiles_each = 0, groups = 0;     ///< column tiles of one task; tasks that cover all columns
  int rows = 0, out_width = 0;        ///< pixels that are computed; width of `out` in memory
  int out_elements = 0;               ///< elements of one image of `out`
  int tasks = 0;                      ///< tasks of one image: 16 rows times tiles_each column tiles
  Divider per_pixel, per_source_row;  ///< divide source words into pixels, and pixels into rows
  Divider per_run, per_tap;           ///< divide weights: steps into r, words into s
  Divider per_out_row, per_group;

  DPT_HOST_DEVICE std::int64_t weight_words() const {
    return std::int64_t{64} * taps_h * run_steps * column_tiles;
  }
  std::size_t shared_bytes() const {
    return static_cast<std::size_t>(weight_words() + image_words) * sizeof(std::uint32_t);
  }
};

/// Kernel of forward or backward data in one arithmetic. Grid: any number of blocks of
/// kImageThreads threads; each takes every gridDim.x-th image. bf16_odd is for bf16 pixels that do
/// not fill whole words: each number gets a separate word, as tf32, which holds it exactly.
using ImageKernel = void (*)(const ConvGemm, const ImageShape);
ImageKernel image_kernel_tf32(Pass pass, bool pooled);
ImageKernel image_kernel_bf16(Pass pass, bool pooled);
ImageKernel image_kernel_bf16_odd(Pass pass, bool pooled);

/// Creates the plan of backward weights for a problem that make_image_conv has checked; null if the
/// problem is too large.
std::unique_ptr<ConvPlan> make_image_weights(const CudaContext& context,
                                             const ConvProblem& problem);

}  // namespace dpt
