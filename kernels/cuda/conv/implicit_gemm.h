// Convolution as an implicit matrix product: the description that the host creates for the kernels.
//
// All three passes are one matrix product over *pixels*, *taps* and channels. A pixel is a position
// (n, i, j) of a grid over the images; a tap is a position (r, s) of the kernel window with one
// channel of the gathered tensor. The *gathered* tensor is read at pixel + tap, 0 outside the
// image:
//
//   forward:           y(pixel, k)  = sum over taps    x(pixel + tap)  w(k, tap)
//   backward data:     dx(pixel, c) = sum over taps    dy(pixel + tap) w(tap, c)
//   backward weights:  dw(k, tap)   = sum over pixels  dy(pixel, k)    x(pixel + tap)
//
// Backward data with a stride uses dy only at every stride-th position. The pixels of dx are
// therefore partitioned into phases (position modulo stride). Within one phase every pixel uses the
// same taps, and neighbours in dx are neighbours in dy, so each phase is a convolution without
// stride.
//
// With fused pooling, the pixels of y are ordered by window: pixel 4 i + c is corner c of the
// window of pooled pixel i. So the four rows of a window are next to each other in one warp
// (forward), and four neighbours along k read one element of the pooled dy (backward weights).
#pragma once

#include <cstdint>

#include "kernels/base/divide.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// One spatial axis.
struct GemmAxis {
  int gathered = 1;  ///< size of the gathered tensor
  int pixels = 1;    ///< size of the tensor that has the pixels
  int stride = 1, padding = 0, dilation = 1, taps = 1;
  // Used by backward data; in the other passes, they are 1, `taps` and 1. A phase uses every
  // tap_step-th tap, at most tap_slots of them. They are gathered_step apart in dy.
  int tap_step = 1, tap_slots = 1, gathered_step = 1;
};

/// Pooling by windows of 2x2 inside the product. The tensor y (forward) or dy (backward) is pooled,
/// with height x width pixels; `open` is ConvArgs::open.
struct GemmPool {
  std::uint8_t* open = nullptr;
  int height = 0, width = 0;
  float scale = 1.0F;
  bool max = false;
};

inline GemmPool pool_of(const ConvPool& pool) {
  GemmPool made;
  made.height = static_cast<int>(pool.out.h);
  made.width = static_cast<int>(pool.out.w);
  made.scale = pool.scale;
  made.max = pool.kind == PoolKind::max;
  return made;
}

struct ConvGemm {
  const void* gathered = nullptr;
  const void* matrix = nullptr;  ///< other factor: weights, or dy in backward weights
  void* out = nullptr;  ///< y, dx, dweight, or one partial sum of dweight and dbias per split
  const float* bias = nullptr;  ///< forward, or null
  GemmAxis h, w;
  int gathered_channels = 1, pixel_channels = 1;  ///< channels of the two tensors
  int gathered_group = 1, pixel_group = 1;        ///< channels of the two tensors in one group
  Divider per_image, per_row, per_tap, per_tap_row;
  int pixels = 0, taps = 0;  ///< pixels of the grid of one phase; tap slots times gathered_group
  int columns = 0;           ///< columns of the product in one group
  int gathered_vector = 1, matrix_vector = 1;  ///< elements of one load
  int splits = 1, split_pixels = 0;            ///< backward weights: splits along the pixels
  bool relu = false;
  bool pairs = false;  ///< true if two neighbours of `out` may be stored at once
  bool add = false;    ///< backward weights without splits: out += ...
  bool ones = false;   ///< backward weights: adds a column of ones, for the bias
  float* dbias = nullptr;
  GemmPool pool;  ///< used by the pooled kernels only
};

/// Tile of the product that a block of 128 threads computes.
enum class GemmTile : std::uint8_t { wide, square, small };  // 128x32, 64x64, 32x32

/// Numbers of threads of a block, and of 32-bit words along the k side that a block processes in
/// one step.
inline constexpr int kGemmThreads = 128, kGemmWords = 32;
constexpr int gemm_tile_rows(GemmTile tile) {
  return tile == GemmTile::wide ? 128 : tile == GemmTile::square ? 64 : 32;
}
constexpr int gemm_tile_columns(GemmTile tile) {
  return tile == GemmTile::square ? 64 : 32;
}

/// Kind of a product, which selects the kernel. `wide` and `square` tiles exist for forward and
/// backward data, `small` and `square` for backward weights.
struct GemmKind {
  Pass pass = Pass::forward;
  GemmTile tile = GemmTile::square;
  bool pooled = false;
};

/// Queue the product, one function per arithmetic: strict fp32, tf32, bf16.
void launch_gemm_f32(GemmKind kind, dim3 grid, cudaStream_t stream, const ConvGemm& gemm);
void launch_gemm_tf32(GemmKind kind, dim3 grid, cudaStream_t stream, const ConvGemm& gemm);
void launch_gemm_bf16(GemmKind kind, dim3 grid, cudaStream_t stream, const ConvGemm& gemm);

}  // namespace dpt
