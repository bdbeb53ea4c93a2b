// Batch normalisation on a GPU, in four kernels: moments, normalisation, sums of gradients,
// gradient of the input. A sum over rows is computed over chunks of rows, and the block that
// finishes last adds up the chunks. The partition and the order of additions depend only on the
// shape.
#include "kernels/cuda/batch_norm.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/common/batch_norm_math.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/is_last_block.h"
#include "kernels/cuda/runtime/pack.h"
#include "kernels/cuda/runtime/row_cut.cuh"

namespace dpt {
namespace {

/// Map of a channel, y = x * scale + shift, as a lane of forward computes it.
struct Channel {
  float mean, inverse, scale, shift;
};

/// Addresses of the channels' statistics and parameters. `squares` are divided by `values`, which
/// is 1 for running variances.
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

/// Loads a pack, which need not be aligned to its size unless kAligned.
template <int kWidth, bool kAligned, class T>
__device__ inline Pack<T, kWidth> load_channels(const T* from) {
  if constexpr (kAligned) {
    return load_pack<kWidth>(from);
  } else {
    Pack<T, kWidth> pack;
    for (int k = 0; k < kWidth; ++k) pack.v[k] = from[k];
    return pack;
  }
}

template <int kWidth, bool kAligned, class T>
__device__ inline void store_channels(T* to, const Pack<T, kWidth>& pack) {
  if constexpr (kAligned) {
    store_pack<kWidth>(to, pack);
  } else {
    for (int k = 0; k < kWidth; ++k) to[k] = pack.v[k];
  }
}

/// Matrix of a batch, whose columns are channels, and the memory for its sums.
struct Batch {
  Cut cut;
  int rows;
  std::int64_t channels;
  float* partials;  ///< (chunk, 2, channels)
  unsigned* counters;

  // Return the rows of a chunk as 32-bit numbers. These suffice (check_indices), and the compiler
  // divides by the number of lanes to unroll a loop over rows.
  __device__ int begin(unsigned chunk) const {
    return static_cast<int>(chunk * cut.rows_per_chunk);
  }
  __device__ int end(unsigned chunk) const {
    return static_cast<int>(
        min((chunk + std::int64_t{1}) * cut.rows_per_chunk, static_cast<std::int64_t>(rows)));
  }
};

/// Two sums for each channel of a pack.
template <int kWidth>
struct TwoSums {
  Pack<float, kWidth> first = {}, second = {};

