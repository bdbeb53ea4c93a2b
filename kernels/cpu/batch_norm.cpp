#include "kernels/cpu/batch_norm.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/align.h"
#include "kernels/base/divide.h"
#include "kernels/common/batch_norm_math.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/batch_norm_rows.h"
#include "kernels/cpu/simd/kernel_tables.h"
#include "kernels/cpu/vector.h"

namespace dpt {
namespace batch_norm {
namespace {

/// Four channels of a row, on any processor.
struct Row4 {
  static constexpr std::int64_t kLanes = 4;

  Float4 v;

  static Row4 zero() { return {Float4{}}; }
  static Row4 filled(float x) { return {Float4{x, x, x, x}}; }
  template <class T>
  static Row4 load(const T* from, std::int64_t lanes) {
    Row4 row = zero();
    for (std::int64_t i = 0; i < lanes; ++i) row.v[i] = to_float(from[i]);
    return row;
  }
  template <class T>
  void store(T* to, std::int64_t lanes) const {
    for (std::int64_t i = 0; i < lanes; ++i) dpt::store(to[i], v[i]);
  }
  static Row4 fma(Row4 a, Row4 b, Row4 c) { return {a.v * b.v + c.v}; }
  friend Row4 operator+(Row4 a, Row4 b) { return {a.v + b.v}; }
  friend Row4 operator-(Row4 a, Row4 b) { return {a.v - b.v}; }
  friend Row4 operator*(Row4 a, Row4 b) { return {a.v * b.v}; }
  Row4 relu() const { return {v <= 0.0F ? Float4{} : v}; }
  Row4 at_least_zero() const { return relu(); }
  Row4 keep_positive(Row4 y) const { return {y.v <= 0.0F ? Float4{} : v}; }
};

constexpr RowKernels kRowsAny = row_kernels<Row4>("own");

template <class T>
const RowKernels& row_kernels_for(const CpuFeatures& features) {
  const KernelTables tables = kernel_tables(features);
  const RowKernels* wide = std::is_same_v<T, float> ? tables.batch_norm : tables.batch_norm_bf16;
  return wide ? *wide : kRowsAny;
}

template <class T>
const RowFunctions<T>& functions_of(const RowKernels& kernels) {
  if constexpr (std::is_same_v<T, float>) {
    return kernels.f32;
  } else {
    return kernels.bf16;
  }
}

}  // namespace
}  // namespace batch_norm

namespace {

using batch_norm::Affine;
using batch_norm::AffineGradient;
using batch_norm::RowFunctions;

/// Number of rows in a chunk. The rows of a chunk are summed separately, whatever the number of
/// threads; the sums of the chunks are then added in order.
constexpr std::int64_t kChunkRows = 512;

template <class T>
class CpuBatchNorm final : public Op {
 public:
  CpuBatchNorm(const BatchNormDesc& desc, const CpuTarget& target)
      : desc_(desc),
        rows_(desc.batch * desc.shape.h * desc.shape.w),
        chunks_(ceil_div(rows_, kChunkRows)),
        threads_(target.threads),
        kernels_(batch_norm::row_kernels_for<T>(target.features)),
        functions_(batch_norm::functions_of<T>(kernels_)) {}

