// Pooling kernels. Threads process packs of neighbouring channels, NHWC, so that they read and
// write whole lines. Backward gathers: each input element adds the gradients of the windows that
// contain it, in the same order as the CPU. So no two threads write the same element. If windows
// tile the input, a thread writes a whole window instead, because this reads less.
#pragma once

#include <limits>

#include "kernels/base/divide.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {

inline constexpr unsigned kPoolThreads = 256;
/// One axis of a pooling.
struct PoolAxis {
  int in, out, kernel, stride, padding, dilation;
  Divider by_stride, by_dilation;
  bool adaptive;  ///< Pool2dDesc::adaptive

  /// Returns the start of output `o`'s window on the input. It may be in the padding before the
  /// input.
  __device__ int start(int o) const { return adaptive ? o * in / out : o * stride - padding; }
  /// Returns the end of an undilated window. It may be beyond the input.
  __device__ int end(int o) const {
    return adaptive ? ((o + 1) * in + out - 1) / out : start(o) + kernel;
  }
  /// Calls use(o, k) for the windows o that contain input element i, in ascending order; k is the
  /// element's index in the window.
  template <class Use>
  __device__ void for_windows(int i, const Use& use) const {
    if (adaptive) {
      // The windows that contain an input are those of an adaptive pooling in the opposite
      // direction.
      const int end = ((i + 1) * out + in - 1) / in;
      for (int o = i * out / in; o < end; ++o) use(o, i - start(o));
      return;
    }
    const int from_pad = i + padding, span = (kernel - 1) * dilation;
    const int first = from_pad <= span ? 0 : quotient(by_stride, from_pad - span + stride - 1);
    const int last = min(quotient(by_stride, from_pad), out - 1);
    for (int o = first; o <= last; ++o) {
      const int offset = from_pad - o * stride;
      const int k = quotient(by_dilation, offset);
      if (k * dilation == offset) use(o, k);
    }
  }
  __device__ static int quotient(const Divider& by, int n) {
    return static_cast<int>(by.quotient(static_cast<unsigned>(n)));
  }
};

/// Parameters of a pooling kernel; activations are counted in packs of channels.
struct PoolGeometry {
  PoolAxis h, w;
  Divider groups;  ///< packs per pixel
  Divider in_w, in_h, out_w, out_h;
  unsigned in_packs, out_packs;  ///< packs per sample
};

/// Position of a pack: sample, pixel and group of channels.
struct PoolPlace {
  int n, h, w, group;
};
__device__ inline PoolPlace place_of(unsigned at, const Divider& groups, const Divider& w,
                                     const Divider& h) {
  unsigned pixel = groups.split(at);
  unsigned row = w.split(pixel);
  const unsigned n = h.split(row);
  return {static_cast<int>(n), static_cast<int>(row), static_cast<int>(pixel),
          static_cast<int>(at)};
}
/// Returns the index of pack `group` of a pixel in an image of width `width` that begins at `base`.
__device__ inline unsigned pack_at(unsigned base, int h, int w, int width, const Divider& groups,
                                   int group) {
  return base + static_cast<unsigned>(h * width + w) * groups.divisor() +
         static_cast<unsigned>(group);
}

// ---- Max ---------------------------------------------------------------------------------------

/// Value saved for a window in which no element gets a gradient.
template <class Index>
inline constexpr Index kNoPosition = static_cast<Index>(~Index{0});

/// Finds the largest elements of the windows. As in PyTorch, the first of equal values wins, and
/// the last of several NaNs. `kKernel` is the kernel's size along both axes if it is known, else 0.
/// `saved` is null in inference.
template <class T, class Index, int kCount, int kKernel>
__global__ void __launch_bounds__(kPoolThreads)
    max_forward(PoolGeometry g, const T* x, T* y, Index* saved, bool after_relu, unsigned packs) {
  const unsigned at = blockIdx.x * kPoolThreads + threadIdx.x;
  if (at >= packs) return;
  const PoolPlace p = place_of(at, g.groups, g.out_w, g.out_h);
  const unsigned base = static_cast<unsigned>(p.n) * g.in_packs;
  const int top = g.h.start(p.h), left = g.w.start(p.w);
  const int kernel_h = kKernel ? kKernel : g.h.kernel, kernel_w = kKernel ? kKernel : g.w.kernel;
  float best[kCount];
  int where[kCount];
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    best[c] = -std::numeric_limits<float>::infinity();
    where[c] = -1;
  }
