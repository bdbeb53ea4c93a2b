// Batch normalisation on a GPU. Sums over rows are computed over chunks of rows that depend only on
// the shape, and the chunks' sums are added in order, so results do not depend on scheduling.
#include "kernels/cuda/batch_norm.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/common/batch_norm_math.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/description.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

// Number of rows that justify another chunk, and maximum number of chunks. A block has kSumColumns
// channels, and processes kSumLanes rows of its chunk at a time.
constexpr std::int64_t kMinRows = 64, kMaxChunks = 256;

/// Partition of the rows into chunks.
struct Chunks {
  std::int64_t rows, channels;
  std::int64_t per_chunk;
  int count;

  __host__ __device__ std::int64_t begin(int chunk) const { return chunk * per_chunk; }
  __host__ __device__ std::int64_t end(int chunk) const {
    const std::int64_t at = (chunk + 1) * per_chunk;
    return at < rows ? at : rows;
  }
};

Chunks make_chunks(const BatchNormDesc& desc) {
  Chunks chunks = {};
  chunks.rows = desc.batch * desc.shape.h * desc.shape.w;
  chunks.channels = desc.shape.c;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(ceil_div(chunks.rows, kMinRows), 1, kMaxChunks);
  chunks.per_chunk = ceil_div(chunks.rows, wanted);
  chunks.count = static_cast<int>(ceil_div(chunks.rows, chunks.per_chunk));
  return chunks;
}

/// Map of a channel, y = x * scale + shift, as a lane of forward computes it.
struct Channel {
  float mean, inverse, scale, shift;
};

/// Addresses of the channels' statistics and parameters. `values` is 1 for running variances.
struct Channels {
  const float *mean, *squares, *weight, *bias;
  float values, eps;

  __device__ Channel at(std::int64_t c) const {
    Channel channel = {};
    channel.mean = mean[c];
    channel.inverse = inverse_deviation(squares[c], values, eps);
    channel.scale = (weight ? weight[c] : 1.0F) * channel.inverse;
    channel.shift = (bias ? bias[c] : 0.0F) - channel.mean * channel.scale;
    return channel;
  }
};

/// Computes the moments of every chunk: (chunk, 2, channels).
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    moments_kernel(Chunks chunks, const T* x, float* partials) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  const bool works = c < chunks.channels;
  const int chunk = static_cast<int>(blockIdx.y);
  const std::int64_t begin = chunks.begin(chunk), end = chunks.end(chunk);
  // Use deviations from the first row, which avoids differences of large numbers.
  const float pivot = works ? to_float(x[begin * chunks.channels + c]) : 0.0F;
  float sum = 0, square = 0;
  if (works) {
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kSumLanes) {
      const float deviation = to_float(x[row * chunks.channels + c]) - pivot;
      sum += deviation;
      square += deviation * deviation;
    }
  }
  sum = sum_of_lanes(sum);
  square = sum_of_lanes(square);
  if (!works || threadIdx.y != 0) return;
  const float shift = sum / static_cast<float>(end - begin);
  float* to = partials + 2 * chunk * chunks.channels + c;
  to[0] = pivot + shift;
  to[chunks.channels] = fmaxf(square - sum * shift, 0.0F);
}

/// Merges the moments of all chunks: (2, channels).
__global__ void merge_chunks_kernel(Chunks chunks, const float* partials, float* moments) {
  const std::int64_t c = global_thread();
  if (c >= chunks.channels) return;
  float mean = partials[c], squares = partials[chunks.channels + c];
  for (int chunk = 1; chunk < chunks.count; ++chunk) {
    const auto before = static_cast<float>(chunks.begin(chunk));
    const auto more = static_cast<float>(chunks.end(chunk) - chunks.begin(chunk));
    MomentMerge merge;
    merge.right_share = more / (before + more);
    merge.cross = before * merge.right_share;
    const float* from = partials + 2 * chunk * chunks.channels + c;
    merge_moment(merge, mean, squares, from[0], from[chunks.channels]);
  }
  moments[c] = mean;
  moments[chunks.channels + c] = squares;
}

