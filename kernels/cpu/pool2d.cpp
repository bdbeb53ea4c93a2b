#include "kernels/cpu/ops.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/base/divide.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"

namespace dpt {
namespace {

/// Reads one or four numbers as fp32. A maximum of bf16 numbers is itself one of them, so writing
/// it does not round.
template <class Float>
Float read(const float* from) {
  return load<Float>(from);
}
template <class Float>
Float read(const Bf16* from) {
  if constexpr (std::is_same_v<Float, float>) {
    return to_float(*from);
  } else {
    using Half4 = std::uint16_t __attribute__((vector_size(8)));
    const auto bits = __builtin_convertvector(load<Half4>(from), Int4) << 16;
    return load<Float4>(&bits);
  }
}
void write(float* to, float value) {
  *to = value;
}
void write(float* to, const Float4& value) {
  store(to, value);
}
void write(Bf16* to, float value) {
  *to = to_bf16(value);
}
void write(Bf16* to, const Float4& value) {
  for (int i = 0; i < 4; ++i) to[i] = to_bf16(value[i]);
}

/// Elements of a window along one axis that lie on the input: first, first + step, and so on below
/// end. `offset` is the first element's index in the kernel.
struct Span {
  std::int64_t first, end, offset;
};

Span clip(std::int64_t out, std::int64_t stride, std::int64_t padding, std::int64_t kernel,
          std::int64_t dilation, std::int64_t size) {
  const std::int64_t start = out * stride - padding;
  const std::int64_t end = std::min(start + (kernel - 1) * dilation + 1, size);
  const std::int64_t skip = start < 0 ? ceil_div(-start, dilation) : 0;
  return {start + skip * dilation, end, skip};
}

/// Returns a window of an adaptive pooling. It lies entirely on the input.
Span even_window(std::int64_t out, std::int64_t outs, std::int64_t size) {
  return {out * size / outs, ceil_div((out + 1) * size, outs), 0};
}

/// Base of max and average pooling. Sums are computed in fp32: in place if the elements T are fp32,
/// otherwise in scratch memory, from which they are rounded once.
template <class T>
class Pool : public Op {
 public:
  Pool(const Pool2dDesc& desc, int threads) : d_(desc), threads_(threads) {}
  std::size_t scratch_bytes() const override {
    return kRounds ? static_cast<std::size_t>(threads_) * sums_bytes() : 0;
  }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  std::string implementation() const override { return "own"; }

 protected:
  Span rows(std::int64_t out) const {
    if (d_.adaptive) return even_window(out, d_.out.h, d_.in.h);
    return clip(out, d_.stride.h, d_.padding.h, d_.kernel.h, d_.dilation.h, d_.in.h);
  }
  Span columns(std::int64_t out) const {
    if (d_.adaptive) return even_window(out, d_.out.w, d_.in.w);
    return clip(out, d_.stride.w, d_.padding.w, d_.kernel.w, d_.dilation.w, d_.in.w);
  }

  /// Calls row(n, oh) for every output row.
  template <class Row>
  void for_rows(const Row& row) const {
    parallel_for(threads_, d_.batch, [&](std::int64_t n) {
      for (std::int64_t oh = 0; oh < d_.out.h; ++oh) row(n, oh);
    });
  }

  /// Calls row(sums, n, oh) for every output row. Each call adds to `sums`, which becomes the dx of
  /// the whole sample. The rows of one sample run in order in one thread, so that overlapping
  /// windows always add their gradients in the same order.
  template <class Row>
  void for_gradient_rows(const OpArgs& args, const Row& row) const {
    const std::int64_t elements = d_.in.elements();
    parallel_for(threads_, d_.batch, [&](std::int64_t n) {
      T* dx = host<T>(args.dx) + n * elements;
      float* sums = sums_of(dx, args);
      std::fill_n(sums, elements, 0.0F);
      for (std::int64_t oh = 0; oh < d_.out.h; ++oh) row(sums, n, oh);
      finish(dx, sums, elements);
    });
  }

