#include "kernels/cpu/pixel_map.h"

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
    parallel_for(threads_, desc_.batch * h_.out, [=, this](std::int64_t row) {
      const std::int64_t sample = row / h_.out, i = h_.source(row % h_.out);
      T* to = y + row * w_.out * channels;
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
  PixelMapDesc desc_;
  PixelAxis h_, w_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_pixel_map(const PixelMapDesc& desc, int threads) {
  check_cpu_desc("a map of pixels", desc.type, desc.batch);
  if (desc.type == DType::bf16) return std::make_unique<CpuPixelMap<Bf16>>(desc, threads);
  return std::make_unique<CpuPixelMap<float>>(desc, threads);
}

}  // namespace dpt
