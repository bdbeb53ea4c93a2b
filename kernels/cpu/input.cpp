#include "kernels/cpu/ops.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/common/augment.h"
#include "kernels/common/bf16.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

/// Minimum number of output elements of a batch for which it pays to wake other threads.
constexpr std::int64_t kParallelElements = 65536;

/// Table from raw bytes to normalised numbers. The result depends only on a byte's value and
/// channel, so it is computed 256 times per channel when the kernel is created.
template <class T>
class ByteMap {
 public:
  using Raw = std::uint8_t;
  using Out = T;
  ByteMap(const std::vector<float>& mean, const std::vector<float>& stddev) : table_(mean.size()) {
    for (std::size_t c = 0; c < table_.size(); ++c) {
      for (std::size_t value = 0; value < 256; ++value) {
        store(table_[c][value], augment::normalise(augment::unit(static_cast<std::uint8_t>(value)),
                                                   mean[c], stddev[c]));
      }
    }
  }
  T operator()(std::uint8_t value, std::int64_t channel) const { return table_[channel][value]; }

 private:
  std::vector<std::array<T, 256>> table_;
};

template <class T>
class FloatMap {
 public:
  using Raw = float;
  using Out = T;
  FloatMap(const std::vector<float>& mean, const std::vector<float>& stddev)
      : mean_(mean), stddev_(stddev) {}
  T operator()(float value, std::int64_t channel) const {
    const auto c = static_cast<std::size_t>(channel);
    T result;
    store(result, augment::normalise(value, mean_[c], stddev_[c]));
    return result;
  }

 private:
  std::vector<float> mean_, stddev_;
};

/// Writes samples row by row. Applies the epoch's random transforms, but does not mix samples.
/// `kChannels` is the number of channels if it is known at compile time, else 0.
template <class Map, int kChannels>
class SampleRows {
 public:
  using Raw = typename Map::Raw;
  using Out = typename Map::Out;

  SampleRows(const InputDesc& desc, Map map)
      : desc_(desc),
        map_(std::move(map)),
        tops_(desc.crop ? desc.raw.h + 2 * desc.crop_padding - desc.out.h + 1 : 1),
        lefts_(desc.crop ? desc.raw.w + 2 * desc.crop_padding - desc.out.w + 1 : 1),
        erased_(desc.erase_value.size()) {
    for (std::size_t c = 0; c < erased_.size(); ++c) store(erased_[c], desc.erase_value[c]);
  }

  std::int64_t channels() const { return kChannels ? kChannels : desc_.raw.c; }
  bool is_random() const { return desc_.crop || desc_.flip; }

  /// Random draws of a sample. The crop is in coordinates of the unpadded image: rows start at
  /// `top`, columns at `left`. Columns [begin, end) of the output exist in the image; the others
  /// are padding.
  struct Placed {
    const Raw* from;
    std::int64_t top = 0, left = 0, begin = 0, end = 0;
    bool flip = false;
    InputBox erased;
  };
  Placed place(const InputArgs& args, std::int64_t k) const {
    const auto* slots = host<const std::int32_t>(args.slots);
    const SampleShape &in = desc_.raw, &out = desc_.out;
    Placed at{
        .from = host<const Raw>(args.raw) + slots[k] * in.elements(), .end = out.w, .erased = {}};
    if (desc_.erase) at.erased = host<const InputBox>(args.boxes)[k];
    if (!is_random()) return at;
    const std::int64_t epoch = *host<const std::int64_t>(args.epoch);
    const augment::Draw draw = augment::draw(
        desc_.seed, epoch, host<const std::int64_t>(args.ids)[k], static_cast<std::uint32_t>(tops_),
        static_cast<std::uint32_t>(lefts_), desc_.flip_probability);
    const std::int64_t pad = desc_.crop ? desc_.crop_padding : 0;
    at.flip = desc_.flip && draw.flip;
    at.top = static_cast<std::int64_t>(draw.top) - pad;
    at.left = static_cast<std::int64_t>(draw.left) - pad;
    at.begin = std::clamp<std::int64_t>(-at.left, 0, out.w);
    at.end = std::clamp<std::int64_t>(in.w - at.left, at.begin, out.w);
    return at;
  }