  bool in_place() const override { return true; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  std::int64_t coupled_channels() const override { return desc_.batch_statistics ? channels() : 0; }
  std::size_t saved_bytes() const override {
    return desc_.batch_statistics ? 4 * bytes_of(channels()) : 0;
  }
  std::size_t scratch_bytes() const override { return bytes_of((4 + 2 * chunks_) * channels()); }

  void forward_statistics(const OpArgs& args) override {
    const T* x = host<const T>(args.x);
    float* parts = partials(args);
    const std::int64_t c = channels();
    for_chunks([&](std::int64_t chunk, std::int64_t first, std::int64_t rows) {
      float* mean = parts + 2 * chunk * c;
      functions_.moments(x + first * c, rows, c, mean, mean + c);
    });
    float* mean = host(args.saved);
    std::memcpy(mean, parts, 2 * bytes_of(c));
    for (std::int64_t chunk = 1; chunk < chunks_; ++chunk) {
      const std::int64_t before = chunk * kChunkRows;
      const MomentMerge merge =
          moment_merge(0, 1, static_cast<double>(before),
                       static_cast<double>(std::min(kChunkRows, rows_ - before)));
      const float* other = parts + 2 * chunk * c;
      for (std::int64_t k = 0; k < c; ++k) {
        merge_moment(merge, mean[k], mean[c + k], other[k], other[c + k]);
      }
    }
  }

  void forward(const OpArgs& args) override {
    const T* x = host<const T>(args.x);
    T* y = host<T>(args.y);
    const Affine affine = affine_of(args);
    for_chunks([&](std::int64_t, std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * channels();
      functions_.apply(x + at, y + at, rows, channels(), affine);
    });
    const DevPtr mean_sum = args.params[desc_.kRunningMean].gradient;
    const DevPtr var_sum = args.params[desc_.kRunningVar].gradient;
    if (!desc_.batch_statistics || !mean_sum || args.write == GradWrite::add) return;
    const float* mean = host<const float>(args.saved);
    const auto samples = static_cast<float>(args.samples);
    for (std::int64_t k = 0; k < channels(); ++k) {
      host(mean_sum)[k] = mean[k] * samples;
      host(var_sum)[k] =
          unbiased_sum(mean[channels() + k], static_cast<float>(args.values), samples);
    }
  }

  void backward_statistics(const OpArgs& args) override {
    float* sums = host(args.saved) + 2 * channels();
    add_up_gradients(args, affine_of(args), sums, sums + channels());
  }

  void backward(const OpArgs& args) override {
    const Affine forward = affine_of(args);
    const std::int64_t c = channels();
    float* of_x = host(args.scratch) + 2 * c;
    float* constant = of_x + c;
    if (!desc_.batch_statistics) {
      // If neither gradient is requested, the parameters are frozen.
      if (args.params[desc_.kWeight].gradient || args.params[desc_.kBias].gradient) {
        add_up_gradients(args, forward, of_x, constant);
      }
      std::memset(of_x, 0, 2 * bytes_of(c));
    } else {
      const float* saved = host<const float>(args.saved);
      const float *mean = saved, *squares = saved + c, *sum = saved + 2 * c, *product = sum + c;
      const auto values = static_cast<float>(args.values);
      for (std::int64_t k = 0; k < c; ++k) {
        of_x[k] = -forward.scale[k] * inverse_deviation(squares[k], values, desc_.eps) *
                  (product[k] / values);
        constant[k] = -forward.scale[k] * (sum[k] / values) - mean[k] * of_x[k];
      }
    }
    if (!args.dx) return;
    const T* dy = host<const T>(args.dy);
    const T* x = host<const T>(args.x);
    T* dx = host<T>(args.dx);
    const AffineGradient gradient{forward, of_x, constant};
    for_chunks([&](std::int64_t, std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * c;
      functions_.gradient(dy + at, x + at, dx + at, rows, c, gradient);
    });
  }

  std::string implementation() const override { return kernels_.name; }
  std::string replaceable_kernel(Pass) const override {
    return &kernels_ == &batch_norm::kRowsAny ? "" : kernels_.name;
  }

 private:
  std::int64_t channels() const { return desc_.shape.c; }
  static std::size_t bytes_of(std::int64_t floats) {
    return static_cast<std::size_t>(floats) * sizeof(float);
  }
  /// Returns the chunks' sums. In scratch, they follow scale, shift and two rows for backward.
  float* partials(const OpArgs& args) const { return host(args.scratch) + 4 * channels(); }

  /// Calls work(chunk, first row, number of rows) for every chunk.
  template <class Work>
  void for_chunks(const Work& work) const {
    parallel_for(threads_, chunks_, [&](std::int64_t chunk) {
      const std::int64_t first = chunk * kChunkRows;
      work(chunk, first, std::min(kChunkRows, rows_ - first));
    });
  }

  const float* mean_of(const OpArgs& args) const {
    return host(desc_.batch_statistics ? args.saved : args.params[desc_.kRunningMean].f32);
  }
  float inverse_deviation_of(const OpArgs& args, std::int64_t k) const {
    return desc_.batch_statistics
               ? inverse_deviation(host<const float>(args.saved)[channels() + k],
                                   static_cast<float>(args.values), desc_.eps)
               : inverse_deviation(host(args.params[desc_.kRunningVar].f32)[k], 1.0F, desc_.eps);
  }

  /// Computes the affine map of the forward pass, with the same bits each time.
  Affine affine_of(const OpArgs& args) const {
    float* scale = host(args.scratch);
    float* shift = scale + channels();
    const float* mean = mean_of(args);
    const float* weight = desc_.affine ? host(args.params[desc_.kWeight].f32) : nullptr;
    const float* bias = desc_.affine ? host(args.params[desc_.kBias].f32) : nullptr;
    for (std::int64_t k = 0; k < channels(); ++k) {
      scale[k] = (weight ? weight[k] : 1.0F) * inverse_deviation_of(args, k);
      shift[k] = (bias ? bias[k] : 0.0F) - mean[k] * scale[k];
    }
    return {scale, shift, desc_.relu};
  }

  /// Adds up dy, and dy times the normalised x: the gradients of the parameters.
  void add_up_gradients(const OpArgs& args, const Affine& forward, float* sum, float* product) {
    const T* dy = host<const T>(args.dy);
    const T* x = host<const T>(args.x);
    const float* mean = mean_of(args);
    float* parts = partials(args);
    const std::int64_t c = channels();
    for_chunks([&](std::int64_t chunk, std::int64_t first, std::int64_t rows) {
      float* part = parts + 2 * chunk * c;
      functions_.sums(dy + first * c, x + first * c, rows, c, forward, mean, part, part + c);
    });
    const bool add = args.write == GradWrite::add;
    const auto put = [&](DevPtr gradient, std::int64_t k, float value) {
      if (gradient) host(gradient)[k] = (add ? host(gradient)[k] : 0.0F) + value;
    };
    for (std::int64_t k = 0; k < c; ++k) {
      double total = 0, with_x = 0;
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        total += static_cast<double>(parts[2 * chunk * c + k]);
        with_x += static_cast<double>(parts[2 * chunk * c + c + k]);
      }
      sum[k] = static_cast<float>(total);
      product[k] = static_cast<float>(with_x) * inverse_deviation_of(args, k);
      put(args.params[desc_.kWeight].gradient, k, product[k]);
      put(args.params[desc_.kBias].gradient, k, sum[k]);
    }
  }

