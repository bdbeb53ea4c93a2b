// Max and average pooling on a card. Threads run over packs of neighbouring channels, NHWC, so that
// they read and write whole lines. Backward gathers: each input element asks the windows that hold
// it, in the order in which the CPU adds them, and no two threads write one place.
#include "kernels/cuda/pool2d.h"

#include <algorithm>
#include <limits>

#include "kernels/common/divide.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/pack.h"

namespace dpt {
namespace {

constexpr unsigned kThreads = 256;
/// Elements that one launch may have, for indices of 32 bits (and Divider's 31). Larger batches are
/// cut.
constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - 1;

/// One axis of a pooling.
struct Axis {
  int in, out, kernel, stride, padding, dilation;
  Divider by_stride, by_dilation;

  /// Where output `o`'s window begins on the input, perhaps in the padding before it.
  __device__ int start(int o) const { return o * stride - padding; }
  /// Calls use(o, k) for the windows o that hold input element i, in ascending order; k is the
  /// element's index in the window.
  template <class Use>
  __device__ void for_windows(int i, const Use& use) const {
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

/// A pooling as kernel parameters; activations are counted in packs of channels.
struct Geometry {
  Axis h, w;
  Divider groups;  ///< packs of a pixel
  Divider in_w, in_h, out_w, out_h;
  unsigned in_packs, out_packs;  ///< of one sample
};

/// Which pack of which pixel.
struct Place {
  int n, h, w, group;
};
__device__ inline Place place_of(unsigned at, const Divider& groups, const Divider& w,
                                 const Divider& h) {
  unsigned pixel = groups.split(at);
  unsigned row = w.split(pixel);
  const unsigned n = h.split(row);
  return {static_cast<int>(n), static_cast<int>(row), static_cast<int>(pixel),
          static_cast<int>(at)};
}
/// The index of pack `group` of a pixel of an image `width` wide that begins at `base`.
__device__ inline unsigned pack_at(unsigned base, int h, int w, int width, const Divider& groups,
                                   int group) {
  return base + static_cast<unsigned>(h * width + w) * groups.divisor() +
         static_cast<unsigned>(group);
}

// ---- Max ---------------------------------------------------------------------------------------

/// Saved where a window has no element that gets a gradient.
template <class Index>
inline constexpr Index kNone = static_cast<Index>(~Index{0});

/// The largest elements of the windows: the first of equal values wins, and the last NaN, as in
/// PyTorch. `kKernel` is the kernel's size along both axes where it is known, else 0. `saved` is
/// null in inference.
template <class T, class Index, int kCount, int kKernel>
__global__ void __launch_bounds__(kThreads)
    max_forward(Geometry g, const T* x, T* y, Index* saved, bool behind_relu, unsigned packs) {
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= packs) return;
  const Place p = place_of(at, g.groups, g.out_w, g.out_h);
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
    const bool none = where[c] < 0 || (behind_relu && best[c] <= 0.0F);
    index.v[c] = none ? kNone<Index> : static_cast<Index>(where[c]);
  }
  store_pack<kCount>(saved + to, index);
}

template <class T, class Index, int kCount>
__global__ void __launch_bounds__(kThreads)
    max_backward(Geometry g, const T* dy, T* dx, const Index* saved, unsigned packs) {
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= packs) return;
  const Place p = place_of(at, g.groups, g.in_w, g.in_h);
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

// ---- Average -----------------------------------------------------------------------------------

struct Average {
  bool count_include_pad;
  float fixed;  ///< 1 / divisor_override, or 0

  /// 1 / divisor of one window. The padding counts, if at all, up to the padded input's end: what a
  /// ceil_mode window hangs over never does.
  __device__ float weight(const Geometry& g, int oh, int ow) const {
    if (fixed != 0.0F) return fixed;
    const int high = extent(g.h, oh), wide = extent(g.w, ow);
    return high > 0 && wide > 0 ? 1.0F / static_cast<float>(high * wide) : 0.0F;
  }