/// Returns dy if forward's ReLU let it through, otherwise 0.
__device__ inline float masked(const Channel& channel, bool relu, float x, float dy) {
  return relu && fmaf(x, channel.scale, channel.shift) <= 0.0F ? 0.0F : dy;
}

/// Computes the sums of dy and of dy * (x - mean) of every chunk: (chunk, 2, channels).
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    gradient_sums_kernel(Chunks chunks, Channels channels, bool relu, const T* dy, const T* x,
                         float* partials) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  const bool works = c < chunks.channels;
  const int chunk = static_cast<int>(blockIdx.y);
  float sum = 0, product = 0;
  if (works) {
    const Channel channel = channels.at(c);
    for (std::int64_t row = chunks.begin(chunk) + threadIdx.y; row < chunks.end(chunk);
         row += kSumLanes) {
      const std::int64_t i = row * chunks.channels + c;
      const float here = to_float(x[i]);
      const float gradient = masked(channel, relu, here, to_float(dy[i]));
      sum += gradient;
      product += gradient * (here - channel.mean);
    }
  }
  sum = sum_of_lanes(sum);
  product = sum_of_lanes(product);
  if (!works || threadIdx.y != 0) return;
  float* to = partials + 2 * chunk * chunks.channels + c;
  to[0] = sum;
  to[chunks.channels] = product;
}

/// Adds up the chunks' sums of dy and of dy times the normalised x, (2, channels), and writes the
/// gradients of the parameters, each of which may be null.
__global__ void add_chunks_kernel(Chunks chunks, Channels channels, const float* partials,
                                  float* sums, float* dweight, float* dbias, bool add) {
  const std::int64_t c = global_thread();
  if (c >= chunks.channels) return;
  double sum = 0, product = 0;
  for (int chunk = 0; chunk < chunks.count; ++chunk) {
    const float* from = partials + 2 * chunk * chunks.channels + c;
    sum += static_cast<double>(from[0]);
    product += static_cast<double>(from[chunks.channels]);
  }
  const auto total = static_cast<float>(sum);
  const float with_x = static_cast<float>(product) * channels.at(c).inverse;
  if (sums) {
    sums[c] = total;
    sums[chunks.channels + c] = with_x;
  }
  if (dweight) dweight[c] = (add ? dweight[c] : 0.0F) + with_x;
  if (dbias) dbias[c] = (add ? dbias[c] : 0.0F) + total;
}

/// Computes the factors of forward, (2, channels), and the statistics that it used, times samples.
__global__ void forward_factors_kernel(std::int64_t count, Channels channels, float* factors,
                                       float* mean_sum, float* var_sum, float samples) {
  const std::int64_t c = global_thread();
  if (c >= count) return;
  const Channel channel = channels.at(c);
  factors[c] = channel.scale;
  factors[count + c] = channel.shift;
  if (!mean_sum) return;
  mean_sum[c] = channel.mean * samples;
  var_sum[c] = unbiased_sum(channels.squares[c], channels.values, samples);
}

/// Computes the factors of backward, dx = dy * scale + x * factors[2] + factors[3]: (4, channels).
/// `sums` is null if the statistics do not depend on x.
__global__ void backward_factors_kernel(std::int64_t count, Channels channels, const float* sums,
                                        float* factors) {
  const std::int64_t c = global_thread();
  if (c >= count) return;
  const Channel channel = channels.at(c);
  factors[c] = channel.scale;
  factors[count + c] = channel.shift;
  float of_x = 0, constant = 0;
  if (sums) {
    of_x = -channel.scale * channel.inverse * (sums[count + c] / channels.values);
    constant = -channel.scale * (sums[c] / channels.values) - channel.mean * of_x;
  }
  factors[2 * count + c] = of_x;
  factors[3 * count + c] = constant;
}

