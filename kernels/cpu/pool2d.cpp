#include "kernels/cpu/pool2d.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"

namespace dpt {
namespace {

/// The part of a window along one axis that lies on the input: elements first, first + step, ...
/// below end; `offset` is the first one's index in the kernel.
struct Span {
  std::int64_t first, end, offset;
};

Span clip(std::int64_t out, std::int64_t stride, std::int64_t padding, std::int64_t kernel,
          std::int64_t dilation, std::int64_t size) {
  const std::int64_t start = out * stride - padding;
  const std::int64_t end = std::min(start + (kernel - 1) * dilation + 1, size);
  const std::int64_t skip = start < 0 ? (-start + dilation - 1) / dilation : 0;
  return {start + skip * dilation, end, skip};
}

class Pool : public Op {
 public:
  Pool(const Pool2dDesc& desc, int threads) : d_(desc), threads_(threads) {}
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  std::string implementation() const override { return "own"; }

 protected:
  Span rows(std::int64_t out) const {
    return clip(out, d_.stride.h, d_.padding.h, d_.kernel.h, d_.dilation.h, d_.in.h);
  }
  Span columns(std::int64_t out) const {
    return clip(out, d_.stride.w, d_.padding.w, d_.kernel.w, d_.dilation.w, d_.in.w);
  }

  /// Calls row(n, oh) for every output row; the rows of one sample stay in order in one thread, so
  /// that overlapping windows add their gradients in one order.
  template <class Row>
  void for_rows(const Row& row) const {
    parallel_for(threads_, d_.batch, [&](std::int64_t n) {
      for (std::int64_t oh = 0; oh < d_.out.h; ++oh) row(n, oh);
    });
  }

  Pool2dDesc d_;
  int threads_;
};

/// `Index` holds a position in the window, and kNone where a window lies in the padding altogether.
template <class Index>
class MaxPool final : public Pool {
 public:
  using Pool::Pool;

  static constexpr Index kNone = std::numeric_limits<Index>::max();

  std::size_t saved_bytes() const override {
    if (!d_.training) return 0;
    return static_cast<std::size_t>(d_.batch * d_.out.elements()) * sizeof(Index);
  }

  void forward(const OpArgs& args) override {
    const float* x = host(args.x);
    float* y = host(args.y);
    if (d_.training) {
      auto* saved = host<Index>(args.saved);
      for_rows([&](std::int64_t n, std::int64_t oh) { forward_row<true>(x, y, saved, n, oh); });
    } else {
      for_rows([&](std::int64_t n, std::int64_t oh) { forward_row<false>(x, y, nullptr, n, oh); });
    }
  }

  void backward(const OpArgs& args) override {
    const float* dy = host(args.dy);
    float* dx = host(args.dx);
    const auto* saved = host<Index>(args.saved);
    for_rows([&](std::int64_t n, std::int64_t oh) { backward_row(dx, dy, saved, n, oh); });
  }

 private:
  template <bool kSave>
  void forward_row(const float* x, float* y, Index* saved, std::int64_t n, std::int64_t oh) const {
    const std::int64_t c = d_.in.c;
    const float* sample = x + n * d_.in.elements();
    const Span h = rows(oh);
    for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
      const Span w = columns(ow);
      const std::int64_t at = ((n * d_.out.h + oh) * d_.out.w + ow) * c;
      Index* index = kSave ? saved + at : nullptr;
      if (h.first >= h.end || w.first >= w.end) {
        std::fill_n(y + at, c, -std::numeric_limits<float>::infinity());
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

  void backward_row(float* dx, const float* dy, const Index* saved, std::int64_t n,
                    std::int64_t oh) const {
    const std::int64_t c = d_.in.c;
    float* sample = dx + n * d_.in.elements();
    if (oh == 0) std::fill_n(sample, d_.in.elements(), 0.0F);
    const Span h = rows(oh);
    for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
      const Span w = columns(ow);
      const std::int64_t at = ((n * d_.out.h + oh) * d_.out.w + ow) * c;
      for_channels(
          c, [&]<class Float, class Int, int kCount>(std::int64_t i, Lanes<Float, Int, kCount>) {
            scatter<Float, Int, kCount>(sample + i, dy + at + i, saved + at + i, h, w);
          });
    }
  }

  /// kCount pieces, of one or four channels, that are worked on together.
  template <class Float, class Int, int kCount>
  struct Lanes {};

  /// Calls use(i, lanes) for consecutive channels i, the most at a time that fit.
  template <class Use>
  static void for_channels(std::int64_t c, const Use& use) {
    std::int64_t i = 0;
    for (; i + 16 <= c; i += 16) use(i, Lanes<Float4, Int4, 4>());
    for (; i + 4 <= c; i += 4) use(i, Lanes<Float4, Int4, 1>());
    for (; i < c; ++i) use(i, Lanes<float, std::int32_t, 1>());
  }

  /// Calls use(element, position) for the elements of a window that lie on the input, in row-major
  /// order: the element's offset in a sample and its index in the kernel.
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

  /// The largest elements of one window. The first of equal values wins, and the last NaN, as in
  /// PyTorch.
  template <bool kSave, class Float, class Int, int kCount>
  void window(const float* x, float* y, Index* index, const Span& h, const Span& w) const {
    constexpr int kWidth = sizeof(Float) / sizeof(float);
    Float best[kCount];
    Int where[kCount];
    const float* first = x + (h.first * d_.in.w + w.first) * d_.in.c;
    for (int k = 0; k < kCount; ++k) {
      best[k] = load<Float>(first + k * kWidth);
      where[k] = Int{} + static_cast<std::int32_t>(h.offset * d_.kernel.w + w.offset);
    }
    for_window(h, w, [&](std::int64_t element, std::int32_t position) {
      for (int k = 0; k < kCount; ++k) {
        const auto value = load<Float>(x + element + k * kWidth);
        const auto larger = (value > best[k]) | (value != value);
        best[k] = larger ? value : best[k];
        if (kSave) where[k] = larger ? Int{} + position : where[k];
      }
    });
    std::memcpy(y, best, sizeof(best));
    if (!kSave) return;
    std::int32_t positions[kCount * kWidth];
    std::memcpy(positions, where, sizeof(where));
    for (int i = 0; i < kCount * kWidth; ++i) index[i] = static_cast<Index>(positions[i]);
  }

  /// Adds one window's gradient where its largest element was; kNone matches no position.
  template <class Float, class Int, int kCount>
  void scatter(float* dx, const float* dy, const Index* index, const Span& h, const Span& w) const {
    constexpr int kWidth = sizeof(Float) / sizeof(float);
    std::int32_t positions[kCount * kWidth];
    for (int i = 0; i < kCount * kWidth; ++i) positions[i] = index[i];
    Float gradient[kCount];
    Int where[kCount];
    std::memcpy(gradient, dy, sizeof(gradient));
    std::memcpy(where, positions, sizeof(where));
    for_window(h, w, [&](std::int64_t element, std::int32_t position) {
      for (int k = 0; k < kCount; ++k) {
        float* to = dx + element + k * kWidth;
        store(to, load<Float>(to) + (where[k] == position ? gradient[k] : Float{}));
      }
    });
  }
};

class AveragePool final : public Pool {
 public:
  using Pool::Pool;