  /// Returns the memory for this thread's sums: `to` itself if it is fp32, else scratch for one
  /// sample of x.
  static float* sums_of(float* to, const OpArgs&) { return to; }
  float* sums_of(Bf16*, const OpArgs& args) const {
    return host(args.scratch + static_cast<std::size_t>(omp_get_thread_num()) * sums_bytes());
  }
  static void finish(float*, const float*, std::int64_t) {}
  static void finish(Bf16* to, const float* sums, std::int64_t count) {
    cpu_to_bf16(to, sums, count);
  }

  Pool2dDesc d_;
  int threads_;

 private:
  static constexpr bool kRounds = !std::is_same_v<T, float>;
  /// Returns the size of a thread's sums, in whole cache lines, so that threads share none.
  std::size_t sums_bytes() const {
    return (static_cast<std::size_t>(d_.in.elements()) * sizeof(float) + 63) / 64 * 64;
  }
};

/// Max pooling. `Index` holds a position in the window, or kNone if the window lies entirely in the
/// padding.
template <class T, class Index>
class MaxPool final : public Pool<T> {
 public:
  using Pool<T>::Pool;

  static constexpr Index kNone = std::numeric_limits<Index>::max();

  std::size_t saved_bytes() const override {
    if (!d_.training) return 0;
    return static_cast<std::size_t>(d_.batch * d_.out.elements()) * sizeof(Index);
  }

  void forward(const OpArgs& args) override {
    const T* x = host<const T>(args.x);
    T* y = host<T>(args.y);
    if (d_.training) {
      auto* saved = host<Index>(args.saved);
      for_rows([&](std::int64_t n, std::int64_t oh) { forward_row<true>(x, y, saved, n, oh); });
    } else {
      for_rows([&](std::int64_t n, std::int64_t oh) { forward_row<false>(x, y, nullptr, n, oh); });
    }
  }

  void backward(const OpArgs& args) override {
    const T* dy = host<const T>(args.dy);
    const auto* saved = host<Index>(args.saved);
    for_gradient_rows(args, [&](float* sums, std::int64_t n, std::int64_t oh) {
      backward_row(sums, dy, saved, n, oh);
    });
  }

 private:
  using Pool<T>::d_, Pool<T>::rows, Pool<T>::columns, Pool<T>::for_rows, Pool<T>::for_gradient_rows;

  template <bool kSave>
  void forward_row(const T* x, T* y, Index* saved, std::int64_t n, std::int64_t oh) const {
    const std::int64_t c = d_.in.c;
    const T* sample = x + n * d_.in.elements();
    const Span h = rows(oh);
    for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
      const Span w = columns(ow);
      const std::int64_t at = ((n * d_.out.h + oh) * d_.out.w + ow) * c;
      Index* index = kSave ? saved + at : nullptr;
      if (h.first >= h.end || w.first >= w.end) {
        for (std::int64_t i = 0; i < c; ++i) {
          store(y[at + i], -std::numeric_limits<float>::infinity());
        }
        if (kSave) std::fill_n(index, c, kNone);
        continue;
      }
      for_channels(
          c, [&]<class Float, class Int, int kCount>(std::int64_t i, Lanes<Float, Int, kCount>) {
            window<kSave, Float, Int, kCount>(sample + i, y + at + i, kSave ? index + i : nullptr,
                                              h, w);
          });
    }
  }

  void backward_row(float* sums, const T* dy, const Index* saved, std::int64_t n,
                    std::int64_t oh) const {
    const std::int64_t c = d_.in.c;
    const Span h = rows(oh);
    for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
      const Span w = columns(ow);
      const std::int64_t at = ((n * d_.out.h + oh) * d_.out.w + ow) * c;
      for_channels(
          c, [&]<class Float, class Int, int kCount>(std::int64_t i, Lanes<Float, Int, kCount>) {
            scatter<Float, Int, kCount>(sums + i, dy + at + i, saved + at + i, h, w);
          });
    }
  }