template <class T>
struct ApplyBody {
  T* y;
  const T* x;
  const float* factors;
  Divider by_channels;
  bool relu;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(x + i);
    Pack<T, kCount> result;
    const std::uint32_t channels = by_channels.divisor();
    std::uint32_t c = by_channels.remainder(static_cast<std::uint32_t>(i));
    for (int k = 0; k < kCount; ++k) {
      const float value = fmaf(to_float(values.v[k]), factors[c], factors[channels + c]);
      store(result.v[k], relu && value <= 0.0F ? 0.0F : value);
      if (++c == channels) c = 0;
    }
    store_pack<kCount>(y + i, result);
  }
};

/// Computes dx, which may be the same memory as dy.
template <class T>
struct GradientBody {
  T* dx;
  const T *dy, *x;
  const float* factors;
  Divider by_channels;
  bool relu;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto gradients = load_pack<kCount>(dy + i), values = load_pack<kCount>(x + i);
    Pack<T, kCount> result;
    const std::uint32_t channels = by_channels.divisor();
    std::uint32_t c = by_channels.remainder(static_cast<std::uint32_t>(i));
    for (int k = 0; k < kCount; ++k) {
      const Channel channel = {0, 0, factors[c], factors[channels + c]};
      const float here = to_float(values.v[k]);
      const float from = masked(channel, relu, here, to_float(gradients.v[k]));
      store(result.v[k], fmaf(from, channel.scale,
                              fmaf(here, factors[2 * channels + c], factors[3 * channels + c])));
      if (++c == channels) c = 0;
    }
    store_pack<kCount>(dx + i, result);
  }
};

constexpr int kThreads = 128;

template <class T>
class CudaBatchNorm final : public Op {
 public:
  CudaBatchNorm(const CudaContext& context, const BatchNormDesc& desc)
      : context_(context), desc_(desc), chunks_(make_chunks(desc)) {}