  /// Writes rows [first, end) of the output, one after another.
  void write(const Placed& at, std::int64_t first, std::int64_t end, Out* to) const {
    const SampleShape &in = desc_.raw, &out = desc_.out;
    const std::int64_t before = at.flip ? out.w - at.end : at.begin;
    const std::int64_t after = out.w - before - (at.end - at.begin);
    for (std::int64_t r = first; r < end; ++r) {
      Out* line = to + (r - first) * out.w * channels();
      if (at.top + r < 0 || at.top + r >= in.h) {
        padding(line, out.w);
        continue;
      }
      padding(line, before);
      map_pixels(at.from + ((at.top + r) * in.w + at.left + at.begin) * channels(),
                 line + before * channels(), at.end - at.begin, at.flip);
      padding(line + (out.w - after) * channels(), after);
    }
    erase(at.erased, first, end, to);
  }
  /// Writes all rows of a sample that is not cropped, not flipped and not erased.
  void write_whole(const Placed& at, Out* to) const {
    map_pixels(at.from, to, desc_.raw.h * desc_.raw.w, false);
  }

 private:
  /// Maps `pixels` pixels, in reverse order if `flip`.
  void map_pixels(const Raw* from, Out* to, std::int64_t pixels, bool flip) const {
    const std::int64_t count = channels();
    if (!flip) {
      // Unroll: otherwise the speed of such a short loop depends on its address.
#pragma GCC unroll 4
      for (std::int64_t p = 0; p < pixels; ++p) {
        for (std::int64_t c = 0; c < count; ++c) {
          to[p * count + c] = map_(from[p * count + c], c);
        }
      }
    } else {
      for (std::int64_t p = 0; p < pixels; ++p) {
        for (std::int64_t c = 0; c < count; ++c) {
          to[(pixels - 1 - p) * count + c] = map_(from[p * count + c], c);
        }
      }
    }
  }

  void padding(Out* to, std::int64_t pixels) const {
    const std::int64_t count = channels();
    for (std::int64_t p = 0; p < pixels; ++p) {
      for (std::int64_t c = 0; c < count; ++c) to[p * count + c] = map_(Raw{0}, c);
    }
  }

  /// Erases the part of the box in rows [first, end).
  void erase(const InputBox& box, std::int64_t first, std::int64_t end, Out* to) const {
    const std::int64_t count = channels();
    const std::int64_t bottom = std::min<std::int64_t>(end, std::int64_t{box.top} + box.height);
    for (std::int64_t r = std::max<std::int64_t>(first, box.top); r < bottom; ++r) {
      Out* line = to + (r - first) * desc_.out.w * count;
      for (std::int64_t p = box.left; p < box.left + box.width; ++p) {
        for (std::int64_t c = 0; c < count; ++c) {
          line[p * count + c] = erased_[c];
        }
      }
    }
  }

  InputDesc desc_;
  Map map_;
  std::int64_t tops_, lefts_;
  std::vector<Out> erased_;
};

/// The input operation. `Map` outputs T. If samples are mixed, it outputs float, so that only the
/// mixture is rounded.
template <class Map, int kChannels, class T>
class CpuInput final : public InputOp {
 public:
  using Rows = SampleRows<Map, kChannels>;

  CpuInput(const InputDesc& desc, Map map, int threads)
      : batch_(desc.batch),
        out_(desc.out),
        threads_(threads),
        whole_(!desc.crop && !desc.flip && !desc.erase),
        mix_(desc.mix),
        rows_(desc, std::move(map)),
        lines_(desc.mix ? static_cast<std::size_t>(2 * batch_ * line_elements()) : 0) {}

  void run(const InputArgs& args) override {
    const auto sample = [&](std::int64_t k) {
      T* to = host<T>(args.y) + k * out_.elements();
      if (mix_) return mixed(args, k, to);
      if constexpr (std::is_same_v<T, typename Map::Out>) alone(rows_.place(args, k), to);
    };
    // Never use OpenMP's default team, which has a thread for each core in every replica.
    const bool worth_it = batch_ * out_.elements() >= kParallelElements;
    parallel_for(worth_it ? threads_ : 1, batch_, sample);
  }

 private:
  std::int64_t line_elements() const { return out_.w * out_.c; }

  void alone(const typename Rows::Placed& at, T* to) const {
    if (whole_) return rows_.write_whole(at, to);
    rows_.write(at, 0, out_.h, to);
  }

