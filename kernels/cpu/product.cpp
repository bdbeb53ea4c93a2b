#include "kernels/cpu/ops.h"

#include <algorithm>
#include <cassert>

#include "kernels/base/divide.h"
#include "kernels/common/bf16.h"
#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

/// Product of the inputs a and b. If one input has 1x1 pixels and the other has more, `narrow_` is
/// the index of the one with 1x1 pixels, otherwise -1.
template <class T>
class CpuProduct final : public Op {
 public:
  CpuProduct(const ProductDesc& desc, int threads)
      : channels_(desc.out.c),
        pixels_(desc.out.h * desc.out.w),
        batch_(desc.batch),
        narrow_(desc.in[0] == desc.in[1] ? -1
                : desc.in[0] == desc.out ? 1
                                         : 0),
        threads_(threads) {}
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool separate_gradients() const override { return true; }

  void forward(const OpArgs& args) override {
    const T *a = host<const T>(args.x), *b = host<const T>(args.more_x[0]);
    if (narrow_ == 0) std::swap(a, b);
    multiply(host<T>(args.y), a, b);
  }

  void backward(const OpArgs& args) override {
    const T* dy = host<const T>(args.dy);
    const std::array<const T*, 2> x = {host<const T>(args.x), host<const T>(args.more_x[0])};
    const std::array<T*, 2> dx = {host<T>(args.dx), host<T>(args.more_dx[0])};
    for (int k = 0; k < 2; ++k) {
      if (!dx[k]) continue;
      if (k == narrow_) {
        sum_pixels(dx[k], dy, x[1 - k]);
      } else {
        multiply(dx[k], dy, x[1 - k]);
      }
    }
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Computes y = a * b; if one of them is narrow, it must be b.
  void multiply(T* y, const T* a, const T* b) const {
    if (narrow_ < 0) {
      for_blocks(threads_, batch_ * pixels_ * channels_, [=](std::int64_t i, std::int64_t end) {
        for (; i < end; ++i) store(y[i], to_float(a[i]) * to_float(b[i]));
      });
      return;
    }
    parallel_for(threads_, batch_ * pixels_, [=, this](std::int64_t row) {
      const T* factors = b + row / pixels_ * channels_;
      const std::int64_t at = row * channels_;
      for (std::int64_t c = 0; c < channels_; ++c) {
        store(y[at + c], to_float(a[at + c]) * to_float(factors[c]));
      }
    });
  }

  /// Computes the sum of a * b over the pixels of every sample and channel.
  void sum_pixels(T* to, const T* a, const T* b) const {
    const std::int64_t blocks = ceil_div(channels_, kSumColumns);
    parallel_for(threads_, batch_ * blocks, [=, this](std::int64_t i) {
      const std::int64_t sample = i / blocks, first = i % blocks * kSumColumns;
      const std::int64_t count = std::min(kSumColumns, channels_ - first);
      const auto add = [=, this](std::int64_t row, ColumnSums<float, 1>& sums) {
        const std::int64_t at = row * channels_ + first;
        for (std::int64_t c = 0; c < count; ++c) {
          sums.v[0][c] += to_float(a[at + c]) * to_float(b[at + c]);
        }
      };
      const auto sums = sum_rows<1>(sample * pixels_, (sample + 1) * pixels_, add);
      for (std::int64_t c = 0; c < count; ++c) {
        store(to[sample * channels_ + first + c], static_cast<float>(sums.v[0][c]));
      }
    });
  }

  std::int64_t channels_, pixels_, batch_;
  int narrow_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const ProductDesc& desc, const CpuTarget& target) {
  check_cpu_desc("a product", desc.type, desc.batch);
  assert(desc.in[0] == desc.out || desc.in[1] == desc.out);
  if (desc.type == DType::bf16) return std::make_unique<CpuProduct<Bf16>>(desc, target.threads);
  return std::make_unique<CpuProduct<float>>(desc, target.threads);
}

}  // namespace dpt