  /// Tag for kCount blocks that are processed together, each of one or four channels.
  template <class Float, class Int, int kCount>
  struct Lanes {};

  /// Calls use(i, lanes) for consecutive channels i, with as many lanes as fit.
  template <class Use>
  static void for_channels(std::int64_t c, const Use& use) {
    std::int64_t i = 0;
    for (; i + 16 <= c; i += 16) use(i, Lanes<Float4, Int4, 4>());
    for (; i + 4 <= c; i += 4) use(i, Lanes<Float4, Int4, 1>());
    for (; i < c; ++i) use(i, Lanes<float, std::int32_t, 1>());
  }

  /// Calls use(element, position) in row-major order for the elements of a window that lie on the
  /// input. `element` is the offset in the sample, `position` the index in the kernel.
  template <class Use>
  void for_window(const Span& h, const Span& w, const Use& use) const {
    std::int64_t row = h.offset * d_.kernel.w;
    for (std::int64_t ih = h.first; ih < h.end; ih += d_.dilation.h, row += d_.kernel.w) {
      auto position = static_cast<std::int32_t>(row + w.offset);
      for (std::int64_t iw = w.first; iw < w.end; iw += d_.dilation.w, ++position) {
        use((ih * d_.in.w + iw) * d_.in.c, position);
      }
    }
  }

  /// Finds the largest elements of one window. As in PyTorch, the first of equal values wins, and
  /// the last of several NaNs.
  template <bool kSave, class Float, class Int, int kCount>
  void window(const T* x, T* y, Index* index, const Span& h, const Span& w) const {
    constexpr int kWidth = sizeof(Float) / sizeof(float);
    Float best[kCount];
    Int where[kCount];
    const T* first = x + (h.first * d_.in.w + w.first) * d_.in.c;
    for (int k = 0; k < kCount; ++k) {
      best[k] = read<Float>(first + k * kWidth);
      where[k] = Int{} + static_cast<std::int32_t>(h.offset * d_.kernel.w + w.offset);
    }
    for_window(h, w, [&](std::int64_t element, std::int32_t position) {
      for (int k = 0; k < kCount; ++k) {
        const auto value = read<Float>(x + element + k * kWidth);
        const auto larger = (value > best[k]) | (value != value);
        best[k] = larger ? value : best[k];
        if (kSave) where[k] = larger ? Int{} + position : where[k];
      }
    });
    for (int k = 0; k < kCount; ++k) write(y + k * kWidth, best[k]);
    if (!kSave) return;
    std::int32_t positions[kCount * kWidth];
    std::memcpy(positions, where, sizeof(where));
    for (int i = 0; i < kCount * kWidth; ++i) index[i] = static_cast<Index>(positions[i]);
  }

  /// Adds one window's gradient at its largest element; kNone matches no position.
  template <class Float, class Int, int kCount>
  void scatter(float* dx, const T* dy, const Index* index, const Span& h, const Span& w) const {
    constexpr int kWidth = sizeof(Float) / sizeof(float);
    std::int32_t positions[kCount * kWidth];
    for (int i = 0; i < kCount * kWidth; ++i) positions[i] = index[i];
    Float gradient[kCount];
    Int where[kCount];
    for (int k = 0; k < kCount; ++k) gradient[k] = read<Float>(dy + k * kWidth);
    std::memcpy(where, positions, sizeof(where));
    for_window(h, w, [&](std::int64_t element, std::int32_t position) {
      for (int k = 0; k < kCount; ++k) {
        float* to = dx + element + k * kWidth;
        store(to, load<Float>(to) + (where[k] == position ? gradient[k] : Float{}));
      }
    });
  }
};

template <class T>
class AveragePool final : public Pool<T> {
 public:
  using Pool<T>::Pool;