 private:
  __device__ int extent(const Axis& axis, int o) const {
    const int start = axis.start(o), end = start + axis.kernel;
    if (count_include_pad) return min(end, axis.in + axis.padding) - start;
    return min(end, axis.in) - max(start, 0);
  }
};

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    average_forward(Geometry g, Average average, const T* x, T* y, unsigned packs) {
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= packs) return;
  const Place p = place_of(at, g.groups, g.out_w, g.out_h);
  const unsigned base = static_cast<unsigned>(p.n) * g.in_packs;
  const int top = g.h.start(p.h), left = g.w.start(p.w);
  const int bottom = min(top + g.h.kernel, g.h.in), right = min(left + g.w.kernel, g.w.in);
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

/// `closed` has a bit for each input element, from `first` on, through which a fused ReLU lets no
/// gradient; or is null.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    average_backward(Geometry g, Average average, const T* dy, T* dx, const unsigned* closed,
                     std::int64_t first, unsigned packs) {
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= packs) return;
  const Place p = place_of(at, g.groups, g.in_w, g.in_h);
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

/// Bit i of `closed`: x[i] <= 0, which a NaN is not.
template <class T>
__global__ void __launch_bounds__(kThreads)
    closed_bits(const T* x, unsigned* closed, std::int64_t count) {
  // Whole warps go round together, because they vote.
  for (std::int64_t warp = global_thread() / 32; warp * 32 < count; warp += grid_threads() / 32) {
    const std::int64_t i = warp * 32 + threadIdx.x % 32;
    const unsigned bits = __ballot_sync(0xffffffffU, i < count && to_float(x[i]) <= 0.0F);
    if (threadIdx.x % 32 == 0) closed[warp] = bits;
  }
}

// ---- Operations --------------------------------------------------------------------------------

Axis make_axis(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
               std::int64_t padding, std::int64_t dilation) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {number(in),      number(out),      number(kernel),  number(stride),
          number(padding), number(dilation), Divider(stride), Divider(dilation)};
}

template <class T>
class CudaPool : public Op {
 public:
  CudaPool(const CudaContext& context, const Pool2dDesc& desc, bool behind_relu)
      : context_(context), d_(desc), behind_relu_(behind_relu) {
    const std::int64_t most = std::max(d_.in.elements(), d_.out.elements());
    samples_ = std::min(d_.batch, kMostElements / most);
  }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  std::string implementation() const override { return "own"; }

 protected:
  Geometry geometry(int count) const {
    Geometry g;
    g.h = make_axis(d_.in.h, d_.out.h, d_.kernel.h, d_.stride.h, d_.padding.h, d_.dilation.h);
    g.w = make_axis(d_.in.w, d_.out.w, d_.kernel.w, d_.stride.w, d_.padding.w, d_.dilation.w);
    g.groups = Divider(d_.in.c / count);
    g.in_w = Divider(d_.in.w);
    g.in_h = Divider(d_.in.h);
    g.out_w = Divider(d_.out.w);
    g.out_h = Divider(d_.out.h);
    g.in_packs = static_cast<unsigned>(d_.in.elements() / count);
    g.out_packs = static_cast<unsigned>(d_.out.elements() / count);
    return g;
  }

  /// Calls use(count) with the number of channels of a pack, as a constant.
  template <class Use>
  void with_packs(const Use& use) const {
    if (d_.in.c % 4 == 0) {
      use(std::integral_constant<int, 4>());
    } else if (d_.in.c % 2 == 0) {
      use(std::integral_constant<int, 2>());
    } else {
      use(std::integral_constant<int, 1>());
    }
  }

  /// Calls use(first sample, number of samples) for pieces of the batch that a launch can take.
  template <class Use>
  void for_pieces(const Use& use) const {
    for (std::int64_t n = 0; n < d_.batch; n += samples_) {
      use(n, std::min(samples_, d_.batch - n));
    }
  }

  /// Launches `kernel` with a thread per pack; the number of packs is its last argument.
  template <class Kernel, class... Args>
  void launch_packs(Kernel kernel, std::int64_t packs, Args... args) const {
    launch(kernel, blocks_for(packs, kThreads, kMostElements), kThreads, 0, context_.stream,
           args..., static_cast<unsigned>(packs));
  }

  const CudaContext& context_;
  Pool2dDesc d_;
  bool behind_relu_;
  std::int64_t samples_;  ///< of one launch
};

template <class T, class Index>
class CudaMaxPool final : public CudaPool<T> {
 public:
  using CudaPool<T>::CudaPool;

  std::size_t saved_bytes() const override {
    if (!d_.training) return 0;
    return static_cast<std::size_t>(d_.batch * d_.out.elements()) * sizeof(Index);
  }

  void forward(const OpArgs& args) override {
    if constexpr (sizeof(Index) == 1) {
      if (d_.kernel == Size2{2, 2}) return run_forward<2>(args);
      if (d_.kernel == Size2{3, 3}) return run_forward<3>(args);
    }
    run_forward<0>(args);
  }

  void backward(const OpArgs& args) override {
    this->with_packs([&](auto count) {
      const Geometry g = this->geometry(count);
      this->for_pieces([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t to = n * d_.in.elements(), from = n * d_.out.elements();
        this->launch_packs(max_backward<T, Index, count>, samples * g.in_packs, g,
                           device<const T>(args.dy) + from, device<T>(args.dx) + to,
                           device<const Index>(args.saved) + from);
      });
    });
  }

 private:
  using CudaPool<T>::d_;