  void mixed(const InputArgs& args, std::int64_t k, T* to) {
    if constexpr (std::is_same_v<typename Map::Out, float>) {
      const InputMix& mix = *host<const InputMix>(args.mix);
      const typename Rows::Placed own = rows_.place(args, k), partner = rows_.place(args, k - 1);
      const std::int64_t count = line_elements();
      float* line = lines_.data() + 2 * k * count;
      float* other = line + count;
      for (std::int64_t r = 0; r < out_.h; ++r, to += count) {
        rows_.write(own, r, r + 1, line);
        if (r >= mix.box.top && r - mix.box.top < mix.box.height) {
          rows_.write(partner, r, r + 1, other);
          const std::int64_t end = (std::int64_t{mix.box.left} + mix.box.width) * out_.c;
          for (std::int64_t i = mix.box.left * out_.c; i < end; ++i) {
            line[i] = augment::mixed(mix, line[i], other[i]);
          }
        }
        for (std::int64_t i = 0; i < count; ++i) store(to[i], line[i]);
      }
    }
  }

  std::int64_t batch_;
  SampleShape out_;
  int threads_;
  bool whole_, mix_;
  Rows rows_;
  std::vector<float> lines_;  ///< two rows for each mixed sample
};

template <class Map, class T>
std::unique_ptr<InputOp> make(const InputDesc& desc, int threads) {
  const auto channels = static_cast<std::size_t>(desc.raw.c);
  Map map(desc.mean.empty() ? std::vector<float>(channels, 0.0F) : desc.mean,
          desc.stddev.empty() ? std::vector<float>(channels, 1.0F) : desc.stddev);
  switch (desc.raw.c) {
    case 1:
      return std::make_unique<CpuInput<Map, 1, T>>(desc, std::move(map), threads);
    case 3:
      return std::make_unique<CpuInput<Map, 3, T>>(desc, std::move(map), threads);
    default:
      return std::make_unique<CpuInput<Map, 0, T>>(desc, std::move(map), threads);
  }
}

template <class Between, class T>
std::unique_ptr<InputOp> make_with(const InputDesc& desc, int threads) {
  return desc.raw_type == DType::u8 ? make<ByteMap<Between>, T>(desc, threads)
                                    : make<FloatMap<Between>, T>(desc, threads);
}

template <class T>
std::unique_ptr<InputOp> make_for(const InputDesc& desc, int threads) {
  return desc.mix ? make_with<float, T>(desc, threads) : make_with<T, T>(desc, threads);
}

void check(const InputDesc& desc) {
  const SampleShape &raw = desc.raw, &out = desc.out;
  if (desc.type != DType::f32 && desc.type != DType::bf16) {
    fail(ErrorKind::device,
         "input kernel (cpu): activations of type {} are not supported, use fp32 or bf16",
         name_of(desc.type));
  }
  if (desc.raw_type != DType::u8 && desc.raw_type != DType::f32) {
    fail(ErrorKind::device, "input kernel (cpu): raw samples are u8 or fp32, not {}",
         name_of(desc.raw_type));
  }
  const std::int64_t pad = desc.crop ? desc.crop_padding : 0;
  const bool fits = desc.crop ? pad >= 0 && out.h <= raw.h + 2 * pad && out.w <= raw.w + 2 * pad
                              : out.h == raw.h && out.w == raw.w;
  if (desc.batch < 0 || raw.elements() < 1 || out.elements() < 1 || raw.c != out.c || !fits) {
    fail(ErrorKind::device,
         "input kernel (cpu): cannot produce {}x{}x{} (height, width, channels) from {}x{}x{} "
         "(crop: {}, padding: {}, batch: {})",
         out.h, out.w, out.c, raw.h, raw.w, raw.c, desc.crop ? "yes" : "no", pad, desc.batch);
  }
  const auto per_channel = [&](const std::vector<float>& values) {
    return values.empty() || static_cast<std::int64_t>(values.size()) == raw.c;
  };
  if (!per_channel(desc.mean) || !per_channel(desc.stddev)) {
    fail(ErrorKind::device,
         "input kernel (cpu): expected one mean and one standard deviation for each of {} "
         "channels, found {} and {}",
         raw.c, desc.mean.size(), desc.stddev.size());
  }
  if (desc.erase && static_cast<std::int64_t>(desc.erase_value.size()) != raw.c) {
    fail(ErrorKind::device,
         "input kernel (cpu): expected one fill value of RandomErasing for each of {} channels, "
         "found {}",
         raw.c, desc.erase_value.size());
  }
}

}  // namespace

std::unique_ptr<InputOp> make_cpu_input(const InputDesc& desc, int threads) {
  check(desc);
  return desc.type == DType::f32 ? make_for<float>(desc, threads) : make_for<Bf16>(desc, threads);
}

}  // namespace dpt