  __device__ void add_lanes(const Cut& cut) {
    first = sum_lanes<kWidth>(first, cut.packs, cut.lanes);
    second = sum_lanes<kWidth>(second, cut.packs, cut.lanes);
  }
  __device__ void load(const float* from, std::int64_t channels) {
    first = load_pack<kWidth>(from);
    second = load_pack<kWidth>(from + channels);
  }
  __device__ void store(float* to, std::int64_t channels) const {
    store_pack<kWidth>(to, first);
    store_pack<kWidth>(to + channels, second);
  }
};

/// Stores a chunk's sums. Returns true in the tile's last block, which must then add up all chunks.
/// With a single chunk, stores nothing and always returns true.
template <int kWidth>
__device__ inline bool hand_over(const Batch& batch, const CutPlace& at,
                                 const TwoSums<kWidth>& sums) {
  if (batch.cut.chunks == 1) return true;
  if (at.works && at.lane == 0) {
    sums.store(batch.partials + 2 * at.chunk * batch.channels + at.column, batch.channels);
  }
  return is_last_block(batch.counters + at.tile, batch.cut.chunks);
}

/// Converts sums over `count` values to moments. The sums are of deviations from `pivot` and of
/// their squares; the moments are means and sums of squared deviations.
template <int kWidth>
__device__ inline void to_moments(TwoSums<kWidth>& sums, const Pack<float, kWidth>& pivot,
                                  int count) {
  for (int k = 0; k < kWidth; ++k) {
    const float sum = sums.first.v[k], shift = sum / static_cast<float>(count);
    sums.first.v[k] = pivot.v[k] + shift;
    sums.second.v[k] = fmaxf(sums.second.v[k] - sum * shift, 0.0F);
  }
}

/// Computes the moments of all rows: (2, channels).
template <class T, int kWidth, bool kAligned>
__global__ void __launch_bounds__(kCutThreads)
    moments_kernel(Batch batch, const T* x, float* moments) {
  const CutPlace at(batch.cut, batch.channels);
  const int begin = batch.begin(at.chunk), end = batch.end(at.chunk);
  // Use deviations from the first row to avoid differences of large numbers.
  Pack<float, kWidth> pivot = {};
  TwoSums<kWidth> sums;
  if (at.works) {
    const auto row_of_pivot =
        load_channels<kWidth, kAligned>(x + begin * batch.channels + at.column);
    for (int k = 0; k < kWidth; ++k) pivot.v[k] = to_float(row_of_pivot.v[k]);
#pragma unroll 4
    for (int row = begin + at.lane; row < end; row += batch.cut.lanes) {
      const auto values = load_channels<kWidth, kAligned>(x + row * batch.channels + at.column);
      for (int k = 0; k < kWidth; ++k) {
        const float deviation = to_float(values.v[k]) - pivot.v[k];
        sums.first.v[k] += deviation;
        sums.second.v[k] += deviation * deviation;
      }
    }
  }
  sums.add_lanes(batch.cut);
  to_moments(sums, pivot, end - begin);
  if (!hand_over(batch, at, sums)) return;
  if (batch.cut.chunks > 1) {
    // Use deviations from the first chunk's mean. Merging moments in pairs would need a division in
    // every iteration, and the next loads would wait for it.
    sums = {};
    if (at.works) {
      pivot = load_pack<kWidth>(batch.partials + at.column);
#pragma unroll 4
      for (auto chunk = static_cast<unsigned>(at.lane); chunk < batch.cut.chunks;
           chunk += batch.cut.lanes) {
        TwoSums<kWidth> of_chunk;
        of_chunk.load(batch.partials + 2 * chunk * batch.channels + at.column, batch.channels);
        const auto count = static_cast<float>(batch.end(chunk) - batch.begin(chunk));
        for (int k = 0; k < kWidth; ++k) {
          const float deviation = of_chunk.first.v[k] - pivot.v[k];
          sums.first.v[k] += count * deviation;
          sums.second.v[k] += of_chunk.second.v[k] + count * deviation * deviation;
        }
      }
    }
    sums.add_lanes(batch.cut);
    to_moments(sums, pivot, batch.rows);
  }
  if (at.works && at.lane == 0) sums.store(moments + at.column, batch.channels);
}

/// Returns dy if forward's ReLU let it through, otherwise 0.
__device__ inline float masked(const Channel& channel, bool relu, float x, float dy) {
  return relu && fmaf(x, channel.scale, channel.shift) <= 0.0F ? 0.0F : dy;
}

/// A complete gradient.
template <class T>
struct CompleteGradient {
  static constexpr int kUnroll = 2;
  const T* dy;

  template <int kWidth, bool kAligned>
  __device__ Pack<T, kWidth> load(std::int64_t i) const {
    return load_channels<kWidth, kAligned>(dy + i);
  }
};

/// Parts of a gradient (GradientParts), and the place of the complete one.
template <class T>
struct PartialGradient {
  static constexpr int kUnroll = 1;  // a row has as many loads as two rows of a complete gradient
  const T *first, *second, *gate;
  T* dy;