  void forward(const OpArgs& args) override {
    const T* x = host<const T>(args.x);
    T* y = host<T>(args.y);
    for_rows([&](std::int64_t n, std::int64_t oh) {
      const std::int64_t c = d_.in.c;
      const Span h = rows(oh);
      for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
        const Span w = columns(ow);
        T* mean = y + ((n * d_.out.h + oh) * d_.out.w + ow) * c;
        float* to = sums_of(mean, args);
        std::fill_n(to, c, 0.0F);
        for (std::int64_t ih = h.first; ih < h.end; ++ih) {
          for (std::int64_t iw = w.first; iw < w.end; ++iw) {
            const T* from = x + ((n * d_.in.h + ih) * d_.in.w + iw) * c;
            for (std::int64_t i = 0; i < c; ++i) to[i] += to_float(from[i]);
          }
        }
        const float scale = weight(oh, ow, h, w);
        for (std::int64_t i = 0; i < c; ++i) to[i] *= scale;
        finish(mean, to, c);
      }
    });
  }

  void backward(const OpArgs& args) override {
    const T* dy = host<const T>(args.dy);
    for_gradient_rows(args, [&](float* sums, std::int64_t n, std::int64_t oh) {
      const std::int64_t c = d_.in.c;
      const Span h = rows(oh);
      for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
        const Span w = columns(ow);
        const T* from = dy + ((n * d_.out.h + oh) * d_.out.w + ow) * c;
        const float scale = weight(oh, ow, h, w);
        for (std::int64_t ih = h.first; ih < h.end; ++ih) {
          for (std::int64_t iw = w.first; iw < w.end; ++iw) {
            float* to = sums + (ih * d_.in.w + iw) * c;
            for (std::int64_t i = 0; i < c; ++i) to[i] += to_float(from[i]) * scale;
          }
        }
      }
    });
  }

 private:
  using Pool<T>::d_, Pool<T>::rows, Pool<T>::columns, Pool<T>::for_rows, Pool<T>::for_gradient_rows,
      Pool<T>::sums_of, Pool<T>::finish;

  /// Returns 1 / divisor of one window. If padding counts, it counts up to the end of the padded
  /// input. With ceil_mode, a window may extend beyond that; this part never counts.
  float weight(std::int64_t oh, std::int64_t ow, const Span& h, const Span& w) const {
    if (d_.divisor_override != 0) return 1.0F / static_cast<float>(d_.divisor_override);
    std::int64_t high = h.end - h.first, wide = w.end - w.first;
    if (d_.count_include_pad && !d_.adaptive) {
      const std::int64_t top = oh * d_.stride.h - d_.padding.h;
      const std::int64_t left = ow * d_.stride.w - d_.padding.w;
      high = std::min(top + d_.kernel.h, d_.in.h + d_.padding.h) - top;
      wide = std::min(left + d_.kernel.w, d_.in.w + d_.padding.w) - left;
    }
    return high > 0 && wide > 0 ? 1.0F / static_cast<float>(high * wide) : 0.0F;
  }
};

template <class T>
std::unique_ptr<Op> make(const Pool2dDesc& desc, int threads) {
  if (desc.kind == PoolKind::average) return std::make_unique<AveragePool<T>>(desc, threads);
  // One byte per window suffices if its positions and kNone fit.
  if (desc.kernel.h * desc.kernel.w <= 255) {
    return std::make_unique<MaxPool<T, std::uint8_t>>(desc, threads);
  }
  return std::make_unique<MaxPool<T, std::int32_t>>(desc, threads);
}

}  // namespace

/// Creates the pooling, which runs as plain loops over NHWC. Max pooling saves the position of the
/// largest element of each window in `saved`.
std::unique_ptr<Op> make_cpu_op(const Pool2dDesc& desc, const CpuTarget& target) {
  check_cpu_desc("pooling", desc.type, desc.batch);
  if (desc.kind == PoolKind::average && desc.dilation != Size2{1, 1}) {
    fail(ErrorKind::device, "cpu: average pooling does not support dilation, found ({}, {})",
         desc.dilation.h, desc.dilation.w);
  }
  return desc.type == DType::bf16 ? make<Bf16>(desc, target.threads)
                                  : make<float>(desc, target.threads);
}

}  // namespace dpt