  void forward(const OpArgs& args) override {
    const float* x = host(args.x);
    float* y = host(args.y);
    for_rows([&](std::int64_t n, std::int64_t oh) {
      const std::int64_t c = d_.in.c;
      const Span h = rows(oh);
      for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
        const Span w = columns(ow);
        float* to = y + ((n * d_.out.h + oh) * d_.out.w + ow) * c;
        std::fill_n(to, c, 0.0F);
        for (std::int64_t ih = h.first; ih < h.end; ++ih) {
          for (std::int64_t iw = w.first; iw < w.end; ++iw) {
            const float* from = x + ((n * d_.in.h + ih) * d_.in.w + iw) * c;
            for (std::int64_t i = 0; i < c; ++i) to[i] += from[i];
          }
        }
        const float scale = weight(oh, ow, h, w);
        for (std::int64_t i = 0; i < c; ++i) to[i] *= scale;
      }
    });
  }

  void backward(const OpArgs& args) override {
    const float* dy = host(args.dy);
    float* dx = host(args.dx);
    for_rows([&](std::int64_t n, std::int64_t oh) {
      const std::int64_t c = d_.in.c;
      float* sample = dx + n * d_.in.elements();
      if (oh == 0) std::fill_n(sample, d_.in.elements(), 0.0F);
      const Span h = rows(oh);
      for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
        const Span w = columns(ow);
        const float* from = dy + ((n * d_.out.h + oh) * d_.out.w + ow) * c;
        const float scale = weight(oh, ow, h, w);
        for (std::int64_t ih = h.first; ih < h.end; ++ih) {
          for (std::int64_t iw = w.first; iw < w.end; ++iw) {
            float* to = sample + (ih * d_.in.w + iw) * c;
            for (std::int64_t i = 0; i < c; ++i) to[i] += from[i] * scale;
          }
        }
      }
    });
  }

 private:
  /// 1 / divisor of one window. The padding counts, if at all, up to the padded input's end: what a
  /// ceil_mode window hangs over never does.
  float weight(std::int64_t oh, std::int64_t ow, const Span& h, const Span& w) const {
    if (d_.divisor_override != 0) return 1.0F / static_cast<float>(d_.divisor_override);
    std::int64_t high = h.end - h.first, wide = w.end - w.first;
    if (d_.count_include_pad) {
      const std::int64_t top = oh * d_.stride.h - d_.padding.h;
      const std::int64_t left = ow * d_.stride.w - d_.padding.w;
      high = std::min(top + d_.kernel.h, d_.in.h + d_.padding.h) - top;
      wide = std::min(left + d_.kernel.w, d_.in.w + d_.padding.w) - left;
    }
    return high > 0 && wide > 0 ? 1.0F / static_cast<float>(high * wide) : 0.0F;
  }
};

}  // namespace

std::unique_ptr<Op> make_cpu_pool2d(const Pool2dDesc& desc, int threads) {
  check_cpu_desc("pooling", desc.type, desc.batch);
  if (desc.kind == PoolKind::max) {
    // One byte a window, as long as its positions and kNone fit.
    if (desc.kernel.h * desc.kernel.w <= 255) {
      return std::make_unique<MaxPool<std::uint8_t>>(desc, threads);
    }
    return std::make_unique<MaxPool<std::int32_t>>(desc, threads);
  }
  if (desc.dilation != Size2{1, 1}) {
    fail(ErrorKind::device, "cpu: average pooling has no dilation, found ({}, {})", desc.dilation.h,
         desc.dilation.w);
  }
  return std::make_unique<AveragePool>(desc, threads);
}

}  // namespace dpt