  /// Loads the parts of a pack, stores the complete pack and returns it. Its values are rounded
  /// like those of the kernels for sums and ReLUs.
  template <int kWidth, bool kAligned>
  __device__ Pack<T, kWidth> load(std::int64_t i) const {
    Pack<T, kWidth> result = load_channels<kWidth, kAligned>(first + i);
    Pack<T, kWidth> more = {}, gates = {};
    if (second) more = load_channels<kWidth, kAligned>(second + i);
    if (gate) gates = load_channels<kWidth, kAligned>(gate + i);
    for (int k = 0; k < kWidth; ++k) {
      if (second) dpt::store(result.v[k], to_float(result.v[k]) + to_float(more.v[k]));
      if (gate && to_float(gates.v[k]) <= 0.0F) result.v[k] = T{};
    }
    store_channels<kWidth, kAligned>(dy + i, result);
    return result;
  }
};

/// Results of the sums of gradients: the sums of dy and of dy times the normalised x, (2,
/// channels), and the gradients of the parameters. Each may be null.
struct GradientSums {
  float *sums, *dweight, *dbias;
  bool add;
};

/// Computes the sums of gradients over all rows. `Gradient` is CompleteGradient or PartialGradient.
template <class T, int kWidth, bool kAligned, class Gradient>
__global__ void __launch_bounds__(kCutThreads)
    gradient_sums_kernel(Batch batch, Channels channels, bool relu, Gradient dy, const T* x,
                         GradientSums to) {
  const CutPlace at(batch.cut, batch.channels);
  Channel channel[kWidth] = {};
  TwoSums<kWidth> sums;  // sums of dy and of dy * (x - mean)
  if (at.works) {
    for (int k = 0; k < kWidth; ++k) channel[k] = channels.at(at.column + k);
    const int end = batch.end(at.chunk);
#pragma unroll(Gradient::kUnroll)
    for (int row = batch.begin(at.chunk) + at.lane; row < end; row += batch.cut.lanes) {
      const std::int64_t i = row * batch.channels + at.column;
      const auto values = load_channels<kWidth, kAligned>(x + i);
      const auto gradients = dy.template load<kWidth, kAligned>(i);
      for (int k = 0; k < kWidth; ++k) {
        const float here = to_float(values.v[k]);
        const float gradient = masked(channel[k], relu, here, to_float(gradients.v[k]));
        sums.first.v[k] += gradient;
        sums.second.v[k] += gradient * (here - channel[k].mean);
      }
    }
  }
  sums.add_lanes(batch.cut);
  if (!hand_over(batch, at, sums)) return;
  if (batch.cut.chunks > 1) {
    sums = {};
    if (at.works) {
#pragma unroll 4
      for (auto chunk = static_cast<unsigned>(at.lane); chunk < batch.cut.chunks;
           chunk += batch.cut.lanes) {
        TwoSums<kWidth> of_chunk;
        of_chunk.load(batch.partials + 2 * chunk * batch.channels + at.column, batch.channels);
        for (int k = 0; k < kWidth; ++k) {
          sums.first.v[k] += of_chunk.first.v[k];
          sums.second.v[k] += of_chunk.second.v[k];
        }
      }
    }
    sums.add_lanes(batch.cut);
  }
  if (!at.works || at.lane != 0) return;
  for (int k = 0; k < kWidth; ++k) {
    const std::int64_t c = at.column + k;
    const float total = sums.first.v[k], with_x = sums.second.v[k] * channel[k].inverse;
    if (to.sums) {
      to.sums[c] = total;
      to.sums[batch.channels + c] = with_x;
    }
    if (to.dweight) to.dweight[c] = (to.add ? to.dweight[c] : 0.0F) + with_x;
    if (to.dbias) to.dbias[c] = (to.add ? to.dbias[c] : 0.0F) + total;
  }
}

/// Place of a thread in a pass over all elements. A thread has the same pack of channels in all its
/// rows, so it computes their factors only once.
struct PassPlace {
  std::int64_t column, row, stride;  ///< stride: distance between two rows of a thread
  bool works;

