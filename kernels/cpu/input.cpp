#include "kernels/cpu/input.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/common/augment.h"
#include "kernels/common/bf16.h"
#include "kernels/cpu/parallel.h"
#include "kernels/error.h"

namespace dpt {
namespace {

/// Below this many output elements a batch is not worth waking other threads for.
constexpr std::int64_t kParallelElements = 65536;

/// Raw byte -> normalised number: everything that happens to a byte is a function of its value and
/// channel, so it is computed 256 times per channel when the kernel is made.
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
  T operator()(std::uint8_t value, std::int64_t channel) const {
    return table_[static_cast<std::size_t>(channel)][value];
  }

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

/// `kChannels` is the number of channels where it is known at compile time, else 0.
template <class Map, int kChannels>
class CpuInput final : public InputOp {
 public:
  using Raw = typename Map::Raw;
  using Out = typename Map::Out;

  CpuInput(const InputDesc& desc, Map map, int threads)
      : desc_(desc),
        threads_(threads),
        map_(std::move(map)),
        tops_(desc.crop ? desc.raw.h + 2 * desc.crop_padding - desc.out.h + 1 : 1),
        lefts_(desc.crop ? desc.raw.w + 2 * desc.crop_padding - desc.out.w + 1 : 1) {}

  void run(const InputArgs& args) override {
    const auto* raw = reinterpret_cast<const Raw*>(args.raw.address);
    const auto* slots = reinterpret_cast<const std::int32_t*>(args.slots.address);
    const auto* ids = reinterpret_cast<const std::int64_t*>(args.ids.address);
    auto* y = reinterpret_cast<Out*>(args.y.address);
    const bool random = desc_.crop || desc_.flip;
    const std::int64_t epoch =
        random ? *reinterpret_cast<const std::int64_t*>(args.epoch.address) : 0;
    const std::int64_t from_size = desc_.raw.elements(), to_size = desc_.out.elements();
    const auto sample = [&](std::int64_t k) {
      const Raw* from = raw + slots[k] * from_size;
      Out* to = y + k * to_size;
      if (random) {
        augmented(from, to, epoch, ids[k]);
      } else {
        row(from, to, desc_.raw.h * desc_.raw.w, false);
      }
    };
    // Never OpenMP's default team: it has a thread for each core, in every replica.
    const bool worth_it = desc_.batch * to_size >= kParallelElements;
    parallel_for(worth_it ? threads_ : 1, desc_.batch, sample);
  }

 private:
  std::int64_t channels() const { return kChannels ? kChannels : desc_.raw.c; }

  /// Maps `pixels` pixels, in reverse order where `flip`.
  void row(const Raw* from, Out* to, std::int64_t pixels, bool flip) const {
    const std::int64_t count = channels();
    if (!flip) {
      // Unrolled, because the speed of so short a loop depends on the address it happens to get.
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

  void augmented(const Raw* from, Out* to, std::int64_t epoch, std::int64_t id) const {
    const augment::Draw draw =
        augment::draw(desc_.seed, epoch, id, static_cast<std::uint32_t>(tops_),
                      static_cast<std::uint32_t>(lefts_), desc_.flip_probability);
    const bool flip = desc_.flip && draw.flip;
    const SampleShape &in = desc_.raw, &out = desc_.out;
    const std::int64_t pad = desc_.crop ? desc_.crop_padding : 0;
    // The crop in coordinates of the unpadded image: rows from `top`, columns from `left`, of which
    // [begin, end) of the output's columns exist; the rest is padding.
    const std::int64_t top = static_cast<std::int64_t>(draw.top) - pad;
    const std::int64_t left = static_cast<std::int64_t>(draw.left) - pad;
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, out.w);
    const std::int64_t end = std::clamp<std::int64_t>(in.w - left, begin, out.w);
    const std::int64_t before = flip ? out.w - end : begin;
    const std::int64_t after = out.w - before - (end - begin);
    for (std::int64_t r = 0; r < out.h; ++r) {
      Out* line = to + r * out.w * channels();
      if (top + r < 0 || top + r >= in.h) {
        padding(line, out.w);
        continue;
      }
      padding(line, before);
      row(from + ((top + r) * in.w + left + begin) * channels(), line + before * channels(),
          end - begin, flip);
      padding(line + (out.w - after) * channels(), after);
    }
  }

  InputDesc desc_;
  int threads_;
  Map map_;
  std::int64_t tops_, lefts_;
};

template <class Map>
std::unique_ptr<InputOp> make(const InputDesc& desc, int threads) {
  const auto channels = static_cast<std::size_t>(desc.raw.c);
  Map map(desc.mean.empty() ? std::vector<float>(channels, 0.0F) : desc.mean,
          desc.stddev.empty() ? std::vector<float>(channels, 1.0F) : desc.stddev);
  switch (desc.raw.c) {
    case 1:
      return std::make_unique<CpuInput<Map, 1>>(desc, std::move(map), threads);
    case 3:
      return std::make_unique<CpuInput<Map, 3>>(desc, std::move(map), threads);
    default:
      return std::make_unique<CpuInput<Map, 0>>(desc, std::move(map), threads);
  }
}

template <class T>
std::unique_ptr<InputOp> make_for(const InputDesc& desc, int threads) {
  return desc.raw_type == DType::u8 ? make<ByteMap<T>>(desc, threads)
                                    : make<FloatMap<T>>(desc, threads);
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
         "input kernel (cpu): cannot make {}x{}x{} (height, width, channels) from {}x{}x{} {} with "
         "padding {}, batch {}",
         out.h, out.w, out.c, raw.h, raw.w, raw.c, desc.crop ? "cropped" : "as it is", pad,
         desc.batch);
  }
  const auto per_channel = [&](const std::vector<float>& values) {
    return values.empty() || static_cast<std::int64_t>(values.size()) == raw.c;
  };
  if (!per_channel(desc.mean) || !per_channel(desc.stddev)) {
    fail(ErrorKind::device,
         "input kernel (cpu): {} means and {} standard deviations for {} channels",
         desc.mean.size(), desc.stddev.size(), raw.c);
  }
}

}  // namespace

std::unique_ptr<InputOp> make_cpu_input(const InputDesc& desc, int threads) {
  check(desc);
  return desc.type == DType::f32 ? make_for<float>(desc, threads) : make_for<Bf16>(desc, threads);
}

}  // namespace dpt