#pragma unroll
  for (int kh = 0; kh < kernel_h; ++kh) {
    const int ih = top + kh * g.h.dilation;
#pragma unroll
    for (int kw = 0; kw < kernel_w; ++kw) {
      const int iw = left + kw * g.w.dilation;
      if (ih < 0 || ih >= g.h.in || iw < 0 || iw >= g.w.in) continue;
      const auto values = load_pack<kCount>(
          x + static_cast<std::size_t>(pack_at(base, ih, iw, g.w.in, g.groups, p.group)) * kCount);
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        const float value = to_float(values.v[c]);
        const bool wins = value > best[c] || value != value || where[c] < 0;
        best[c] = wins ? value : best[c];
        where[c] = wins ? kh * kernel_w + kw : where[c];
      }
    }
  }
  const std::size_t to = static_cast<std::size_t>(at) * kCount;
  Pack<T, kCount> result;
#pragma unroll
  for (int c = 0; c < kCount; ++c) store(result.v[c], best[c]);
  store_pack<kCount>(y + to, result);
  if (!saved) return;
  Pack<Index, kCount> index;
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    const bool none = where[c] < 0 || (after_relu && best[c] <= 0.0F);
    index.v[c] = none ? kNoPosition<Index> : static_cast<Index>(where[c]);
  }
  store_pack<kCount>(saved + to, index);
}

template <class T, class Index, int kCount>
__global__ void __launch_bounds__(kPoolThreads)
    max_backward(PoolGeometry g, const T* dy, T* dx, const Index* saved, unsigned packs) {
  const unsigned at = blockIdx.x * kPoolThreads + threadIdx.x;
  if (at >= packs) return;
  const PoolPlace p = place_of(at, g.groups, g.in_w, g.in_h);
  const unsigned base = static_cast<unsigned>(p.n) * g.out_packs;
  float sums[kCount] = {};
  g.h.for_windows(p.h, [&](int oh, int kh) {
    g.w.for_windows(p.w, [&](int ow, int kw) {
      const std::size_t from =
          static_cast<std::size_t>(pack_at(base, oh, ow, g.w.out, g.groups, p.group)) * kCount;
      const auto index = load_pack<kCount>(saved + from);
      const auto gradient = load_pack<kCount>(dy + from);
      const auto position = static_cast<Index>(kh * g.w.kernel + kw);
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        if (index.v[c] == position) sums[c] += to_float(gradient.v[c]);
      }
    });
  });
  Pack<T, kCount> result;
#pragma unroll
  for (int c = 0; c < kCount; ++c) store(result.v[c], sums[c]);
  store_pack<kCount>(dx + static_cast<std::size_t>(at) * kCount, result);
}

/// Computes dx, like max_backward, for windows of kKernel x kKernel that tile the input without
/// padding. A thread writes the elements of one window, or zeros after the last whole window.
template <class T, int kCount, int kKernel>
__global__ void __launch_bounds__(kPoolThreads)
    max_backward_tiles(PoolGeometry g, Divider tiles_w, Divider tiles_h, const T* dy, T* dx,
                       const std::uint8_t* saved, unsigned packs) {
  const unsigned at = blockIdx.x * kPoolThreads + threadIdx.x;
  if (at >= packs) return;
  const PoolPlace p = place_of(at, g.groups, tiles_w, tiles_h);
  Pack<T, kCount> gradient = {};
  Pack<std::uint8_t, kCount> index;
  for (std::uint8_t& each : index.v) each = kNoPosition<std::uint8_t>;
  if (p.h < g.h.out && p.w < g.w.out) {
    const std::size_t from =
        static_cast<std::size_t>(pack_at(static_cast<unsigned>(p.n) * g.out_packs, p.h, p.w,
                                         g.w.out, g.groups, p.group)) *
        kCount;
    index = load_pack<kCount>(saved + from);
    gradient = load_pack<kCount>(dy + from);
  }
  // Start the sum at zero, as elsewhere, so that -0 becomes 0.
#pragma unroll
  for (int c = 0; c < kCount; ++c) store(gradient.v[c], 0.0F + to_float(gradient.v[c]));
#pragma unroll
  for (int kh = 0; kh < kKernel; ++kh) {
    const int ih = p.h * kKernel + kh;
#pragma unroll
    for (int kw = 0; kw < kKernel; ++kw) {
      const int iw = p.w * kKernel + kw;
      if (ih >= g.h.in || iw >= g.w.in) continue;
      Pack<T, kCount> result;
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        result.v[c] = index.v[c] == kh * kKernel + kw ? gradient.v[c] : T{};
      }
      const std::size_t to =
          static_cast<std::size_t>(
              pack_at(static_cast<unsigned>(p.n) * g.in_packs, ih, iw, g.w.in, g.groups, p.group)) *
          kCount;
      store_pack<kCount>(dx + to, result);
    }
  }
}