  BatchNormDesc desc_;
  std::int64_t rows_, chunks_;
  int threads_;
  const batch_norm::RowKernels& kernels_;
  const RowFunctions<T>& functions_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const BatchNormDesc& desc, const CpuTarget& target) {
  check_cpu_desc("batch_norm", desc.type, desc.batch);
  if (desc.type == DType::bf16) return std::make_unique<CpuBatchNorm<Bf16>>(desc, target);
  return std::make_unique<CpuBatchNorm<float>>(desc, target);
}

void cpu_merge_moments(std::span<const DevPtr> parts, std::span<const MomentMerge> merges,
                       std::span<const DevPtr> outs, std::int64_t channels) {
  for (const MomentMerge& merge : merges) {
    float* left = host(parts[merge.left]);
    const float* right = host<const float>(parts[merge.right]);
    for (std::int64_t k = 0; k < channels; ++k) {
      merge_moment(merge, left[k], left[channels + k], right[k], right[channels + k]);
    }
  }
  for (const DevPtr& out : outs) {
    if (out == parts[0]) continue;
    std::memcpy(host<void>(out), host<const void>(parts[0]),
                2 * static_cast<std::size_t>(channels) * sizeof(float));
  }
}

void cpu_check_running(std::span<const RunningRange> ranges, const RunningArgs& args) {
  auto& metrics = *host<StepMetrics>(args.metrics);
  const auto samples = static_cast<float>(metrics.count.count());
  const float* params = host<const float>(args.params);
  const float* sums = host<const float>(args.sums);
  for (const RunningRange& range : ranges) {
    const float momentum = next_momentum(range, params);
    const auto is_good = [&](std::int64_t i) {
      return is_finite(running_update(params[i], sums[i], samples, momentum));
    };
    // The loop has no branch, because it almost always finds only finite values.
    unsigned bad = 0;
    for (std::int64_t i = range.begin; i < range.end; ++i) bad |= is_good(i) ? 0U : 1U;
    if (bad == 0) continue;
    std::int64_t first = range.begin;
    while (is_good(first)) ++first;
    metrics.bad_statistic =
        StepMetrics::kFirstStatistic - static_cast<std::uint32_t>(first - ranges.front().begin);
    return;
  }
}

void cpu_update_running(std::span<const RunningRange> ranges, Range counters,
                        const RunningArgs& args) {
  const auto& metrics = *host<const StepMetrics>(args.metrics);
  if (!updates_running(metrics)) return;
  float* params = host(args.params);
  const float* sums = host<const float>(args.sums);
  const auto samples = static_cast<float>(metrics.count.count());
  for (std::int64_t i = counters.begin; i < counters.end; ++i) {
    params[i] = UpdateCounter::next(params[i]);
  }
  for (const RunningRange& range : ranges) {
    const float momentum = counted_momentum(range, params);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      params[i] = running_update(params[i], sums[i], samples, momentum);
    }
  }
}

void cpu_fold_norms(std::span<const NormFold> folds, DevPtr params, DevPtr folded) {
  const float* from = host<const float>(params);
  float* to = host(folded);
  for (const NormFold& fold : folds) {
    for (std::int64_t c = 0; c < fold.channels; ++c) {
      const FoldedChannel channel = folded_channel(fold, from, c);
      const float* weight = from + fold.weight + c * fold.row;
      float* scaled = to + fold.to_weight + c * fold.row;
      for (std::int64_t k = 0; k < fold.row; ++k) scaled[k] = weight[k] * channel.scale;
      to[fold.to_bias + c] = channel.bias;
    }
  }
}

}  // namespace dpt
