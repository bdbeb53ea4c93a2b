// Softmax, cross-entropy, its gradient and the step's counts in one kernel. A team of threads has a
// row of logits, element c belongs to thread c % team; the arithmetic of an element, the loss and
// the gradient stand in kernels/common/softmax.h. A team of kSoftmaxLanes adds in the order of
// softmax_cross_entropy, so that few classes give the CPU's bits.
#include "kernels/cuda/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "kernels/common/bf16.h"
#include "kernels/common/softmax.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/is_last_block.h"

namespace dpt {
namespace {

constexpr unsigned kFullMask = 0xffffffffU;
constexpr std::int64_t kMostBlocks = 512;

/// What a block leaves for the last one.
struct BlockSums {
  double loss;
  unsigned correct;
};

template <class T>
struct Call {
  const T* logits;  ///< (batch, classes)
  T* gradient;      ///< (batch, classes) or null
  const std::int32_t* labels;
  const std::int32_t* slots;
  const float* scale;
  StepMetrics* metrics;
  float* sample_loss;        ///< or null
  std::int32_t* prediction;  ///< or null
  std::int32_t batch, classes;
  float smoothing;
  bool add;  ///< to the metrics
  BlockSums* partials;
  unsigned* counter;
};

/// The largest logit so far, and where it is.
struct Largest {
  float value;
  std::int32_t index;

  /// The larger one, of equal ones the first. NaN is never larger, as on the CPU.
  __device__ void join(float other, std::int32_t other_index) {
    const bool wins = other > value || (other == value && other_index < index);
    value = wins ? other : value;
    index = wins ? other_index : index;
  }
};

/// `kThreads` threads that have one row: a part of a warp, or a whole block of several warps. Every
/// result is the same in all of them. All threads of a warp, and of a block where that is the team,
/// make the same calls.
template <int kThreads>
struct Team {
  static constexpr int kWarps = kThreads / 32;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % kThreads); }

  __device__ static Largest largest(Largest mine) {
    for (int step = (kThreads < 32 ? kThreads : 32) / 2; step > 0; step /= 2) {
      const float value = __shfl_xor_sync(kFullMask, mine.value, step);
      const std::int32_t index = __shfl_xor_sync(kFullMask, mine.index, step);
      mine.join(value, index);
    }
    if constexpr (kWarps > 1) {
      __shared__ Largest of_warps[kWarps];
      __syncthreads();
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
      __syncthreads();
      for (const Largest& other : of_warps) mine.join(other.value, other.index);
    }
    return mine;
  }

  __device__ static double sum(double mine) {
    if constexpr (kThreads == kSoftmaxLanes) {
      double total = 0;
      for (int from = 0; from < kThreads; ++from) {
        total += __shfl_sync(kFullMask, mine, from, kThreads);
      }
      return total;
    } else {
      for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(kFullMask, mine, step);
    }
    if constexpr (kWarps > 1) {
      __shared__ double of_warps[kWarps];
      __syncthreads();
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
      __syncthreads();
      mine = 0;
      for (const double part : of_warps) mine += part;
    }
    return mine;
  }

  /// What any of the threads read or wrote before this is done when others go on.
  __device__ static void order() {
    if constexpr (kWarps > 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
};

/// One row, by a team. Rows after the last one, which are there because shuffles want whole warps,
/// have no elements.
template <class T, int kThreads>
__device__ inline void run_row(const Call<T>& call, std::int32_t row, float scale,
                               BlockSums& sums) {
  using Mine = Team<kThreads>;
  const bool exists = row < call.batch;
  const std::int32_t classes = exists ? call.classes : 0, lane = Mine::lane();
  const std::int64_t at = static_cast<std::int64_t>(row) * classes;
  const T* logits = call.logits + at;
  const std::int32_t label = exists ? call.labels[call.slots[row]] : 0;
  const bool label_exists = label >= 0 && label < classes;

  Largest largest = {exists ? to_float(logits[0]) : 0.0F, 0};
  for (std::int32_t c = lane; c < classes; c += kThreads) {
    const float value = to_float(logits[c]);
    if (value > largest.value) largest = {value, c};
  }
  largest = Mine::largest(largest);

  SoftmaxSums of_row;
  // A label that no class has makes the loss a NaN, which the trainer stops for.
  of_row.at_label = label_exists ? to_float(logits[label]) - largest.value
                                 : std::numeric_limits<float>::quiet_NaN();
  for (std::int32_t c = lane; c < classes; c += kThreads) {
    const float value = to_float(logits[c]) - largest.value;
    of_row.exponentials += static_cast<double>(exp_nonpositive(value));
    of_row.logits += static_cast<double>(value);
  }
  of_row.exponentials = Mine::sum(of_row.exponentials);
  if (call.smoothing > 0) of_row.logits = Mine::sum(of_row.logits);
  Mine::order();  // The gradient may lie where the logits are.
  if (!exists) return;
  if (call.gradient) {
    const SoftmaxGradient of(of_row.exponentials, classes, call.smoothing, scale);
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      float value = of.other(exp_nonpositive(to_float(logits[c]) - largest.value));
      if (c == label) value -= of.at_label();
      store(call.gradient[at + c], value);
    }
  }
  if (lane == 0) {
    const float loss = softmax_loss(of_row, classes, call.smoothing);
    sums.loss += static_cast<double>(loss);
    sums.correct += largest.index == label ? 1U : 0U;
    if (call.sample_loss) call.sample_loss[row] = loss;
    if (call.prediction) call.prediction[row] = largest.index;
  }
}

/// The sums over the block's threads, valid in thread 0; the order is fixed.
template <int kBlock>
__device__ inline BlockSums block_sums(BlockSums mine) {
  __shared__ double losses[kBlock / 32];
  __shared__ unsigned corrects[kBlock / 32];
  for (unsigned step = 16; step > 0; step /= 2) {
    mine.loss += __shfl_down_sync(kFullMask, mine.loss, step);
    mine.correct += __shfl_down_sync(kFullMask, mine.correct, step);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    losses[threadIdx.x / 32] = mine.loss;
    corrects[threadIdx.x / 32] = mine.correct;
  }
  __syncthreads();
  BlockSums total = {0, 0};
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kBlock / 32; ++warp) {
      total.loss += losses[warp];
      total.correct += corrects[warp];
    }
  }
  return total;
}

