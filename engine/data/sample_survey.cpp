#include "engine/data/sample_survey.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>

#include "engine/data/split.h"
#include "kernels/base/error.h"
#include "kernels/base/worker_threads.h"
#include "kernels/base/xxhash.h"
#include "kernels/image/perceptual_hash.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

/// Number of samples that a thread takes at once. Floats are summed in groups of this size.
constexpr std::int64_t kGroup = 16;

/// Exact sums of bytes: 2^64 exceeds the sum of 2^48 squares.
struct ByteSums {
  std::vector<std::uint64_t> sum, squares;  ///< one per channel
};

/// Mean and sum of squared deviations of floats.
struct Moments {
  double count = 0;
  std::vector<double> mean, deviations;  ///< one per channel

  /// Adds the floats that `other` describes. Source: T. F. Chan et al., Algorithms for Computing
  /// the Sample Variance, 1983.
  void merge(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const double total = count + other.count;
    for (std::size_t c = 0; c < mean.size(); ++c) {
      const double difference = other.mean[c] - mean[c];
      mean[c] += difference * other.count / total;
      deviations[c] += other.deviations[c] + difference * difference * count * other.count / total;
    }
    count = total;
  }
};

/// Samples of one split that a thread takes at once.
struct Group {
  std::size_t split;
  Range positions;
};

template <std::size_t channels>
void add_bytes(std::span<const std::uint8_t> pixels, std::uint64_t* sum, std::uint64_t* squares) {
  // 32 bits hold the sum of 65,536 squares, and 32-bit additions are faster.
  constexpr std::size_t kRun = 65536;
  for (std::size_t at = 0; at < pixels.size();) {
    const std::size_t end = std::min(pixels.size(), at + kRun * channels);
    std::uint32_t own_sum[channels] = {}, own_squares[channels] = {};
    for (; at < end; at += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        const std::uint32_t value = pixels[at + c];
        own_sum[c] += value;
        own_squares[c] += value * value;
      }
    }
    for (std::size_t c = 0; c < channels; ++c) {
      sum[c] += own_sum[c];
      squares[c] += own_squares[c];
    }
  }
}

void add_bytes(std::span<const std::uint8_t> pixels, std::size_t channels, ByteSums& sums) {
  if (channels == 1) return add_bytes<1>(pixels, sums.sum.data(), sums.squares.data());
  if (channels == 3) return add_bytes<3>(pixels, sums.sum.data(), sums.squares.data());
  for (std::size_t i = 0; i < pixels.size(); i += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const std::uint64_t value = pixels[i + c];
      sums.sum[c] += value;
      sums.squares[c] += value * value;
    }
  }
}

Moments moments_of(std::span<const float> values, std::size_t channels) {
  Moments moments;
  const std::size_t pixels = values.size() / channels;
  moments.count = static_cast<double>(pixels);
  moments.mean.resize(channels);
  moments.deviations.resize(channels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    moments.mean[i % channels] += static_cast<double>(values[i]);
  }
  for (double& mean : moments.mean) mean /= moments.count;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double deviation = static_cast<double>(values[i]) - moments.mean[i % channels];
    moments.deviations[i % channels] += deviation * deviation;
  }
  return moments;
}

