#include "kernels/cpu/pool2d.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/check.h"
#include "kernels/cpu/direct.h"
#include "kernels/cpu/parallel.h"

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
    const Span h = rows(oh);
    for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
      const Span w = columns(ow);
      const std::int64_t at = ((n * d_.out.h + oh) * d_.out.w + ow) * c;
      float* to = y + at;
      Index* index = kSave ? saved + at : nullptr;
      std::fill_n(to, c, -std::numeric_limits<float>::infinity());
      if (kSave) std::fill_n(index, c, kNone);
      std::int64_t kh = h.offset;
      for (std::int64_t ih = h.first; ih < h.end; ih += d_.dilation.h, ++kh) {
        std::int64_t kw = w.offset;
        for (std::int64_t iw = w.first; iw < w.end; iw += d_.dilation.w, ++kw) {
          const float* from = x + ((n * d_.in.h + ih) * d_.in.w + iw) * c;
          const auto position = static_cast<Index>(kh * d_.kernel.w + kw);
          visit<kSave>(to, index, from, position, c);
        }
      }
    }
  }

  /// The first of equal values wins, and the last NaN, as in PyTorch; -inf wins over nothing.
  template <bool kSave>
  static void visit(float* to, Index* index, const float* from, Index position, std::int64_t c) {
    for (std::int64_t i = 0; i < c; ++i) {
      const float value = from[i];
      bool larger = value > to[i] || value != value;
      if constexpr (kSave) {
        larger = larger || index[i] == kNone;
        index[i] = larger ? position : index[i];
      }
      to[i] = larger ? value : to[i];
    }
  }

  void backward_row(float* dx, const float* dy, const Index* saved, std::int64_t n,
                    std::int64_t oh) const {
    const std::int64_t c = d_.in.c;
    float* sample = dx + n * d_.in.elements();
    if (oh == 0) std::fill_n(sample, d_.in.elements(), 0.0F);
    const std::int64_t top = oh * d_.stride.h - d_.padding.h;
    for (std::int64_t ow = 0; ow < d_.out.w; ++ow) {
      const std::int64_t left = ow * d_.stride.w - d_.padding.w;
      const std::int64_t at = ((n * d_.out.h + oh) * d_.out.w + ow) * c;
      for (std::int64_t i = 0; i < c; ++i) {
        const Index position = saved[at + i];
        if (position == kNone) continue;
        const std::int64_t ih = top + position / d_.kernel.w * d_.dilation.h;
        const std::int64_t iw = left + position % d_.kernel.w * d_.dilation.w;
        sample[(ih * d_.in.w + iw) * c + i] += dy[at + i];
      }
    }
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
  if (threads == 1) {
    if (auto direct = make_direct_pool2d(desc, CpuFeatures::detect())) return direct;
  }
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
