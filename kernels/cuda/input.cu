// The first kernel of a replica on a GPU: gathers raw samples by slot, crops, flips, normalises,
// erases, mixes. kernels/common/augment.h has the draws and formulas, so that the CPU gives the
// same bits.
#include "kernels/cuda/ops.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/common/augment.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/device_copy.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

constexpr unsigned kThreads = 256;
/// Maximum number of elements of a padded sample, and of blocks, so that indices fit into 31 bits.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 30;

/// Parameters of an input kernel other than types.
struct Shape {
  int in_h, in_w;            ///< size of a raw sample
  std::int64_t in_elements;  ///< elements of a raw sample
  unsigned out_elements;     ///< elements of an output sample
  unsigned chunks;           ///< blocks that share a sample
  Divider channels, out_w;
  bool random, flip, normalise, erase;
  std::uint32_t tops, lefts;  ///< numbers of possible top rows and left columns of the crop
  int padding;
  float flip_probability;
  std::uint64_t seed;
  const float* numbers;  ///< per channel: means, then standard deviations, then erased values
};

/// Addresses of a call, as in InputArgs.
template <class Raw>
struct Inputs {
  const Raw* raw;
  const std::int32_t* slots;
  const std::int64_t *ids, *epoch;
  const InputBox* boxes;
  const InputMix* mix;
};

__device__ inline float scaled(std::uint8_t value) {
  return augment::unit(value);
}
__device__ inline float scaled(float value) {
  return value;
}

/// Random draws of a sample.
struct Placed {
  int top, left;
  bool flip;
  InputBox erased;
};

template <class Raw>
__device__ inline Placed place(const Shape& s, const Inputs<Raw>& in, int k) {
  Placed at = {};
  if (s.erase) at.erased = in.boxes[k];
  if (!s.random) return at;
  const augment::Draw draw =
      augment::draw(s.seed, *in.epoch, in.ids[k], s.tops, s.lefts, s.flip_probability);
  at.top = static_cast<int>(draw.top) - s.padding;
  at.left = static_cast<int>(draw.left) - s.padding;
  at.flip = s.flip && draw.flip;
  return at;
}

/// Returns channel c of a pixel of the output, before mixing.
template <class Raw>
__device__ inline float element(const Shape& s, const Placed& at, const Raw* from, int row,
                                int column, int c) {
  const int channels = static_cast<int>(s.channels.divisor());
  if (s.erase && augment::is_in(at.erased, row, column)) return s.numbers[2 * channels + c];
  const int width = static_cast<int>(s.out_w.divisor());
  const int in_row = at.top + row;
  const int in_column = at.left + (at.flip ? width - 1 - column : column);
  const bool inside = in_row >= 0 && in_row < s.in_h && in_column >= 0 && in_column < s.in_w;
  const float number = scaled(inside ? from[(in_row * s.in_w + in_column) * channels + c] : Raw{0});
  return s.normalise ? augment::normalise(number, s.numbers[c], s.numbers[channels + c]) : number;
}

/// Computes output samples. Each sample is shared by `chunks` consecutive blocks; a thread computes
/// kCount neighbouring elements.
template <class Raw, class T, int kCount, bool kMix>
__global__ void __launch_bounds__(kThreads) input_kernel(Shape s, Inputs<Raw> in, T* y) {
  const unsigned k = blockIdx.x / s.chunks, chunk = blockIdx.x % s.chunks;
  // Draws of the sample and its partner are in shared memory, because registers are few.
  constexpr unsigned kSamples = kMix ? 2 : 1;
  __shared__ Placed placed[kSamples];
  Placed at = {};
  if (kMix || s.random || s.erase) {
    if (threadIdx.x < kSamples) {
      placed[threadIdx.x] = place(s, in, static_cast<int>(k) - static_cast<int>(threadIdx.x));
    }
    __syncthreads();
    at = placed[0];
  }
  const unsigned first = (chunk * kThreads + threadIdx.x) * kCount;
  if (first >= s.out_elements) return;
  const Raw* from = in.raw + in.slots[k] * s.in_elements;
  const Raw* partner = nullptr;
  InputMix mix;
  if constexpr (kMix) {
    partner = in.raw + in.slots[static_cast<int>(k) - 1] * s.in_elements;
    mix = *in.mix;
  }
  // Element `first` of the sample is channel c of the pixel in this row and column.
  unsigned c = first;
  unsigned column = s.channels.split(c);
  unsigned row = s.out_w.split(column);
  Pack<T, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int here_row = static_cast<int>(row), here_column = static_cast<int>(column);
    float number = element(s, at, from, here_row, here_column, static_cast<int>(c));
    if constexpr (kMix) {
      if (augment::is_in(mix.box, here_row, here_column)) {
        number = augment::mixed(
            mix, number,
            element(s, placed[1], partner, here_row, here_column, static_cast<int>(c)));
      }
    }
    store(result.v[i], number);
    if (++c < s.channels.divisor()) continue;
    c = 0;
    if (++column < s.out_w.divisor()) continue;
    column = 0;
    ++row;
  }
  store_pack<kCount>(y + static_cast<std::int64_t>(k) * s.out_elements + first, result);
}