  /// `packs` divides by the number of packs in a row, which is at most grid_threads().
  __device__ PassPlace(const Divider& packs, int width) {
    auto pack = static_cast<std::uint32_t>(global_thread());
    stride = packs.quotient(static_cast<std::uint32_t>(grid_threads()));
    row = packs.split(pack);
    column = static_cast<std::int64_t>(pack) * width;
    works = row < stride;
  }
};

/// Places for the statistics that forward used, multiplied by `samples`. Null if not requested.
struct UsedStatistics {
  float *mean, *variance;
  float samples;
};

/// Computes y, which may be the same memory as x.
template <class T, int kWidth>
__global__ void __launch_bounds__(256)
    normalise_kernel(std::int64_t rows, Divider packs, Channels channels, bool relu, const T* x,
                     T* y, UsedStatistics used) {
  const PassPlace at(packs, kWidth);
  if (!at.works || at.row >= rows) return;
  const std::int64_t row_elements = static_cast<std::int64_t>(packs.divisor()) * kWidth;
  Channel channel[kWidth] = {};
  for (int k = 0; k < kWidth; ++k) channel[k] = channels.at(at.column + k);
  if (used.mean && at.row == 0) {
    for (int k = 0; k < kWidth; ++k) {
      const std::int64_t c = at.column + k;
      used.mean[c] = channel[k].mean * used.samples;
      used.variance[c] = unbiased_sum(channels.squares[c], channels.values, used.samples);
    }
  }
#pragma unroll 2
  for (std::int64_t row = at.row; row < rows; row += at.stride) {
    const std::int64_t i = row * row_elements + at.column;
    const auto values = load_pack<kWidth>(x + i);
    Pack<T, kWidth> result;
    for (int k = 0; k < kWidth; ++k) {
      const float value = fmaf(to_float(values.v[k]), channel[k].scale, channel[k].shift);
      dpt::store(result.v[k], relu && value <= 0.0F ? 0.0F : value);
    }
    store_pack<kWidth>(y + i, result);
  }
}

/// Computes dx = dy * scale + x * of_x + constant. dx may be the same memory as dy. `sums` is null
/// if the statistics do not depend on x.
template <class T, int kWidth>
__global__ void __launch_bounds__(256)
    input_gradient_kernel(std::int64_t rows, Divider packs, Channels channels, const float* sums,
                          bool relu, const T* dy, const T* x, T* dx) {
  const PassPlace at(packs, kWidth);
  if (!at.works || at.row >= rows) return;
  const std::int64_t row_elements = static_cast<std::int64_t>(packs.divisor()) * kWidth;
  Channel channel[kWidth] = {};
  float of_x[kWidth] = {}, constant[kWidth] = {};
  for (int k = 0; k < kWidth; ++k) {
    const std::int64_t c = at.column + k;
    channel[k] = channels.at(c);
    if (!sums) continue;
    of_x[k] = -channel[k].scale * channel[k].inverse * (sums[row_elements + c] / channels.values);
    constant[k] = -channel[k].scale * (sums[c] / channels.values) - channel[k].mean * of_x[k];
  }
#pragma unroll 2
  for (std::int64_t row = at.row; row < rows; row += at.stride) {
    const std::int64_t i = row * row_elements + at.column;
    const auto gradients = load_pack<kWidth>(dy + i);
    const auto values = load_pack<kWidth>(x + i);
    Pack<T, kWidth> result;
    for (int k = 0; k < kWidth; ++k) {
      const float here = to_float(values.v[k]);
      const float from = masked(channel[k], relu, here, to_float(gradients.v[k]));
      dpt::store(result.v[k], fmaf(from, channel[k].scale, fmaf(here, of_x[k], constant[k])));
    }
    store_pack<kWidth>(dx + i, result);
  }
}

constexpr int kThreads = 128;

template <class T>
class CudaBatchNorm final : public Op {
 public:
  CudaBatchNorm(const CudaContext& context, const BatchNormDesc& desc)
      : context_(context), desc_(desc), cut_(make_cut(rows(), channels(), width())) {}