template <class T, int kTeam, int kBlock>
__global__ void __launch_bounds__(kBlock) cross_entropy_kernel(Call<T> call) {
  constexpr int kTeams = kBlock / kTeam;
  const float scale = call.gradient ? *call.scale : 0.0F;
  BlockSums sums = {0, 0};
  for (std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * kTeams; first < call.batch;
       first += static_cast<std::int32_t>(gridDim.x) * kTeams) {
    run_row<T, kTeam>(call, first + static_cast<std::int32_t>(threadIdx.x) / kTeam, scale, sums);
  }
  sums = block_sums<kBlock>(sums);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) call.partials[blockIdx.x] = sums;
    if (!is_last_block(call.counter, gridDim.x)) return;
    sums = {0, 0};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kBlock) {
      sums.loss += __ldcg(&call.partials[b].loss);
      sums.correct += __ldcg(&call.partials[b].correct);
    }
    sums = block_sums<kBlock>(sums);
  }
  if (threadIdx.x == 0) {
    const StepMetrics before = call.add ? *call.metrics : StepMetrics{};
    call.metrics->loss_sum = static_cast<float>(static_cast<double>(before.loss_sum) + sums.loss);
    call.metrics->correct = before.correct + static_cast<float>(sums.correct);
    call.metrics->count = before.count + static_cast<float>(call.batch);
  }
}

/// The number of blocks follows from the batch alone, and with it the order of the sums.
/// `kRows` rows a team come before blocks share the work, which costs a handover.
template <class T, int kTeam, int kBlock, int kRows>
void launch_cross_entropy(const CudaContext& context, Call<T> call) {
  const unsigned blocks = blocks_for(call.batch, kBlock / kTeam * kRows, kMostBlocks);
  launch(cross_entropy_kernel<T, kTeam, kBlock>, blocks, kBlock, 0, context.stream, call);
}

template <class T>
class CudaCrossEntropy final : public CrossEntropyOp {
 public:
  CudaCrossEntropy(const CudaContext& context, const CrossEntropyDesc& desc)
      : context_(context), d_(desc) {}

  void run(const CrossEntropyArgs& args) override {
    Call<T> call = {};
    call.logits = device<const T>(args.logits);
    call.gradient = d_.training ? device<T>(args.dlogits) : nullptr;
    call.labels = device<const std::int32_t>(args.labels);
    call.slots = device<const std::int32_t>(args.slots);
    call.scale = device<const float>(args.inverse_count);
    call.metrics = device<StepMetrics>(args.metrics);
    call.sample_loss = device<float>(args.sample_loss);
    call.prediction = device<std::int32_t>(args.prediction);
    call.batch = static_cast<std::int32_t>(d_.batch);
    call.classes = static_cast<std::int32_t>(d_.classes);
    call.smoothing = d_.label_smoothing;
    call.add = args.write == GradWrite::add;
    call.partials = partial_sums<BlockSums>(context_, kMostBlocks);
    call.counter = block_counters(context_);
    if (d_.classes <= 128) {
      launch_cross_entropy<T, kSoftmaxLanes, 1024, 2>(context_, call);
    } else if (d_.classes <= 2048) {
      launch_cross_entropy<T, 32, 256, 1>(context_, call);
    } else {
      launch_cross_entropy<T, 512, 512, 1>(context_, call);
    }
  }

 private:
  const CudaContext& context_;
  CrossEntropyDesc d_;
};

}  // namespace

std::unique_ptr<CrossEntropyOp> make_cuda_cross_entropy(const CudaContext& context,
                                                        const CrossEntropyDesc& desc) {
  check_cuda_desc(context, "cross-entropy", desc.type, desc.batch);
  // Rows are counted in 32 bits, with room for the stride over the last ones.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (desc.classes < 1 || desc.classes > kMost || desc.batch > kMost) {
    fail(ErrorKind::device,
         "{}: cross-entropy needs 1 to {} classes and a batch of at most that, not {} and {}",
         context.name, kMost, desc.classes, desc.batch);
  }
  if (desc.type == DType::bf16) return std::make_unique<CudaCrossEntropy<Bf16>>(context, desc);
  return std::make_unique<CudaCrossEntropy<float>>(context, desc);
}

}  // namespace dpt