template <class Raw, class T>
class CudaInput final : public InputOp {
 public:
  CudaInput(const CudaContext& context, const InputDesc& desc)
      : context_(context), batch_(desc.batch), mix_(desc.mix) {
    s_.in_h = static_cast<int>(desc.raw.h);
    s_.in_w = static_cast<int>(desc.raw.w);
    s_.in_elements = desc.raw.elements();
    s_.out_elements = static_cast<unsigned>(desc.out.elements());
    s_.channels = Divider(desc.raw.c);
    s_.out_w = Divider(desc.out.w);
    s_.random = desc.crop || desc.flip;
    s_.flip = desc.flip;
    s_.padding = desc.crop ? static_cast<int>(desc.crop_padding) : 0;
    s_.tops = corners(desc, desc.raw.h, desc.out.h);
    s_.lefts = corners(desc, desc.raw.w, desc.out.w);
    s_.flip_probability = desc.flip_probability;
    s_.seed = desc.seed;
    s_.normalise = !desc.mean.empty() || !desc.stddev.empty();
    s_.erase = desc.erase;
    if (s_.normalise || s_.erase) upload_numbers(desc);
  }

  void run(const InputArgs& args) override {
    if (batch_ == 0) return;
    const bool packed = s_.out_elements % 4 == 0 && aligned_to(4 * sizeof(T), args.y);
    s_.chunks = blocks_for(s_.out_elements / (packed ? 4 : 1), kThreads, kMaxElements);
    const auto kernel =
        mix_ ? (packed ? input_kernel<Raw, T, 4, true> : input_kernel<Raw, T, 1, true>)
             : (packed ? input_kernel<Raw, T, 4, false> : input_kernel<Raw, T, 1, false>);
    const Inputs<Raw> in = {
        device<const Raw>(args.raw),          device<const std::int32_t>(args.slots),
        device<const std::int64_t>(args.ids), device<const std::int64_t>(args.epoch),
        device<const InputBox>(args.boxes),   device<const InputMix>(args.mix)};
    launch(kernel, static_cast<unsigned>(batch_) * s_.chunks, kThreads, 0, context_.stream, s_, in,
           device<T>(args.y));
  }

 private:
  static std::uint32_t corners(const InputDesc& desc, std::int64_t raw, std::int64_t out) {
    return desc.crop ? static_cast<std::uint32_t>(raw + 2 * desc.crop_padding - out + 1) : 1;
  }

  void upload_numbers(const InputDesc& desc) {
    const auto channels = static_cast<std::size_t>(desc.raw.c);
    std::vector<float> values = desc.mean;
    values.resize(channels, 0.0F);
    values.insert(values.end(), desc.stddev.begin(), desc.stddev.end());
    values.resize(2 * channels, 1.0F);
    values.insert(values.end(), desc.erase_value.begin(), desc.erase_value.end());
    numbers_ = device_copy(context_, values);
    s_.numbers = device<const float>(numbers_.ptr());
  }

  const CudaContext& context_;
  std::int64_t batch_;
  bool mix_;
  Shape s_ = {};  ///< `chunks` is that of the last run
  DeviceMemory numbers_;
};

void check(const CudaContext& context, const InputDesc& desc) {
  const SampleShape &raw = desc.raw, &out = desc.out;
  if (desc.type != DType::f32 && desc.type != DType::bf16) {
    fail(ErrorKind::device,
         "input kernel ({}): activations of type {} are not supported, use fp32 or bf16",
         context.name, name_of(desc.type));
  }
  if (desc.raw_type != DType::u8 && desc.raw_type != DType::f32) {
    fail(ErrorKind::device, "input kernel ({}): raw samples are u8 or fp32, not {}", context.name,
         name_of(desc.raw_type));
  }
  const std::int64_t pad = desc.crop ? desc.crop_padding : 0;
  const bool fits = desc.crop ? pad >= 0 && out.h <= raw.h + 2 * pad && out.w <= raw.w + 2 * pad
                              : out.h == raw.h && out.w == raw.w;
  const std::int64_t elements = std::max(raw.elements(), out.elements());
  const bool small = elements <= kMaxElements && pad <= kMaxElements / 4 &&
                     desc.batch * (elements / kThreads + 1) <= kMaxElements;
  if (desc.batch < 0 || raw.elements() < 1 || out.elements() < 1 || raw.c != out.c || !fits ||
      !small) {
    fail(ErrorKind::device,
         "input kernel ({}): cannot produce {}x{}x{} (height, width, channels) from {}x{}x{} "
         "(crop: {}, padding: {}, batch: {})",
         context.name, out.h, out.w, out.c, raw.h, raw.w, raw.c, desc.crop ? "yes" : "no", pad,
         desc.batch);
  }
  const auto per_channel = [&](const std::vector<float>& values) {
    return values.empty() || static_cast<std::int64_t>(values.size()) == raw.c;
  };
  if (!per_channel(desc.mean) || !per_channel(desc.stddev)) {
    fail(ErrorKind::device,
         "input kernel ({}): expected one mean and one standard deviation for each of {} channels, "
         "found {} and {}",
         context.name, raw.c, desc.mean.size(), desc.stddev.size());
  }
  if (desc.erase && static_cast<std::int64_t>(desc.erase_value.size()) != raw.c) {
    fail(ErrorKind::device,
         "input kernel ({}): expected one fill value of RandomErasing for each of {} channels, "
         "found {}",
         context.name, raw.c, desc.erase_value.size());
  }
}

template <class Raw>
std::unique_ptr<InputOp> make(const CudaContext& context, const InputDesc& desc) {
  if (desc.type == DType::bf16) return std::make_unique<CudaInput<Raw, Bf16>>(context, desc);
  return std::make_unique<CudaInput<Raw, float>>(context, desc);
}

}  // namespace

std::unique_ptr<InputOp> make_cuda_input(const CudaContext& context, const InputDesc& desc) {
  check(context, desc);
  return desc.raw_type == DType::u8 ? make<std::uint8_t>(context, desc)
                                    : make<float>(context, desc);
}

}  // namespace dpt