  bool in_place() const override { return true; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  std::int64_t coupled_channels() const override { return desc_.batch_statistics ? channels() : 0; }
  std::size_t saved_bytes() const override {
    return desc_.batch_statistics ? 4 * bytes_of(channels()) : 0;
  }
  std::size_t scratch_bytes() const override {
    return bytes_of((4 + 2 * static_cast<std::int64_t>(chunks_.count)) * channels());
  }

  void forward_statistics(const OpArgs& args) override {
    launch(moments_kernel<T>, grid(), block(), 0, context_.stream, chunks_, device<const T>(args.x),
           partials(args));
    over_channels(merge_chunks_kernel, chunks_, partials(args), device<float>(args.saved));
  }

  void forward(const OpArgs& args) override {
    const DevPtr mean_sum = args.params[desc_.kRunningMean].gradient;
    const DevPtr var_sum = args.params[desc_.kRunningVar].gradient;
    const bool gives_sums =
        desc_.batch_statistics && mean_sum && args.write == GradWrite::overwrite;
    float* factors = device<float>(args.scratch);
    over_channels(forward_factors_kernel, channels(), channels_of(args), factors,
                  gives_sums ? device<float>(mean_sum) : nullptr, device<float>(var_sum),
                  static_cast<float>(args.samples));
    for_each_pack<kPack>(context_, count(), aligned_to(16, args.x, args.y),
                         ApplyBody<T>{device<T>(args.y), device<const T>(args.x), factors,
                                      Divider(channels()), desc_.relu});
  }

  void backward_statistics(const OpArgs& args) override {
    add_up_gradients(args, device<float>(args.saved) + 2 * channels());
  }

  void backward(const OpArgs& args) override {
    // The parameters are frozen if their gradients are not requested.
    const bool asked = args.params[desc_.kWeight].gradient || args.params[desc_.kBias].gradient;
    if (!desc_.batch_statistics && asked) add_up_gradients(args, nullptr);
    if (!args.dx) return;
    float* factors = device<float>(args.scratch);
    const float* sums =
        desc_.batch_statistics ? device<const float>(args.saved) + 2 * channels() : nullptr;
    over_channels(backward_factors_kernel, channels(), channels_of(args), sums, factors);
    for_each_pack<kPack>(
        context_, count(), aligned_to(16, args.x, args.dy, args.dx),
        GradientBody<T>{device<T>(args.dx), device<const T>(args.dy), device<const T>(args.x),
                        factors, Divider(channels()), desc_.relu});
  }

  std::string implementation() const override { return "own"; }

 private:
  static constexpr int kPack = 16 / sizeof(T);

  std::int64_t channels() const { return desc_.shape.c; }
  std::int64_t count() const { return desc_.batch * desc_.shape.elements(); }
  static std::size_t bytes_of(std::int64_t floats) {
    return static_cast<std::size_t>(floats) * sizeof(float);
  }
  /// Returns the chunks' sums in scratch, which follow the factors of every channel.
  float* partials(const OpArgs& args) const { return device<float>(args.scratch) + 4 * channels(); }
  dim3 grid() const {
    return {static_cast<unsigned>(ceil_div(channels(), kSumColumns)),
            static_cast<unsigned>(chunks_.count), 1};
  }
  static dim3 block() { return {kSumColumns, kSumLanes, 1}; }

  template <class... Params, class... Args>
  void over_channels(void (*kernel)(Params...), Args... args) const {
    launch(kernel, blocks_for(channels(), kThreads), kThreads, 0, context_.stream, args...);
  }

  Channels channels_of(const OpArgs& args) const {
    Channels all = {};
    all.eps = desc_.eps;
    if (desc_.batch_statistics) {
      all.mean = device<const float>(args.saved);
      all.squares = all.mean + channels();
      all.values = static_cast<float>(args.values);
    } else {
      all.mean = device<const float>(args.params[desc_.kRunningMean].f32);
      all.squares = device<const float>(args.params[desc_.kRunningVar].f32);
      all.values = 1.0F;
    }
    if (desc_.affine) {
      all.weight = device<const float>(args.params[desc_.kWeight].f32);
      all.bias = device<const float>(args.params[desc_.kBias].f32);
    }
    return all;
  }

  void add_up_gradients(const OpArgs& args, float* sums) const {
    launch(gradient_sums_kernel<T>, grid(), block(), 0, context_.stream, chunks_, channels_of(args),
           desc_.relu, device<const T>(args.dy), device<const T>(args.x), partials(args));
    over_channels(add_chunks_kernel, chunks_, channels_of(args), partials(args), sums,
                  device<float>(args.params[desc_.kWeight].gradient),
                  device<float>(args.params[desc_.kBias].gradient), args.write == GradWrite::add);
  }

  const CudaContext& context_;
  BatchNormDesc desc_;
  Chunks chunks_;
};

/// Maximum number of merges of one merging kernel.
constexpr int kMaxMerged = 32;
struct Merges {
  float* parts[kMaxMerged];  ///< in pairs: left, right
  MomentMerge rules[kMaxMerged / 2];
  int count;
  const float* from;
  float* outs[kMaxMerged];
  int out_count;
};

/// Merges moments, with a thread for every channel.
__global__ void merge_moments_kernel(Merges merges, std::int64_t channels) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  for (int i = 0; i < merges.count; ++i) {
    float* left = merges.parts[2 * i] + c;
    const float* right = merges.parts[2 * i + 1] + c;
    merge_moment(merges.rules[i], left[0], left[channels], right[0], right[channels]);
  }
  for (int i = 0; i < merges.out_count; ++i) {
    const float mean = merges.from[c], squares = merges.from[channels + c];
    merges.outs[i][c] = mean;
    merges.outs[i][channels + c] = squares;
  }
}

__global__ void check_running_kernel(const float* params, const float* sums, StepMetrics* metrics,
                                     RunningRange range, std::int64_t first) {
  const float momentum = next_momentum(range, params);
  const auto samples = static_cast<float>(metrics->count.count());
  for (std::int64_t i = range.begin + global_thread(); i < range.end; i += grid_threads()) {
    if (is_finite(running_update(params[i], sums[i], samples, momentum))) continue;
    atomicMax(&metrics->bad_statistic,
              StepMetrics::kFirstStatistic - static_cast<std::uint32_t>(i - first));
    return;
  }
}