  template <int kKernel>
  void run_forward(const OpArgs& args) const {
    this->with_packs([&](auto count) {
      const Geometry g = this->geometry(count);
      this->for_pieces([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t from = n * d_.in.elements(), to = n * d_.out.elements();
        this->launch_packs(max_forward<T, Index, count, kKernel>, samples * g.out_packs, g,
                           device<const T>(args.x) + from, device<T>(args.y) + to,
                           d_.training ? device<Index>(args.saved) + to : nullptr,
                           this->behind_relu_);
      });
    });
  }
};

template <class T>
class CudaAveragePool final : public CudaPool<T> {
 public:
  using CudaPool<T>::CudaPool;

  /// A bit per input element, for a ReLU before the pooling.
  std::size_t saved_bytes() const override {
    return keeps_bits() ? static_cast<std::size_t>((in_elements() + 31) / 32) * 4 : 0;
  }

  void forward(const OpArgs& args) override {
    if (keeps_bits()) {
      launch(closed_bits<T>,
             blocks_for(in_elements(), kThreads, std::int64_t{8} * this->context_.multiprocessors),
             kThreads, 0, this->context_.stream, device<const T>(args.x),
             device<unsigned>(args.saved), in_elements());
    }
    this->with_packs([&](auto count) {
      const Geometry g = this->geometry(count);
      this->for_pieces([&](std::int64_t n, std::int64_t samples) {
        this->launch_packs(average_forward<T, count>, samples * g.out_packs, g, average(),
                           device<const T>(args.x) + n * d_.in.elements(),
                           device<T>(args.y) + n * d_.out.elements());
      });
    });
  }

  void backward(const OpArgs& args) override {
    this->with_packs([&](auto count) {
      const Geometry g = this->geometry(count);
      this->for_pieces([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t first = n * d_.in.elements();
        this->launch_packs(average_backward<T, count>, samples * g.in_packs, g, average(),
                           device<const T>(args.dy) + n * d_.out.elements(),
                           device<T>(args.dx) + first,
                           keeps_bits() ? device<const unsigned>(args.saved) : nullptr, first);
      });
    });
  }

 private:
  using CudaPool<T>::d_;

  std::int64_t in_elements() const { return d_.batch * d_.in.elements(); }
  bool keeps_bits() const { return this->behind_relu_ && d_.training; }
  Average average() const {
    const auto divisor = static_cast<float>(d_.divisor_override);
    return {d_.count_include_pad, d_.divisor_override == 0 ? 0.0F : 1.0F / divisor};
  }
};

template <class T>
std::unique_ptr<Op> make(const CudaContext& context, const Pool2dDesc& desc, bool behind_relu) {
  if (desc.kind == PoolKind::average) {
    return std::make_unique<CudaAveragePool<T>>(context, desc, behind_relu);
  }
  // As small as a window's positions and kNone allow.
  const std::int64_t positions = desc.kernel.h * desc.kernel.w;
  if (positions <= 0xff) {
    return std::make_unique<CudaMaxPool<T, std::uint8_t>>(context, desc, behind_relu);
  }
  if (positions <= 0xffff) {
    return std::make_unique<CudaMaxPool<T, std::uint16_t>>(context, desc, behind_relu);
  }
  return std::make_unique<CudaMaxPool<T, std::uint32_t>>(context, desc, behind_relu);
}

/// Whether all numbers of an axis, and of the windows along it, fit into 32 bits.
bool fits(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
          std::int64_t padding, std::int64_t dilation) {
  constexpr std::int64_t kMost = std::int64_t{1} << 29;
  const auto small = [](std::int64_t value) { return value <= kMost; };
  return small(in) && small(out) && small(kernel) && small(stride) && small(padding) &&
         small(dilation) && small(out * stride) && small(kernel * dilation);
}

}  // namespace

std::unique_ptr<Op> make_cuda_pool2d(const CudaContext& context, const Pool2dDesc& desc,
                                     bool behind_relu) {
  check_cuda_desc(context, "pooling", desc.type, desc.batch);
  if (desc.kind == PoolKind::average && desc.dilation != Size2{1, 1}) {
    fail(ErrorKind::device, "{}: average pooling has no dilation, found ({}, {})", context.name,
         desc.dilation.h, desc.dilation.w);
  }
  if (desc.in.elements() > kMostElements || desc.out.elements() > kMostElements ||
      !fits(desc.in.h, desc.out.h, desc.kernel.h, desc.stride.h, desc.padding.h, desc.dilation.h) ||
      !fits(desc.in.w, desc.out.w, desc.kernel.w, desc.stride.w, desc.padding.w, desc.dilation.w)) {
    fail(ErrorKind::device,
         "{}: pooling {}x{}x{} to {}x{}x{} (height, width, channels) is too large: a sample may "
         "have {} elements",
         context.name, desc.in.h, desc.in.w, desc.in.c, desc.out.h, desc.out.w, desc.out.c,
         kMostElements);
  }
  if (desc.type == DType::bf16) return make<Bf16>(context, desc, behind_relu);
  return make<float>(context, desc, behind_relu);
}

}  // namespace dpt