template <class T>
bool all_pixels_equal(std::span<const T> values, std::size_t channels) {
  return std::equal(values.begin() + static_cast<std::ptrdiff_t>(channels), values.end(),
                    values.begin());
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

/// Returns a number that distinguishes targets: the label, or a hash of the row.
std::uint64_t target_of(const Split& split, std::int64_t position, std::int32_t label,
                        std::vector<float>& row) {
  const TargetShape targets = split.source->targets();
  if (targets.values == 0) return static_cast<std::uint32_t>(label);
  row.resize(static_cast<std::size_t>(targets.floats()));
  split.source->read_targets(split.indices[position], row);
  return XXH3_64bits(row.data(), static_cast<std::size_t>(targets.values) * sizeof(float));
}

/// State that all threads share.
class Surveyor {
 public:
  Surveyor(std::vector<SurveyedSplit>& splits, bool keeps_records)
      : splits_(splits), keeps_records_(keeps_records) {
    for (std::size_t s = 0; s < splits.size(); ++s) {
      SurveyedSplit& split = splits[s];
      if (keeps_records) split.records.resize(split.split.indices.size());
      for (std::int64_t begin = 0; begin < split.split.size(); begin += kGroup) {
        groups_.push_back({s, {begin, std::min(begin + kGroup, split.split.size())}});
      }
      total_ += split.split.size();
    }
    byte_sums_ = no_sums();
    samples_.resize(splits.size());
    const auto is_float = [](const SurveyedSplit& split) {
      return split.split.source->type() == DType::f32;
    };
    if (std::any_of(splits.begin(), splits.end(), is_float)) moments_.resize(groups_.size());
  }

  void work(const std::atomic<bool>& stop) {
    std::vector<ByteSums> sums = no_sums();
    std::vector<std::int64_t> samples(splits_.size());
    std::vector<std::byte> pixels;
    std::vector<float> row;
    for (std::size_t g = next_++; g < groups_.size() && !stop; g = next_++) {
      const auto [s, positions] = groups_[g];
      for (std::int64_t k = positions.begin; k < positions.end && !stop; ++k, ++done_) {
        SampleRecord record;
        if (!read(s, k, pixels, record)) continue;
        describe(s, k, pixels, row, record);
        if (record.is_finite) {
          ++samples[s];
          add(s, g, pixels, sums[s]);
        }
        if (keeps_records_) splits_[s].records[k] = record;
      }
    }
    const std::lock_guard lock(mutex_);
    for (std::size_t s = 0; s < sums.size(); ++s) {
      samples_[s] += samples[s];
      for (std::size_t c = 0; c < sums[s].sum.size(); ++c) {
        byte_sums_[s].sum[c] += sums[s].sum[c];
        byte_sums_[s].squares[c] += sums[s].squares[c];
      }
    }
  }

  /// Combines the results. Call it after all threads have ended.
  void finish() {
    std::vector<Moments> of_splits(splits_.size());
    for (std::size_t g = 0; g < moments_.size(); ++g)
      of_splits[groups_[g].split].merge(moments_[g]);
    for (std::size_t s = 0; s < splits_.size(); ++s) {
      SurveyedSplit& split = splits_[s];
      std::sort(split.unreadable.begin(), split.unreadable.end());
      split.statistics.samples = samples_[s];
      if (samples_[s] == 0) continue;
      if (split.split.source->type() == DType::f32) {
        for (std::size_t c = 0; c < channels_of(s); ++c) {
          split.statistics.mean.push_back(of_splits[s].mean[c]);
          split.statistics.stddev.push_back(
              std::sqrt(of_splits[s].deviations[c] / of_splits[s].count));
        }
        continue;
      }
      const SampleShape shape = split.split.source->shape();
      const double count =
          static_cast<double>(samples_[s]) * static_cast<double>(shape.h * shape.w);
      for (std::size_t c = 0; c < channels_of(s); ++c) {
        const double mean = static_cast<double>(byte_sums_[s].sum[c]) / count;
        const double squares = static_cast<double>(byte_sums_[s].squares[c]) / count;
        split.statistics.mean.push_back(mean / 255);
        split.statistics.stddev.push_back(std::sqrt(std::max(squares - mean * mean, 0.0)) / 255);
      }
    }
  }

  std::int64_t total() const { return total_; }
  std::int64_t done() const { return done_; }

 private:
  std::size_t channels_of(std::size_t s) const {
    return static_cast<std::size_t>(splits_[s].split.source->shape().c);
  }

  std::vector<ByteSums> no_sums() const {
    std::vector<ByteSums> sums;
    for (std::size_t s = 0; s < splits_.size(); ++s) {
      const std::vector<std::uint64_t> zeros(channels_of(s));
      sums.push_back({zeros, zeros});
    }
    return sums;
  }

  bool read(std::size_t s, std::int64_t position, std::vector<std::byte>& pixels,
            SampleRecord& record) {
    SurveyedSplit& split = splits_[s];
    try {
      read_sample(split.split, position, pixels, record);
      record.is_read = true;
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      const std::lock_guard lock(mutex_);
      split.unreadable.emplace_back(position, error.what());
      return false;
    }
  }

  void describe(std::size_t s, std::int64_t position, std::span<const std::byte> pixels,
                std::vector<float>& row, SampleRecord& record) const {
    const Split& split = splits_[s].split;
    const SampleShape shape = split.source->shape();
    const std::size_t channels = channels_of(s);
    const bool hashes = keeps_records_ && has_perceptual_hash(shape);
    if (split.source->type() == DType::f32) {
      const std::span values(reinterpret_cast<const float*>(pixels.data()),
                             pixels.size() / sizeof(float));
      record.is_finite = all_finite(values);
      if (!keeps_records_) return;
      record.is_constant = all_pixels_equal(values, channels);
      if (hashes && record.is_finite) record.perceptual = perceptual_hash(values, shape);
    } else if (keeps_records_) {
      const std::span values(reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size());
      record.is_constant = all_pixels_equal(values, channels);
      if (hashes) record.perceptual = perceptual_hash(values, shape);
    }
    if (!keeps_records_) return;
    // A single pixel, such as a row of features, is not called constant.
    record.is_constant = record.is_constant && shape.h * shape.w > 1;
    record.content = XXH3_64bits(pixels.data(), pixels.size());
    if (split.source->resizes()) take_facts(split, position, record);
    record.target = target_of(split, position, record.label, row);
  }

  static void take_facts(const Split& split, std::int64_t position, SampleRecord& record) {
    const std::int64_t index = split.indices[position];
    const FileFacts facts = split.source->file_facts(index);
    record.orientation = static_cast<std::uint8_t>(facts.orientation);
    record.used_bits = static_cast<std::uint8_t>(facts.used_bits);
    record.is_turned = facts.is_turned;
  }

  void add(std::size_t s, std::size_t group, std::span<const std::byte> pixels, ByteSums& sums) {
    const std::size_t channels = channels_of(s);
    if (splits_[s].split.source->type() == DType::f32) {
      const std::span values(reinterpret_cast<const float*>(pixels.data()),
                             pixels.size() / sizeof(float));
      moments_[group].merge(moments_of(values, channels));
      return;
    }
    add_bytes({reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()}, channels,
              sums);
  }

  std::vector<SurveyedSplit>& splits_;
  const bool keeps_records_;
  std::vector<Group> groups_;
  std::vector<Moments> moments_;  ///< moments of each group, if samples are floats
  std::int64_t total_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::int64_t> done_{0};
  std::mutex mutex_;  ///< guards the following members, and the lists of unreadable samples
  std::vector<ByteSums> byte_sums_;
  std::vector<std::int64_t> samples_;
};

}  // namespace