// ---- Average -----------------------------------------------------------------------------------

struct AverageWeights {
  bool count_include_pad;
  float fixed;  ///< 1 / divisor_override; 0 without one

  /// Returns 1 / divisor of one window. If padding counts, it counts up to the end of the padded
  /// input. With ceil_mode, a window may extend beyond that; this part never counts.
  __device__ float weight(const PoolGeometry& g, int oh, int ow) const {
    if (fixed != 0.0F) return fixed;
    const int high = extent(g.h, oh), wide = extent(g.w, ow);
    return high > 0 && wide > 0 ? 1.0F / static_cast<float>(high * wide) : 0.0F;
  }

 private:
  __device__ int extent(const PoolAxis& axis, int o) const {
    const int start = axis.start(o), end = axis.end(o);
    if (count_include_pad && !axis.adaptive) return min(end, axis.in + axis.padding) - start;
    return min(end, axis.in) - max(start, 0);
  }
};

template <class T, int kCount>
__global__ void __launch_bounds__(kPoolThreads)
    average_forward(PoolGeometry g, AverageWeights average, const T* x, T* y, unsigned packs) {
  const unsigned at = blockIdx.x * kPoolThreads + threadIdx.x;
  if (at >= packs) return;
  const PoolPlace p = place_of(at, g.groups, g.out_w, g.out_h);
  const unsigned base = static_cast<unsigned>(p.n) * g.in_packs;
  const int top = g.h.start(p.h), left = g.w.start(p.w);
  const int bottom = min(g.h.end(p.h), g.h.in), right = min(g.w.end(p.w), g.w.in);
  float sums[kCount] = {};
  for (int ih = max(top, 0); ih < bottom; ++ih) {
    for (int iw = max(left, 0); iw < right; ++iw) {
      const auto values = load_pack<kCount>(
          x + static_cast<std::size_t>(pack_at(base, ih, iw, g.w.in, g.groups, p.group)) * kCount);
#pragma unroll
      for (int c = 0; c < kCount; ++c) sums[c] += to_float(values.v[c]);
    }
  }
  const float weight = average.weight(g, p.h, p.w);
  Pack<T, kCount> result;
#pragma unroll
  for (int c = 0; c < kCount; ++c) store(result.v[c], sums[c] * weight);
  store_pack<kCount>(y + static_cast<std::size_t>(at) * kCount, result);
}

/// Computes dx. Unless it is null, `closed` has a bit for each input element from `first` on. The
/// bit is set if a fused ReLU blocks the element's gradient.
template <class T, int kCount>
__global__ void __launch_bounds__(kPoolThreads)
    average_backward(PoolGeometry g, AverageWeights average, const T* dy, T* dx,
                     const unsigned* closed, std::int64_t first, unsigned packs) {
  const unsigned at = blockIdx.x * kPoolThreads + threadIdx.x;
  if (at >= packs) return;
  const PoolPlace p = place_of(at, g.groups, g.in_w, g.in_h);
  const unsigned base = static_cast<unsigned>(p.n) * g.out_packs;
  float sums[kCount] = {};
  g.h.for_windows(p.h, [&](int oh, int) {
    g.w.for_windows(p.w, [&](int ow, int) {
      const auto gradient = load_pack<kCount>(
          dy +
          static_cast<std::size_t>(pack_at(base, oh, ow, g.w.out, g.groups, p.group)) * kCount);
      const float weight = average.weight(g, oh, ow);
#pragma unroll
      for (int c = 0; c < kCount; ++c) sums[c] += to_float(gradient.v[c]) * weight;
    });
  });
  const std::size_t to = static_cast<std::size_t>(at) * kCount;
  Pack<T, kCount> result;
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    const std::int64_t bit = first + static_cast<std::int64_t>(to) + c;
    const bool shut = closed && (closed[bit / 32] >> (bit % 32) & 1U) != 0;
    store(result.v[c], shut ? 0.0F : sums[c]);
  }
  store_pack<kCount>(dx + to, result);
}

/// Sets bit i of `closed` if x[i] <= 0, which is false for NaN.
template <class T>
__global__ void __launch_bounds__(kPoolThreads)
    closed_bits(const T* x, unsigned* closed, std::int64_t count) {
  // Whole warps iterate together, because they vote.
  for (std::int64_t warp = global_thread() / 32; warp * 32 < count; warp += grid_threads() / 32) {
    const std::int64_t i = warp * 32 + threadIdx.x % 32;
    const unsigned bits = __ballot_sync(0xffffffffU, i < count && to_float(x[i]) <= 0.0F);
    if (threadIdx.x % 32 == 0) closed[warp] = bits;
  }
}

}  // namespace dpt