  bool in_place() const override { return true; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool completes_dy() const override { return desc_.batch_statistics; }
  std::int64_t coupled_channels() const override { return desc_.batch_statistics ? channels() : 0; }
  std::size_t saved_bytes() const override {
    return desc_.batch_statistics ? bytes_of(4 * channels()) : 0;
  }
  std::size_t scratch_bytes() const override {
    return cut_.chunks == 1 ? 0 : bytes_of(2 * std::int64_t{cut_.chunks} * channels());
  }

  void forward_statistics(const OpArgs& args) override {
    const auto kernel = width() == 1             ? moments_kernel<T, 1, true>
                        : aligned_to(16, args.x) ? moments_kernel<T, kPack, true>
                                                 : moments_kernel<T, kPack, false>;
    launch(kernel, cut_.tiles * cut_.chunks, kCutThreads, 0, context_.stream, batch(args),
           device<const T>(args.x), device<float>(args.saved));
  }

  void forward(const OpArgs& args) override {
    UsedStatistics used = {};
    if (desc_.batch_statistics && args.write == GradWrite::overwrite) {
      used.mean = device<float>(args.params[desc_.kRunningMean].gradient);
      used.variance = device<float>(args.params[desc_.kRunningVar].gradient);
      used.samples = static_cast<float>(args.samples);
    }
    // The width does not affect the bits.
    const int width = aligned_to(16, args.x, args.y) ? this->width() : 1;
    launch(width == 1 ? normalise_kernel<T, 1> : normalise_kernel<T, kPack>, pass_blocks(width),
           kPassThreads, 0, context_.stream, rows(), Divider(channels() / width), channels_of(args),
           desc_.relu, device<const T>(args.x), device<T>(args.y), used);
  }

  void backward_statistics(const OpArgs& args) override {
    add_up_gradients(args, device<float>(args.saved) + 2 * channels());
  }

  void backward(const OpArgs& args) override {
    // The parameters are frozen if their gradients are not requested.
    const bool asked = args.params[desc_.kWeight].gradient || args.params[desc_.kBias].gradient;
    if (!desc_.batch_statistics && asked) add_up_gradients(args, nullptr);
    if (!args.dx) return;
    const float* sums =
        desc_.batch_statistics ? device<const float>(args.saved) + 2 * channels() : nullptr;
    const int width = aligned_to(16, args.x, args.dy, args.dx) ? this->width() : 1;
    launch(width == 1 ? input_gradient_kernel<T, 1> : input_gradient_kernel<T, kPack>,
           pass_blocks(width), kPassThreads, 0, context_.stream, rows(),
           Divider(channels() / width), channels_of(args), sums, desc_.relu,
           device<const T>(args.dy), device<const T>(args.x), device<T>(args.dx));
  }

  std::string implementation() const override { return "own"; }

 private:
  static constexpr int kPack = 16 / sizeof(T), kPassThreads = 256;

  std::int64_t channels() const { return desc_.shape.c; }
  std::int64_t rows() const { return desc_.batch * desc_.shape.h * desc_.shape.w; }
  /// Returns the number of neighbouring channels that a thread processes.
  int width() const { return channels() % kPack == 0 ? kPack : 1; }
  static std::size_t bytes_of(std::int64_t floats) {
    return static_cast<std::size_t>(floats) * sizeof(float);
  }
  Batch batch(const OpArgs& args) const {
    return {cut_, static_cast<int>(rows()), channels(), device<float>(args.scratch),
            block_counters(context_)};
  }
  /// Returns enough blocks to fill the GPU, and to give every pack of channels a thread.
  unsigned pass_blocks(int width) const {
    const std::int64_t packs = channels() / width;
    const std::int64_t most = std::max(std::int64_t{8} * context_.multiprocessors,
                                       ceil_div(packs, std::int64_t{kPassThreads}));
    return blocks_for(rows() * packs, kPassThreads, most);
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
    const GradientParts& parts = args.dy_parts;
    const bool aligned = aligned_to(16, args.x, args.dy, parts.first, parts.second, parts.gate);
    if (!parts.first) {
      return add_up_gradients(args, CompleteGradient<T>{device<const T>(args.dy)}, aligned, sums);
    }
    const PartialGradient<T> partial = {device<const T>(parts.first), device<const T>(parts.second),
                                        device<const T>(parts.gate), device<T>(args.dy)};
    add_up_gradients(args, partial, aligned, sums);
  }
  template <class Gradient>
  void add_up_gradients(const OpArgs& args, const Gradient& dy, bool aligned, float* sums) const {
    const auto kernel = width() == 1 ? gradient_sums_kernel<T, 1, true, Gradient>
                        : aligned    ? gradient_sums_kernel<T, kPack, true, Gradient>
                                     : gradient_sums_kernel<T, kPack, false, Gradient>;
    launch(kernel, cut_.tiles * cut_.chunks, kCutThreads, 0, context_.stream, batch(args),
           channels_of(args), desc_.relu, dy, device<const T>(args.x),
           GradientSums{sums, device<float>(args.params[desc_.kWeight].gradient),
                        device<float>(args.params[desc_.kBias].gradient),
                        args.write == GradWrite::add});
  }

  const CudaContext& context_;
  BatchNormDesc desc_;
  Cut cut_;
};

/// Maximum number of parts (two for each merge), and of outs, in one launch of the merging kernel.
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

const float* sums_of(const RunningRange& range, const RunningArgs& args) {
  return device<const float>(args.sums + static_cast<std::size_t>(range.begin) * sizeof(float));
}

// `sums` begins with the range's sums. There may be no memory before them, because frozen
// parameters have no gradient.
__global__ void check_running_kernel(const float* params, const float* sums, StepMetrics* metrics,
                                     RunningRange range, std::int64_t first) {
  const float momentum = next_momentum(range, params);
  const auto samples = static_cast<float>(metrics->count.count());
  for (std::int64_t i = range.begin + global_thread(); i < range.end; i += grid_threads()) {
    if (is_finite(running_update(params[i], sums[i - range.begin], samples, momentum))) continue;
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
    params[i] = running_update(params[i], sums[i - range.begin], samples, momentum);
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
  // Launch until everything is merged. A launch begins when the previous one has ended.
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
           context.stream, device<const float>(args.params), sums_of(range, args),
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
           context.stream, params, sums_of(range, args), metrics, range);
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