__global__ void update_running_kernel(float* params, const float* sums, const StepMetrics* metrics,
                                      RunningRange range) {
  if (!updates_running(*metrics)) return;
  const float momentum = counted_momentum(range, params);
  const auto samples = static_cast<float>(metrics->count.count());
  for (std::int64_t i = range.begin + global_thread(); i < range.end; i += grid_threads()) {
    params[i] = running_update(params[i], sums[i], samples, momentum);
  }
}

__global__ void count_updates_kernel(float* params, const StepMetrics* metrics, Range counters) {
  if (!updates_running(*metrics)) return;
  for (std::int64_t i = counters.begin + global_thread(); i < counters.end; i += grid_threads()) {
    params[i] = UpdateCounter::next(params[i]);
  }
}

/// Folds batch norms, with a thread for every weight; the first thread of a row also computes its
/// bias.
__global__ void fold_norm_kernel(NormFold fold, const float* params, float* folded) {
  for (std::int64_t i = global_thread(); i < fold.channels * fold.row; i += grid_threads()) {
    const std::int64_t c = i / fold.row;
    const FoldedChannel channel = folded_channel(fold, params, c);
    folded[fold.to_weight + i] = params[fold.weight + i] * channel.scale;
    if (i % fold.row == 0) folded[fold.to_bias + c] = channel.bias;
  }
}

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const BatchNormDesc& desc) {
  check_cuda_desc(context, "batch_norm", desc.type, desc.batch);
  check_indices(context, "batch_norm", desc.batch * desc.shape.elements());
  if (desc.type == DType::bf16) return std::make_unique<CudaBatchNorm<Bf16>>(context, desc);
  return std::make_unique<CudaBatchNorm<float>>(context, desc);
}

void cuda_merge_moments(const CudaContext& context, std::span<const DevPtr> parts,
                        std::span<const MomentMerge> merges, std::span<const DevPtr> outs,
                        std::int64_t channels) {
  // Launch until everything is merged; a launch begins when the previous one has ended.
  std::size_t merged = 0, copied = 0;
  while (merged < merges.size() || copied < outs.size()) {
    Merges some = {};
    while (merged < merges.size() && some.count < kMaxMerged / 2) {
      const MomentMerge& merge = merges[merged++];
      some.parts[2 * some.count] = device<float>(parts[merge.left]);
      some.parts[2 * some.count + 1] = device<float>(parts[merge.right]);
      some.rules[some.count++] = merge;
    }
    some.from = device<const float>(parts[0]);
    while (merged == merges.size() && copied < outs.size() && some.out_count < kMaxMerged) {
      some.outs[some.out_count++] = device<float>(outs[copied++]);
    }
    launch(merge_moments_kernel, blocks_for(channels, kThreads), kThreads, 0, context.stream, some,
           channels);
  }
}

void cuda_check_running(const CudaContext& context, std::span<const RunningRange> ranges,
                        const RunningArgs& args) {
  for (const RunningRange& range : ranges) {
    launch(check_running_kernel, blocks_for(range.end - range.begin, kThreads), kThreads, 0,
           context.stream, device<const float>(args.params), device<const float>(args.sums),
           device<StepMetrics>(args.metrics), range, ranges.front().begin);
  }
}

void cuda_update_running(const CudaContext& context, std::span<const RunningRange> ranges,
                         Range counters, const RunningArgs& args) {
  float* params = device<float>(args.params);
  const auto* metrics = device<const StepMetrics>(args.metrics);
  if (counters.size() > 0) {
    launch(count_updates_kernel, blocks_for(counters.size(), kThreads), kThreads, 0, context.stream,
           params, metrics, counters);
  }
  for (const RunningRange& range : ranges) {
    launch(update_running_kernel, blocks_for(range.end - range.begin, kThreads), kThreads, 0,
           context.stream, params, device<const float>(args.sums), metrics, range);
  }
}

void cuda_fold_norms(const CudaContext& context, std::span<const NormFold> folds, DevPtr params,
                     DevPtr folded) {
  for (const NormFold& fold : folds) {
    launch(fold_norm_kernel, blocks_for(fold.channels * fold.row, kThreads), kThreads, 0,
           context.stream, fold, device<const float>(params), device<float>(folded));
  }
}

}  // namespace dpt