void read_sample(const Split& split, std::int64_t position, std::vector<std::byte>& pixels,
                 SampleRecord& record) {
  const DataSource& source = *split.source;
  const SampleShape shape = source.shape();
  const std::int64_t index = split.indices[position];
  pixels.resize(static_cast<std::size_t>(shape.elements()) * size_of(source.type()));
  record.height = static_cast<std::int32_t>(shape.h);
  record.width = static_cast<std::int32_t>(shape.w);
  if (!source.resizes()) return source.read(index, pixels, record.label);
  const auto whole = [&](std::int64_t height, std::int64_t width) {
    record.height = static_cast<std::int32_t>(height);
    record.width = static_cast<std::int32_t>(width);
    return whole_image(height, width, shape.h, shape.w);
  };
  const Image image = source.read_part(index, whole, record.label);
  std::memcpy(pixels.data(), image.pixels.data(), pixels.size());
}

bool survey_samples(std::vector<SurveyedSplit>& splits, const SurveyOptions& options) {
  Surveyor surveyor(splits, options.records);
  const bool is_whole = run_workers(
      options.workers, "reader", [&](const std::atomic<bool>& stop) { surveyor.work(stop); },
      [&] {
        if (options.on_progress) options.on_progress(surveyor.done(), surveyor.total());
        return options.wants_stop && options.wants_stop();
      });
  surveyor.finish();
  return is_whole;
}

}  // namespace dpt
