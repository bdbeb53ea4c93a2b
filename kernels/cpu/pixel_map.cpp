#include "kernels/cpu/ops.h"

#include <algorithm>
#include <array>

#include "kernels/common/bf16.h"
#include "kernels/common/pixel_map.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

template <class T>
class CpuPixelMap final : public Op {
 public:
  CpuPixelMap(const PixelMapDesc& desc, int threads)
      : desc_(desc), h_(pixel_axis_h(desc)), w_(pixel_axis_w(desc)), threads_(threads) {}
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    const T* x = host<const T>(args.x);
    T* y = host<T>(args.y);
    const std::int64_t channels = desc_.in.c;
    const Overlap shown = overlap();
    parallel_for(threads_, desc_.batch * h_.out, [=, this](std::int64_t row) {
      const std::int64_t sample = row / h_.out, i = h_.source(row % h_.out);
      T* to = y + row * w_.out * channels;
      if (w_.scale.divisor() == 1 && i >= 0) {
        const T* from = x + ((sample * h_.in + i) * w_.in + shown.begin - w_.before) * channels;
        std::fill_n(to, shown.begin * channels, T{});
        std::copy_n(from, shown.size() * channels, to + shown.begin * channels);
        std::fill_n(to + shown.end * channels, (w_.out - shown.end) * channels, T{});
        return;
      }
      for (std::int64_t q = 0; q < w_.out; ++q, to += channels) {
        const std::int64_t j = i < 0 ? -1 : w_.source(q);
        if (j < 0) {
          std::fill_n(to, channels, T{});
        } else {
          std::copy_n(x + ((sample * h_.in + i) * w_.in + j) * channels, channels, to);
        }
      }
    });
  }

  void backward(const OpArgs& args) override {
    const T* dy = host<const T>(args.dy);
    T* dx = host<T>(args.dx);
    const std::int64_t channels = desc_.in.c;
    if (h_.scale.divisor() == 1 && w_.scale.divisor() == 1) return shift_back(dy, dx);
    constexpr std::int64_t kChannels = 64;
    parallel_for(threads_, desc_.batch * h_.in, [=, this](std::int64_t row) {
      const std::int64_t sample = row / h_.in;
      const PixelAxis::Places p = h_.places(row % h_.in);
      for (std::int64_t j = 0; j < w_.in; ++j) {
        const PixelAxis::Places q = w_.places(j);
        for (std::int64_t first = 0; first < channels; first += kChannels) {
          const std::int64_t count = std::min(kChannels, channels - first);
          std::array<float, kChannels> sums = {};
          for (std::int64_t a = p.begin; a < p.end; ++a) {
            for (std::int64_t b = q.begin; b < q.end; ++b) {
              const T* from = dy + ((sample * h_.out + a) * w_.out + b) * channels + first;
              for (std::int64_t c = 0; c < count; ++c) sums[c] += to_float(from[c]);
            }
          }
          T* to = dx + (row * w_.in + j) * channels + first;
          for (std::int64_t c = 0; c < count; ++c) store(to[c], sums[c]);
        }
      }
    });
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Output pixels [begin, end) of a row that show an input pixel, at scale 1.
  struct Overlap {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
  };
  Overlap overlap() const {
    const std::int64_t begin = std::clamp<std::int64_t>(w_.before, 0, w_.out);
    return {begin, std::clamp(w_.before + w_.in, begin, w_.out)};
  }

  /// Computes the gradient for the case that each input pixel is shown at most once. A negative
  /// zero becomes zero, as in a sum that begins with zero.
  void shift_back(const T* dy, T* dx) {
    const std::int64_t channels = desc_.in.c;
    const Overlap shown = overlap();
    const std::int64_t first = (shown.begin - w_.before) * channels;
    parallel_for(threads_, desc_.batch * h_.in, [=, this](std::int64_t row) {
      const std::int64_t sample = row / h_.in;
      const PixelAxis::Places p = h_.places(row % h_.in);
      T* to = dx + row * w_.in * channels;
      if (p.begin >= p.end || shown.size() == 0) {
        std::fill_n(to, w_.in * channels, T{});
        return;
      }
      const std::int64_t count = shown.size() * channels;
      const T* from = dy + ((sample * h_.out + p.begin) * w_.out + shown.begin) * channels;
      std::fill_n(to, first, T{});
      for (std::int64_t k = 0; k < count; ++k) store(to[first + k], 0.0F + to_float(from[k]));
      std::fill_n(to + first + count, w_.in * channels - first - count, T{});
    });
  }

  PixelMapDesc desc_;
  PixelAxis h_, w_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const PixelMapDesc& desc, const CpuTarget& target) {
  check_cpu_desc("a map of pixels", desc.type, desc.batch);
  if (desc.type == DType::bf16) return std::make_unique<CpuPixelMap<Bf16>>(desc, target.threads);
  return std::make_unique<CpuPixelMap<float>>(desc, target.threads);
}

}  // namespace dpt
