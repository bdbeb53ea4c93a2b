// Group normalisation on the CPU. Each group of a sample's channels, over all pixels, is a set of
// values that is normalised separately.
#include "kernels/cpu/ops.h"

#include <cassert>
#include <cmath>

#include "kernels/common/batch_norm_math.h"
#include "kernels/common/bf16.h"
#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

/// Number of elements that are summed in fp32 before the sum is added in double.
constexpr std::int64_t kNormRun = 1024;

/// Mean and inverse standard deviation of a set.
struct Moments {
  float mean, inverse;
};

template <class T>
class CpuGroupNorm final : public Op {
 public:
  CpuGroupNorm(const GroupNormDesc& desc, int threads)
      : desc_(desc),
        pixels_(desc.shape.h * desc.shape.w),
        channels_(desc.shape.c),
        width_(desc.shape.c / desc.groups),
        sets_(desc.batch * desc.groups),
        cut_(desc.batch * pixels_, desc.shape.c),
        threads_(threads) {}
  std::size_t saved_bytes() const override {
    return desc_.training ? static_cast<std::size_t>(sets_) * sizeof(Moments) : 0;
  }
  std::size_t scratch_bytes() const override {
    const bool has_gradients = desc_.training && (desc_.weight || desc_.bias);
    return has_gradients ? cut_.scratch_bytes(2) : 0;
  }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    const T* x = host<const T>(args.x);
    T* y = host<T>(args.y);
    const float* weight = host(args.params[desc_.kWeight].f32);
    const float* bias = host(args.params[desc_.kBias].f32);
    Moments* saved = desc_.training ? host<Moments>(args.saved) : nullptr;
    if (is_narrow()) {
      for_blocks_of_groups([=, this](std::int64_t sample, std::int64_t first, std::int64_t count) {
        normalise_block(x, y, weight, bias, saved, sample, first, count);
      });
      return;
    }
    parallel_for(threads_, sets_, [=, this](std::int64_t set) {
      const Moments m = moments_of(x, set);
      if (saved) saved[set] = m;
      const std::int64_t channel = set % desc_.groups * width_;
      for_pixels(set, [&](std::int64_t at) {
        for (std::int64_t c = 0; c < width_; ++c) {
          float value = (to_float(x[at + c]) - m.mean) * m.inverse;
          if (weight) value *= weight[channel + c];
          if (bias) value += bias[channel + c];
          store(y[at + c], value);
        }
      });
    });
  }

  void backward(const OpArgs& args) override {
    const T *x = host<const T>(args.x), *dy = host<const T>(args.dy);
    const Moments* saved = host<const Moments>(args.saved);
    const DevPtr dweight = args.params[desc_.kWeight].gradient;
    const DevPtr dbias = args.params[desc_.kBias].gradient;
    if (dweight || dbias) {
      double* sums = host<double>(args.scratch);
      sum_columns<2>(threads_, cut_, sums,
                     [=, this](std::int64_t row, std::int64_t first, std::int64_t count,
                               auto& some) { add_row(x, dy, saved, row, first, count, some); });
      write_gradient(host(dbias), sums, args.write);
      write_gradient(host(dweight), sums + channels_, args.write);
    }
    if (args.dx) {
      const float* weight = host(args.params[desc_.kWeight].f32);
      T* dx = host<T>(args.dx);
      if (is_narrow()) {
        for_blocks_of_groups(
            [=, this](std::int64_t sample, std::int64_t first, std::int64_t count) {
              block_gradient(dx, x, dy, weight, saved, sample, first, count);
            });
        return;
      }
      parallel_for(threads_, sets_,
                   [=, this](std::int64_t set) { input_gradient(dx, x, dy, weight, saved, set); });
    }
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Calls body(at) for every pixel. `at` is the index of the set's first element in the pixel.
  template <class Body>
  void for_pixels(std::int64_t set, const Body& body) const {
    const std::int64_t sample = set / desc_.groups, group = set % desc_.groups;
    std::int64_t at = sample * pixels_ * channels_ + group * width_;
    for (std::int64_t pixel = 0; pixel < pixels_; ++pixel, at += channels_) body(at);
  }

  /// Returns the sum of term(index, channel within the group) over a set.
  template <class Term>
  double sum_of(std::int64_t set, const Term& term) const {
    double total = 0;
    for_pixels(set, [&](std::int64_t at) {
      for (std::int64_t first = 0; first < width_; first += kNormRun) {
        const std::int64_t end = std::min(width_, first + kNormRun);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = first; c < end; ++c) sum += term(at + c, c);
        total += static_cast<double>(sum);
      }
    });
    return total;
  }

  /// Computes the moments in two passes. Uses deviations from one element to avoid differences of
  /// large numbers.
  Moments moments_of(const T* x, std::int64_t set) const {
    const auto values = static_cast<double>(pixels_ * width_);
    const std::int64_t first =
        set / desc_.groups * pixels_ * channels_ + set % desc_.groups * width_;
    const float pivot = to_float(x[first]);
    const double shift =
        sum_of(set, [=](std::int64_t i, std::int64_t) { return to_float(x[i]) - pivot; }) / values;
    const auto mean = static_cast<float>(static_cast<double>(pivot) + shift);
    const double squares = sum_of(set, [=](std::int64_t i, std::int64_t) {
      const float deviation = to_float(x[i]) - mean;
      return deviation * deviation;
    });
    return {mean,
            inverse_deviation(static_cast<float>(squares), static_cast<float>(values), desc_.eps)};
  }

  /// Adds a row to the sums in `some`: its dy, and its dy times the normalised x.
  template <class Sums>
  void add_row(const T* x, const T* dy, const Moments* saved, std::int64_t row, std::int64_t first,
               std::int64_t count, Sums& some) const {
    const std::int64_t at = row * channels_ + first;
    const Moments* sets = saved + row / pixels_ * desc_.groups;
    std::int64_t group = first / width_;
    for (std::int64_t c = 0; c < count; ++group) {
      // Stop at the end of the group.
      const std::int64_t end = std::min(count, (group + 1) * width_ - first);
      const Moments m = sets[group];
      for (; c < end; ++c) {
        const float gradient = to_float(dy[at + c]);
        some.v[0][c] += gradient;
        some.v[1][c] += gradient * ((to_float(x[at + c]) - m.mean) * m.inverse);
      }
    }
  }

  /// Returns true if several groups fit into the columns that are summed together. Sums of whole
  /// pixels are then faster than sums over each group's few channels.
  bool is_narrow() const {
    return pixels_ > 1 && 2 * width_ <= kSumColumns;
  }

  /// Calls body(sample, first channel, number of channels) for blocks of whole groups.
  template <class Body>
  void for_blocks_of_groups(const Body& body) const {
    const std::int64_t columns = kSumColumns / width_ * width_;
    const std::int64_t blocks = ceil_div(channels_, columns);
    parallel_for(threads_, desc_.batch * blocks, [&](std::int64_t i) {
      const std::int64_t first = i % blocks * columns;
      body(i / blocks, first, std::min(columns, channels_ - first));
    });
  }

  /// Mean and inverse standard deviation of the group of each channel of a block.
  struct Columns {
    float mean[kSumColumns] = {}, inverse[kSumColumns] = {};
  };
  /// Sets means[c] to the mean of channel c's group. `sums` are the channels' sums over the pixels.
  void mean_of_groups(const double* sums, std::int64_t count, float* means) const {
    const auto values = static_cast<double>(pixels_ * width_);
    for (std::int64_t group = 0; group < count; group += width_) {
      double total = 0;
      for (std::int64_t c = group; c < group + width_; ++c) total += sums[c];
      std::fill_n(means + group, width_, static_cast<float>(total / values));
    }
  }

  void normalise_block(const T* x, T* y, const float* weight, const float* bias, Moments* saved,
                       std::int64_t sample, std::int64_t first, std::int64_t count) const {
    const std::int64_t begin = sample * pixels_ * channels_ + first;
    Columns columns;
    float pivot[kSumColumns] = {}, shift[kSumColumns] = {};
    for (std::int64_t c = 0; c < count; ++c) pivot[c] = to_float(x[begin + c / width_ * width_]);
    const auto sums = sum_rows<1>(0, pixels_, [&](std::int64_t pixel, auto& some) {
      const T* row = x + begin + pixel * channels_;
      for (std::int64_t c = 0; c < count; ++c) some.v[0][c] += to_float(row[c]) - pivot[c];
    });
    mean_of_groups(sums.v[0], count, shift);
    for (std::int64_t c = 0; c < count; ++c) columns.mean[c] = pivot[c] + shift[c];
    const auto squares = sum_rows<1>(0, pixels_, [&](std::int64_t pixel, auto& some) {
      const T* row = x + begin + pixel * channels_;
      for (std::int64_t c = 0; c < count; ++c) {
        const float deviation = to_float(row[c]) - columns.mean[c];
        some.v[0][c] += deviation * deviation;
      }
    });
    mean_of_groups(squares.v[0], count, columns.inverse);
    for (std::int64_t c = 0; c < count; ++c) {
      columns.inverse[c] = inverse_deviation(columns.inverse[c], 1.0F, desc_.eps);
    }
    if (saved) {
      for (std::int64_t c = 0; c < count; c += width_) {
        saved[sample * desc_.groups + (first + c) / width_] = {columns.mean[c], columns.inverse[c]};
      }
    }
    float scale[kSumColumns] = {}, offset[kSumColumns] = {};
    for (std::int64_t c = 0; c < count; ++c) {
      scale[c] = weight ? weight[first + c] : 1.0F;
      offset[c] = bias ? bias[first + c] : 0.0F;
    }
    for (std::int64_t pixel = 0; pixel < pixels_; ++pixel) {
      const std::int64_t at = begin + pixel * channels_;
      for (std::int64_t c = 0; c < count; ++c) {
        const float normalised = (to_float(x[at + c]) - columns.mean[c]) * columns.inverse[c];
        store(y[at + c], normalised * scale[c] + offset[c]);
      }
    }
  }

  void block_gradient(T* dx, const T* x, const T* dy, const float* weight, const Moments* saved,
                      std::int64_t sample, std::int64_t first, std::int64_t count) const {
    const std::int64_t begin = sample * pixels_ * channels_ + first;
    Columns columns;
    float scale[kSumColumns] = {}, mean[kSumColumns] = {}, slope[kSumColumns] = {};
    for (std::int64_t c = 0; c < count; ++c) {
      const Moments m = saved[sample * desc_.groups + (first + c) / width_];
      columns.mean[c] = m.mean;
      columns.inverse[c] = m.inverse;
      scale[c] = weight ? weight[first + c] : 1.0F;
    }
    const auto sums = sum_rows<2>(0, pixels_, [&](std::int64_t pixel, auto& some) {
      const std::int64_t at = begin + pixel * channels_;
      for (std::int64_t c = 0; c < count; ++c) {
        const float gradient = to_float(dy[at + c]) * scale[c];
        some.v[0][c] += gradient;
        some.v[1][c] += gradient * ((to_float(x[at + c]) - columns.mean[c]) * columns.inverse[c]);
      }
    });
    mean_of_groups(sums.v[0], count, mean);
    mean_of_groups(sums.v[1], count, slope);
    for (std::int64_t pixel = 0; pixel < pixels_; ++pixel) {
      const std::int64_t at = begin + pixel * channels_;
      for (std::int64_t c = 0; c < count; ++c) {
        const float normalised = (to_float(x[at + c]) - columns.mean[c]) * columns.inverse[c];
        const float gradient = to_float(dy[at + c]) * scale[c];
        store(dx[at + c], columns.inverse[c] * (gradient - mean[c] - normalised * slope[c]));
      }
    }
  }

  void write_gradient(float* to, const double* sums, GradWrite write) const {
    if (!to) return;
    for (std::int64_t c = 0; c < channels_; ++c) {
      const auto gradient = static_cast<float>(sums[c]);
      to[c] = write == GradWrite::add ? to[c] + gradient : gradient;
    }
  }

  void input_gradient(T* dx, const T* x, const T* dy, const float* weight, const Moments* saved,
                      std::int64_t set) const {
    const Moments m = saved[set];
    const float* scale = weight ? weight + set % desc_.groups * width_ : nullptr;
    const auto scaled = [=](std::int64_t i, std::int64_t c) {
      return scale ? to_float(dy[i]) * scale[c] : to_float(dy[i]);
    };
    const auto normalised = [=](std::int64_t i) { return (to_float(x[i]) - m.mean) * m.inverse; };
    const auto values = static_cast<double>(pixels_ * width_);
    const auto mean = static_cast<float>(sum_of(set, scaled) / values);
    const auto slope = static_cast<float>(
        sum_of(set, [=](std::int64_t i, std::int64_t c) { return scaled(i, c) * normalised(i); }) /
        values);
    for_pixels(set, [&](std::int64_t at) {
      for (std::int64_t c = 0; c < width_; ++c) {
        const std::int64_t i = at + c;
        store(dx[i], m.inverse * (scaled(i, c) - mean - normalised(i) * slope));
      }
    });
  }

  GroupNormDesc desc_;
  std::int64_t pixels_, channels_;
  std::int64_t width_;  ///< channels of a group
  std::int64_t sets_;
  RowCut cut_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const GroupNormDesc& desc, const CpuTarget& target) {
  check_cpu_desc("group normalisation", desc.type, desc.batch);
  assert(desc.groups >= 1 && desc.shape.c % desc.groups == 0);
  if (desc.type == DType::bf16) return std::make_unique<CpuGroupNorm<Bf16>>(desc, target.threads);
  return std::make_unique<CpuGroupNorm<float>>(desc, target.threads);
}

}  // namespace dpt
